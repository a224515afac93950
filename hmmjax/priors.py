"""Priors of a MAP estimate, and the blocks of a model that learning may leave alone."""

import dataclasses
from collections.abc import Collection
from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core import lowering
from hmmjax._core.batch import Data, dtype_of
from hmmjax._core.categorical import dirichlet_log_prior
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.types import Params

BLOCKS = (
    "phases.initial",
    "phases.transition",
    "phases.emission",
    "tools.initial",
    "tools.transition",
    "tools.emission",
)
"""The parts of a model that `fit` can leave alone."""


@pytree
class Priors:
    """Pseudo-counts (Dirichlet concentration minus one, so 0 is no prior) for MAP estimates.

    Each is a scalar or broadcasts against its block. A pseudo-count never fills an entry that is exactly zero:
    structural zeros stay zero. Without phases there is no axis L.

    Attributes:
        phase_initial: (L,).
        phase_transition: (L, L).
        phase_emission: see the family.
        tool_initial: (K, L), or (K, L, 2) as (absent, present).
        tool_transition: (K, L, 2, 2); of `Interacting` a ridge on weights (L, K, K + 1).
        tool_emission: see the family; of `ToolLogistic` a ridge on weights (K, K + 1).

    Source: MAP estimates; with pseudo-counts of 0 the M-step is the paper's.
    """

    phase_initial: Any = 0.0
    phase_transition: Any = 0.0
    phase_emission: Any = 0.0
    tool_initial: Any = 0.0
    tool_transition: Any = 0.0
    tool_emission: Any = 0.0


def check_priors(params: Params, priors: Priors) -> None:
    """Raise unless every pseudo-count is a non-negative number that suits its block.

    Raises:
        TypeError: `priors` is not `Priors`.
        ValueError: negative, not finite, or of a shape that does not fit.
    """
    if not isinstance(priors, Priors):
        raise TypeError(f"priors must be hmmjax.Priors(phase_transition=..., ...), got {type(priors).__name__}.")
    for field in dataclasses.fields(Priors):
        given = getattr(priors, field.name)
        shape = _block_shape(params, field.name)
        if not isinstance(shape, list):
            _check_one(field.name, given, shape)
            continue
        if isinstance(given, tuple) and len(given) != len(shape):
            raise ValueError(f"priors.{field.name} is a tuple of {len(given)}, of {len(shape)} fused sources.")
        for i, own in enumerate(shape):
            name = f"{field.name}[{i}]" if isinstance(given, tuple) else field.name
            _check_one(name, given[i] if isinstance(given, tuple) else given, own)


def of_source(pseudo_counts: Any, source: int) -> Any:
    """The pseudo-counts of one of several fused sources: the same for all, or a tuple with each one's own."""
    return pseudo_counts[source] if isinstance(pseudo_counts, tuple) else pseudo_counts


def _check_one(name: str, given: Any, shape: tuple[int, ...] | None) -> None:
    if isinstance(given, tuple | list):
        raise TypeError(
            f"priors.{name} is a {type(given).__name__}: give a number or an array; a tuple is of several sources."
        )
    values = np.asarray(given)
    if values.dtype.kind not in "iuf" or not (np.isfinite(values) & (values >= 0)).all():
        raise ValueError(
            f"priors.{name} must be pseudo-counts: finite, not negative (Dirichlet concentration less one), got "
            f"{given!r}."
        )
    if name == "tool_initial" and shape is not None and values.ndim == len(shape) - 1 and values.ndim:
        values = values[..., None]
    try:
        fits = shape is None or not values.ndim or np.broadcast_shapes(values.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"priors.{name} has shape {values.shape}, which does not fit its block, {shape}.")


def _block_shape(params: Params, name: str) -> Any:
    """Shape that an array of pseudo-counts must broadcast to; None where the block itself decides, a list of fused."""
    track, part = name.split("_")
    chain: Any = params.phases if track == "phase" else params.tools
    if chain is None:
        return None
    if part == "emission":
        families = getattr(chain.emission, "families", None)
        if isinstance(families, tuple):
            return [getattr(family, "prior_shape", None) for family in families]
        return None if chain.emission is None else getattr(chain.emission, "prior_shape", None)
    if track == "phase":
        return np.shape(getattr(chain, part))
    return (*np.shape(chain.initial), 2) if part == "initial" else chain.transition.prior_shape


def log_prior(params: Params, priors: Priors, freeze: Collection[str], data: Data) -> Array:
    """The log-density, up to a constant, of the priors on the blocks that are being learned."""
    total = jnp.zeros((), dtype_of(params))
    phases, tools = params.phases, params.tools
    if phases is not None:
        if "phases.initial" not in freeze:
            total += dirichlet_log_prior(phases.initial, priors.phase_initial)
        if "phases.transition" not in freeze:
            total += dirichlet_log_prior(phases.transition, priors.phase_transition)
        if "phases.emission" not in freeze and phases.emission is not None and data.phases is not None:
            total += _emission_prior(phases.emission, priors.phase_emission)
    if tools is not None:
        if "tools.initial" not in freeze:
            both = lowering.both_states(tools.initial)
            total += dirichlet_log_prior(both, as_pairs(priors.tool_initial, both))
        if "tools.transition" not in freeze:
            total += _emission_prior(tools.transition, priors.tool_transition)
        if "tools.emission" not in freeze and tools.emission is not None and data.tools is not None:
            total += _emission_prior(tools.emission, priors.tool_emission)
    return total


def _emission_prior(block: Any, pseudo_counts: Any) -> Any:
    # Families without a prior stay usable as long as nobody asks for one.
    if isinstance(pseudo_counts, int | float) and pseudo_counts == 0:
        return 0.0
    return block.log_prior(pseudo_counts)


def as_pairs(pseudo: Any, both: Array) -> Array:
    """Pseudo-counts that broadcast against (K, L, 2) tables."""
    pseudo = jnp.asarray(pseudo)
    return pseudo if pseudo.ndim == both.ndim else pseudo[..., None]


def frozen_blocks(freeze: Collection[str]) -> frozenset[str]:
    """Names from `BLOCKS` that `freeze` stands for; ValueError for an unknown one."""
    if isinstance(freeze, str):
        freeze = (freeze,)
    out: set[str] = set()
    for name in freeze:
        chosen = [b for b in BLOCKS if b == name or b.startswith(f"{name}.")]
        if not chosen:
            raise ValueError(f"freeze: no block is called {name!r}. Blocks are {', '.join(BLOCKS)}, phases, tools.")
        out.update(chosen)
    return frozenset(out)
