"""The most probable path as `lax.scan`s over time, in logarithms: the companion of `scan`, in its layout.

Forwards only maxima are kept, of each frame's states (scores) and of their best phase before each next phase (mixed).
Backwards a configuration is then found among C and its phase among L, not both among L C.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array
from hmmjax.messages import batching
from hmmjax.messages.potentials import Path, Potentials

COLUMN = 16
"""Configurations up to which neighboring tools' log-transitions are added up beforehand."""


def _logs(x: Array, *axes: int) -> Array:
    """Logarithms, padded by phases that cannot be."""
    widths = [(0, -n % batching.LANES if axis in axes else 0) for axis, n in enumerate(x.shape)]
    return jnp.pad(jnp.log(x), widths, constant_values=-jnp.inf)


def _push_max(x: Array, blocks: tuple[Array, ...]) -> Array:
    """Best old configuration of every new one, x (C, L), one block (n, n, L) at a time."""
    left, right = 1, x.shape[0]
    for block in blocks:
        n = block.shape[0]
        right //= n
        y = x.reshape(left, n, 1, right, -1) + block[:, :, None, :]
        x, left = jnp.max(y, 1), left * n
    return x.reshape(-1, x.shape[-1])


def _added(blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    """Neighboring log-blocks as one of up to `COLUMN` configurations."""
    out: list[Array] = []
    for block in blocks:
        n = len(block)
        if out and len(out[-1]) * n <= COLUMN:
            size = len(out[-1]) * n
            out[-1] = (out[-1][:, None, :, None] + block[None, :, None, :]).reshape(size, size, -1)
        else:
            out.append(block)
    return tuple(out)


def _column(blocks: tuple[Array, ...], q: Array, c: Array, num_configs: int) -> Array:
    """Log-probability (C,) of reaching configuration c in phase q from every configuration before."""
    column, right = jnp.zeros((1,), blocks[0].dtype if blocks else jnp.float32), num_configs
    for block in blocks:
        n = len(block)
        right //= n
        own = lax.dynamic_index_in_dim(block, (c // right) % n, 1, keepdims=False)
        own = lax.dynamic_index_in_dim(own, q, 1, keepdims=False)
        column = (column[:, None] + own).reshape(-1)
    return column


def _largest(x: Array) -> Array:
    """Of (C, L), one axis after the other: XLA would else go through it number by number."""
    return jnp.max(lax.optimization_barrier(jnp.max(x, 0)))


def _viterbi(p: Potentials, chunks: Any, *, again: bool) -> Path:
    """One video; with `again` only each chunk's first message is kept and the rest found once more."""
    length, (num_frames, num_configs) = p.lengths, p.configs.shape
    transition = _logs(p.transition, 0, 1)
    blocks = tuple(_logs(jnp.moveaxis(b, 0, -1), 2) for b in p.blocks)
    columns = _added(blocks)
    padding = [(0, 0), (0, -p.phases.shape[-1] % batching.LANES)]
    phases = jnp.pad(p.phases, padding, constant_values=-jnp.inf)

    def step(carry: tuple, frame: tuple) -> tuple:
        predicted, final = carry
        configs, phases, t = frame
        score = predicted + (configs[:, None] + phases)
        top = _largest(score)
        top = jnp.where(top > -jnp.inf, top, 0)
        score = score - top
        # Configurations last, for this one step: a processor takes many of them at once.
        mixed = jnp.max(score.T[:, None, :] + transition[:, :, None], 0).T
        return (_push_max(mixed, blocks), jnp.where(t == length - 1, score, final)), (score, mixed, top)

    def run(carry: tuple, frames: tuple) -> tuple:
        following, (score, mixed, tops) = lax.scan(step, carry, frames)
        return following, (carry if again else (score, mixed), tops)

    first = _logs(p.initial.T, 1).astype(phases.dtype)
    frames = (*map(batching.in_chunks, (p.configs, phases)), batching.numbers(num_frames))
    (_, final), (kept, tops) = batching.loop(run, (first, jnp.full_like(first, -jnp.inf)), frames, chunks)
    tops = jnp.where(jnp.arange(num_frames) < length, tops.reshape(-1)[:num_frames], 0)
    log_prob = jnp.where(length > 0, num.accurate_sum(tops) + jnp.max(final), 0)

    def back(state: tuple, inputs: tuple) -> tuple:
        (score, mixed), t = inputs
        q, c = state
        into = lax.dynamic_index_in_dim(mixed, q, 1, keepdims=False) + _column(columns, q, c, num_configs)
        before = jnp.argmax(into).astype(jnp.int32)
        row = lax.dynamic_index_in_dim(score, before, 0, keepdims=False)
        row = row + lax.dynamic_index_in_dim(transition, q, 1, keepdims=False)
        state = jax.tree.map(partial(jnp.where, t < length - 1), (jnp.argmax(row).astype(jnp.int32), before), state)
        return state, state

    def back_chunk(state: tuple, inputs: tuple) -> tuple:
        kept, frames = inputs
        messages = lax.scan(step, kept, frames)[1][:2] if again else kept
        return lax.scan(back, state, (messages, frames[2]), reverse=True)

    best = jnp.argmax(final).astype(jnp.int32)
    state = best % final.shape[1], best // final.shape[1]
    _, path = batching.loop(back_chunk, state, (kept, frames), chunks, reverse=True)
    phases, configs = (x.reshape(-1)[:num_frames] for x in path)
    return Path(phases, configs, log_prob)


def viterbi(potentials: Potentials) -> Path:
    """Most probable paths (B, T). Time as for one forward pass and C + L a step back.

    Memory: 2 T L C floats a video; above `batching.STORED_BYTES` 2 L C floats a chunk, for a second forward pass.
    """
    return batching.map_videos(partial(_viterbi, again=batching.too_large(potentials)), potentials)
