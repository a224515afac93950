"""From parameters and data to potentials: emission tables, labels, and the three shapes a model can have."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import durations, messages
from hmmjax._core import numerics as num
from hmmjax._core.batch import Data, dtype_of, is_float
from hmmjax._core.checks import is_concrete
from hmmjax._core.configurations import add_over_tools, multiply_over_tools
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.messages import Potentials
from hmmjax.types import Params


@pytree
class Tables:
    """Everything the likelihood is a function of. Absent tracks are None.

    Attributes:
        phase_initial: (L,) probabilities.
        phase_transition: (L, L) probabilities.
        tool_initial: (K, L, 2) probabilities, or (K, 2) without phases.
        tool_transition: the transition model's probability tables.
        phases: (B, T, L) log-evidence.
        tools: (B, T, K, 2) log-evidence about each tool on its own, labels included.
        configs: (B, T, 2**K) log-evidence about configurations, of a joint emission; None of others.
    """

    phase_initial: Any
    phase_transition: Any
    tool_initial: Any
    tool_transition: Any
    phases: Any
    tools: Any
    configs: Any = None


def both_states(present: Any) -> Array:
    """P(present) to (..., 2) probabilities of absent and present; a rounding above one is taken for one."""
    present = jnp.asarray(present)
    over = present > 1
    return jnp.stack([jnp.where(over, 0, 1 - present), jnp.where(over, 1, present)], -1)


def tables(params: Params, data: Data) -> Tables:
    """Probability tables of `params` and log-evidence tables of `data` under its emissions, labels included."""
    dtype = dtype_of(params)
    cast = partial(jnp.asarray, dtype=dtype)
    phases, tools = params.phases, params.tools
    real = jnp.arange(data.observed.shape[1]) < data.lengths[:, None]
    out: dict[str, Any] = dict.fromkeys(("phase_initial", "phase_transition", "tool_initial", "tool_transition"))
    out |= {"phases": None, "tools": None}
    if phases is not None:
        out["phase_initial"], out["phase_transition"] = cast(phases.initial), cast(phases.transition)
        evidence = _evidence(phases.emission, data.phases, data.observed, dtype)
        shape = (*data.observed.shape, phases.num_phases)
        evidence = jnp.zeros(shape, dtype) if evidence is None else evidence
        out["phases"] = clamp(evidence, data.phase_labels, real)
    if tools is not None:
        out["tool_initial"] = both_states(cast(tools.initial))
        out["tool_transition"] = jax.tree.map(cast, jax.tree.map(cast, tools.transition).tables())
        evidence = _evidence(tools.emission, data.tools, data.observed, dtype)
        if tools.emission is not None and tools.emission.is_joint:
            shape = (*data.observed.shape, 2**tools.num_tools)
            out["configs"] = jnp.zeros(shape, dtype) if evidence is None else evidence.sum(-2)
            evidence = None
        shape = (*data.observed.shape, tools.num_tools, 2)
        evidence = jnp.zeros(shape, dtype) if evidence is None else evidence
        out["tools"] = clamp(evidence, data.tool_labels, real)
    return Tables(**out)


def is_factorial(params: Params, table: Tables | None = None) -> bool:
    """Whether the model is K chains that know nothing of each other: tools without phases that do not interact."""
    tools = params.tools
    if params.phases is not None or tools is None or tools.transition.is_joint:
        return False
    if table is not None:
        return table.configs is None
    return tools.emission is None or not tools.emission.is_joint


SAFE_NATS = 70.0
"""What float32 holds below one (87 nats) less what it takes to keep eight digits of a sum."""


def scaled_is_exact(params: Params) -> bool:
    """Whether the scaled recursions are exact for this (concrete) model, whatever the evidence.

    They give each phase its own exponent, but the tools' configurations within a phase share one, so evidence against
    a configuration by more than is held (`messages.scaled.LIFT`) loses it. That is harmless where every configuration
    is reached again from any other, in one frame, with a probability that float32 still resolves: a lost one costs more
    than the way to the best configuration and back. It is not where tools cannot switch.
    Tracks alone have a scale for every state and always mix.
    """
    if params.tools is None or is_factorial(params):
        return True
    present = np.asarray(params.tools.initial, np.float64)
    with np.errstate(divide="ignore"):
        start = np.log(np.maximum(np.minimum(present, 1 - present), 0)).sum(0)
    return all((lowest >= -SAFE_NATS).all() for lowest in (params.tools.transition.min_log_prob(), start))


def choose_backend(backend: str, params: Params) -> str:
    """The backend to run: the one named, or what "auto" means for these parameters."""
    name = messages.choose(backend)
    if backend == "auto" and is_concrete(params) and not scaled_is_exact(params):
        return "logspace"
    return name


def fill_masked(observations: Any, observed: Array, dtype: Any) -> Any:
    """Observations with unobserved frames replaced, so that neither values nor gradients see what is there."""
    if observations is None:
        return None
    if isinstance(observations, tuple):
        return tuple(fill_masked(x, observed, dtype) for x in observations)
    keep = observed if observations.ndim == 2 else observed[..., None]
    if is_float(observations):
        return jnp.where(keep, observations.astype(dtype), 0.5)
    return jnp.where(keep, observations, 0)


def _evidence(emission: Any, observations: Any, observed: Array, dtype: Any) -> Any:
    if observations is None or emission is None:
        return None
    # Gamma functions and log-odds of half-precision parameters need more digits than these have themselves.
    emission = jax.tree.map(partial(jnp.asarray, dtype=dtype), emission)
    table = emission.log_prob(fill_masked(observations, observed, dtype)).astype(dtype)
    if table.shape != (*observed.shape, *emission.table_shape):
        raise ValueError(
            f"{type(emission).__name__}.log_prob gives shape {table.shape} for {observed.shape} frames: "
            f"{(*observed.shape, *emission.table_shape)} is needed, one number for every state."
        )
    return jnp.where(observed.reshape(*observed.shape, *[1] * (table.ndim - 2)), table, 0)


def clamp(evidence: Array, labels: Any, real: Array) -> Array:
    """Remove the states that a known label contradicts."""
    real = real.reshape(*real.shape, *[1] * (evidence.ndim - 2))
    evidence = jnp.where(real, evidence, 0)
    if labels is None:
        return evidence
    label = labels[..., None]
    contradicted = real & (label >= 0) & (label != jnp.arange(evidence.shape[-1]))
    return jnp.where(contradicted, -jnp.inf, evidence)


def potentials(params: Params, table: Tables, lengths: Array) -> Potentials:
    """The coupled chain, with one phase where the model has none.

    Tools that are `separate` are K chains stacked on a leading axis of everything but lengths.
    """
    if params.tools is None:
        nothing = jnp.zeros((*table.phases.shape[:2], 1), table.phases.dtype)
        plain = Potentials(table.phase_initial[:, None], table.phase_transition, (), table.phases, nothing, lengths)
        return _staged(plain, params)
    if is_factorial(params, table):
        evidence = jnp.moveaxis(table.tools, 2, 0)
        nothing = jnp.zeros((*evidence.shape[:-1], 1), evidence.dtype)
        return Potentials(table.tool_initial[..., None], table.tool_transition, (), evidence, nothing, lengths)
    phases = table.phase_initial, table.phase_transition, table.phases
    first, blocks = table.tool_initial, params.tools.transition.blocks(table.tool_transition)
    if params.phases is None:
        one = jnp.ones((), table.tools.dtype)
        phases = one[None], one[None, None], jnp.zeros((*table.tools.shape[:2], 1), one.dtype)
        first, blocks = first[:, None], jax.tree.map(lambda block: block[None], blocks)
    initial = phases[0][:, None] * multiply_over_tools(jnp.moveaxis(first, 0, 1))
    configs = add_over_tools(table.tools) if table.configs is None else add_over_tools(table.tools) + table.configs
    return _staged(Potentials(initial, phases[1], blocks, phases[2], configs, lengths), params)


def _staged(p: Potentials, params: Params) -> Potentials:
    """Phases replaced by their stages; derivatives with respect to phases' tables come back summed over stages."""
    stages = None if params.phases is None else params.phases.stages
    if stages is None:
        return p
    owner = durations.owners(stages)
    return Potentials(
        durations.staged_initial(p.initial, stages),
        durations.staged_transition(p.transition, stages),
        jax.tree.map(lambda block: block[owner], p.blocks),
        p.phases[..., owner],
        p.configs,
        p.lengths,
    )


