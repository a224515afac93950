"""Posterior, filter, most probable path and likelihood of given parameters."""

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import durations, messages
from hmmjax._core import batch, configurations, lowering, validation
from hmmjax._core import numerics as num
from hmmjax._core.batch import Data
from hmmjax._core.checks import check_label_dtype, check_mask, is_concrete
from hmmjax._core.typing import Array
from hmmjax.sharding import Split, on_host, split_of
from hmmjax.types import Decoded, Labels, Observations, Params, Posterior


def prepare(params: Params, obs: Observations, mask: Any, labels: Labels | None) -> tuple[Data, bool]:
    """Batch, check and (when nothing is traced) pad to a bucketed length."""
    concrete = is_concrete(params, obs, mask, labels)
    validation.check_observations(obs)
    if concrete:
        validation.check_params(params)
        # Values of videos that other processes hold are theirs to check.
        here = all(map(on_host, jax.tree.leaves((obs, mask, labels))))
        check_mask(mask)
        if labels is not None:
            check_label_dtype("labels.phases", getattr(labels, "phases", None))
            check_label_dtype("labels.tools", getattr(labels, "tools", None))
    data, batched = batch.collect(obs, mask, labels)
    if concrete:
        if here:
            validation.check_data(params, data)
        data = batch.pad_frames(data, batch.bucket(data.observed.shape[1]))
    return batch.pad_frames(data, 1), batched


def _call(run: Callable, params: Params, obs: Observations, mask: Any, labels: Labels | None, backend: str) -> Any:
    data, batched = prepare(params, obs, mask, labels)
    first = next(x for x in (mask, *jax.tree.leaves((obs, labels))) if x is not None)
    num_frames = first.shape[1 if batched else 0]
    name = lowering.choose_backend(backend, params)
    split = split_of(obs, mask, labels) if is_concrete(params, obs, mask, labels) else None
    if split is not None:
        per_video, per_frame = _spread(run, split, name)(*split.replicate(params), data)
        return per_video, jax.tree.map(lambda x: x[:, :num_frames], per_frame)
    if data.observed.shape[0] == 0:
        # No video at all: ask about an empty one, for the answer's shapes.
        blank = jax.tree.map(lambda x: np.zeros((1, *x.shape[1:]), x.dtype), data)
        per_video, per_frame = jax.tree.map(lambda x: x[:0], run(params, blank, backend=name))
        return per_video, jax.tree.map(lambda x: x[:, :num_frames], per_frame)
    per_video, per_frame = run(params, data, backend=name)
    if not is_concrete(per_video):
        per_frame = jax.tree.map(lambda x: x[:, :num_frames], per_frame)
        return (per_video, per_frame) if batched else jax.tree.map(lambda x: x[0], (per_video, per_frame))
    per_frame = jax.tree.map(lambda x: _trim(x, num_frames, batched), per_frame)
    return (per_video if batched else per_video[0]), per_frame


@lru_cache(maxsize=64)
def _spread(run: Callable, split: Split, backend: str) -> Callable:
    return jax.jit(split.map(partial(run, backend=backend)))


def _trim(x: Array, num_frames: int, batched: bool) -> Array:
    """Take the bucket's padding off, without compiling a slice for every length where the host can do it."""
    if isinstance(x, jax.Array) and all(device.platform == "cpu" for device in x.devices()):
        x = np.asarray(x)
    return jnp.asarray(x[:, :num_frames] if batched else x[0, :num_frames])


@partial(jax.jit, static_argnames="backend")
def _log_likelihood(params: Params, data: Data, backend: str) -> tuple[Array, None]:
    return lowering.log_normalizer(params, lowering.tables(params, data), data.lengths, backend), None


@partial(jax.jit, static_argnames="backend")
def _posterior(params: Params, data: Data, backend: str) -> tuple[Array, tuple]:
    table = lowering.tables(params, data)

    def run(phases: Any, tools: Any) -> Array:
        changed = dataclasses.replace(table, phases=phases, tools=tools)
        return lowering.log_normalizer(params, changed, data.lengths, backend)

    value, vjp = jax.vjp(run, table.phases, table.tools)
    phases, tools = vjp(jnp.ones_like(value))
    # One impossible tool makes the whole video impossible, although the other tools' chains know nothing of it.
    tools = None if tools is None else jnp.where((value > -jnp.inf)[:, None, None], tools[..., 1], 0)
    return value, (phases, tools)


@partial(jax.jit, static_argnames="backend")
def _filter(params: Params, data: Data, backend: str) -> tuple[Array, tuple]:
    table = lowering.tables(params, data)
    p = lowering.potentials(params, table, data.lengths)
    real = (jnp.arange(data.observed.shape[1]) < data.lengths[:, None])[..., None]
    run = partial(messages.filter, backend=backend)
    if lowering.is_factorial(params, table):
        out = jax.vmap(lambda p: run(p), (lowering.PER_TOOL,))(p)
        value = num.accurate_sum(out.log_normalizer, 0)
        # One impossible tool makes the whole video impossible.
        tools = jnp.where((value > -jnp.inf)[:, None, None], jnp.moveaxis(out.phases[..., 1], 0, -1), 0)
        return value, (None, jnp.where(real, tools, 0))
    out = run(p)
    possible = real & (out.log_normalizer > -jnp.inf)[:, None, None]
    phases = tools = None
    if params.phases is not None:
        stages = params.phases.stages
        phases = out.phases if stages is None else durations.merge(out.phases, stages)
        phases = jnp.where(possible, phases, 0)
    if params.tools is not None:
        presence = configurations.bits(params.num_tools).astype(out.configs.dtype)
        tools = jnp.where(possible, num.einsum("btc,ck->btk", out.configs, presence), 0)
    return out.log_normalizer, (phases, tools)


