"""The kernels of the most probable path: one for the scores of all frames, one for the traceback."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hmmjax._core.packing import Packing
from hmmjax._core.typing import Array
from hmmjax.messages.gpu import launch

SCORES_WARPS, TRACEBACK_WARPS = 8, 4
"""Warps per program, by measurement (benchmarks/hmm.py)."""


def _scores_kernel(configs, phases, log_transition, tables, initial, starts, lengths, index, scores_out) -> None:
    video = pl.program_id(0)
    start, length = starts[video], lengths[video]
    num_rows, num_phases, width = initial.shape
    flat, square = (1, num_phases, width), (1, num_phases, num_phases, width)
    phase = launch.opaque(index, flat, 1)
    row, phases_all, lane = everywhere = launch.place(index, (num_rows, *flat[1:]))
    steps = launch.load_tables(tables, index)
    transition = log_transition[launch.opaque(index, square, 1), launch.opaque(index, square, 2)]

    def load(i: Any) -> tuple:
        t = start + jnp.clip(i, 0, jnp.maximum(length - 1, 0))
        return configs[t, row, lane], phases[t, phase]

    def step(t: Any, carry: tuple) -> tuple:
        x, previous, (c, p) = carry
        following = load(t + 1)
        # Scores stay small by the best one of the frame before, which need not be waited for.
        x = x + c + (p - previous)
        scores_out[start + t, phases_all, row * width + lane] = x
        x = launch.from_phases(x)
        top = _largest(x) + jnp.zeros(flat, x.dtype)
        x = jnp.max(x + transition, 1)
        for k, (stay, come) in enumerate(steps):
            x = jnp.maximum(x + stay, launch.flip(x, k, len(steps)) + come)
        return x, jnp.where(top > -jnp.inf, top, 0.0), following

    zero = jnp.zeros(flat, scores_out.dtype)
    lax.fori_loop(0, length, step, (initial[everywhere], zero, load(0)))


def _largest(x: Array) -> Array:
    """Return the largest of a message's numbers (R, P, 1, W), in shape (1, 1, 1)."""
    # Of each lane, then of all, as integers in the same order: for them there is an instruction.
    top = launch.as_bits(jnp.max(jnp.max(x, 0, keepdims=True), 1))
    top = jnp.max(top ^ ((top >> 31) & 0x7FFFFFFF), 2, keepdims=True)
    return launch.as_float(top ^ ((top >> 31) & 0x7FFFFFFF))


def _traceback_kernel(scores, into_phase, into_config, starts, lengths, phases_out, configs_out) -> None:
    video = pl.program_id(0)
    start, length = starts[video], lengths[video]
    num_phases, num_configs = shape = scores.shape[-2:]
    place = lax.broadcasted_iota(jnp.int32, shape, 0) * num_configs + lax.broadcasted_iota(jnp.int32, shape, 1)

    def load(i: Any) -> Array:
        return scores[start + jnp.clip(length - 1 - i, 0, jnp.maximum(length - 1, 0))]

    def step(i: Any, carry: tuple) -> tuple:
        state, score = carry
        following = load(i + 1)
        t = start + length - 1 - i
        q, c = state // num_configs, state % num_configs
        reached = score + into_phase[q][:, None] + into_config[q, c][None, :]
        reached = jnp.where(i == 0, score, reached)
        best = jnp.max(reached)
        state = jnp.min(jnp.where(reached == best, place, num_phases * num_configs - 1))
        phases_out[t] = state // num_configs
        configs_out[t] = state % num_configs
        return state, following

    lax.fori_loop(0, length, step, (jnp.int32(0), load(0)))


def best_path(
    configs: Array,
    phases: Array,
    log_transition: Array,
    log_blocks: tuple[Array, ...],
    log_initial: Array,
    packing: Packing,
) -> tuple[Array, Array]:
    """Compute the phases and configurations (N,) int32 of the most probable paths; not valid outside of videos.

    Args:
        configs: (N, C) emission log-likelihoods.
        phases: (N, P) emission log-likelihoods.
        log_transition: (P, P) log-probabilities.
        log_blocks: (2, 2, P) log-probabilities per tool.
        log_initial: (P, C) log-probabilities.
        packing: positions of B videos among the frames.
    """
    num_frames, num_configs = configs.shape
    videos, where = len(packing.lengths), (launch.starts(packing, num_frames), packing.lengths)
    num_phases, num_bits = log_initial.shape[0], len(log_blocks)
    start, index = launch.messages(log_initial), launch.indices(num_phases, num_configs)
    scores = launch.call(
        _scores_kernel, SCORES_WARPS, (videos,),
        jax.ShapeDtypeStruct((num_frames, num_phases, num_configs), configs.dtype),
        configs.reshape(num_frames, *launch.rows(num_configs)), phases, log_transition,
        launch.tables(log_blocks), start, *where, index,
    )  # fmt: skip
    # Log-probability of configuration c in phase q from every configuration before: (P, C new, C old).
    own = launch.bits(num_bits)
    into = [jnp.moveaxis(b[own[k][None, :], own[k][:, None]], -1, 0) for k, b in enumerate(log_blocks)]
    into_config = jnp.sum(jnp.stack(into), 0)
    path = [jax.ShapeDtypeStruct((num_frames,), jnp.int32)] * 2
    return launch.call(
        _traceback_kernel, TRACEBACK_WARPS, (videos,), path, scores, log_transition.T, into_config, *where
    )
