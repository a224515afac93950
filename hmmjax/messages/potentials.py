"""Inputs and outputs of every backend: the potentials of a batch of videos, filtered marginals, and paths."""

from typing import Any

import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array


@pytree
class Potentials:
    """A chain over joint states (q, c): phase q of L and tool configuration c of C.

    A configuration is the presence of each of the K tools as the bits of a number, tool 0 the most significant, so
    C = 2**K; without tools C is 1. A model without phases is K chains with L = 2 and C = 1, one per tool.

    Attributes:
        initial: (L, C) probability of the first joint state.
        transition: (L, L) probability of the next phase given this one.
        blocks: per-phase Kronecker factors (L, n, n) of P(next c | c, next q), the most significant bits first; their
            sizes n multiply up to C. Empty when C is 1.
        phases: (B, T, L) log-likelihood of each frame's observations given its phase; 0 for a missing observation.
        configs: (B, T, C) log-likelihood of each frame's observations given its configuration.
        lengths: (B,) int32 number of frames of each video; later frames are padding and are ignored.
    """

    # Any, not Array: the same class also names axes for jax.vmap.
    initial: Any
    transition: Any
    blocks: Any
    phases: Any
    configs: Any
    lengths: Any


VIDEOS = Potentials(None, None, None, 0, 0, 0)
"""Axes for jax.vmap over the videos; the tables of the model are shared."""


@pytree
class Filtered:
    """Marginals of each frame's state given that frame and all before it.

    Attributes:
        phases: (B, T, L).
        configs: (B, T, C).
        log_normalizer: (B,) log-probability of all observations.
    """

    phases: Array
    configs: Array
    log_normalizer: Array


@pytree
class Path:
    """The jointly most probable path.

    Attributes:
        phases: (B, T) int32 phases.
        configs: (B, T) int32 configurations.
        log_prob: (B,) log-probability of the path and the observations; -inf if no path is possible.
    """

    phases: Array
    configs: Array
    log_prob: Array


def log_prob(p: Potentials, phases: Array, configs: Array) -> Array:
    """Compute the log-probability (B,) of paths (B, T) and the observations."""
    frames, length = jnp.arange(phases.shape[1]), p.lengths[:, None]
    steps, right = num.log(p.transition)[phases[:, :-1], phases[:, 1:]], p.configs.shape[-1]
    for block in p.blocks:
        n = block.shape[-1]
        right //= n
        own = (configs // right) % n
        steps += num.log(block)[phases[:, 1:], own[:, :-1], own[:, 1:]]
    first = num.log(p.initial).astype(p.phases.dtype)[phases[:, 0], configs[:, 0]]
    emission = jnp.take_along_axis(p.phases, phases[..., None], -1)
    emission = emission + jnp.take_along_axis(p.configs, configs[..., None], -1)
    parts = jnp.concatenate([first[:, None], jnp.where(frames[1:] < length, steps, 0)], 1)
    return num.accurate_sum(jnp.where(frames < length, parts + emission[..., 0], 0))
