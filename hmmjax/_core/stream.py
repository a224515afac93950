"""Recursions for `hmmjax.streaming`: one forward step per frame, and a backward pass over the last frames."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from hmmjax._core import lowering
from hmmjax._core import numerics as num
from hmmjax._core.batch import Batch, dtype_of
from hmmjax._core.interpreter import interpretable
from hmmjax._core.memory import blank_past, push_past
from hmmjax._core.pytree import pytree
from hmmjax._core.tables import fill_masked, tabulate
from hmmjax._core.typing import Array, ArrayLike
from hmmjax.messages import online
from hmmjax.messages.online import Chain
from hmmjax.messages.potentials import Potentials
from hmmjax.types import Params


@pytree
class StreamState:
    """Everything that a stream remembers, over S stages of phases and C = 2**K configurations of tools.

    Independent tools have K chains of S = 2 and C = 1, stacked on a leading axis of the first four fields.

    Attributes:
        predicted: (S, C) log-probabilities of the next frame's state.
        filtered: (lag + 1, S, C) filtered log-probabilities of the last frames.
        phases: (lag, S) emission log-likelihoods of the last frames over stages.
        configs: (lag, C) emission log-likelihoods of the last frames over configurations.
        past: observations of the last frames of the phases and of the tools, as their emission families see them
            (`hmmjax.emissions.Past`, leading axes (1, 1)); None for families without memory.
        log_likelihood: (2,) log-likelihood of all frames so far, in nats, and the rounding error of that sum.
        frames: () number of frames so far.
    """

    predicted: ArrayLike
    filtered: ArrayLike
    phases: ArrayLike
    configs: ArrayLike
    past: Any
    log_likelihood: ArrayLike
    frames: ArrayLike


@pytree
class Moment:
    """The result of one step.

    Attributes:
        phases: (L,) probability of each phase now; None without phases.
        tools: (K,) probability that each tool is present now; None without tools.
        log_likelihood: () log-likelihood of all frames so far, in nats.
        frame: () number of this frame, from 0.
        lagged_phases: (L,) probability of each phase in frame `lagged_frame`, given every frame so far; zeros in the
            first `lag` frames.
        lagged_tools: (K,) probability that each tool is present in frame `lagged_frame`; zeros in the first `lag`
            frames.
        lagged_frame: () ``frame - lag``, or -1 in the first `lag` frames. With a lag of 0 it is this frame.
    """

    phases: ArrayLike
    tools: ArrayLike
    log_likelihood: ArrayLike
    frame: ArrayLike
    lagged_phases: ArrayLike
    lagged_tools: ArrayLike
    lagged_frame: ArrayLike


@interpretable
def tables(params: Params) -> tuple[Array, Array, tuple[Array, ...]]:
    """Return initial probabilities, transition and blocks of the chain, stacked for independent tools."""
    p = lowering.lower(params, tabulate(params, Batch.unobserved(1)), jnp.zeros((1,), jnp.int32))
    return p.initial, p.transition, p.blocks


@partial(jax.jit, static_argnames="in_logs")
def chain_tables(params: Params, in_logs: bool) -> Chain:
    """Return the chain's tables, stacked for independent tools; with `in_logs` messages are summed in logarithms."""
    p = lowering.lower(params, tabulate(params, Batch.unobserved(1)), jnp.zeros((1,), jnp.int32))
    return lowering.structure_of(params).map(partial(online.chain_of, in_logs=in_logs), p)


def start(params: Params, chain: Chain, lag: int) -> StreamState:
    """Return the state before the first frame."""
    first = chain.initial
    lead, (states, configs) = first.shape[:-2], first.shape[-2:]
    return StreamState(
        predicted=first,
        filtered=jnp.zeros((*lead, lag + 1, states, configs), first.dtype),
        phases=jnp.zeros((*lead, lag, states), first.dtype),
        configs=jnp.zeros((*lead, lag, configs), first.dtype),
        past=blank(params),
        log_likelihood=jnp.zeros((2,), first.dtype),
        frames=jnp.zeros((), jnp.int32),
    )


def blank(params: Params) -> tuple[Any, Any]:
    """Return the past of phases and tools before the first frame."""
    phases, tools = (blank_past(emission, (1, 1), dtype_of(params)) for emission in _emissions(params))
    return phases, tools


# Jitted separately: fused with `step`, XLA recomputes the emission family's log-gammas for every joint state.
@jax.jit
def observe(params: Params, batch: Batch, past: tuple) -> tuple[tuple[Array, Array], tuple]:
    """Return a frame's emission log-likelihoods, and the past of the next frame.

    The former are (S,) and (C,), or (K, 2) and (K, 1) of independent tools. `past` is that of the phases and the tools.
    """
    p, following = _observe(params, batch, past)
    p = p.joined()
    return (p.phases[..., 0, 0, :], p.configs[..., 0, 0, :]), following


