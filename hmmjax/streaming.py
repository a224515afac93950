"""Online filtering and fixed-lag smoothing, one frame at a time.

Example::

    stream = hmmjax.Stream(params, lag=30)
    for softmax, scores in recognizer:
        now = stream.step(hmmjax.Observations(softmax, scores))
        now.phases, now.tools                    # given every frame so far
        now.lagged_phases, now.lagged_frame      # of the frame 30 earlier, given every frame so far

Results are causal: what was returned for a frame is never changed by later frames. Memory does not grow.
"""

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import ensembles
from hmmjax._core import running, states, validation
from hmmjax._core import stream as recursions
from hmmjax._core.batch import canonical, collect
from hmmjax._core.frames import Frames
from hmmjax._core.size import check_size
from hmmjax._core.stream import Moment, StreamState
from hmmjax.ensembles import Ensemble
from hmmjax.types import Observations, Params, Posterior

__all__ = ["Moment", "Stream", "StreamState", "start", "step"]

_IMPOSSIBLE = (
    "frame {} is impossible given those before it: it needs a transition or an output of probability zero. "
    "Learn with pseudo-counts (hmmjax.Priors), or call step() to skip the frame."
)


def start(params: Params, lag: int = 0) -> StreamState:
    """Return the state before the first frame.

    `start` and `step` are pure functions, for running many streams with `jax.vmap`; `Stream` checks its inputs.

    Args:
        params: the model, not checked here.
        lag: frames to wait before smoothing, 0 or more; a static number, because it is part of the state's shape.

    Returns:
        The state, for `step`.
    """
    params = canonical(params)
    return recursions.start(params, recursions.chain_tables(params, in_logs=True), lag)


def step(params: Params, state: StreamState, obs: Observations) -> tuple[StreamState, Moment]:
    """Process one frame. Pure and traceable; values are not checked.

    It sums in logarithms, because it cannot inspect traced parameters; `Stream` is faster if the model allows it.

    Args:
        params: the model.
        state: from `start`, or from the previous step.
        obs: phases, a label () or (L,) probabilities, and tools (K,); None for a track that was not observed in this
            frame.

    Returns:
        The state for the next frame, and the result for this one. Once a frame is impossible given those before it,
        the log-likelihood is -inf.

    Raises:
        TypeError: `obs` is not `Observations`.

    Source: the forward recursion of Appendix S2.2, and the backward recursion over the last `lag` frames.
    """
    validation.check_observations(obs)
    obs, params = Observations(obs.phases, obs.tools), canonical(params)
    observed = jnp.full((1,), bool(jax.tree.leaves(obs)))
    batch = collect(jax.tree.map(lambda x: jnp.asarray(x)[None], obs), observed, None, params)
    chain = recursions.chain_tables(params, in_logs=True)
    return recursions.step(params, chain, state, recursions.observe(params, batch, state.past))


