"""Live: one frame in, what is there now out, and a little later what was there then.

Example::

    stream = hmmjax.Stream(params, lag=30)
    for softmax, scores in recognizer:
        now = stream.step(hmmjax.Observations(softmax, scores))
        now.phases, now.tools                    # given every frame so far
        now.lagged_phases, now.lagged_frame      # of the frame 30 before, given every frame so far

Answers are causal: a frame that has been answered is never changed by later ones. Memory does not grow.
"""

import os
from functools import partial
from hashlib import sha256
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import durations
from hmmjax._core import configurations, lowering, validation
from hmmjax._core import numerics as num
from hmmjax._core.batch import Data, collect, dtype_of
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.io.arrays import load_arrays
from hmmjax.io.write import save_npz
from hmmjax.messages import online
from hmmjax.messages.online import Chain
from hmmjax.types import Observations, Params, Posterior


@pytree
class StreamState:
    """Everything that a stream remembers; S stages of phases and C = 2**K configurations.

    Attributes:
        predicted: (S, C) log-message of the frame to come; without phases (K, 2, 1), as all that follow.
        kept: (lag + 1, S, C) filtered log-messages of the last frames.
        phases: (lag, S) their log-evidence, but for the oldest.
        configs: (lag, C) likewise.
        log_likelihood: log-probability of all frames so far, in nats, and the rounding error of that sum: (2,).
        frames: frames so far.
    """

    predicted: Any
    kept: Any
    phases: Any
    configs: Any
    log_likelihood: Any
    frames: Any


@pytree
class Moment:
    """What is known when a frame has come.

    Attributes:
        phases: (L,) probability of each phase now; None without phases.
        tools: (K,) probability that each tool is present now; None without tools.
        log_likelihood: log-probability of all frames so far, in nats.
        frame: number of this frame, from 0.
        lagged_phases: (L,) the same for frame `lagged_frame`, given every frame so far. Zeros before there is one.
        lagged_tools: (K,) likewise.
        lagged_frame: ``frame - lag``, or -1 in the first `lag` frames. With a lag of 0 it is the frame itself.
    """

    phases: Any
    tools: Any
    log_likelihood: Any
    frame: Any
    lagged_phases: Any
    lagged_tools: Any
    lagged_frame: Any


def start(params: Params, lag: int = 0) -> StreamState:
    """The state before the first frame: pure, as `step` is, for whoever runs many streams with `jax.vmap`.

    Args:
        params: the model; not checked here, see `Stream`.
        lag: frames to wait for a better answer, 0 or more; a shape, and so no tracer.

    Returns:
        The state, for `step`.
    """
    return _start(_chain(params, True), params, lag)


def step(params: Params, state: StreamState, obs: Observations) -> tuple[StreamState, Moment]:
    """Take one frame in. Pure and traceable; values are not checked.

    Args:
        params: the model.
        state: from `start`, or from the step before.
        obs: phases, a label () or (L,) probabilities, and tools (K,); either None where it was not seen;
            with none at all a frame passes unseen.

    Returns:
        The state for the next frame, and what is known now. Of a frame that is impossible after those before it the
        log-likelihood is -inf, and so it stays.

    Raises:
        TypeError: no `Observations`.

    Source: the forward recursion of Appendix S2.2, and the backward one over the last `lag` frames.
    """
    validation.check_observations(obs)
    seen = bool(jax.tree.leaves(obs))
    data, _ = collect(jax.tree.map(lambda x: jnp.asarray(x)[None], obs), jnp.full((1,), seen), None)
    return _step(params, _chain(params, True), state, _evidence(params, data))