PER_TOOL = Potentials(0, 0, 0, 0, 0, None)
"""vmap axes of separate tools: one chain each."""


def log_normalizer(params: Params, table: Tables, lengths: Array, backend: str) -> Array:
    """Log-likelihood (B,) as a differentiable function of the tables."""
    p = potentials(params, table, lengths)
    run = partial(messages.log_normalizer, backend=backend)
    if is_factorial(params, table):
        return num.accurate_sum(jax.vmap(lambda p: run(p), (PER_TOOL,))(p), 0)
    return run(p)


def conditional(params: Params, free: Tables, data: Data, backend: str) -> Array:
    """Log-probability (B,) of each video's labels given its observations, `free` being tables without labels."""
    real = jnp.arange(data.observed.shape[1]) < data.lengths[:, None]

    def twice(table: Any, labels: Any) -> Any:
        # Both questions as one batch: a scan's steps cost alike for few videos and for twice as many.
        return None if table is None else jnp.concatenate([clamp(table, labels, real), table])

    both = dataclasses.replace(
        free,
        phases=twice(free.phases, data.phase_labels),
        tools=twice(free.tools, data.tool_labels),
        configs=None if free.configs is None else jnp.concatenate([free.configs, free.configs]),
    )
    clamped, whole = jnp.split(log_normalizer(params, both, jnp.concatenate([data.lengths, data.lengths]), backend), 2)
    return clamped - whole
