"""Forward recursion and most probable path wholly in logarithms: slow, simple, and out of reach of underflow.

It is what "auto" takes where the scaled recursions could lose a state for good (`hmmjax._core.lowering.scaled_is_exact`), and its
gradient, by plain reverse-mode differentiation, is the independent check of the explicit backward sweep.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array
from hmmjax.messages.potentials import Filtered, Path, Potentials

CHUNK = 64
"""Frames that differentiation, and the way back along the best path, run through again from one kept message."""

STORED_BYTES = 2**30
"""Above this many bytes of scores the best path is found with one score per chunk kept."""

_AXES = Potentials(None, None, None, 0, 0, 0)


def push(x: Array, log_blocks: tuple[Array, ...]) -> Array:
    """Log-rows (L, C) through the Kronecker product of each phase's blocks, whose logarithms are (L, n, n)."""
    shape, right = x.shape, x.shape[-1]
    for block in log_blocks:
        n = block.shape[-1]
        right //= n
        x = x.reshape(shape[0], -1, n, right)
        x = num.logsumexp(x[:, :, :, None, :] + block[:, None, :, :, None], 2)
    return x.reshape(shape)


def _forward(potentials: Potentials) -> tuple[Array, tuple[Array, Array]]:
    log_transition = num.log(potentials.transition)
    log_blocks = tuple(num.log(b) for b in potentials.blocks)

    def step(predicted: Array, frame: tuple) -> tuple:
        phases, configs, t = frame
        joint = predicted + phases[:, None] + configs
        total = num.logsumexp(joint.reshape(-1), 0)
        alpha = joint - jnp.where(jnp.isfinite(total), total, 0)
        mixed = num.logsumexp(alpha[:, None, :] + log_transition[:, :, None], 0)
        marginals = jnp.exp(num.logsumexp(alpha, 1)), jnp.exp(num.logsumexp(alpha, 0))
        return push(mixed, log_blocks), (jnp.where(t < potentials.lengths, total, 0), marginals)

    num_frames = potentials.phases.shape[0]
    chunk = min(CHUNK, num_frames)

    def chunks(x: Array) -> Array:
        x = jnp.pad(x, [(0, -num_frames % chunk)] + [(0, 0)] * (x.ndim - 1))
        return x.reshape(-1, chunk, *x.shape[1:])

    # Differentiation keeps one message a chunk and computes the rest again.
    @jax.checkpoint
    def run(predicted: Array, frames: tuple) -> tuple:
        return lax.scan(step, predicted, frames)

    first = num.log(potentials.initial).astype(potentials.phases.dtype)
    frames = (potentials.phases, potentials.configs, jnp.arange(num_frames))
    _, out = lax.scan(run, first, jax.tree.map(chunks, frames))
    steps, marginals = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:num_frames], out)
    return num.accurate_sum(steps), marginals


def forward(potentials: Potentials, keep: bool) -> tuple[Array, None]:
    """Log-normalizers (B,), differentiable in every potential by plain autodiff; nothing is kept."""
    del keep
    return jax.vmap(_forward, (_AXES,))(potentials)[0], None


def backward(potentials: Potentials, kept: None, cotangent: Array) -> Potentials:
    """Derivative of sum(cotangent * log-normalizers), by reverse-mode differentiation of the recursion."""
    del kept
    _, vjp = jax.vjp(lambda p: forward(p, keep=False)[0], potentials)
    return vjp(cotangent)[0]


def filter(potentials: Potentials) -> Filtered:
    """Marginals given the past."""
    log_normalizer, (phases, configs) = jax.vmap(_forward, (_AXES,))(potentials)
    return Filtered(phases, configs, log_normalizer)


def _push_max(x: Array, log_blocks: tuple[Array, ...]) -> Array:
    shape, right = x.shape, x.shape[-1]
    for block in log_blocks:
        n = block.shape[-1]
        right //= n
        x = x.reshape(shape[0], -1, n, right)
        x = jnp.max(x[:, :, :, None, :] + block[:, None, :, :, None], 2)
    return x.reshape(shape)


