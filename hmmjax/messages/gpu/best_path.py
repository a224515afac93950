"""The kernels of the most probable path: one for the scores of all frames, one for the traceback."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from hmmjax._core.typing import Array
from hmmjax.messages.gpu import launch

SCORES_WARPS, TRACEBACK_WARPS = 4, 4
"""Warps per program, by measurement (benchmarks/hmm.py)."""


def _scores_kernel(configs, phases, log_transition, tables, initial, lengths, scores_out, *, num_bits: int) -> None:
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
            x = launch.push_bit(x, steps[k], k, num_bits, jnp.add)
        return x, following

    lax.fori_loop(0, length, step, (start, load(0)))


def _traceback_kernel(scores, into_phase, into_config, lengths, phases_out, configs_out) -> None:
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


def best_path(
    configs: Array,
    phases: Array,
    log_transition: Array,
    log_blocks: tuple[Array, ...],
    log_initial: Array,
    lengths: Array,
) -> tuple[Array, Array]:
    """Compute the phases and configurations (B, T) int32 of the most probable paths; not valid after the end.

    Args:
        configs: (B, T, C) emission log-likelihoods.
        phases: (B, T, P) emission log-likelihoods.
        log_transition: (P, P) log-probabilities.
        log_blocks: (2, 2, P) log-probabilities per tool.
        log_initial: (P, C) log-probabilities.
        lengths: (B,) number of frames of each video.
    """
    videos, num_frames, num_configs = configs.shape
    num_phases, num_bits = log_initial.shape[0], len(log_blocks)
    scores = launch.call(
        partial(_scores_kernel, num_bits=num_bits), SCORES_WARPS, (videos,),
        jax.ShapeDtypeStruct((videos, num_frames, num_phases, num_configs), configs.dtype),
        configs, phases, log_transition, launch.per_thread(log_blocks), log_initial, lengths,
    )  # fmt: skip
    # Log-probability of configuration c in phase q from every configuration before: (P, C new, C old).
    own = launch.bits(num_bits)
    into = [jnp.moveaxis(b[own[k][None, :], own[k][:, None]], -1, 0) for k, b in enumerate(log_blocks)]
    into_config = jnp.sum(jnp.stack(into), 0)
    path = [jax.ShapeDtypeStruct((videos, num_frames), jnp.int32)] * 2
    return launch.call(
        _traceback_kernel, TRACEBACK_WARPS, (videos,), path, scores, log_transition.T, into_config, lengths
    )