class Stream:
    """The filter of one running video: call `step` once per frame, and `finish` for the frames that the lag withholds.

    Args:
        params: the model, learned at the frame rate of the stream; or an `hmmjax.Ensemble`, of which every member has a
            stream of its own.
        lag: frames to wait before smoothing. Each step then also runs a backward pass over `lag` frames.

    Raises:
        TypeError, ValueError: invalid parameters, or a negative lag.

    Source: the forward recursion of Appendix S2.2, and the backward recursion over the last `lag` frames.
    """

    def __new__(cls, params: Params | Ensemble, *, lag: int = 0) -> "Stream":
        """Return a stream, for an ensemble one of streams."""
        return object.__new__(_EnsembleStream if isinstance(params, Ensemble) else cls)

    def __init__(self, params: Params | Ensemble, *, lag: int = 0) -> None:
        validation.check_params(params)  # type: ignore[arg-type]  # `__new__` has sorted out ensembles
        if not isinstance(lag, int) or lag < 0:
            raise ValueError(f"lag must be an integer number of frames, 0 or more, got {lag!r}.")
        check_size(params.num_stages, params.num_tools, lag + 1, messages=lag + 2)
        self.params: Any = canonical(params)  # type: ignore[arg-type]
        self.lag = lag
        self._run, self._frames = running.run(self.params, lag), Frames(self.params)

    @property
    def state(self) -> StreamState:
        """Everything that the stream remembers. Streams of the same model and lag may be given each other's.

        Raises:
            TypeError: on assignment, if it is not the state of a stream.
            ValueError: on assignment, if it is that of another model or lag, as far as shapes tell, or damaged.
        """
        return self._run.state

    @state.setter
    def state(self, state: StreamState) -> None:
        states.check(state, self.state)
        self._run.state = state

    def step(self, obs: Observations | None = None) -> Moment:
        """Process one frame.

        Args:
            obs: phases, a label or (L,) probabilities, and tools (K,). None for a track, or altogether, if it was not
                observed in this frame.

        Raises:
            TypeError, ValueError: bad input, or a frame that is impossible given those before it. The stream's state
                is then unchanged.

        Returns:
            The result for this frame, as NumPy arrays.
        """
        moment, after = self._look(obs)
        if moment.log_likelihood == -np.inf:
            raise ValueError(_IMPOSSIBLE.format(int(moment.frame)))
        self._run.keep(after)
        return moment

    def _look(self, obs: Observations | None) -> tuple[Moment, Any]:
        """Return the result for a frame, and what the stream keeps of it."""
        batch = self._frames.batch(obs, self._run.frames)
        try:
            return self._run.step(batch)
        except running.OutOfRangeError:  # of the first frame
            self._run = running.run(self.params, self.lag, in_logs=True)
            return self._run.step(batch)

    def finish(self) -> Posterior:
        """Return results for the last frames, which the lag still withholds, given all frames.

        Returns:
            `Posterior` with phases (n, L) and tools (n, K) of the last n frames, n the lag or the number of frames if
            that is smaller, and log_likelihood () of all frames. The stream may be continued afterwards.
        """
        phases, tools, *logs = (None if x is None else np.asarray(x) for x in self._run.finish())
        return Posterior(phases, tools, self._run.log_likelihood, *logs)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write the state, without the model, to an NPZ. The file is written atomically and needs no pickle.

        Args:
            path: the file, usually ``.npz``.
            force: whether to overwrite an existing file.

        Raises:
            FileExistsError: the file exists and `force` is False.
        """
        from hmmjax.io import save_npz

        save_npz(
            path,
            {"model": states.fingerprint(self.params), "lag": self.lag, **states.arrays_of(self.state)},
            force=force,
        )

    @classmethod
    def resume(cls, params: Params | Ensemble, path: str | os.PathLike[str]) -> "Stream":
        """Return the stream that `save` wrote, to continue as if it had never stopped.

        Args:
            params: the model that the stream ran with.
            path: the file.

        Returns:
            A stream with the lag and the state that were saved.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is of another kind, damaged, or belongs to another model.
        """
        from hmmjax.io.arrays import load_arrays

        if not os.path.exists(path):
            raise FileNotFoundError(f"{os.fspath(path)} does not exist; pass a file written by Stream.save.")
        try:
            arrays: dict[str, Any] = load_arrays(os.fspath(path))
            model, lag = str(arrays.pop("model")), int(arrays.pop("lag"))
            stream = cls(params, lag=lag)
            wanted = states.arrays_of(stream.state)
            if arrays.keys() != wanted.keys():
                raise ValueError(f"it holds {', '.join(arrays)}")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{os.fspath(path)} is not a saved stream ({error}); pass a file written by Stream.save."
            ) from None
        if model != states.fingerprint(stream.params):
            raise ValueError(
                f"{os.fspath(path)} belongs to another model. Resume it with the parameters that the stream ran with."
            )
        for name, want in wanted.items():
            have = arrays[name]
            if problem := states.difference(have, want, name):
                raise ValueError(
                    f"{os.fspath(path)} is not a saved stream ({name} is damaged: {problem}); pass a file written by "
                    "Stream.save."
                )
        stream.state = jax.tree.unflatten(jax.tree.structure(stream.state), [arrays[name] for name in wanted])
        return stream


class _EnsembleStream(Stream):
    """One stream per member of an ensemble, and the averages of their results.

    A member that finds a frame impossible takes it as unobserved and has no weight in the result of that step.
    """

    def __init__(self, params: Params | Ensemble, *, lag: int = 0) -> None:
        ensemble: Any = params
        ensemble.check()
        self._streams = [Stream(member, lag=lag) for member in ensemble.members]
        self.params, self.lag = ensemble, lag
        self._weights = [None if w is None else np.asarray(w) for w in map(ensemble.weights, ("phases", "tools"))]
        self._shares = np.asarray(ensemble.shares())

    @property
    def state(self) -> tuple[StreamState, ...]:
        """The states of the members' streams."""
        return tuple(stream.state for stream in self._streams)

    @state.setter
    def state(self, state: tuple[StreamState, ...]) -> None:
        states.check(state, self.state)
        for stream, own in zip(self._streams, state, strict=True):
            stream.state = own

    def step(self, obs: Observations | None = None) -> Moment:
        obs = Observations() if obs is None else obs
        found = [stream._look(self.params.observed_by(stream.params, obs)) for stream in self._streams]
        votes = np.array([moment.log_likelihood > -np.inf for moment, _ in found])
        if not votes.any():
            raise ValueError(_IMPOSSIBLE.format(int(found[0][0].frame)))
        for i in np.flatnonzero(~votes):
            found[i] = self._streams[i]._look(None)
        for stream, (_, after) in zip(self._streams, found, strict=True):
            stream._run.keep(after)
        moments = [moment for moment, _ in found]

        def average(name: str, weights: Any) -> Any:
            parts = [getattr(moment, name) for moment in moments]
            if weights is None:
                return None
            return sum(w * x for w, x in zip(ensembles.among(weights, votes), parts, strict=True) if x is not None)

        phases, tools = (average(name, w) for name, w in zip(("phases", "tools"), self._weights, strict=True))
        late = (average(f"lagged_{name}", w) for name, w in zip(("phases", "tools"), self._weights, strict=True))
        value, first = np.asarray(average("log_likelihood", self._shares)), moments[0]
        return Moment(phases, tools, value, first.frame, next(late), next(late), first.lagged_frame)

    def finish(self) -> Posterior:
        return jax.tree.map(np.asarray, ensembles.mix(self.params, [stream.finish() for stream in self._streams]))