@partial(jax.jit, static_argnames="backend")
def _decode(params: Params, data: Data, backend: str) -> tuple[Array, tuple]:
    table = lowering.tables(params, data)
    p = lowering.potentials(params, table, data.lengths)
    real = jnp.arange(data.observed.shape[1]) < data.lengths[:, None]
    if lowering.is_factorial(params, table):
        path = jax.vmap(partial(messages.viterbi, backend=backend), (lowering.PER_TOOL,))(p)
        value = num.accurate_sum(path.log_prob, 0)
        phases, tools = None, jnp.moveaxis(path.phases, 0, -1)
    else:
        path = messages.viterbi(p, backend)
        value, phases = path.log_prob, None
        if params.phases is not None:
            phases, stages = path.phases, params.phases.stages
            phases = phases if stages is None else jnp.asarray(durations.owners(stages), jnp.int32)[phases]
        tools = None if params.tools is None else configurations.bits(params.num_tools)[path.configs]
    real = real & (value > -jnp.inf)[:, None]
    phases = None if phases is None else jnp.where(real, phases, -1)
    tools = None if tools is None else jnp.where(real[..., None], tools, -1).astype(jnp.int32)
    return value, (phases, tools)


def log_likelihood(
    params: Params, obs: Observations, mask: Any = None, labels: Labels | None = None, *, backend: str = "auto"
) -> Array:
    """Log-probability of the observations (and labels), in nats.

    Args:
        params: the model, L phases and K tools.
        obs: (B, T, ...) observations, or (T, ...) of a single video.
        mask: (B, T) bool, True where observed; None is all. Frames after a video's last observed one are ignored.
        labels: known states, evidence in their own right.
        backend: "auto" or a name in `hmmjax.messages.BACKENDS`. "auto" takes the fast scaled recursions where they are
            exact whatever the evidence, and logarithms where the tools' transitions or starts are (nearly) zero
            (`hmmjax._core.lowering.scaled_is_exact`). Inside your own `jax.jit` or `jax.grad` it cannot see the parameters and takes the
            fast ones: pass "logspace" yourself for such models.

    Returns:
        (B,), or a scalar for a single video; -inf for an impossible video, 0 for one with no observed frame.
        Differentiable in `params` and in probability observations, at the cost of one E-step; in reverse mode only
        (`jax.grad`, not `jax.jvp` or `jax.jacfwd`).

    Raises:
        TypeError, ValueError: bad input, with cause and fix (concrete arrays only).

    Source: the paper's likelihood; the sum over the coupled chain's paths by the forward recursion.
    """
    return _call(_log_likelihood, params, obs, mask, labels, backend)[0]


def posterior(
    params: Params, obs: Observations, mask: Any = None, labels: Labels | None = None, *, backend: str = "auto"
) -> Posterior:
    """Marginals of every hidden state given the whole video: the smoother.

    Args:
        params: the model, L phases and K tools.
        obs: (B, T, ...) observations, or (T, ...) of a single video.
        mask: (B, T) bool, True where observed; None is all.
        labels: known states, evidence in their own right.
        backend: as in `log_likelihood`.

    Returns:
        `Posterior` with phases (B, T, L), tools (B, T, K) = P(tool present), log_likelihood (B,). Frames after the
        last observed one are 0.

    Raises:
        TypeError, ValueError: as `log_likelihood`.

    Source: the paper's E-step (Appendix S2.2, misprints put right), as derivatives of the log-likelihood with respect
    to log-evidence.
    """
    value, (phases, tools) = _call(_posterior, params, obs, mask, labels, backend)
    return Posterior(phases, tools, value)


def filter(params: Params, obs: Observations, mask: Any = None, *, backend: str = "auto") -> Posterior:
    """Marginals of every hidden state given the past and present only: what can be said live.

    Args:
        params: the model, L phases and K tools.
        obs: (B, T, ...) observations, or (T, ...) of a single video.
        mask: (B, T) bool, True where observed; None is all.
        backend: as in `log_likelihood`.

    Returns:
        `Posterior` in the shapes of `posterior`; the answer for a frame never depends on later frames, but that a video
        which turns out to be impossible is zero throughout (`Stream` gives the frames before).

    Raises:
        TypeError, ValueError: as `log_likelihood`.

    Source: the forward recursion of Appendix S2.2.
    """
    value, (phases, tools) = _call(_filter, params, obs, mask, None, backend)
    return Posterior(phases, tools, value)


def decode(
    params: Params, obs: Observations, mask: Any = None, labels: Labels | None = None, *, backend: str = "auto"
) -> Decoded:
    """The jointly most probable path of phases and tools.

    Args:
        params: the model, L phases and K tools.
        obs: (B, T, ...) observations, or (T, ...) of a single video.
        mask: (B, T) bool, True where observed; None is all.
        labels: known states; the path agrees with them.
        backend: as in `log_likelihood`.

    Returns:
        `Decoded` with phases (B, T), tools (B, T, K) int32, -1 after the last observed frame, and log_prob (B,), the
        log-probability of that path together with the observations. Where phases have stages the path is of stages
        too, and so is its probability.

    Raises:
        TypeError, ValueError: as `log_likelihood`.

    Source: Viterbi (1967), over the coupled chain's joint states.
    """
    value, (phases, tools) = _call(_decode, params, obs, mask, labels, backend)
    return Decoded(phases, tools, value)