def observe_flat(phases: Any, tools: Any, past: tuple, observed: Array, params: Params) -> tuple[Array, tuple]:
    """Return a frame's emission log-likelihoods as one vector, and the past of the next frame.

    The vector holds those of phases (S,) or independent tools (K, 2), of other tools (K, 2) and of configurations (C,)
    if they have any, one after another: what `hmmjax.native.streams.Streams` takes.

    Args:
        phases: as in `Batch`.
        tools: as in `Batch`.
        past: of the phases and the tools.
        observed: (1, 1) bool.
        params: the model.
    """
    p, following = _observe(params, Batch(phases, tools, observed, None, None), past)
    return jnp.concatenate([jnp.ravel(x) for x in (p.phases, p.tools, p.configs) if x is not None]), following


def _observe(params: Params, batch: Batch, past: tuple) -> tuple[Potentials, tuple]:
    filled = (fill_masked(x, batch.observed, dtype_of(params)) for x in (batch.phases, batch.tools))
    following = tuple(
        push_past(emission, own, x, batch.observed)
        for emission, own, x in zip(_emissions(params), past, filled, strict=True)
    )
    return lowering.lower(params, tabulate(params, batch, past), batch.lengths), following


def _emissions(params: Params) -> tuple[Any, Any]:
    phases, tools = params.phases, params.tools
    return None if phases is None else phases.emission, None if tools is None else tools.emission


@jax.jit
def step(
    params: Params, chain: Chain, state: StreamState, observed: tuple[tuple[Array, Array], tuple]
) -> tuple[StreamState, Moment]:
    """Return the state after, and the result for, a frame that `observe` has seen."""
    new, past = observed
    structure = lowering.structure_of(params)

    def advance(chain: Chain, predicted: Array, filtered: Array, phases: Array, configs: Array, new: tuple) -> tuple:
        message, total = online.observe(predicted, *new)
        filtered = jnp.concatenate([filtered[1:], message[None]])
        phases, configs = (jnp.concatenate([old, n[None]])[1:] for old, n in ((phases, new[0]), (configs, new[1])))
        after, _ = _run_backward(chain, phases, configs)
        lagged, _ = online.normalize(filtered[0] + after)
        return online.push(chain, message), filtered, phases, configs, total, _marginals(message), _marginals(lagged)

    old = (state.predicted, state.filtered, state.phases, state.configs)
    predicted, filtered, phases, configs, total, now, lagged = structure.map(advance, chain, *old, new)
    total = total.sum()
    # Two-sum, so that the sum keeps its digits over hours of frames.
    before, error = state.log_likelihood
    after, lost = num.two_sum(before, total)
    error += jnp.where(jnp.isfinite(after), lost, 0)
    state = StreamState(predicted, filtered, phases, configs, past, jnp.stack([after, error]), state.frames + 1)
    lag = filtered.shape[-3] - 1
    ready = state.frames > lag
    phases, tools, *_ = lowering.report(*structure.lift_marginals(*now))
    lagged = lowering.report(*structure.lift_marginals(*lagged))[:2]
    lagged_phases, lagged_tools = (None if x is None else jnp.where(ready, x, 0) for x in lagged)
    frame = state.frames - 1
    lagged_frame = jnp.where(ready, frame - lag, -1)
    return state, Moment(phases, tools, after + error, frame, lagged_phases, lagged_tools, lagged_frame)


@jax.jit
def finish(params: Params, chain: Chain, state: StreamState) -> tuple:
    """Return what `lowering.report` does of the last `lag` frames, smoothed."""

    def smooth(chain: Chain, filtered: Array, phases: Array, configs: Array) -> tuple[Array, Array]:
        # Backward messages of the frames after the oldest; that of the newest is one.
        _, after = _run_backward(chain, phases, configs)
        after = jnp.concatenate([after[1:], jnp.zeros_like(filtered[:1])])[: phases.shape[0]]
        return jax.vmap(lambda m: _marginals(online.normalize(m)[0]))(filtered[1:] + after)

    structure = lowering.structure_of(params)
    marginals = structure.map(smooth, chain, state.filtered, state.phases, state.configs)
    return lowering.report(*structure.lift_marginals(*marginals))


def _run_backward(chain: Chain, phases: Array, configs: Array) -> tuple[Array, Array]:
    """Return the backward log-messages of the frame before the given ones (S, C), and before each (lag, S, C)."""

    def back(after: Array, frame: tuple) -> tuple[Array, Array]:
        phases, configs = (num.relative(x)[0] for x in frame)
        before = online.pull(chain, after + phases[:, None] + configs)
        before = before - num.finite_max(before, (0, 1))
        return before, before

    return jax.lax.scan(back, jnp.zeros_like(chain.initial), (phases, configs), reverse=True)


def _marginals(message: Array) -> tuple[Array, Array]:
    phases, configs = (num.as_probability(jnp.exp(num.logsumexp(message, axis))) for axis in (1, 0))
    return phases, configs
