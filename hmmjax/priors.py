"""Priors of a MAP estimate, and the blocks of a model that learning may leave alone."""

from collections.abc import Collection
from typing import Any

import jax.numpy as jnp

from hmmjax._categorical import dirichlet_log_prior
from hmmjax._data import Data, dtype_of
from hmmjax._pytree import pytree
from hmmjax._typing import Array
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

    Each is a scalar or broadcasts against its block: phase_initial (L,), phase_transition (L, L), tool_initial
    (K, L) or (K, L, 2) as (absent, present), tool_transition (K, L, 2, 2); for emissions see the family. A
    pseudo-count never fills an entry that is exactly zero: structural zeros stay zero.
    """

    phase_initial: Any = 0.0
    phase_transition: Any = 0.0
    phase_emission: Any = 0.0
    tool_initial: Any = 0.0
    tool_transition: Any = 0.0
    tool_emission: Any = 0.0


def log_prior(params: Params, priors: Priors, freeze: Collection[str], data: Data) -> Array:
    """The log-density, up to a constant, of the priors on the blocks that are being learnt."""
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
            both = both_states(tools.initial)
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


def both_states(present: Any) -> Array:
    """P(present) to (..., 2) probabilities of absent and present."""
    return jnp.stack([1 - jnp.asarray(present), jnp.asarray(present)], -1)


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
