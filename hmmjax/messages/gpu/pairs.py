"""The kernels of marginals: smoothed ones with the expected counts of transitions, and filtered ones.

A program runs some frames of one video. Its frames' counts are summed in registers.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hmmjax._core.packing import Packing
from hmmjax._core.typing import Array
from hmmjax.messages.gpu import launch

PAIR_WARPS, FILTER_WARPS = 4, 4
"""Warps per program, by measurement (benchmarks/hmm.py)."""

FRAMES = 64
"""Frames per program."""


def _pair_kernel(rows, scales, mantissas, exponents, tables, initial, chunks, weight, index,
                 phases_out, configs_out, pairs_out, counts_out) -> None:  # fmt: skip
    program, num_bits = pl.program_id(0), tables.shape[0]
    begin, first, stop, video = (chunks[program, i] for i in range(4))
    _, num_phases, width = shape = initial.shape
    flat, square = (1, num_phases, width), (1, num_phases, num_phases, width)
    everywhere = launch.place(index, shape)
    phase, before = launch.opaque(index, flat, 1), launch.opaque(index, square, 1)
    mantissa, exponent = (x[before, launch.opaque(index, square, 2)] for x in (mantissas, exponents))
    entries = launch.load_tables(tables, index)

    def load(i: Any) -> tuple:
        t = jnp.maximum(jnp.minimum(first + i, stop - 1), begin)
        previous = jnp.maximum(t - 1, begin)  # the first frame lacks one
        own = rows[(1, t, *everywhere)], scales[1, t, phase]
        return *own, rows[(0, previous, *everywhere)], scales[0, previous, before]

    def step(i: Any, carry: tuple) -> tuple:
        transitions, counts, (after, scale_after, a, scale) = carry
        following = load(i + 1)
        t = first + i
        pulled = launch.pull(after, entries)
        a = launch.from_phases(a)
        u, top = launch.predict(a, scale, mantissa, exponent)

        # Each frame is normalized by its own two-sided sum, so that counts add up to the number of frames.
        start = initial[everywhere]
        totals = launch.total(jnp.where(t > begin, u * pulled[0], start * after))
        shift = scale_after + jnp.where(t > begin, top, 0)
        best, inverse = _normalizer(totals, shift, square)
        inverse = inverse * weight[video]
        own = launch.scaled(launch.ONE, jnp.minimum(shift - best, 127)) * inverse
        phases_out[t, phase] = own * totals

        # At a structural zero, the one-sided derivative.
        joint = jnp.sum(a * pulled[0][:, None], 0, keepdims=True) * jnp.where(t > begin, inverse, 0.0)[:, None]
        shift = scale + (scale_after - best)[:, None] + jnp.where(exponent > launch.NEVER // 2, exponent, 0)
        transitions = transitions + launch.scaled(mantissa, jnp.minimum(shift, 127)) * joint

        # Sums over all but bit k of messages pushed through the bits before it and pulled back through those after it.
        u = u * jnp.where(t > begin, own, 0.0)
        summed = []
        for k in range(num_bits):
            stay, come = entries[k]
            flipped = launch.flip(u, k, num_bits)
            pair = zip(counts[2 * k : 2 * k + 2], (u, flipped), strict=True)
            summed += [count + _own_bit(x * pulled[k + 1], k, num_bits) for count, x in pair]
            u = u * stay + flipped * come
        _store_configs(configs_out, t, index, jnp.where(t > begin, u, start * own) * after)
        return transitions, tuple(summed), following

    places = _count_places(num_bits, width)
    zero = tuple(jnp.zeros((own, num_phases, width), rows.dtype) for _, own in places for _ in (0, 1))
    number = jnp.clip(stop - first, 0, FRAMES)
    transitions, counts, _ = lax.fori_loop(0, number, step, (jnp.zeros(square, rows.dtype), zero, load(0)))
    transitions = jnp.sum(transitions, 3, keepdims=True) + jnp.zeros(square, rows.dtype)
    pairs_out[program, before, launch.opaque(index, square, 2)] = transitions
    for i, count in enumerate(counts):
        row, phase, lane = launch.place(index, count.shape)
        first, own = places[i // 2]
        counts_out[program, first + i % 2 * own + row, phase, lane] = count


def _count_places(num_bits: int, width: int) -> list[tuple[int, int]]:
    """Return the first row of each bit's counts, and the number of states that have a row of their own: 2 or 1."""
    owns = [2 if 1 << (num_bits - 1 - k) >= width else 1 for k in range(num_bits)]
    return [(2 * sum(owns[:k]), own) for k, own in enumerate(owns)]


