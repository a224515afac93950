"""The kernel of pairs of frames: smoothed marginals, and the terms whose sums over frames are the expected counts."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from hmmjax._core.typing import Array
from hmmjax.messages import scaled
from hmmjax.messages.gpu import launch

WARPS = 1
"""Warps per program, by measurement (benchmarks/hmm.py)."""


def _pair_kernel(alpha, config_summed, alpha_scale, summed_scale, mantissas, exponents, lengths, weight,
                 phases_out, configs_out, pairs_out, before_out) -> None:  # fmt: skip
    video, t = pl.program_id(0), pl.program_id(1)
    (videos, num_frames), length = alpha.shape[:2], lengths[video]
    last, following = jnp.minimum(t, num_frames - 1), jnp.minimum(t + 1, num_frames - 1)
    inside, real = t < length, t < length - 1
    # Frames after the end were never written and may hold anything: select, do not multiply.
    a = jnp.where(inside, alpha[video, last], 0.0)
    back = jnp.where(real, config_summed[video, following], 0.0)
    own = jnp.where(inside, alpha_scale[video, last], -jnp.inf)
    exponent = exponents[...]

    # Pairs (t, t + 1), each frame normalized by its own two-sided sum so that counts add up to the number of frames.
    shift = own[:, None] + jnp.where(real, summed_scale[video, following], -jnp.inf)[None, :]
    pairs = jnp.sum(a[:, None, :] * back[None, :, :], 2)
    top = scaled.finite(jnp.max(shift + exponent + scaled.exponent(pairs)))
    weights = jnp.where(pairs > 0, mantissas[...] * scaled.power(shift + exponent - top), 0.0)
    total = jnp.sum(weights * pairs)
    scale = weight[video] / jnp.where(total > 0, total, 1.0)
    weights = weights * scale
    # At a structural zero, return the one-sided derivative.
    pairs = jnp.where(exponent > -jnp.inf, weights, scaled.power(shift - top) * scale) * pairs
    before_out[launch.chunk_index(before_out, video, t + 1, videos)] = jnp.sum(weights[:, :, None] * a[:, None, :], 0)

    # Smoothed marginals come from the pairwise weights; at the last frame they equal the filtered marginals.
    totals = jnp.sum(a, 1)
    top = scaled.finite(jnp.max(own + scaled.exponent(totals)))
    alone = jnp.where(totals > 0, scaled.power(own - top), 0.0)
    total = jnp.sum(alone * totals)
    alone = jnp.where(real, 0.0, alone * (weight[video] / jnp.where(total > 0, total, 1.0)))
    marginals = a * (jnp.sum(weights[:, :, None] * back[None, :, :], 1) + alone[:, None])

    @pl.when(t == 0)
    def _() -> None:
        before_out[launch.chunk_index(before_out, video, 0, videos)] = jnp.zeros_like(a)

    @pl.when(t < num_frames)
    def _() -> None:
        phases_out[video, t], configs_out[video, t] = jnp.sum(marginals, 1), jnp.sum(marginals, 0)
        pairs_out[video, t] = pairs


def statistics(
    rows: Array, scale: Array, table: tuple[Array, Array], lengths: Array, weight: Array
) -> tuple[Array, Array, Array, Array]:
    """Compute the marginals of every frame and the statistics of every pair of frames.

    Args:
        rows: (2, B, T, P, C) messages of both directions, from `sweep`.
        scale: (2, B, T, P) scale of the rows, from `sweep`.
        table: mantissas and exponents (P, P) of the phase transition.
        lengths: (B,) number of frames of each video.
        weight: (B,) weight of each video.

    Returns:
        phases (B, T, P) and configs (B, T, C) marginals;
        pairs (B, T, P, P) expected phase transitions;
        before (P, B * chunks, frames per chunk, C) normalized u_t(q, c*): the sum over frames of its outer products
        with `after` of `sweep` is the derivative with respect to the joint tool transition.
    """
    _, videos, num_frames, num_phases, num_configs = rows.shape
    shapes = ((num_phases,), (num_configs,), (num_phases, num_phases))
    out: list[Any] = [jax.ShapeDtypeStruct((videos, num_frames, *shape), rows.dtype) for shape in shapes]
    chunked = launch.chunked_shape(videos, num_frames, num_phases, num_configs)
    out.append(jax.ShapeDtypeStruct(chunked, rows.dtype))
    grid = (videos, chunked[1] // videos * chunked[2] - 1)
    operands = rows[0], rows[1], scale[0], scale[1], *table, lengths, weight
    return launch.call(_pair_kernel, WARPS, grid, out, *operands)
