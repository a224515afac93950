"""The kernel of the forward and backward recursions: a whole video in one launch, its message always in registers.

One program runs one video in one direction of time, so that both directions of all videos are one launch. Frames
outside of videos are neither read nor written. The arithmetic is that of `scaled`, with exponents as integers and rows
scaled by their largest entry, for which there is an instruction, rather than by their sum.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hmmjax._core.packing import Packing
from hmmjax._core.typing import Array
from hmmjax.messages import scaled
from hmmjax.messages.gpu import launch

WARPS = 8
"""Warps per program, by measurement (benchmarks/hmm.py)."""


def _sweep_kernel(configs, phases, scales, mantissas, exponents, tables, initial, starts, lengths, order, index,
                  rows_out, scale_out, totals_out, last_out, *, save: bool) -> None:  # fmt: skip
    video = order[pl.program_id(1)]
    start = starts[video]
    end = start + lengths[video]
    num_rows, num_phases, width = initial.shape[1:]
    shape, flat, square = (num_rows, num_phases, width), (1, num_phases, width), (1, num_phases, num_phases, width)
    row, _, lane = everywhere = launch.place(index, shape)
    phase = launch.opaque(index, flat, 1)
    of_pair = launch.opaque(index, square, 1), launch.opaque(index, square, 2)
    entries = launch.load_tables(tables, index)

    def run(direction: int) -> None:
        forwards = direction == 0
        mantissa, exponent = mantissas[(direction, *of_pair)], exponents[(direction, *of_pair)]

        def frame(i: Any) -> Any:
            return i if forwards else start + end - 1 - i

        def load(i: Any) -> tuple:
            # Requested one step ahead, to hide the latency of memory. The row of configurations is read for every
            # phase, in the layout of the message: a single read would have to be exchanged between warps.
            t = jnp.maximum(frame(jnp.minimum(i, end - 1)), 0)
            return configs[t, row, lane], phases[t, phase], scales[t, phase]

        def step(i: Any, carry: tuple) -> tuple:
            scale, x, (removed, reference, _, _), (c, p, s) = carry
            following = load(i + 1)
            t = frame(i)
            own = x * c
            x = own if forwards else launch.pull(own, entries)[0]
            # Of order one, by the largest entry: products of messages and the phase transition are computed from it.
            largest = jnp.max(jnp.max(launch.as_bits(x), 0, keepdims=True), 2, keepdims=True)
            biased = (largest + jnp.zeros(flat, jnp.int32)) >> 23
            factor = jnp.where(biased > 0, launch.as_float((254 - biased) << 23), 1.0) * p
            scale = scale + s + jnp.where(biased > 0, biased - 127, 0)
            scale = jnp.where((largest > 0) & (p > 0), scale, launch.NEVER)
            x = x * factor
            # The phase transition, as in `scaled.predict_phases`.
            scales_before = launch.from_phases(scale) + jnp.zeros(square, jnp.int32)
            mixed, top = launch.predict(launch.from_phases(x), scales_before, mantissa, exponent)
            following_reference = jnp.max(scales_before, 1)
            following_reference = jnp.where(following_reference > launch.NEVER // 2, following_reference, 0)
            mixed = launch.push(mixed, entries) if forwards else mixed
            if save:  # Here, so that no warp waits for these stores before it exchanges its message.
                scale_out[direction, t, phase] = scale
                rows_out[(direction, t, *everywhere)] = x if forwards else own * factor
            ends = removed + reference, following_reference, scale, x
            return top - following_reference, mixed, ends, following

        zero, none = jnp.zeros(shape, initial.dtype), jnp.zeros(flat, jnp.int32)
        first = none, initial[(direction, *everywhere)], (none, none, none, zero), load(start)
        # Frames by their number in the row: the same loop from 0 on takes a fifth longer.
        removed, _, scale, x = lax.fori_loop(start, end, step, first)[2]
        totals_out[direction, video, phase] = launch.total(x)
        last_out[direction, video, 0, phase], last_out[direction, video, 1, phase] = scale, removed

    for direction in range(rows_out.shape[0] if save else 1):
        pl.when(pl.program_id(0) == direction)(partial(run, direction))


def _launch_order(lengths: Array) -> Array:
    """Return the videos in an order in which short ones are launched first and last, and long ones between.

    Programs launched last share a multiprocessor with the first ones if there are too few for all: long videos, on
    whose time a launch ends, then have one to themselves.
    """
    ascending = jnp.argsort(lengths)
    return jnp.concatenate([ascending[::2], ascending[1::2][::-1]]).astype(jnp.int32)


def sweep(
    likelihoods: scaled.Likelihoods,
    table: tuple[Array, Array],
    blocks: tuple[Array, ...],
    initial: Array,
    packing: Packing,
    *,
    backwards_too: bool,
    save: bool,
) -> tuple[Array, Array, Array, Array]:
    """Run the recursions over all videos, with the symbols of `hmmjax.messages.scan.backward_pass`.

    Args:
        likelihoods: of N frames, phases padded to P.
        table: mantissas and exponents (P, P) of the phase transition, as `launch.integers`.
        blocks: (2, 2, P) per tool.
        initial: (P, C) probabilities of the first joint state.
        packing: positions of B videos among the frames.
        backwards_too: run backwards too, which needs `save`; otherwise the leading axes below are 1.
        save: write rows; otherwise they are not valid.

    Returns:
        rows (2, N, R, P, W): forward messages alpha_t(q, c), and e_t(q, c) beta_t(q, c), each of order one; neither
        they nor their scale are valid outside of videos;
        scale (2, N, P): of the rows, int32;
        totals (2, B, P): sums of the last forward row, and of the first backward one before emission likelihoods;
        last (2, B, 2, P): its scale, and the exponents of two that were removed on the way; int32.
    """
    videos, (num_frames, num_configs) = len(packing.lengths), likelihoods.configs.shape
    num_phases, dtype = initial.shape[0], initial.dtype
    directions = 2 if backwards_too else 1
    start = launch.messages(initial)
    operands = (
        likelihoods.configs.reshape(num_frames, *launch.rows(num_configs)),
        likelihoods.phases, likelihoods.scale.astype(jnp.int32),
        *(jnp.stack([x, x.T]) for x in table),
        launch.tables(blocks), jnp.stack([start, jnp.ones_like(start)]),
        launch.starts(packing, num_frames), packing.lengths, _launch_order(packing.lengths),
        launch.indices(num_phases, num_configs),
    )  # fmt: skip
    frames = (directions, num_frames)
    out = [
        jax.ShapeDtypeStruct((*frames, *start.shape) if save else (1,) * 5, dtype),
        jax.ShapeDtypeStruct((*frames, num_phases), jnp.int32),
        jax.ShapeDtypeStruct((directions, videos, num_phases), dtype),
        jax.ShapeDtypeStruct((directions, videos, 2, num_phases), jnp.int32),
    ]
    return launch.call(partial(_sweep_kernel, save=save), WARPS, (directions, videos), out, *operands)
