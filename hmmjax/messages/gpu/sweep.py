"""The kernel of the forward and backward recursions: a whole video in one launch, its message always in registers.

One program runs one video in one direction of time, so that both directions of all videos are one launch. Frames after
a video's length are never written. The step is the same in both directions: multiply by the emission likelihoods if
backwards, apply the tools' transition one bit at a time, multiply by the likelihoods if forwards, then apply the phase
transition with the arithmetic of `scaled`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hmmjax._core.typing import Array
from hmmjax.messages import scaled
from hmmjax.messages.gpu import launch

WARPS = 4
"""Warps per program, by measurement (benchmarks/hmm.py)."""


def _sweep_kernel(configs, phases, scales, mantissas, exponents, tables, initial, lengths, rows_out, scale_out,
                  totals_out, after_out, reference_out, *, num_bits: int, save: bool,
                  backwards_too: bool) -> None:  # fmt: skip
    direction, video = pl.program_id(0), pl.program_id(1)
    length = lengths[video]
    forwards = direction == 0
    mantissa, exponent = mantissas[direction], exponents[direction]
    steps = [(tables[direction, k, 0], tables[direction, k, 1]) for k in range(num_bits)]
    shape = initial.shape[1:]
    columns = lax.broadcasted_iota(jnp.int32, shape, 1)

    def load(i: Any) -> tuple:
        # Requested one step ahead, to hide the latency of memory. The row of configurations is read once for every
        # phase, in the layout of the message: a single read would have to be exchanged between threads.
        t = jnp.clip(i, 0, jnp.maximum(length - 1, 0))
        t = jnp.where(forwards, t, jnp.maximum(length - 1, 0) - t)
        return configs[video, jnp.broadcast_to(t, shape), columns], phases[video, t], scales[video, t]

    def step(i: Any, carry: tuple) -> tuple:
        scale, rows, _, (c, p, s) = carry
        following = load(i + 1)
        t = jnp.where(forwards, i, length - 1 - i)
        own = rows * jnp.where(forwards, 1.0, c) * jnp.where(forwards, 1.0, p)[:, None]
        x = own
        for k in range(num_bits):
            x = launch.push_bit(x, steps[k], k, num_bits, jnp.multiply)
        # The initial message is already one of this frame.
        x = jnp.where(forwards & (i == 0), rows, x)
        x = x * jnp.where(forwards, c, 1.0) * jnp.where(forwards, p, 1.0)[:, None]
        totals, scale = jnp.sum(x, 1), scale + s
        # Of order one: products of two messages and the phase transition are computed from it.
        scale, factor = scaled.normalize(scale, totals)
        x, totals = x * factor[:, None], totals * factor
        scale_out[direction, video, t] = scale
        if save:
            rows_out[direction, video, t] = x
        if save and backwards_too:
            at = launch.chunk_index(after_out, video, t, configs.shape[0])
            pl.when(~forwards)(lambda: after_out.__setitem__(at, own * factor[:, None]))
        weights, scale, reference = scaled.predict_phases(scale, totals, mantissa, exponent)
        rows = jnp.sum(weights[:, :, None] * x[:, None, :], 0)
        reference_out[direction, video, t] = reference
        return scale, rows, totals, following

    start = jnp.where(forwards, initial[0], initial[1])
    zero = jnp.zeros(start.shape[0], start.dtype)
    totals_out[direction, video] = lax.fori_loop(0, length, step, (zero, start, zero, load(0)))[2]
    if save and backwards_too:

        @pl.when(~forwards)
        def _() -> None:
            # A matrix product will read these frames, so they must be numbers.
            def clear(t: Any, _: Any) -> None:
                after_out[launch.chunk_index(after_out, video, t, configs.shape[0])] = jnp.zeros_like(start)

            lax.fori_loop(length, after_out.shape[1] // configs.shape[0] * after_out.shape[2], clear, None)


def sweep(
    likelihoods: scaled.Likelihoods,
    table: tuple[Array, Array],
    blocks: tuple[Array, ...],
    initial: Array,
    lengths: Array,
    *,
    backwards_too: bool,
    save: bool,
) -> tuple[Array, Array, Array, Array, Array]:
    """Run the recursions over all videos, with the symbols of `hmmjax.messages.scan.backward_pass`.

    Args:
        likelihoods: of (B, T) frames, phases padded to P.
        table: mantissas and exponents (P, P) of the phase transition.
        blocks: (2, 2, P) per tool.
        initial: (P, C) probabilities of the first joint state.
        lengths: (B,) number of frames of each video.
        backwards_too: run backwards too; otherwise the leading axes below are 1 and `after` is not valid.
        save: write rows; otherwise rows and `after` are not valid.

    Returns:
        rows (2, B, T, P, C): forward messages alpha_t(q, c), and backward messages v_t(q, c*), each of order one;
        scale (2, B, T, P): of the rows;
        totals (2, B, P): sums of the last forward row, and of the first backward one;
        after (P, B * chunks, frames per chunk, C): e_t(q, c) beta_t(q, c) in the backward rows' scale, zero after the
        end;
        references (2, B, T): exponents of two that were removed after each frame.
    """
    videos, num_frames, num_configs = likelihoods.configs.shape
    num_phases, dtype, num_bits = initial.shape[0], initial.dtype, len(blocks)
    directions = 2 if backwards_too else 1
    operands = (
        likelihoods.configs, likelihoods.phases, likelihoods.scale,
        *(jnp.stack([x, x.T]) for x in table),
        jnp.stack([launch.per_thread(blocks), launch.per_thread(tuple(jnp.swapaxes(b, 0, 1) for b in blocks))]),
        jnp.stack([initial, jnp.ones_like(initial)]),
        lengths,
    )  # fmt: skip
    frames = (directions, videos, num_frames)
    shapes = (
        (*frames, num_phases, num_configs) if save else (1,) * 5,
        (*frames, num_phases),
        (directions, videos, num_phases),
        launch.chunked_shape(videos, num_frames, num_phases, num_configs) if save and backwards_too else (1,) * 4,
        frames,
    )
    out = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    kernel = partial(_sweep_kernel, num_bits=num_bits, save=save, backwards_too=backwards_too)
    return launch.call(kernel, WARPS, (directions, videos), out, *operands)
