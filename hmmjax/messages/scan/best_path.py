"""The most probable path of one video, in logarithms and in the layout of the scans."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.messages import batching, kronecker
from hmmjax.messages.potentials import Path, Potentials

COLUMN = 16
"""Largest number of configurations of a group of neighboring tools whose log-transitions are summed in advance."""


@pytree
class Chain:
    """One video's log-probabilities, phases last and padded with impossible ones.

    Attributes:
        initial: (C, L).
        transition: (L, L).
        step_blocks: tool blocks (n, n, L) that push scores forwards.
        column_blocks: tool blocks summed in groups of neighbors, for the traceback.
        phases: (T, L) emission log-likelihoods.
        configs: (T, C) emission log-likelihoods.
        removed: (T,) what was subtracted from these two, whose largest entries are 0.
        length: number of valid frames.
    """

    initial: Any
    transition: Any
    step_blocks: Any
    column_blocks: Any
    phases: Any
    configs: Any
    removed: Any
    length: Any


def viterbi(p: Potentials, num_chunks: Any, *, recompute: bool) -> Path:
    """Compute one video's most probable path by the max-product recursion.

        u_{t+1}(q, c*) = max_p (log A[p, q] + score_t(p, c*))
        score_t(q, c) = log e_t(q, c) + max_c* (u_t(q, c*) + log P(c | c*, q))

    The forward pass stores scores and u. The traceback then finds the previous configuration among C and its phase
    among L, not both among L * C. With `recompute` only each chunk's first message is stored, and the chunk's forward
    pass is repeated during the traceback.
    """
    chain = _prepare(p)
    num_frames = p.configs.shape[0]
    forward_step = partial(_forward_step, chain)

    def forward_chunk(carry: tuple, frames: tuple) -> tuple:
        following, (score, phase_predicted, tops) = lax.scan(forward_step, carry, frames)
        return following, (carry if recompute else (score, phase_predicted), tops)

    def back_chunk(state: tuple, inputs: tuple) -> tuple:
        stored, frames = inputs
        messages = lax.scan(forward_step, stored, frames)[1][:2] if recompute else stored
        return lax.scan(partial(_back_step, chain), state, (messages, frames[2]), reverse=True)

    frames = (*map(batching.in_chunks, (chain.configs, chain.phases)), batching.frame_indices(num_frames))
    first = chain.initial, jnp.full_like(chain.initial, -jnp.inf)
    (_, final), (stored, tops) = batching.scan_chunks(forward_chunk, first, frames, num_chunks)
    tops = tops.reshape(-1)[:num_frames] + chain.removed
    tops = jnp.where(jnp.arange(num_frames) < chain.length, tops, 0)
    log_prob = jnp.where(chain.length > 0, num.accurate_sum(tops) + jnp.max(final), 0)

    best = jnp.argmax(final).astype(jnp.int32)
    state = best % final.shape[1], best // final.shape[1]
    _, path = batching.scan_chunks(back_chunk, state, (stored, frames), num_chunks, reverse=True)
    phases, configs = (x.reshape(-1)[:num_frames] for x in path)
    return Path(phases, configs, log_prob)


def _prepare(p: Potentials) -> Chain:
    transition = _log(p.transition, 0, 1)
    blocks = tuple(_log(b, 2) for b in kronecker.phases_last(p.blocks))
    padding = [(0, 0), (0, -p.phases.shape[-1] % batching.LANES)]
    (phases, above), (configs, top) = num.relative(p.phases), num.relative(p.configs)
    phases = jnp.pad(phases, padding, constant_values=-jnp.inf)
    initial = _log(p.initial.T, 1).astype(phases.dtype)
    return Chain(initial, transition, blocks, _sum_neighbors(blocks), phases, configs, above + top, p.lengths)


def _log(x: Array, *axes: int) -> Array:
    """Elementwise log, padded along phases with -inf (impossible states)."""
    widths = [(0, -n % batching.LANES if axis in axes else 0) for axis, n in enumerate(x.shape)]
    return jnp.pad(jnp.log(x), widths, constant_values=-jnp.inf)


def _sum_neighbors(blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    """Combine neighboring log-blocks into blocks of up to `COLUMN` configurations."""
    out: list[Array] = []
    for block in blocks:
        n = len(block)
        if out and len(out[-1]) * n <= COLUMN:
            size = len(out[-1]) * n
            out[-1] = (out[-1][:, None, :, None] + block[None, :, None, :]).reshape(size, size, -1)
        else:
            out.append(block)
    return tuple(out)


def _forward_step(chain: Chain, carry: tuple, frame: tuple) -> tuple:
    """Step from the predicted scores of a frame; the carry also holds the scores (C, L) of the last valid frame."""
    predicted, final = carry
    configs, phases, t = frame
    score = predicted + (configs[:, None] + phases)
    # One axis at a time, because XLA does not vectorize the joint reduction on CPUs.
    top = jnp.max(lax.optimization_barrier(jnp.max(score, 0)))
    top = jnp.where(top > -jnp.inf, top, 0)
    score = score - top
    # Configurations last, for this one step: a vector register then holds many of them.
    phase_predicted = jnp.max(score.T[:, None, :] + chain.transition[:, :, None], 0).T
    following = kronecker.push_max(phase_predicted, chain.step_blocks)
    return (following, jnp.where(t == chain.length - 1, score, final)), (score, phase_predicted, top)


def _back_step(chain: Chain, state: tuple, inputs: tuple) -> tuple:
    """Return the state at t on the best path that is in `state` at t + 1."""
    (score, phase_predicted), t = inputs
    q, c = state
    into = lax.dynamic_index_in_dim(phase_predicted, q, 1, keepdims=False)
    into = into + kronecker.log_column(chain.column_blocks, q, c, score.dtype)
    config = jnp.argmax(into).astype(jnp.int32)
    row = lax.dynamic_index_in_dim(score, config, 0, keepdims=False)
    row = row + lax.dynamic_index_in_dim(chain.transition, q, 1, keepdims=False)
    phase = jnp.argmax(row).astype(jnp.int32)
    state = jax.tree.map(partial(jnp.where, t < chain.length - 1), (phase, config), state)
    return state, state
