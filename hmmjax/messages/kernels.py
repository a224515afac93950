"""GPU kernels (Pallas, Triton): a whole video's recursion in one launch, its message in registers all the while.

A message is (P, C): phases padded to a power of two, configurations along the threads. One program runs one video in
one direction of time, so both directions of all videos are one launch. Frames after a video's length are never
written.

The step is the same in both directions: evidence if backwards, the tools' transition one bit at a time, evidence if
forwards, then the mixture over phases with the arithmetic of `scaled`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from hmmjax._core.typing import Array
from hmmjax.messages import scaled

SWEEP_WARPS, PAIR_WARPS, BEST_WARPS, TRACE_WARPS = 4, 1, 4, 4
"""Warps a program, by measurement (benchmarks/hmm.py)."""

CHUNK = 1024
"""Frames whose counts are summed by one matrix product."""


def _call(kernel: Any, warps: int, grid: tuple[int, ...], out_shape: Any, *operands: Array) -> Any:
    """Launch; interpreted where there is no GPU (the tests)."""
    interpret = jax.default_backend() != "gpu"
    params = None if interpret else plgpu.CompilerParams(num_warps=warps, num_stages=1)
    return pl.pallas_call(kernel, grid=grid, out_shape=out_shape, interpret=interpret, compiler_params=params)(
        *operands
    )


def _bit(k: int, num_bits: int, shape: Any) -> tuple[int, int, int, int]:
    """Shape in which bit k of the configuration has an axis of its own."""
    right = 1 << (num_bits - 1 - k)
    return shape[0], shape[1] // (2 * right), 2, right


def _combine(x: Array, tables: Any, k: int, num_bits: int, join: Any) -> Array:
    """One bit's step: new bit j is `join` over old bits i of x with tables[j], both laid out as x."""
    split = _bit(k, num_bits, x.shape)
    to = [join(x, table).reshape(split) for table in tables]
    reduce = jnp.sum if join is jnp.multiply else jnp.max
    absent, present = (reduce(y, 2)[:, :, None, :] for y in to)
    own = lax.broadcasted_iota(jnp.int32, split, 2)
    return jnp.where(own == 0, absent, present).reshape(x.shape)


