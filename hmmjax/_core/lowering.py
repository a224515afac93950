"""Lower models to chains, and lift results on chains to phases and tools.

`lower` turns the tables of a model (see `hmmjax._core.tables`) into the potentials of a chain (see
`hmmjax.messages.potentials`), and `Structure` lifts what is computed on the chain back to phases and tools.
Callers need not tell apart models without phases or tools, with independent or interacting tools, or with stages.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import messages
from hmmjax._core import numerics as num
from hmmjax._core import stages as staging
from hmmjax._core.batch import Batch
from hmmjax._core.checks import is_concrete
from hmmjax._core.configurations import bits, joint_of_tools, per_tool
from hmmjax._core.tables import Tables, clamp
from hmmjax._core.typing import Array
from hmmjax.messages import Potentials
from hmmjax.types import Params


@dataclasses.dataclass(frozen=True)
class Structure:
    """The kind of chain that represents a model, and the maps from its states back to phases and tools.

    Attributes:
        has_phases: whether the model has phases; without them the chain has a single one.
        num_tools: K; without tools the chain has a single configuration.
        stages: (L,) number of stages per phase, over which the chain runs; None if phases have no stages.
        independent: whether the model is K independent chains, one per tool, each with the two states of its tool as
            "phases". Their potentials, and results on them, are stacked on a leading axis.
    """

    has_phases: bool
    num_tools: int
    stages: tuple[int, ...] | None
    independent: bool

    def map(self, function: Callable, potentials: Any, *args: Any) -> Any:
        """Return `function(potentials, *args)`, mapped over the stacked chains of tools if these are independent.

        `args` then have a leading axis of K. `potentials` may be any other tree with that axis.
        """
        if not self.independent:
            return function(potentials, *args)
        axes: Any = PER_TOOL if isinstance(potentials, Potentials) else 0
        return jax.vmap(function, (axes, *[0] * len(args)))(potentials, *args)

    def lift_log_prob(self, values: Array) -> Array:
        """Return the log-probability of the model from that of its chains, with a leading axis of K if independent."""
        return num.accurate_sum(values, 0) if self.independent else values

    def lift_marginals(self, phases: Array, configs: Array) -> tuple[Array | None, Array | None]:
        """Return P(phase) (..., L) and P(tool absent), P(tool present) (..., K, 2) from marginals over chain states.

        Both tails are sums of non-negative terms, so that each keeps its digits however small it is.

        Args:
            phases: (..., S) marginals of the chain's phases, with a leading axis of K if tools are independent.
            configs: (..., C) marginals of configurations.
        """
        return self.lift_states(phases, None if self.independent else per_tool(configs))

    def lift_states(self, phases: Array, tools: Array | None) -> tuple[Array | None, Array | None]:
        """Return P(phase) (..., L) and P(tool absent), P(tool present) (..., K, 2) from marginals over chain phases.

        Args:
            phases: (..., S) marginals of the chain's phases, with a leading axis of K if tools are independent.
            tools: (..., K, 2) probabilities of each tool's states; ignored if tools are independent.
        """
        if self.independent:
            return None, jnp.moveaxis(phases, 0, -2)
        lifted = phases if self.stages is None else staging.merge(phases, self.stages)
        return lifted if self.has_phases else None, tools if self.num_tools else None

    def lift_path(self, phases: Array, configs: Array) -> tuple[Array | None, Array | None]:
        """Return phases (...) and tools (..., K), int32, from paths through the chain's states.

        Args:
            phases: (...) int, with a leading axis of K if tools are independent.
            configs: (...) int.
        """
        if self.independent:
            return None, jnp.moveaxis(phases, 0, -1).astype(jnp.int32)
        lifted = phases if self.stages is None else jnp.asarray(staging.phase_of_stage(self.stages))[phases]
        tools = bits(self.num_tools)[configs].astype(jnp.int32) if self.num_tools else None
        return lifted.astype(jnp.int32) if self.has_phases else None, tools


PER_TOOL = Potentials(0, 0, 0, 0, 0, None)
"""Axes, for `jax.vmap`, of the stacked potentials of independent tools."""


def structure_of(params: Params, table: Tables | None = None) -> Structure:
    """Return the structure of a model. `table`, if given, decides whether tool emissions are joint."""
    phases, tools = params.phases, params.tools
    independent = False
    if phases is None and tools is not None and not tools.transition.is_joint:
        has_joint_emission = tools.emission is not None and tools.emission.is_joint
        independent = not has_joint_emission if table is None else table.configs is None
    return Structure(phases is not None, params.num_tools, None if phases is None else phases.stages, independent)


def lower(params: Params, table: Tables, lengths: Array) -> Potentials:
    """Return the potentials of the chain that represents the model, see `Structure`."""
    structure, packing = structure_of(params, table), table.packing
    if params.tools is None:
        start = table.phase_initial[:, None]
        chain = Potentials(start, table.phase_transition, (), table.phases, None, lengths, packing=packing)
        return _expand_stages(chain, structure.stages)
    if structure.independent:
        start, tools = table.tool_initial[..., None], jnp.moveaxis(table.tools, 2, 0)
        return Potentials(start, table.tool_transition, (), tools, None, lengths, packing=packing)
    phases = table.phase_initial, table.phase_transition, table.phases
    first, blocks = table.tool_initial, params.tools.transition.blocks(table.tool_transition)
    if params.phases is None:
        one = jnp.ones((), table.tools.dtype)
        phases = one[None], one[None, None], jnp.zeros((*table.tools.shape[:2], 1), one.dtype)
        first, blocks = first[:, None], jax.tree.map(lambda block: block[None], blocks)
    initial = phases[0][:, None] * joint_of_tools(jnp.moveaxis(first, 0, 1))
    chain = Potentials(initial, phases[1], blocks, phases[2], table.configs, lengths, table.tools, packing)
    return _expand_stages(chain, structure.stages)


def _expand_stages(p: Potentials, stages: tuple[int, ...] | None) -> Potentials:
    """Replace phases by their stages; derivatives with respect to the tables of phases are then sums over stages."""
    if stages is None:
        return p
    owner = staging.phase_of_stage(stages)
    return dataclasses.replace(
        p,
        initial=staging.staged_initial(p.initial, stages),
        transition=staging.staged_transition(p.transition, stages),
        blocks=jax.tree.map(lambda block: block[owner], p.blocks),
        phases=p.phases[..., owner],
    )


def log_normalizer(params: Params, table: Tables, lengths: Array, backend: str) -> Array:
    """Return log-likelihoods (B,), a differentiable function of the tables."""
    structure = structure_of(params, table)
    values = structure.map(lambda p: messages.log_normalizer(p, backend=backend), lower(params, table, lengths))
    return structure.lift_log_prob(values)


def smooth(params: Params, table: Tables, lengths: Array, backend: str) -> tuple[Array, Array | None, Array | None]:
    """Return log-likelihoods (B,), P(phase) (B, T, L), and P(tool absent) and P(tool present) (B, T, K, 2).

    Of packed tables, (B, T) is (1, N).

    Source: marginals are derivatives with respect to emission log-likelihoods (Eisner 2016).
    """

    def run(phases: Any, tools: Any) -> Array:
        return log_normalizer(params, dataclasses.replace(table, phases=phases, tools=tools), lengths, backend)

    value, vjp = jax.vjp(run, table.phases, table.tools)
    phases, tools = vjp(jnp.ones_like(value))
    return value, phases, tools


def report(phases: Array | None, tools: Array | None) -> tuple:
    """Return what `hmmjax.Posterior` holds of marginals (..., L) and (..., K, 2).

    P(phase) (..., L) and P(tool present) (..., K), with rounding cut off at 0 and 1, then log P(phase) (..., L) and the
    log-odds of presence (..., K).
    """
    present = None if tools is None else num.as_probability(tools[..., 1])
    return (
        None if phases is None else num.as_probability(phases),
        present,
        None if phases is None else num.log_marginal(phases),
        None if tools is None else num.log_odds(tools),
    )


def expected_counts(params: Params, table: Tables, lengths: Array, backend: str) -> tuple[Array, Tables]:
    """Return log-likelihoods (B,), and `Tables` that hold the expected counts of the entries instead.

    Counts of starts and transitions are summed over videos; those of emissions are marginals.

    Source: a table's counts are the table times the log-likelihood's derivative (Eisner 2016).
    """
    value, vjp = jax.vjp(lambda t: log_normalizer(params, t, lengths, backend), table)
    (grads,) = vjp(jnp.ones_like(value))

    def counts(t: Any, g: Any) -> Any:
        # The derivative at a structural zero may be infinite; its count is zero nonetheless.
        return jax.tree.map(lambda t, g: jnp.where(t > 0, t * jnp.where(t > 0, g, 0), 0), t, g)

    names = ("phase_initial", "phase_transition", "tool_initial", "tool_transition")
    return value, dataclasses.replace(grads, **{n: counts(getattr(table, n), getattr(grads, n)) for n in names})


def conditional(params: Params, free: Tables, batch: Batch, backend: str) -> Array:
    """Return the log-probability (B,) of each video's labels given its observations; -inf if either is impossible.

    `free` are the tables of the batch without labels.
    """
    valid, packing = batch.valid, batch.packing

    def twice(table: Any, labels: Any) -> Any:
        # Evaluate both likelihoods in one batch: the cost of a scan step barely depends on the batch size.
        return None if table is None else join(clamp(table, labels, valid), table)

    def join(a: Any, b: Any) -> Any:
        return jnp.concatenate([a, b]) if packing is None else packing.join(a, b)

    both = dataclasses.replace(
        free,
        phases=twice(free.phases, batch.phase_labels),
        tools=twice(free.tools, batch.tool_labels),
        configs=None if free.configs is None else join(free.configs, free.configs),
        packing=None if packing is None else packing.twice(),
    )
    values = log_normalizer(params, both, jnp.concatenate([batch.lengths, batch.lengths]), backend)
    clamped, unclamped = jnp.split(values, 2)
    possible = unclamped > -jnp.inf
    return jnp.where(possible, clamped - jnp.where(possible, unclamped, 0), -jnp.inf)


def scaled_is_exact(params: Params) -> bool:
    """Whether the scaled recursions are exact for this (concrete) model, whatever the observations.

    The compiled ones always are: they take wider numbers where doubles would not do (hmmjax/native/wide.h).

    They give each phase its own exponent, but the tools' configurations within a phase share one, so a configuration
    that observations make less probable than others by more than `messages.scaled.LIFT` is lost. That does no harm if
    every configuration is reached again from every other, in one frame, with a probability that float32 resolves: the
    path through the lost one is then less probable than that through the best one and back. It does if tools cannot
    switch. Models of one track have an exponent per state and are always exact.
    """
    if params.tools is None or structure_of(params).independent:
        return True
    lowest = params.tools.transition.min_log_prob()
    present = np.asarray(params.tools.initial, np.float64)
    with np.errstate(divide="ignore"):
        start = np.log(np.maximum(np.minimum(present, 1 - present), 0)).sum(0)
    return all((x >= -messages.scaled.SAFE_NATS).all() for x in (lowest, start))


def pack(batch: Batch, backend: str) -> Batch:
    """Return the (concrete) batch with its videos packed if the backend takes them so, and that saves frames."""
    return batch.packed() if messages.packs(backend) else batch


def choose_backend(backend: str, params: Params) -> str:
    """Return the backend to run: the named one, or what "auto" means for these parameters."""
    name = messages.choose(backend)
    if backend == "auto" and not messages.native.available() and is_concrete(params) and not scaled_is_exact(params):
        return "logspace"
    return name