def _chunks(packing: Packing, num_frames: int) -> Array:
    """Return (G, 4) int32 of every program: its video's first frame, its own, the video's end, and the video.

    Programs are as many as the videos of these lengths can need at most; the last ones may have no frames.
    """
    needed = -(-packing.lengths // FRAMES)
    videos, last = len(needed), jnp.cumsum(needed)
    number = min(-(-num_frames // FRAMES) + videos, videos * -(-packing.max_frames // FRAMES))
    program = jnp.arange(number, dtype=jnp.int32)
    video = jnp.minimum(jnp.searchsorted(last, program, side="right", method="compare_all"), videos - 1)
    begin = launch.starts(packing, num_frames)[video]
    first = begin + (program - (last - needed)[video]) * FRAMES
    return jnp.stack([begin, first, begin + packing.lengths[video], video], -1).astype(jnp.int32)


def _normalizer(totals: Array, shift: Array, square: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the largest exponent of 2**shift * totals (1, P, W) over phases, and the inverse of their sum.

    The sum is of numbers relative to that exponent; the inverse of an empty sum is one.
    """
    totals = launch.from_phases(totals) + jnp.zeros(square, totals.dtype)
    shift = launch.from_phases(shift) + jnp.zeros(square, jnp.int32)
    best = jnp.maximum(jnp.max(shift + launch.exponent(totals), 1), launch.NEVER // 2)
    total = jnp.sum(launch.scaled(launch.ONE, jnp.minimum(shift - best[:, None], 127)) * totals, 1)
    return best, 1 / jnp.where(total > 0, total, 1.0)


def _store_configs(configs_out: Any, t: Any, index: Any, weighted: Array) -> None:
    """Store the sums over phases of weighted messages (R, P, W) of frame t."""
    row, _, lane = launch.place(index, (weighted.shape[0], 1, weighted.shape[2]))
    configs_out[t, row, lane] = jnp.sum(weighted, 1, keepdims=True)


def _own_bit(x: Array, k: int, num_bits: int) -> Array:
    """Sum a message over configurations that the first axis tells apart, except by bit k."""
    split, axis = launch.split_bit(x, k, num_bits)
    return jnp.sum(jnp.sum(split, 2), 0) if axis == 1 else jnp.sum(x, 0, keepdims=True)


def statistics(
    rows: Array,
    scale: Array,
    table: tuple[Array, Array],
    blocks: tuple[Array, ...],
    initial: Array,
    packing: Packing,
    weight: Array,
) -> tuple[Array, Array, Array, tuple[Array, ...]]:
    """Compute the marginals of every frame and the sums of the statistics of pairs of frames.

    Args:
        rows: (2, N, R, P, W) messages of both directions, from `sweep`.
        scale: (2, N, P) scale of the rows, from `sweep`.
        table: mantissas and exponents (P, P) of the phase transition, as `launch.integers`.
        blocks: (2, 2, P) per tool.
        initial: (P, C) probabilities of the first joint state.
        packing: positions of B videos among the frames.
        weight: (B,) weight of each video.

    Returns:
        phases (N, P) and configs (N, C) marginals, not valid outside of videos;
        pairs (P, P) expected phase transitions;
        the derivative (2, 2, P) in every tool's block.
    """
    _, num_frames, num_rows, num_phases, width = rows.shape
    num_bits, chunks = len(blocks), _chunks(packing, num_frames)
    places = _count_places(num_bits, width)
    shapes = [
        (num_frames, num_phases), (num_frames, num_rows, width), (len(chunks), num_phases, num_phases),
        (len(chunks), 2 * sum(own for _, own in places), num_phases, width),
    ]  # fmt: skip
    out = [jax.ShapeDtypeStruct(shape, rows.dtype) for shape in shapes]
    phases, configs, pairs, counts = launch.call(
        _pair_kernel, PAIR_WARPS, (len(chunks),), out, rows, scale, *table, launch.tables(blocks),
        launch.messages(initial), chunks, weight, launch.indices(num_phases, num_rows * width)
    )  # fmt: skip
    gradients, counts = [], counts.sum(0)
    for k, (first, own) in enumerate(places):
        count = counts[first : first + 2 * own].reshape(2, own, num_phases, width)
        if own == 1:
            right = 1 << (num_bits - 1 - k)
            count = jnp.moveaxis(count.reshape(2, num_phases, width // (2 * right), 2, right), 3, 1)
        stay, come = count.reshape(2, 2, num_phases, -1).sum(-1) if count.ndim == 4 else count.sum((3, 4))
        gradients.append(jnp.stack([jnp.stack([stay[0], come[1]]), jnp.stack([come[0], stay[1]])]))
    return phases, configs.reshape(num_frames, -1), pairs.sum(0), tuple(gradients)


def _filter_kernel(rows, scales, chunks, index, phases_out, configs_out) -> None:
    first, stop = (chunks[pl.program_id(0), i] for i in (1, 2))
    _, num_phases, width = shape = rows.shape[2:]
    everywhere, phase = launch.place(index, shape), launch.opaque(index, (1, num_phases, width), 1)

    def step(i: Any, _: Any) -> None:
        t = first + i
        x, shift = rows[(0, t, *everywhere)], scales[0, t, phase]
        totals = launch.total(x)
        best, inverse = _normalizer(totals, shift, (1, num_phases, num_phases, width))
        own = launch.scaled(launch.ONE, jnp.minimum(shift - best, 127)) * inverse
        phases_out[t, phase] = own * totals
        _store_configs(configs_out, t, index, own * x)

    lax.fori_loop(0, jnp.clip(stop - first, 0, FRAMES), step, None)


def filtered(rows: Array, scale: Array, packing: Packing) -> tuple[Array, Array]:
    """Compute phases (N, P) and configs (N, C) given all frames so far; not valid outside of videos.

    Args:
        rows: (1, N, R, P, W) forward messages, from `sweep`.
        scale: (1, N, P) scale of the rows, from `sweep`.
        packing: positions of B videos among the frames.
    """
    _, num_frames, num_rows, num_phases, width = rows.shape
    shapes = (num_frames, num_phases), (num_frames, num_rows, width)
    out = [jax.ShapeDtypeStruct(shape, rows.dtype) for shape in shapes]
    chunks = _chunks(packing, num_frames)
    index = launch.indices(num_phases, num_rows * width)
    phases, configs = launch.call(_filter_kernel, FILTER_WARPS, (len(chunks),), out, rows, scale, chunks, index)
    return phases, configs.reshape(num_frames, -1)