def _viterbi(potentials: Potentials, again: bool) -> Path:
    """Best path of one video: maxima only on the way forwards; on the way back one column's argmax is found again."""
    log_transition = jnp.log(potentials.transition)
    log_blocks = tuple(jnp.log(b) for b in potentials.blocks)
    length = potentials.lengths
    num_configs = potentials.configs.shape[-1]

    def step(predicted: Array, frame: tuple) -> tuple:
        phases, configs, t = frame
        score = predicted + phases[:, None] + configs
        top = num.finite_max(score, (0, 1))
        # Frames in the padding repeat the last real score, so that the traceback may start at the end.
        score = jnp.where(t < length, score - top, predicted)
        mixed = jnp.max(score[:, None, :] + log_transition[:, :, None], 0)
        following = jnp.where(t < length - 1, _push_max(mixed, log_blocks), score)
        return following, (score, jnp.where(t < length, top, 0))

    first = jnp.log(potentials.initial).astype(potentials.phases.dtype)
    frames = (potentials.phases, potentials.configs, jnp.arange(potentials.phases.shape[0]))
    num_frames = frames[2].shape[0]
    # Long videos keep the scores of each chunk's first frame only, and find the others again on the way back.
    chunk = num_frames if not again else min(CHUNK, num_frames)

    def chunks(x: Array) -> Array:
        # Padding numbers its frames from the length on, wherever that is.
        fill = num_frames if x.ndim == 1 else 0
        x = jnp.pad(x, [(0, -num_frames % chunk)] + [(0, 0)] * (x.ndim - 1), constant_values=fill)
        return x.reshape(-1, chunk, *x.shape[1:])

    def run(predicted: Array, frames: tuple) -> tuple:
        following, (scores, tops) = lax.scan(step, predicted, frames)
        return following, (predicted if again else scores, tops)

    frames = jax.tree.map(chunks, frames)
    final, (kept, tops) = lax.scan(run, first, frames)
    best = jnp.max(final)
    log_prob = num.accurate_sum(tops.reshape(-1)) + best

    def back(state: tuple, inputs: tuple) -> tuple:
        score, t = inputs
        q, c = state
        column = score + log_transition[:, q][:, None] + _log_column(log_blocks, q, c, num_configs)
        column = jnp.where(t >= length - 1, score, column)
        flat = jnp.argmax(column)
        state = jnp.where(t < length, flat // num_configs, q), jnp.where(t < length, flat % num_configs, c)
        return state, state

    def back_chunk(state: tuple, inputs: tuple) -> tuple:
        kept, frames = inputs
        scores = lax.scan(step, kept, frames)[1][0] if again else kept
        return lax.scan(back, state, (scores, frames[2]), reverse=True)

    start = jnp.zeros((), flat_dtype := jnp.argmax(final).dtype), jnp.zeros((), flat_dtype)
    _, path = lax.scan(back_chunk, start, (kept, frames), reverse=True)
    phases, configs = (x.reshape(-1)[:num_frames] for x in path)
    log_prob = jnp.where(length > 0, log_prob, 0)
    return Path(phases.astype(jnp.int32), configs.astype(jnp.int32), log_prob)


def _log_column(log_blocks: tuple[Array, ...], q: Array, c: Array, num_configs: int) -> Array:
    """Log-probability (C,) of reaching configuration c in phase q from every configuration before."""
    column = jnp.zeros((1,), log_blocks[0].dtype if log_blocks else jnp.float32)
    right = num_configs
    for block in log_blocks:
        n = block.shape[-1]
        right //= n
        own = (c // right) % n
        column = (column[:, None] + block[q][:, own][None, :]).reshape(-1)
    return column


def viterbi(potentials: Potentials) -> Path:
    """Most probable paths (B, T). Time as for one forward pass and L C a step back.

    Memory: T L C floats a video; above `STORED_BYTES` L C floats a chunk, for a second forward pass.
    """
    videos, num_frames, num_configs = potentials.configs.shape
    size = videos * num_frames * potentials.phases.shape[-1] * num_configs * potentials.phases.dtype.itemsize
    return jax.vmap(partial(_viterbi, again=size > STORED_BYTES), (_AXES,))(potentials)
