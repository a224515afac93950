"""The kernels of marginals: smoothed ones with the expected counts of transitions, and filtered ones.

A program runs some frames of one video and stops at the video's end. Its frames' counts are summed in registers.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from hmmjax._core.typing import Array
from hmmjax.messages.gpu import launch

PAIR_WARPS, FILTER_WARPS = 8, 4
"""Warps per program, by measurement (benchmarks/hmm.py)."""

FRAMES = 64
"""Frames per program, a multiple of `TOGETHER`."""

TOGETHER = 2
"""Frames that a program computes at once."""


def _pair_kernel(rows, scales, mantissas, exponents, tables, initial, lengths, weight, index,
                 phases_out, configs_out, pairs_out, *counts_out) -> None:  # fmt: skip
    video, program, num_bits = pl.program_id(0), pl.program_id(1), len(counts_out)
    num_rows, num_phases, width = initial.shape
    shape, flat = (num_rows, num_phases, TOGETHER, width), (1, num_phases, TOGETHER, width)
    square = (1, num_phases, num_phases, TOGETHER, width)
    everywhere, phase = launch.place(index, shape), launch.opaque(index, flat, 1)
    of_pair = launch.opaque(index, square, 1), launch.opaque(index, square, 2)
    mantissa, exponent = mantissas[of_pair], exponents[of_pair]
    entries = launch.load_tables(tables, index, TOGETHER)

    def step(i: Any, carry: tuple) -> tuple:
        transitions, counts = carry
        # Frame t and the one before, which the first frame lacks.
        t, t_flat, inside = _frames(i, lengths[video], shape)
        before, before_flat = (jnp.maximum(x - 1, 0) for x in (t, t_flat))
        after, scale_after = rows[(1, video, t, *everywhere)], scales[1, video, t_flat, phase]
        pulled = launch.pull(after, entries)
        a = launch.from_phases(rows[(0, video, before, *everywhere)])
        scale = launch.from_phases(scales[0, video, before_flat, phase]) + jnp.zeros(square, jnp.int32)
        u, top = launch.predict(a, scale, mantissa, exponent)

        # Each frame is normalized by its own two-sided sum, so that counts add up to the number of frames.
        start = initial[everywhere]
        totals = launch.total(jnp.where(t > 0, u * pulled[0], start * after))
        shift = scale_after + jnp.where(t_flat > 0, top, 0)
        best, inverse = _normalizer(totals, shift, square)
        inverse = jnp.where(inside, inverse * weight[video], 0.0)
        own = launch.scaled(launch.ONE, jnp.minimum(shift - best, 127)) * inverse
        _store_phases(phases_out, video, i, lengths[video], phase, own * totals)

        # At a structural zero, the one-sided derivative.
        joint = jnp.sum(a * pulled[0][:, None], 0, keepdims=True) * jnp.where(t_flat > 0, inverse, 0.0)[:, None]
        shift = scale + (scale_after - best)[:, None] + jnp.where(exponent > launch.NEVER // 2, exponent, 0)
        transitions = transitions + launch.scaled(mantissa, jnp.minimum(shift, 127)) * joint

        # Sums over all but bit k of messages pushed through the bits before it and pulled back through those after it.
        u = u * jnp.where(t_flat > 0, own, 0.0)
        summed = []
        for k in range(num_bits):
            stay, come = entries[k]
            flipped = launch.flip(u, k, num_bits)
            pair = zip(counts[2 * k : 2 * k + 2], (u, flipped), strict=True)
            summed += [count + _own_bit(x * pulled[k + 1], k, num_bits) for count, x in pair]
            u = u * stay + flipped * come
        _store_configs(configs_out, video, i, lengths[video], index, jnp.where(t > 0, u, start * own) * after)
        return transitions, tuple(summed)

    zero = tuple(jnp.zeros(out.shape[3:], rows.dtype) for out in counts_out for _ in (0, 1))
    transitions, counts = _over_frames(program, lengths[video], step, (jnp.zeros(square, rows.dtype), zero))
    before, after, frame = (launch.opaque(index, square, axis) for axis in (1, 2, 3))
    transitions = jnp.sum(transitions, 4, keepdims=True) + jnp.zeros(square, rows.dtype)
    pairs_out[video, program, before, after, frame] = transitions
    for i, count in enumerate(counts):
        row, phase, lane = launch.place(index, count.shape)
        frame = launch.opaque(index, count.shape, 2)
        counts_out[i // 2][video, program, i % 2, row, phase, frame, lane] = count
    _clear(program, lengths[video], phases_out, configs_out, index)


def _frames(i: Any, length: Any, shape: tuple[int, ...]) -> tuple[Any, Any, Any]:
    """Return the frames from i on of a message of this shape and of its flat form, and which of the latter exist.

    Past the end they are the last frame.
    """
    flat = (1, *shape[1:])
    t, t_flat = (i + lax.broadcasted_iota(jnp.int32, x, 2) for x in (shape, flat))
    return jnp.minimum(t, length - 1), jnp.minimum(t_flat, length - 1), t_flat < length


def _over_frames(program: Any, length: Any, step: Any, carry: Any) -> Any:
    """Run `step(i, carry)` for every `TOGETHER`th frame i of a program that lies before the end."""
    first = program * FRAMES
    number = -(-(jnp.minimum(first + FRAMES, length) - first) // TOGETHER)
    return lax.fori_loop(0, number, lambda i, carry: step(first + i * TOGETHER, carry), carry)


def _normalizer(totals: Array, shift: Array, square: tuple[int, ...]) -> tuple[Array, Array]:
    """Return the largest exponent of 2**shift * totals (1, P, F, W) over phases, and the inverse of their sum.

    The sum is of numbers relative to that exponent; the inverse of an empty sum is one.
    """
    totals = launch.from_phases(totals) + jnp.zeros(square, totals.dtype)
    shift = launch.from_phases(shift) + jnp.zeros(square, jnp.int32)
    best = jnp.maximum(jnp.max(shift + launch.exponent(totals), 1), launch.NEVER // 2)
    total = jnp.sum(launch.scaled(launch.ONE, jnp.minimum(shift - best[:, None], 127)) * totals, 1)
    return best, 1 / jnp.where(total > 0, total, 1.0)


def _store_phases(phases_out: Any, video: Any, i: Any, length: Any, phase: Any, marginals: Any) -> None:
    """Store marginals (1, P, F, W), the same in every lane, of the frames from i on."""
    t = i + lax.broadcasted_iota(jnp.int32, phase.shape, 2)
    plgpu.store(phases_out.at[video, t, phase], marginals, mask=t < length)


def _store_configs(configs_out: Any, video: Any, i: Any, length: Any, index: Any, weighted: Array) -> None:
    """Store the sums over phases of weighted messages (R, P, F, W) of the frames from i on."""
    shape = (weighted.shape[0], 1, TOGETHER, weighted.shape[3])
    row, _, lane = launch.place(index, shape)
    t = i + lax.broadcasted_iota(jnp.int32, shape, 2)
    plgpu.store(configs_out.at[video, t, row, lane], jnp.sum(weighted, 1, keepdims=True), mask=t < length)


def _clear(program: Any, length: Any, phases_out: Any, configs_out: Any, index: Any) -> None:
    """Write zeros as the marginals of a program's frames after the end."""
    video, first, (num_frames, num_rows, width) = pl.program_id(0), program * FRAMES, configs_out.shape[1:]
    phase = launch.opaque(index, (phases_out.shape[2],), 0)
    row, _, lane = launch.place(index, (num_rows, 1, 1, width))

    def clear(t: Any, _: Any) -> None:
        phases_out[video, t, phase] = jnp.zeros(phase.shape, phases_out.dtype)
        configs_out[video, t, row, lane] = jnp.zeros(row.shape, configs_out.dtype)

    lax.fori_loop(jnp.maximum(first, length), jnp.minimum(first + FRAMES, num_frames), clear, None)


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
    lengths: Array,
    weight: Array,
) -> tuple[Array, Array, Array, tuple[Array, ...]]:
    """Compute the marginals of every frame and the sums of the statistics of pairs of frames.

    Args:
        rows: (2, B, T, R, P, W) messages of both directions, from `sweep`.
        scale: (2, B, T, P) scale of the rows, from `sweep`.
        table: mantissas and exponents (P, P) of the phase transition, as `launch.integers`.
        blocks: (2, 2, P) per tool.
        initial: (P, C) probabilities of the first joint state.
        lengths: (B,) number of frames of each video.
        weight: (B,) weight of each video.

    Returns:
        phases (B, T, P) and configs (B, T, C) marginals, zero after the end;
        pairs (P, P) expected phase transitions;
        the derivative (2, 2, P) in every tool's block.
    """
    _, videos, num_frames, num_rows, num_phases, width = rows.shape
    num_bits, chunks = len(blocks), -(-num_frames // FRAMES)
    shapes = [(videos, num_frames, num_phases), (videos, num_frames, num_rows, width)]
    shapes.append((videos, chunks, num_phases, num_phases, TOGETHER))
    for k in range(num_bits):
        num_own = 2 if 1 << (num_bits - 1 - k) >= width else 1
        shapes.append((videos, chunks, 2, num_own, num_phases, TOGETHER, width))
    out = [jax.ShapeDtypeStruct(shape, rows.dtype) for shape in shapes]
    phases, configs, pairs, *counts = launch.call(
        _pair_kernel, PAIR_WARPS, (videos, chunks), out, rows, scale, *table, launch.tables(blocks),
        launch.messages(initial), lengths, weight, launch.indices(num_phases, num_rows * width)
    )  # fmt: skip
    gradients = []
    for k, count in enumerate(counts):
        count = count.sum((0, 1, 5))
        if count.shape[1] == 1:
            right = 1 << (num_bits - 1 - k)
            count = jnp.moveaxis(count.reshape(2, num_phases, width // (2 * right), 2, right), 3, 1)
        stay, come = count.reshape(2, 2, num_phases, -1).sum(-1) if count.ndim == 4 else count.sum((3, 4))
        gradients.append(jnp.stack([jnp.stack([stay[0], come[1]]), jnp.stack([come[0], stay[1]])]))
    return phases, configs.reshape(videos, num_frames, -1), pairs.sum((0, 1, 4)), tuple(gradients)


def _filter_kernel(rows, scales, lengths, index, phases_out, configs_out) -> None:
    video, program = pl.program_id(0), pl.program_id(1)
    num_rows, num_phases, width = rows.shape[3:]
    shape, flat = (num_rows, num_phases, TOGETHER, width), (1, num_phases, TOGETHER, width)
    everywhere, phase = launch.place(index, shape), launch.opaque(index, flat, 1)

    def step(i: Any, _: Any) -> None:
        t, t_flat, _ = _frames(i, lengths[video], shape)
        x, shift = rows[(0, video, t, *everywhere)], scales[0, video, t_flat, phase]
        totals = launch.total(x)
        best, inverse = _normalizer(totals, shift, (1, num_phases, num_phases, TOGETHER, width))
        own = launch.scaled(launch.ONE, jnp.minimum(shift - best, 127)) * inverse
        _store_phases(phases_out, video, i, lengths[video], phase, own * totals)
        _store_configs(configs_out, video, i, lengths[video], index, own * x)

    _over_frames(program, lengths[video], step, None)
    _clear(program, lengths[video], phases_out, configs_out, index)


def filtered(rows: Array, scale: Array, lengths: Array) -> tuple[Array, Array]:
    """Compute phases (B, T, P) and configs (B, T, C) given all frames so far, zero after the end.

    Args:
        rows: (1, B, T, R, P, W) forward messages, from `sweep`.
        scale: (1, B, T, P) scale of the rows, from `sweep`.
        lengths: (B,) number of frames of each video.
    """
    _, videos, num_frames, num_rows, num_phases, width = rows.shape
    shapes = (videos, num_frames, num_phases), (videos, num_frames, num_rows, width)
    out = [jax.ShapeDtypeStruct(shape, rows.dtype) for shape in shapes]
    grid = videos, -(-num_frames // FRAMES)
    index = launch.indices(num_phases, num_rows * width)
    phases, configs = launch.call(_filter_kernel, FILTER_WARPS, grid, out, rows, scale, lengths, index)
    return phases, configs.reshape(videos, num_frames, -1)
