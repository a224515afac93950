"""The two steps of expectation-maximization, as pure functions."""

import dataclasses
from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp

from hmmjax._core import lowering
from hmmjax._core.batch import Data
from hmmjax._core.categorical import normalize_counts
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.priors import Priors, as_pairs
from hmmjax.sharding import Split
from hmmjax.types import Params


@pytree
class Expected:
    """Expected sufficient statistics of a batch, and its log-likelihoods (B,). They add up over batches."""

    phase_initial: Any
    phase_transition: Any
    phase_emission: Any
    tool_initial: Any
    tool_transition: Any
    tool_emission: Any


def expectations(
    params: Params, data: Data, backend: str, freeze: Collection[str] = (), split: Split | None = None
) -> tuple[Array, Expected]:
    """One E-step: log-likelihoods (B,) and expected statistics, from a single forward-backward.

    Frozen emissions need no statistics and get None. With `split` every device does its own videos, and statistics
    are added up.

    Source: the paper's Appendix S2.2; counts are tables times the log-likelihood's derivative (Eisner 2016).
    """
    if split is not None:
        return split.map(lambda p, d: expectations(p, d, backend, freeze), total=True)(params, data)
    table = lowering.tables(params, data)
    value, vjp = jax.vjp(lambda t: lowering.log_normalizer(params, t, data.lengths, backend), table)
    (grads,) = vjp(jnp.ones_like(value))

    def counts(t: Any, g: Any) -> Any:
        # A derivative at a structural zero may be infinite; its count is zero all the same.
        return jax.tree.map(lambda t, g: jnp.where(t > 0, t * jnp.where(t > 0, g, 0), 0), t, g)

    phases = tools = None
    if "phases.emission" not in freeze:
        phases = statistics(params.phases, data.phases, grads.phases, data)
    if "tools.emission" not in freeze:
        weights = grads.tools
        if table.configs is not None:
            # What is said of each tool is weighed by whole configurations.
            shape = (*weights.shape[:-1], grads.configs.shape[-1])
            weights = jnp.broadcast_to(grads.configs[..., None, :], shape)
        tools = statistics(params.tools, data.tools, weights, data)
    return value, Expected(
        counts(table.phase_initial, grads.phase_initial),
        counts(table.phase_transition, grads.phase_transition),
        phases,
        counts(table.tool_initial, grads.tool_initial),
        counts(table.tool_transition, grads.tool_transition),
        tools,
    )


def statistics(chain: Any, observations: Any, marginals: Any, data: Data) -> Any:
    """A track's emission statistics, weighted by its marginals in the observed frames; None without observations."""
    if chain is None or chain.emission is None or observations is None:
        return None
    seen = data.observed.reshape(*data.observed.shape, *[1] * (marginals.ndim - 2))
    observations = lowering.fill_masked(observations, data.observed, marginals.dtype)
    return chain.emission.statistics(observations, jnp.where(seen, marginals, 0))


def maximize(params: Params, expected: Expected, priors: Priors, freeze: Collection[str]) -> Params:
    """One M-step: every block that is not frozen maximizes its part of the expected objective."""

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
            previous = lowering.both_states(tools.initial)
            pseudo = as_pairs(priors.tool_initial, previous)
            new["initial"] = normalize_counts(expected.tool_initial, previous, pseudo)[..., 1]
        if free("tools.transition"):
            new["transition"] = tools.transition.maximize(expected.tool_transition, priors.tool_transition)
        if free("tools.emission") and expected.tool_emission is not None:
            new["emission"] = tools.emission.maximize(expected.tool_emission, priors.tool_emission)
        tools = dataclasses.replace(tools, **new)
    return Params(phases, tools)
