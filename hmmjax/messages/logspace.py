"""The recursions in logarithms throughout: slow, simple and free of underflow.

"auto" selects this backend for models in which a state could underflow in the scaled recursions
(`hmmjax._core.lowering.scaled_is_exact`). Its gradient is plain reverse-mode differentiation, the independent check of
the other backends' backward passes.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array
from hmmjax.messages import batching, kronecker
from hmmjax.messages.backend import Backend
from hmmjax.messages.potentials import VIDEOS, Filtered, Path, Potentials

CHECKPOINT_EVERY = 64
"""Number of frames that differentiation and the traceback recompute from one stored message."""


def push(x: Array, log_blocks: tuple[Array, ...]) -> Array:
    """Sum log-rows x (L, C) over old configurations, with the logarithms (L, n, n) of each phase's blocks."""
    shape, right = x.shape, x.shape[-1]
    for block in log_blocks:
        n = block.shape[-1]
        right //= n
        x = x.reshape(shape[0], -1, n, right)
        x = num.logsumexp(x[:, :, :, None, :] + block[:, None, :, :, None], 2)
    return x.reshape(shape)


def _forward(potentials: Potentials) -> tuple[Array, tuple[Array, Array]]:
    """Compute one video's log-normalizer and filtered marginals, by the forward recursion in logarithms.

    alpha_t(q, c) = e_t(q, c) sum_c* u_t(q, c*) P(c | c*, q), where u_t(q, c*) = sum_p A[p, q] alpha_{t-1}(p, c*).
    """
    log_transition = num.log(potentials.transition)
    log_blocks = tuple(num.log(b) for b in potentials.blocks)

    def step(predicted: Array, frame: tuple) -> tuple:
        (phases, above), (configs, top), t = num.relative(frame[0]), num.relative(frame[1]), frame[2]
        joint = predicted + phases[:, None] + configs
        total = num.logsumexp(joint.reshape(-1), 0)
        alpha = joint - jnp.where(jnp.isfinite(total), total, 0)
        phase_predicted = num.logsumexp(alpha[:, None, :] + log_transition[:, :, None], 0)
        marginals = jnp.exp(num.logsumexp(alpha, 1)), jnp.exp(num.logsumexp(alpha, 0))
        return push(phase_predicted, log_blocks), (jnp.where(t < potentials.lengths, total + above + top, 0), marginals)

    # Differentiation stores one message per chunk and recomputes the rest.
    @jax.checkpoint
    def run(predicted: Array, frames: tuple) -> tuple:
        return lax.scan(step, predicted, frames)

    num_frames = potentials.phases.shape[0]
    first = num.log(potentials.initial).astype(potentials.phases.dtype)
    _, out = lax.scan(run, first, _chunked_frames(potentials, CHECKPOINT_EVERY))
    totals, marginals = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:num_frames], out)
    return num.accurate_sum(totals), marginals


def _chunked_frames(p: Potentials, chunk: int) -> tuple[Array, Array, Array]:
    phases, configs = (batching.in_chunks(x, chunk) for x in (p.phases, p.configs))
    return phases, configs, batching.frame_indices(p.phases.shape[0], chunk)


def _viterbi(potentials: Potentials, recompute: bool) -> Path:
    """Compute one video's most probable path.

    The forward pass stores each frame's scores; the traceback maximizes over the column of transitions into the state
    of the following frame. With `recompute` only the first scores of each chunk are stored.
    """
    length, num_configs = potentials.lengths, potentials.configs.shape[-1]
    log_transition = jnp.log(potentials.transition)
    log_blocks = kronecker.phases_last(tuple(jnp.log(b) for b in potentials.blocks))

    def step(predicted: Array, frame: tuple) -> tuple:
        (phases, above), (configs, removed), t = num.relative(frame[0]), num.relative(frame[1]), frame[2]
        score = predicted + phases[:, None] + configs
        top = num.finite_max(score, (0, 1))
        # Padded frames repeat the scores of the last real one, so that the traceback may start at the end.
        score = jnp.where(t < length, score - top, predicted)
        phase_predicted = jnp.max(score[:, None, :] + log_transition[:, :, None], 0)
        following = jnp.where(t < length - 1, kronecker.push_max(phase_predicted.T, log_blocks).T, score)
        return following, (score, jnp.where(t < length, top + above + removed, 0))

    def run(predicted: Array, frames: tuple) -> tuple:
        following, (scores, tops) = lax.scan(step, predicted, frames)
        return following, (predicted if recompute else scores, tops)

    num_frames = potentials.phases.shape[0]
    frames = _chunked_frames(potentials, CHECKPOINT_EVERY if recompute else num_frames)
    first = jnp.log(potentials.initial).astype(potentials.phases.dtype)
    final, (stored, tops) = lax.scan(run, first, frames)
    log_prob = num.accurate_sum(tops.reshape(-1)) + jnp.max(final)

    def back(state: tuple, inputs: tuple) -> tuple:
        score, t = inputs
        q, c = state
        column = score + log_transition[:, q][:, None] + kronecker.log_column(log_blocks, q, c, score.dtype)
        column = jnp.where(t >= length - 1, score, column)
        flat = jnp.argmax(column)
        state = jnp.where(t < length, flat // num_configs, q), jnp.where(t < length, flat % num_configs, c)
        return state, state

    def back_chunk(state: tuple, inputs: tuple) -> tuple:
        stored, frames = inputs
        scores = lax.scan(step, stored, frames)[1][0] if recompute else stored
        return lax.scan(back, state, (scores, frames[2]), reverse=True)

    start = jnp.zeros((), flat_dtype := jnp.argmax(final).dtype), jnp.zeros((), flat_dtype)
    _, path = lax.scan(back_chunk, start, (stored, frames), reverse=True)
    phases, configs = (x.reshape(-1)[:num_frames] for x in path)
    log_prob = jnp.where(length > 0, log_prob, 0)
    return Path(phases.astype(jnp.int32), configs.astype(jnp.int32), log_prob)


# The backend: batches of videos. ------------------------------------------------------------------------------------


def log_normalizer(potentials: Potentials, save: bool) -> tuple[Array, None]:
    """Compute log-normalizers (B,), which JAX differentiates; there are no residuals."""
    del save
    return jax.vmap(_forward, (VIDEOS,))(potentials)[0], None


def pullback(potentials: Potentials, residuals: None, cotangent: Array) -> Potentials:
    """Compute the derivative of sum(cotangent * log-normalizers) by reverse-mode differentiation."""
    del residuals
    _, vjp = jax.vjp(lambda p: log_normalizer(p, False)[0], potentials)
    return vjp(cotangent)[0]


def filter(potentials: Potentials) -> Filtered:
    """Compute each frame's marginals given that frame and all before it."""
    value, (phases, configs) = jax.vmap(_forward, (VIDEOS,))(potentials)
    return Filtered.of_configs(phases, configs, value)


def viterbi(potentials: Potentials) -> Path:
    """Compute the most probable paths (B, T), in the time of one forward pass and L * C per frame for the traceback.

    Memory: T * L * C floats per video; above `batching.STORED_BYTES` L * C floats per chunk, and a second forward pass.
    """
    videos, num_frames, num_configs = potentials.configs.shape
    size = videos * num_frames * potentials.phases.shape[-1] * num_configs * potentials.phases.dtype.itemsize
    return jax.vmap(partial(_viterbi, recompute=size > batching.STORED_BYTES), (VIDEOS,))(potentials)


BACKEND = Backend("logspace", lambda _: True, lambda _: False, log_normalizer, pullback, filter, viterbi)