def _sweep(configs, phases, scales, mantissas, exponents, tables, initial, lengths, rows_out, scale_out, totals_out,
           after_out, reference_out, *, num_bits: int, keep: bool, both: bool) -> None:  # fmt: skip
    direction, video = pl.program_id(0), pl.program_id(1)
    length = lengths[video]
    forwards = direction == 0
    mantissa, exponent = mantissas[direction], exponents[direction]
    steps = [(tables[direction, k, 0], tables[direction, k, 1]) for k in range(num_bits)]
    shape = initial.shape[1:]
    columns = lax.broadcasted_iota(jnp.int32, shape, 1)

    def load(i: Any) -> tuple:
        # Asked for one step ahead, so that memory answers while the step before is computed. The row is read once
        # for every phase: in the message's own layout, where one read would have to change hands between threads.
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
            x = _combine(x, steps[k], k, num_bits, jnp.multiply)
        # The initial message is already one of this frame.
        x = jnp.where(forwards & (i == 0), rows, x)
        x = x * jnp.where(forwards, c, 1.0) * jnp.where(forwards, p, 1.0)[:, None]
        totals, scale = jnp.sum(x, 1), scale + s
        # Of order one: products of two messages and mixtures over phases are made of it.
        scale, factor = scaled.order_one(scale, totals)
        x, totals = x * factor[:, None], totals * factor
        scale_out[direction, video, t] = scale
        if keep:
            rows_out[direction, video, t] = x
        if keep and both:
            at = (slice(None), *_place(after_out, video, t, configs.shape[0]))
            pl.when(~forwards)(lambda: after_out.__setitem__(at, own * factor[:, None]))
        weights, scale, reference = scaled.reweigh(scale, totals, mantissa, exponent)
        rows = jnp.sum(weights[:, :, None] * x[:, None, :], 0)
        reference_out[direction, video, t] = reference
        return scale, rows, totals, following

    start = jnp.where(forwards, initial[0], initial[1])
    zero = jnp.zeros(start.shape[0], start.dtype)
    totals_out[direction, video] = lax.fori_loop(0, length, step, (zero, start, zero, load(0)))[2]
    if keep and both:

        @pl.when(~forwards)
        def _() -> None:
            # What a matrix product will read must be numbers.
            def clear(t: Any, _: Any) -> None:
                after_out[(slice(None), *_place(after_out, video, t, configs.shape[0]))] = jnp.zeros_like(start)

            lax.fori_loop(length, after_out.shape[1] // configs.shape[0] * after_out.shape[2], clear, None)


def _place(x: Any, video: Any, t: Any, videos: int) -> tuple:
    """Where frame t of a video lies in the layout (P, videos * chunks, frames a chunk, C)."""
    return video * (x.shape[1] // videos) + t // x.shape[2], t % x.shape[2]


def sweep(evidence: scaled.Evidence, table: tuple[Array, Array], blocks: tuple[Array, ...], initial: Array,
          lengths: Array, *, both: bool, keep: bool) -> tuple[Array, Array, Array, Array, Array]:  # fmt: skip
    """Messages of all frames.

    Args:
        evidence: of (B, T) frames, phases padded to P.
        table: mantissas and exponents (P, P) of the phase transition.
        blocks: (2, 2, P) per tool.
        initial: (P, C).
        lengths: (B,).
        both: run backwards too; else the leading axes below are 1 and `after` is of no use.
        keep: write rows; else they are of no use.

    Returns:
        rows (2, B, T, P, C): filtered messages, and what frame t and all after it say of the configuration before, each
        of order one;
        scale (2, B, T, P): of the rows;
        totals (2, B, P): sums of the last filtered row, and of the first backward one;
        after (P, B * chunks, frames a chunk, C): what frame t and all after it say of its own configuration, of the
        backward rows' scale, zero after the end;
        references (2, B, T): powers of two taken out after a frame.
    """
    videos, num_frames, num_configs = evidence.configs.shape
    num_phases, dtype, num_bits = initial.shape[0], initial.dtype, len(blocks)
    directions = 2 if both else 1
    own = (jnp.arange(num_configs) >> jnp.arange(num_bits - 1, -1, -1)[:, None]) & 1

    def per_thread(k: int, block: Array) -> Array:
        return jnp.stack([jnp.moveaxis(block[own[k], j], -1, 0) for j in (0, 1)])

    tables = [[per_thread(k, b) for k, b in enumerate(blocks)]]
    tables += [[per_thread(k, jnp.swapaxes(b, 0, 1)) for k, b in enumerate(blocks)]]
    operands = (
        evidence.configs, evidence.phases, evidence.scale,
        *(jnp.stack([x, x.T]) for x in table),
        jnp.stack([jnp.stack(t) for t in tables]),
        jnp.stack([initial, jnp.ones_like(initial)]),
        lengths,
    )  # fmt: skip
    frames = (directions, videos, num_frames)
    shapes = (
        (*frames, num_phases, num_configs) if keep else (1,) * 5,
        (*frames, num_phases),
        (directions, videos, num_phases),
        _chunked(videos, num_frames, num_phases, num_configs) if keep and both else (1,) * 4,
        frames,
    )
    out = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    kernel = partial(_sweep, num_bits=num_bits, keep=keep, both=both)
    return _call(kernel, SWEEP_WARPS, (directions, videos), out, *operands)


def _chunked(videos: int, num_frames: int, num_phases: int, num_configs: int) -> tuple[int, int, int, int]:
    """Shape of rows in chunks: one frame more than there are, as pairs of frames are kept under the later one."""
    chunks = -(-(num_frames + 1) // CHUNK)
    return num_phases, videos * chunks, -(-(num_frames + 1) // chunks), num_configs


def _pair(alpha, pulled, alpha_scale, pulled_scale, mantissas, exponents, lengths, weight,
          phases_out, configs_out, pairs_out, before_out) -> None:  # fmt: skip
    video, t = pl.program_id(0), pl.program_id(1)
    (videos, num_frames), length = alpha.shape[:2], lengths[video]
    last, following = jnp.minimum(t, num_frames - 1), jnp.minimum(t + 1, num_frames - 1)
    inside, real = t < length, t < length - 1
    # What was never written (after the end) may be anything: select, do not multiply.
    a = jnp.where(inside, alpha[video, last], 0.0)
    back = jnp.where(real, pulled[video, following], 0.0)
    own = jnp.where(inside, alpha_scale[video, last], -jnp.inf)
    exponent = exponents[...]

    # Pairs (t, t + 1), each frame normalized by its own two-sided sum so that counts add up to the frames.
    shift = own[:, None] + jnp.where(real, pulled_scale[video, following], -jnp.inf)[None, :]
    pairs = jnp.sum(a[:, None, :] * back[None, :, :], 2)
    top = scaled.finite(jnp.max(shift + exponent + scaled.exponent(pairs)))
    weights = jnp.where(pairs > 0, mantissas[...] * scaled.power(shift + exponent - top), 0.0)
    total = jnp.sum(weights * pairs)
    scale = weight[video] / jnp.where(total > 0, total, 1.0)
    weights = weights * scale
    # Where the table is zero its derivative still is what a little probability there would be worth.
    pairs = jnp.where(exponent > -jnp.inf, weights, scaled.power(shift - top) * scale) * pairs
    before_out[(slice(None), *_place(before_out, video, t + 1, videos))] = jnp.sum(
        weights[:, :, None] * a[:, None, :], 0
    )

    # What is to come says of this frame's phases and configurations the pairs' weights; of the last frame's, nothing.
    totals = jnp.sum(a, 1)
    top = scaled.finite(jnp.max(own + scaled.exponent(totals)))
    alone = jnp.where(totals > 0, scaled.power(own - top), 0.0)
    total = jnp.sum(alone * totals)
    alone = jnp.where(real, 0.0, alone * (weight[video] / jnp.where(total > 0, total, 1.0)))
    marginals = a * (jnp.sum(weights[:, :, None] * back[None, :, :], 1) + alone[:, None])

    @pl.when(t == 0)
    def _() -> None:
        before_out[(slice(None), *_place(before_out, video, 0, videos))] = jnp.zeros_like(a)

    @pl.when(t < num_frames)
    def _() -> None:
        phases_out[video, t], configs_out[video, t] = jnp.sum(marginals, 1), jnp.sum(marginals, 0)
        pairs_out[video, t] = pairs


def pair(rows: Array, scale: Array, table: tuple[Array, Array], lengths: Array, weight: Array
         ) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Marginals of every frame, and of every pair of frames what the counts are sums of.

    Args:
        rows: as `sweep` gives.
        scale: likewise.
        table: as `sweep` takes.
        lengths: likewise.
        weight: (B,) what each video counts.

    Returns:
        phases (B, T, P) and configs (B, T, C) marginals, pairs (B, T, P, P) expected phase transitions, and before
        (P, B * chunks, frames a chunk, C), what each frame's configuration was before its tools moved: the sum over
        frames of its outer products with `after` is the derivative with respect to the joint tool transition.
    """
    _, videos, num_frames, num_phases, num_configs = rows.shape
    shapes = ((num_phases,), (num_configs,), (num_phases, num_phases))
    out = [jax.ShapeDtypeStruct((videos, num_frames, *shape), rows.dtype) for shape in shapes]
    chunked = _chunked(videos, num_frames, num_phases, num_configs)
    out.append(jax.ShapeDtypeStruct(chunked, rows.dtype))
    grid = (videos, chunked[1] // videos * chunked[2] - 1)
    return _call(_pair, PAIR_WARPS, grid, out, rows[0], rows[1], scale[0], scale[1], *table, lengths, weight)


def _best(configs, phases, log_transition, tables, initial, lengths, scores_out, *, num_bits: int) -> None:
    video = pl.program_id(0)
    length = lengths[video]
    steps = [(tables[k, 0], tables[k, 1]) for k in range(num_bits)]
    transition, start = log_transition[...], initial[...]
    columns = lax.broadcasted_iota(jnp.int32, start.shape, 1)

    def load(i: Any) -> tuple:
        t = jnp.clip(i, 0, jnp.maximum(length - 1, 0))
        return configs[video, jnp.broadcast_to(t, start.shape), columns], phases[video, t]

    def step(t: Any, carry: tuple) -> tuple:
        x, (c, p) = carry
        following = load(t + 1)
        x = x + c + p[:, None]
        top = jnp.max(x)
        x = x - jnp.where(top > -jnp.inf, top, 0.0)
        scores_out[video, t] = x
        x = jnp.max(x[:, None, :] + transition[:, :, None], 0)
        for k in range(num_bits):
            x = _combine(x, steps[k], k, num_bits, jnp.add)
        return x, following

    lax.fori_loop(0, length, step, (start, load(0)))


def _trace(scores, into_phase, into_config, lengths, phases_out, configs_out) -> None:
    video = pl.program_id(0)
    length = lengths[video]
    num_phases, num_configs = scores.shape[-2:]
    place = lax.broadcasted_iota(jnp.int32, (num_phases, num_configs), 0) * num_configs
    place = place + lax.broadcasted_iota(jnp.int32, (num_phases, num_configs), 1)

    def load(i: Any) -> Array:
        return scores[video, jnp.clip(length - 1 - i, 0, scores.shape[1] - 1)]

    def step(i: Any, carry: tuple) -> tuple:
        state, score = carry
        following = load(i + 1)
        t = length - 1 - i
        q, c = state // num_configs, state % num_configs
        reached = score + into_phase[q][:, None] + into_config[q, c][None, :]
        reached = jnp.where(i == 0, score, reached)
        best = jnp.max(reached)
        state = jnp.min(jnp.where(reached == best, place, num_phases * num_configs - 1))
        phases_out[video, t] = state // num_configs
        configs_out[video, t] = state % num_configs
        return state, following

    lax.fori_loop(0, length, step, (jnp.int32(0), load(0)))


def best_path(configs: Array, phases: Array, log_transition: Array, log_blocks: tuple[Array, ...], log_initial: Array,
              lengths: Array) -> tuple[Array, Array]:  # fmt: skip
    """The most probable path, phases and configurations (B, T) int32; garbage after the end. All in logarithms."""
    videos, num_frames, num_configs = configs.shape
    num_phases, num_bits = log_initial.shape[0], len(log_blocks)
    own = (jnp.arange(num_configs) >> jnp.arange(num_bits - 1, -1, -1)[:, None]) & 1
    tables = jnp.stack(
        [jnp.stack([jnp.moveaxis(b[own[k], j], -1, 0) for j in (0, 1)]) for k, b in enumerate(log_blocks)]
    )
    scores = _call(
        partial(_best, num_bits=num_bits), BEST_WARPS, (videos,),
        jax.ShapeDtypeStruct((videos, num_frames, num_phases, num_configs), configs.dtype),
        configs, phases, log_transition, tables, log_initial, lengths,
    )  # fmt: skip
    # Log-probability of configuration c in phase q from every configuration before: (P, C new, C old).
    into = [jnp.moveaxis(b[own[k][None, :], own[k][:, None]], -1, 0) for k, b in enumerate(log_blocks)]
    into_config = jnp.sum(jnp.stack(into), 0)
    path = [jax.ShapeDtypeStruct((videos, num_frames), jnp.int32)] * 2
    return _call(_trace, TRACE_WARPS, (videos,), path, scores, log_transition.T, into_config, lengths)