class Stream:
    """A running video. `step` it frame by frame; `finish` it for the frames that the lag still holds back.

    Args:
        params: the model; its rate is the frames'.
        lag: frames to wait for a better answer. Each step then also looks back over so many frames.

    Raises:
        TypeError, ValueError: invalid parameters, or a negative lag.

    Source: the forward recursion of Appendix S2.2, and the backward one over the last `lag` frames.
    """

    def __init__(self, params: Params, *, lag: int = 0) -> None:
        validation.check_params(params)
        if not isinstance(lag, int) or lag < 0:
            raise ValueError(f"lag must be a number of frames, 0 or more, got {lag!r}.")
        self.params = jax.tree.map(partial(jnp.asarray, dtype=dtype_of(params)), params)
        self.lag = lag
        self._chain = _chain(self.params, not lowering.scaled_is_exact(self.params))
        self.state = _start(self._chain, self.params, lag)

    def step(self, obs: Observations | None = None) -> Moment:
        """Take one frame in.

        Args:
            obs: phases, a label or (L,) probabilities, and tools (K,). A track that is None was not seen; with none
                at all a frame passes unseen.

        Raises:
            TypeError, ValueError: bad input, or a frame that is impossible after those before it. The stream then
                stands where it stood.

        Returns:
            What is known now, arrays on the host.
        """
        seen = _evidence(self.params, self._frame(Observations() if obs is None else obs))
        state, moment = _step(self.params, self._chain, self.state, seen)
        moment = jax.tree.map(np.asarray, moment)
        if moment.log_likelihood == -np.inf:
            raise ValueError(
                f"frame {int(moment.frame)} is impossible after those before it: it needs a transition or an output of "
                "probability zero. Learn with pseudo-counts (hmmjax.Priors), or pass it as unseen."
            )
        self.state = state
        return moment

    def finish(self) -> Posterior:
        """The frames that the lag has not answered yet, given all.

        Returns:
            `Posterior` with phases (n, L) and tools (n, K) of the last n frames, n the lag or all there were; and
            log_likelihood () of all frames. The stream may go on afterwards.
        """
        phases, tools = _finish(self.params, self._chain, self.state)
        n = min(self.lag, int(self.state.frames))
        last = slice(self.lag - n, None)
        phases, tools = (None if x is None else np.asarray(x)[last] for x in (phases, tools))
        return Posterior(phases, tools, np.asarray(self.state.log_likelihood.sum()))

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the state to an NPZ, without pickle and without the model; the old file or the new, never half.

        Args:
            path: the file, usually ``.npz``.
            force: overwrite.

        Raises:
            FileExistsError: when the file exists and `force` is False.
        """
        state = {name: getattr(self.state, name) for name in StreamState.__dataclass_fields__}
        save_npz(path, {"model": _fingerprint(self.params), "lag": self.lag, **state}, force=force)

    @classmethod
    def resume(cls, params: Params, path: str | os.PathLike[str]) -> "Stream":
        """The stream that `save` wrote, to go on as if it had never stopped.

        Args:
            params: the model that it ran with.
            path: the file.

        Returns:
            A stream with the lag and the state that were saved.

        Raises:
            FileNotFoundError: no such file.
            ValueError: a file of another kind, a damaged one, or one of another model.
        """
        if not os.path.exists(path):
            raise FileNotFoundError(f"{os.fspath(path)} is not there: give what Stream.save wrote.")
        try:
            arrays: dict[str, Any] = load_arrays(os.fspath(path))
            model, lag = str(arrays.pop("model")), int(arrays.pop("lag"))
            state = StreamState(**arrays)
            stream = cls(params, lag=lag)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{os.fspath(path)} holds no stream ({error}); give what Stream.save wrote.") from None
        if model != _fingerprint(stream.params):
            raise ValueError(f"{os.fspath(path)} belongs to another model: resume it with the parameters it ran with.")
        for name, want in vars(stream.state).items():
            have = arrays[name]
            if have.shape != want.shape or have.dtype != want.dtype or np.isnan(have).any():
                raise ValueError(f"{os.fspath(path)} holds no stream ({name} is damaged); give what Stream.save wrote.")
        stream.state = jax.tree.map(jnp.asarray, state)
        return stream

    def _frame(self, obs: Observations) -> Data:
        validation.check_observations(obs)

        def one(name: str, x: Any) -> Any:
            if x is None or isinstance(x, tuple):
                return None if x is None else tuple(one(name, source) for source in x)
            x = np.asarray(x)
            if x.ndim > 1 or (name == "tools" and x.ndim != 1):
                meaning = "a label or (L,)" if name == "phases" else "(K,)"
                raise ValueError(f"obs.{name} of one frame must be {meaning}, got shape {x.shape}.")
            if x.dtype.kind in "biu":
                # What does not fit int32 is out of any range, and must stay so when it is cast.
                x = np.clip(x, np.iinfo(np.int32).min, np.iinfo(np.int32).max) if x.dtype.itemsize >= 4 else x
                x = x.astype(np.int32)
            return x[None, None]

        arrays = [one("phases", obs.phases), one("tools", obs.tools)]
        seen = any(x is not None for x in arrays)
        validation.check_observations(Observations(*arrays))
        data = Data(arrays[0], arrays[1], np.full((1, 1), seen), None, None)
        validation.check_data(self.params, data)
        return data


def _fingerprint(params: Params) -> str:
    digest = sha256(str(jax.tree.structure(params)).encode())
    for leaf in jax.tree.leaves(params):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


@partial(jax.jit, static_argnames="exact")
def _chain(params: Params, exact: bool) -> Chain:
    """The chain's tables; without phases K of them, stacked."""
    table = lowering.tables(params, Data(None, None, jnp.zeros((1, 1), bool), None, None))
    # Any backend's potentials hold the same tables.
    p = lowering.potentials(params, table, jnp.zeros((1,), jnp.int32))
    tables = partial(online.chain_of, exact=exact)
    return jax.vmap(tables, (lowering.PER_TOOL,))(p) if lowering.is_factorial(params) else tables(p)


