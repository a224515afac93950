"""The one thing every backend takes: a batch of videos as potentials of a coupled chain."""

from typing import Any

import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array


@pytree
class Potentials:
    """A chain over joint states (q, c): phase q of L, tool configuration c of C.

    A configuration numbers the K tools' presences as bits, tool 0 slowest, so C = 2**K; without tools C is 1. A
    model without phases is K chains with L = 2 and C = 1, one per tool.

    Attributes:
        initial: (L, C) probability of the first joint state.
        transition: (L, L) probability of the next phase given this one.
        blocks: per-phase Kronecker factors (L, n, n) of P(next c | c, next q), sizes multiplying up to C, slowest
            bits first; empty when C is 1.
        phases: (B, T, L) log-evidence about the phase; 0 where nothing is known.
        configs: (B, T, C) log-evidence about the configuration.
        lengths: (B,) int32 frames in each video; frames from there on are padding and are ignored.
    """

    # Any, not Array: the same class also names axes for jax.vmap.
    initial: Any
    transition: Any
    blocks: Any
    phases: Any
    configs: Any
    lengths: Any


@pytree
class Filtered:
    """What the past says: marginals given frames up to and including each one.

    Attributes:
        phases: (B, T, L).
        configs: (B, T, C).
        log_normalizer: (B,) log-probability of all the evidence.
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
        log_prob: (B,) its log-probability with the evidence; -inf when there is no possible path.
    """

    phases: Array
    configs: Array
    log_prob: Array


def log_prob(p: Potentials, phases: Array, configs: Array) -> Array:
    """Log-probability (B,) of paths (B, T) with the evidence, summed along them."""
    frames, length = jnp.arange(phases.shape[1]), p.lengths[:, None]
    steps, right = num.log(p.transition)[phases[:, :-1], phases[:, 1:]], p.configs.shape[-1]
    for block in p.blocks:
        n = block.shape[-1]
        right //= n
        own = (configs // right) % n
        steps += num.log(block)[phases[:, 1:], own[:, :-1], own[:, 1:]]
    first = num.log(p.initial).astype(p.phases.dtype)[phases[:, 0], configs[:, 0]]
    seen = jnp.take_along_axis(p.phases, phases[..., None], -1) + jnp.take_along_axis(p.configs, configs[..., None], -1)
    parts = jnp.concatenate([first[:, None], jnp.where(frames[1:] < length, steps, 0)], 1)
    return num.accurate_sum(jnp.where(frames < length, parts + seen[..., 0], 0))
