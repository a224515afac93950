"""Tabulate a model and a batch: probabilities of starts and transitions, emission log-likelihoods, clamped labels."""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hmmjax._core.batch import Batch, dtype_of
from hmmjax._core.checks import is_float
from hmmjax._core.memory import with_past
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.emissions._observations import over_events
from hmmjax.emissions.fused import Fused, fill_missing
from hmmjax.types import Params


@pytree
class Tables:
    """The arguments of the likelihood, or derivatives and expected counts in their place. Absent tracks are None.

    Attributes:
        phase_initial: (L,) probabilities.
        phase_transition: (L, L) probabilities.
        tool_initial: (K, L, 2) probabilities, or (K, 2) without phases.
        tool_transition: the transition model's probability tables.
        phases: (B, T, L) emission log-likelihoods, -inf for phases that a label excludes.
        tools: (B, T, K, 2) emission log-likelihoods of each tool by itself, -inf for states that a label excludes.
        configs: (B, T, 2**K) emission log-likelihoods of configurations, for joint emission families; otherwise None.
        packing: positions of the videos if the batch is packed; (B, T) above is then (1, N).
    """

    phase_initial: Any
    phase_transition: Any
    tool_initial: Any
    tool_transition: Any
    phases: Any
    tools: Any
    configs: Any = None
    packing: Any = None

    @property
    def tool_weights(self) -> Any:
        """Weights (B, T, K, 2) or (B, T, K, 2**K) for the statistics of tool emissions, from `Tables` of counts."""
        if self.configs is None:
            return self.tools
        return jnp.broadcast_to(self.configs[..., None, :], (*self.tools.shape[:-1], self.configs.shape[-1]))


def both_states(present: Any) -> Array:
    """Return (..., 2) probabilities of absence and presence from those of presence; rounding above one is cut off."""
    present = jnp.asarray(present)
    over = present > 1
    return jnp.stack([jnp.where(over, 0, 1 - present), jnp.where(over, 1, present)], -1)


def tabulate(params: Params, batch: Batch, pasts: tuple[Any, Any] | None = None) -> Tables:
    """Return the model's probability tables, and emission log-likelihoods of the batch with its labels clamped.

    `pasts` are those of the phases' and tools' observations, if the frames before are not part of the batch.
    """
    dtype = dtype_of(params)
    cast = partial(jnp.asarray, dtype=dtype)
    phases, tools = params.phases, params.tools
    valid, frames = batch.valid, batch.observed.shape
    out = Tables(*[None] * 6, packing=batch.packing)
    if phases is not None:
        past = None if pasts is None else pasts[0]
        table = _emission_log_probs(phases.emission, batch.phases, batch, dtype, past)
        table = jnp.zeros((*frames, phases.num_phases), dtype) if table is None else table
        out = dataclasses.replace(
            out,
            phase_initial=cast(phases.initial),
            phase_transition=cast(phases.transition),
            phases=clamp(table, batch.phase_labels, valid),
        )
    if tools is not None:
        past, configs = None if pasts is None else pasts[1], None
        table = _emission_log_probs(tools.emission, batch.tools, batch, dtype, past)
        if tools.emission is not None and tools.emission.is_joint:
            configs = jnp.zeros((*frames, 2**tools.num_tools), dtype) if table is None else table.sum(-2)
            table = None
        table = jnp.zeros((*frames, tools.num_tools, 2), dtype) if table is None else table
        out = dataclasses.replace(
            out,
            tool_initial=both_states(cast(tools.initial)),
            tool_transition=jax.tree.map(cast, jax.tree.map(cast, tools.transition).tables()),
            tools=clamp(table, batch.tool_labels, valid),
            configs=configs,
        )
    return out


def fill_masked(observations: Any, observed: Array, dtype: Any) -> Any:
    """Replace unobserved frames by valid observations, so that neither values nor gradients depend on them."""
    if observations is None:
        return None
    if isinstance(observations, tuple):
        return tuple(fill_masked(x, observed, dtype) for x in observations)
    keep = observed.reshape(*observed.shape, *[1] * (observations.ndim - 2))
    if is_float(observations):
        return jnp.where(keep, observations.astype(dtype), 0.5)
    return jnp.where(keep, observations, 0)


def _emission_log_probs(emission: Any, observations: Any, batch: Batch, dtype: Any, past: Any) -> Any:
    observed = batch.observed
    if observations is None or emission is None:
        return None
    # Gamma functions and log-odds of half-precision parameters need more digits than the parameters have.
    emission = jax.tree.map(partial(jnp.asarray, dtype=dtype), emission)
    filled = fill_masked(observations, observed, dtype)
    given = with_past(emission, filled, observed, batch.packing) if past is None else (filled, past)
    seen, given = skip_missing(emission, given)
    table = emission.log_prob(*given).astype(dtype)
    shape = (*observed.shape, *emission.table_shape)
    if table.shape != shape:
        raise ValueError(
            f"{type(emission).__name__}.log_prob returned shape {table.shape} for {observed.shape} frames. It must "
            f"return {shape}, one number per state."
        )
    if seen is not None:
        table = jnp.where(over_events(seen, table), table, 0)
    return jnp.where(observed.reshape(*observed.shape, *[1] * (table.ndim - 2)), table, 0)


def skip_missing(emission: Any, given: tuple) -> tuple[Any, tuple]:
    """Return which observations are present, and the arguments of a family with a valid value for each missing one.

    Presence is (B, T) for phases and (B, T, K) for tools; None for a `Fused` family, which does this itself.
    """
    if isinstance(emission, Fused):
        return None, given
    seen, filled = fill_missing(given[0], emission)
    return seen, (filled, *given[1:])


def clamp(table: Array, labels: Any, valid: Array) -> Array:
    """Set the states that a known label excludes to -inf, and padding to 0."""
    valid = valid.reshape(*valid.shape, *[1] * (table.ndim - 2))
    table = jnp.where(valid, table, 0)
    if labels is None:
        return table
    label = labels[..., None]
    excluded = valid & (label >= 0) & (label != jnp.arange(table.shape[-1]))
    return jnp.where(excluded, -jnp.inf, table)
