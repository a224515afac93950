"""Priors of MAP estimates, and the names of the blocks of a model that learning may freeze."""

import dataclasses
from collections.abc import Collection
from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core.batch import Batch, dtype_of
from hmmjax._core.categorical import dirichlet_log_prior
from hmmjax._core.pytree import pytree
from hmmjax._core.tables import both_states
from hmmjax._core.typing import Array
from hmmjax.emissions.anchor import Anchor
from hmmjax.emissions.base import Emission
from hmmjax.emissions.fused import Fused
from hmmjax.transitions.base import ToolTransition
from hmmjax.types import Params

BLOCKS = (
    "phases.initial",
    "phases.transition",
    "phases.emission",
    "tools.initial",
    "tools.transition",
    "tools.emission",
)
"""The parts of a model that `fit` can freeze."""


@pytree
class Priors:
    """Pseudo-counts (Dirichlet concentration minus one, so 0 means no prior) for MAP estimates.

    Each is a scalar or broadcasts against its block; for the emission of several recognizers it may be a tuple with
    one entry per recognizer. A pseudo-count never fills an entry that is exactly zero: structural zeros stay zero.
    Without phases there is no axis L. An `emissions.Anchor` is a prior for emissions whose mode is a given family.

    Attributes:
        phase_initial: (L,).
        phase_transition: (L, L).
        phase_emission: see the emission family.
        tool_initial: (K, L), or (K, L, 2) as (absent, present).
        tool_transition: (K, L, 2, 2); for `Interacting` a ridge on the weights (L, K, K + 1).
        tool_emission: see the emission family; for `ToolLogistic` a ridge on the weights (K, K + 1).

    Source: MAP estimates; with pseudo-counts of 0 the M-step is the paper's.
    """

    phase_initial: Any = 0.0
    phase_transition: Any = 0.0
    phase_emission: Any = 0.0
    tool_initial: Any = 0.0
    tool_transition: Any = 0.0
    tool_emission: Any = 0.0


def check_priors(params: Params, priors: Priors) -> None:
    """Raise unless every pseudo-count is a non-negative number that fits its block.

    Raises:
        TypeError: `priors` is not `Priors`, or pseudo-counts are given to a family that has no prior.
        ValueError: negative, not finite, or of a shape that does not fit.
    """
    if not isinstance(priors, Priors):
        raise TypeError(f"priors must be hmmjax.Priors(phase_transition=..., ...), got {type(priors).__name__}.")
    for field in dataclasses.fields(Priors):
        given = getattr(priors, field.name)
        blocks, fused = _blocks(params, field.name)
        if isinstance(given, tuple) and fused:
            if len(given) != len(blocks):
                raise ValueError(
                    f"priors.{field.name} is a tuple of {len(given)}, but the emission fuses {len(blocks)} sources: "
                    "give one entry per source."
                )
            for i, block in enumerate(blocks):
                _check_pseudo_counts(f"{field.name}[{i}]", given[i], block)
        else:
            for block in blocks or (None,):
                _check_pseudo_counts(field.name, given, block)


def of_source(pseudo_counts: Any, source: int) -> Any:
    """Return one recognizer's pseudo-counts, from a tuple with one entry per recognizer or from what all share."""
    return pseudo_counts[source] if isinstance(pseudo_counts, tuple) else pseudo_counts


def _blocks(params: Params, name: str) -> tuple[tuple[Any, ...], bool]:
    """Return what a field of `Priors` applies to (families, a transition model or a table), and whether it is fused."""
    track, part = name.split("_")
    chain: Any = params.phases if track == "phase" else params.tools
    block = None if chain is None else getattr(chain, part)
    if isinstance(block, Emission):
        return block.sources, isinstance(block, Fused)
    return (() if block is None else (block,)), False


def _check_pseudo_counts(name: str, given: Any, block: Any) -> None:
    """Raise unless `given` is a finite, non-negative number or array that broadcasts to its block, or its anchor."""
    if isinstance(given, Anchor) and isinstance(block, Emission):
        given.check(f"priors.{name}", block)
        return
    if isinstance(given, tuple | list):
        raise TypeError(
            f"priors.{name} is a {type(given).__name__}: give a number or an array. A tuple is only for the emission "
            "of several recognizers, one entry each."
        )
    values = np.asarray(given)
    if values.dtype.kind not in "iuf" or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(
            f"priors.{name} must hold pseudo-counts: finite and not negative (Dirichlet concentration minus one), got "
            f"{given!r}."
        )
    if block is None:
        return
    if isinstance(block, Emission | ToolTransition):
        if not block.has_prior and values.any():
            raise TypeError(
                f"priors.{name} is not 0, but {type(block).__name__} has no prior: define its log_prior, or leave the "
                "pseudo-counts at 0."
            )
        shape = block.prior_shape
    else:
        shape = (*np.shape(block), 2) if name == "tool_initial" else np.shape(block)
        if name == "tool_initial" and values.ndim == len(shape) - 1 and values.ndim:
            values = values[..., None]
    try:
        fits = shape is None or not values.ndim or np.broadcast_shapes(values.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"priors.{name} has shape {values.shape}, which does not broadcast to its block, {shape}: give a number, "
            "or an array of that shape."
        )


def log_prior(params: Params, priors: Priors, freeze: Collection[str], batch: Batch) -> Array:
    """Return the log-density, up to a constant, of the priors on the blocks that are being learned."""
    total = jnp.zeros((), dtype_of(params))
    phases, tools = params.phases, params.tools
    if phases is not None:
        if "phases.initial" not in freeze:
            total += dirichlet_log_prior(phases.initial, priors.phase_initial)
        if "phases.transition" not in freeze:
            total += dirichlet_log_prior(phases.transition, priors.phase_transition)
        if "phases.emission" not in freeze and phases.emission is not None and batch.phases is not None:
            total += phases.emission.log_prior(priors.phase_emission)
    if tools is not None:
        if "tools.initial" not in freeze:
            both = both_states(tools.initial)
            total += dirichlet_log_prior(both, as_pairs(priors.tool_initial, both))
        if "tools.transition" not in freeze:
            total += tools.transition.log_prior(priors.tool_transition)
        if "tools.emission" not in freeze and tools.emission is not None and batch.tools is not None:
            total += tools.emission.log_prior(priors.tool_emission)
    return total


def as_pairs(pseudo_counts: Any, both: Array) -> Array:
    """Return pseudo-counts that broadcast against (K, L, 2) tables of (absent, present).

    Pseudo-counts with one axis less, (K, L), are the same for both.
    """
    pseudo_counts = jnp.asarray(pseudo_counts)
    per_table = pseudo_counts.ndim and pseudo_counts.ndim == both.ndim - 1
    return pseudo_counts[..., None] if per_table else pseudo_counts


def frozen_blocks(freeze: Collection[str]) -> frozenset[str]:
    """Return the names in `BLOCKS` that `freeze` stands for; raise ValueError for an unknown one."""
    if isinstance(freeze, str):
        freeze = (freeze,)
    out: set[str] = set()
    for name in freeze:
        chosen = [b for b in BLOCKS if b == name or b.startswith(f"{name}.")]
        if not chosen:
            raise ValueError(f"freeze: no block is called {name!r}. Blocks are {', '.join(BLOCKS)}, phases, tools.")
        out.update(chosen)
    return frozenset(out)
