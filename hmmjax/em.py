"""The E-step and the M-step of expectation-maximization, as pure functions."""

import dataclasses
from collections.abc import Collection
from typing import Any

import jax.numpy as jnp

from hmmjax._core import lowering
from hmmjax._core.batch import Batch
from hmmjax._core.categorical import normalize_counts
from hmmjax._core.memory import with_past
from hmmjax._core.pytree import pytree
from hmmjax._core.tables import both_states, fill_masked, skip_missing, tabulate
from hmmjax._core.typing import Array
from hmmjax.emissions._observations import over_events
from hmmjax.priors import Priors, as_pairs
from hmmjax.types import Params


@pytree
class Expected:
    """Expected sufficient statistics of a batch; they are additive over batches."""

    phase_initial: Any
    phase_transition: Any
    phase_emission: Any
    tool_initial: Any
    tool_transition: Any
    tool_emission: Any


def expectations(params: Params, batch: Batch, backend: str, freeze: Collection[str] = ()) -> tuple[Array, Expected]:
    """Return log-likelihoods (B,) and expected statistics: one E-step, a single forward-backward pass.

    Frozen emissions need no statistics and get None. If the batch is split over devices, each device processes its own
    videos, and statistics are summed.

    Source: the paper's Appendix S2.2; see `lowering.expected_counts`.
    """
    if batch.split is not None:
        return batch.split.map(lambda p, b: expectations(p, b, backend, freeze), total=True)(params, batch)
    value, counts = lowering.expected_counts(params, tabulate(params, batch), batch.lengths, backend)
    phases = tools = None
    if "phases.emission" not in freeze:
        phases = statistics(params.phases, batch.phases, counts.phases, batch)
    if "tools.emission" not in freeze:
        tools = statistics(params.tools, batch.tools, counts.tool_weights, batch)
    return value, Expected(
        counts.phase_initial, counts.phase_transition, phases, counts.tool_initial, counts.tool_transition, tools
    )


def statistics(chain: Any, observations: Any, marginals: Any, batch: Batch) -> Any:
    """Return a track's emission statistics, weighted by its marginals in observed frames; None if not observed."""
    if chain is None or chain.emission is None or observations is None:
        return None
    observations = fill_masked(observations, batch.observed, marginals.dtype)
    given = with_past(chain.emission, observations, batch.observed, batch.packing)
    seen, (observations, *past) = skip_missing(chain.emission, given)
    weights = jnp.where(over_events(batch.observed, marginals), marginals, 0)
    if seen is not None:
        weights = jnp.where(over_events(seen, weights), weights, 0)
    return chain.emission.statistics(observations, weights, *past)


def maximize(params: Params, expected: Expected, priors: Priors, freeze: Collection[str]) -> Params:
    """Return the parameters after one M-step, in which every block that is not frozen is maximized."""

    def free(block: str) -> bool:
        return block not in freeze

    phases, tools = params.phases, params.tools
    if phases is not None:
        new: dict[str, Any] = {}
        if free("phases.initial"):
            new["initial"] = normalize_counts(expected.phase_initial, phases.initial, priors.phase_initial)
        if free("phases.transition"):
            counts = expected.phase_transition
            new["transition"] = normalize_counts(counts, phases.transition, priors.phase_transition)
        if free("phases.emission") and expected.phase_emission is not None:
            new["emission"] = phases.emission.maximize(expected.phase_emission, priors.phase_emission)
        phases = dataclasses.replace(phases, **new)
    if tools is not None:
        new = {}
        if free("tools.initial"):
            previous = both_states(tools.initial)
            pseudo = as_pairs(priors.tool_initial, previous)
            new["initial"] = normalize_counts(expected.tool_initial, previous, pseudo)[..., 1]
        if free("tools.transition"):
            new["transition"] = tools.transition.maximize(expected.tool_transition, priors.tool_transition)
        if free("tools.emission") and expected.tool_emission is not None:
            new["emission"] = tools.emission.maximize(expected.tool_emission, priors.tool_emission)
        tools = dataclasses.replace(tools, **new)
    return Params(phases, tools)