def _start(chain: Chain, params: Params, lag: int) -> StreamState:
    first = chain.initial
    lead, (states, configs) = first.shape[:-2], first.shape[-2:]
    return StreamState(
        predicted=first,
        kept=jnp.zeros((*lead, lag + 1, states, configs), first.dtype),
        phases=jnp.zeros((*lead, lag, states), first.dtype),
        configs=jnp.zeros((*lead, lag, configs), first.dtype),
        log_likelihood=jnp.zeros((2,), first.dtype),
        frames=jnp.zeros((), jnp.int32),
    )


# Two programs and not one: fused with the step, a family's gamma functions are computed again for every joint state.
@jax.jit
def _evidence(params: Params, data: Data) -> tuple[Array, Array]:
    """One frame's log-evidence about stages (S,) and configurations (C,); without phases (K, 2) and (K, 1)."""
    p = lowering.potentials(params, lowering.tables(params, data), data.lengths)
    return p.phases[..., 0, 0, :], p.configs[..., 0, 0, :]


@jax.jit
def _step(params: Params, chain: Chain, state: StreamState, new: tuple[Array, Array]) -> tuple[StreamState, Moment]:
    alone = lowering.is_factorial(params)

    def one(chain: Chain, predicted: Array, kept: Array, phases: Array, configs: Array, new: tuple) -> tuple:
        message, total = online.normalize(predicted + new[0][:, None] + new[1])
        kept = jnp.concatenate([kept[1:], message[None]])
        phases, configs = (jnp.concatenate([old, n[None]])[1:] for old, n in ((phases, new[0]), (configs, new[1])))
        after, _ = _look_back(chain, phases, configs)
        lagged, _ = online.normalize(kept[0] + after)
        return online.push(chain, message), kept, phases, configs, total, _marginals(message), _marginals(lagged)

    old = (state.predicted, state.kept, state.phases, state.configs)
    run = jax.vmap(one) if alone else one
    predicted, kept, phases, configs, total, now, lagged = run(chain, *old, new)
    total = total.sum()
    # Two-sum: hours of frames must not cost the sum its digits.
    before, error = state.log_likelihood
    after = before + total
    error += jnp.where(jnp.isfinite(after), (before - (after - (after - before))) + (total - (after - before)), 0)
    state = StreamState(predicted, kept, phases, configs, jnp.stack([after, error]), state.frames + 1)
    lag = kept.shape[-3] - 1
    ready = state.frames > lag
    said = [_answers(params, m) for m in (now, lagged)]
    phases, tools = said[0]
    late_phases, late_tools = (None if x is None else jnp.where(ready, x, 0) for x in said[1])
    frame = state.frames - 1
    at = jnp.where(ready, frame - lag, -1)
    return state, Moment(phases, tools, after + error, frame, late_phases, late_tools, at)


@jax.jit
def _finish(params: Params, chain: Chain, state: StreamState) -> tuple[Any, Any]:
    def one(chain: Chain, kept: Array, phases: Array, configs: Array) -> tuple[Array, Array]:
        # What comes after each kept frame but the oldest; nothing comes after the newest.
        _, after = _look_back(chain, phases, configs)
        after = jnp.concatenate([after[1:], jnp.zeros_like(kept[:1])])[: phases.shape[0]]
        return jax.vmap(lambda m: _marginals(online.normalize(m)[0]))(kept[1:] + after)

    run = jax.vmap(one, out_axes=1) if lowering.is_factorial(params) else one
    return _answers(params, run(chain, state.kept, state.phases, state.configs))


def _look_back(chain: Chain, phases: Array, configs: Array) -> tuple[Array, Array]:
    """What frames say of the frame before the first of them (S, C), and of that before each (lag, S, C)."""

    def back(after: Array, frame: tuple) -> tuple[Array, Array]:
        before = online.pull(chain, after + frame[0][:, None] + frame[1])
        before = before - num.finite_max(before, (0, 1))
        return before, before

    return jax.lax.scan(back, jnp.zeros_like(chain.initial), (phases, configs), reverse=True)


def _marginals(message: Array) -> tuple[Array, Array]:
    return jnp.exp(num.logsumexp(message, 1)), jnp.exp(num.logsumexp(message, 0))


def _answers(params: Params, marginals: tuple[Array, Array]) -> tuple[Any, Any]:
    """Marginals of stages and configurations to those of phases (..., L) and tools (..., K)."""
    phases, configs = marginals
    if lowering.is_factorial(params):
        return None, phases[..., 1]
    if params.phases is None:
        phases = None
    elif params.phases.stages is not None:
        phases = durations.merge(phases, params.phases.stages)
    if params.tools is None:
        return phases, None
    return phases, num.einsum("...c,ck->...k", configs, configurations.bits(params.num_tools).astype(configs.dtype))
