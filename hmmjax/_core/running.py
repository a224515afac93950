"""The two ways in which `hmmjax.Stream` runs: compiled recursions, and programs of XLA where these cannot be used.

Both take a frame, return its result and what the stream becomes, and change nothing until `keep` is called with it.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import lowering
from hmmjax._core import stream as recursions
from hmmjax._core.batch import Batch, dtype_of
from hmmjax._core.interpreter import interpretable, without_jax
from hmmjax._core.stream import Moment, StreamState
from hmmjax.messages import native
from hmmjax.native.streams import Streams
from hmmjax.types import Params


class OutOfRangeError(Exception):
    """The compiled recursions would lose numbers that matter; `Traced` does not."""


class Compiled:
    """A stream in the compiled recursions.

    A step takes 120 to 150 microseconds, most of them for the frame's emission log-likelihoods (docs/results/speed.md).

    Args:
        params: a canonical model.
        lag: frames to wait before smoothing.

    Attributes:
        frames: number of frames so far.

    Raises:
        OutOfRangeError: the model's tools cannot switch.
    """

    def __init__(self, params: Params, lag: int) -> None:
        self._params, self._lag, self._dtype = params, lag, np.dtype(dtype_of(params))
        self._structure = lowering.structure_of(params)
        tables = jax.tree.map(np.asarray, recursions.tables(params))
        if not self._structure.independent:
            tables = jax.tree.map(lambda x: x[None], tables)
        try:
            self._streams = Streams(tables[0], tables[1], tables[2], lag)
        except ValueError:
            raise OutOfRangeError from None
        self.frames, self._past = 0, jax.tree.map(np.asarray, recursions.blank(params))
        self._observers: dict[Any, Callable] = {}  # by the sources that a frame has, and their types
        stages = self._structure.stages
        self._first_stages = None if stages is None else np.cumsum((0, *stages[:-1]))

    def step(self, batch: Batch) -> tuple[Moment, Any]:
        """Return the result for a frame, and the argument of `keep`; raise OutOfRangeError if `Traced` must take it."""
        given, past = self._observe(batch)
        total, marginals = self._streams.step(self.frames, np.ascontiguousarray(given))
        if total != total:
            raise OutOfRangeError
        half, ready = len(marginals) // 2, self.frames >= self._lag
        now = self._lift(marginals[:half])
        late = self._lift(marginals[half if self._lag else 0 :][:half] if ready else np.zeros(half))
        value, frame = np.asarray(total, self._dtype), np.asarray(self.frames, np.int32)
        late_frame = np.asarray(self.frames - self._lag if ready else -1, np.int32)
        return Moment(*now, value, frame, *late, late_frame), (self.frames + 1, past)

    def _observe(self, batch: Batch) -> tuple[Any, tuple]:
        arrays = batch.phases, batch.tools, self._past
        leaves, form = jax.tree.flatten(arrays)
        form = form, *(x.dtype for x in leaves)
        if form not in self._observers:
            fixed = np.asarray(batch.observed), self._params
            self._observers[form] = without_jax(recursions.observe_flat, arrays, fixed)
        return self._observers[form](*arrays)

    def keep(self, after: Any) -> None:
        """Take the frame that was stepped over last."""
        self.frames, self._past = after

    def finish(self) -> tuple:
        """Return what `lowering.report` does of the last `lag` frames, or of all if there are fewer."""
        phases, tools = self._streams.smooth(self.frames, min(self._lag, self.frames))
        phases = phases if self._structure.independent else phases[0]
        return _report(self._structure, phases.astype(self._dtype), tools.astype(self._dtype))

    @property
    def log_likelihood(self) -> np.ndarray:
        """() log-likelihood of all frames."""
        return np.asarray(self._streams.log_likelihood(self.frames - 1) if self.frames else 0.0, self._dtype)

    @property
    def state(self) -> StreamState:
        """The state, in doubles."""
        streams, frames, lag = self._streams, self.frames, self._lag
        # The filtered message of an unobserved frame is the prediction.
        chains, phases, configs = streams.shape
        streams.step(frames, np.zeros(chains * phases + 2 * streams.num_tools))
        predicted, log_likelihood = streams.read(frames)[0], 0.0
        kept = np.zeros((lag + 1, chains, phases, configs)), np.zeros((lag + 1, chains, phases))
        kept = (*kept, np.zeros((lag + 1, chains, configs)))
        for t in range(max(frames - lag - 1, 0), frames):
            for array, new in zip(kept, streams.read(t), strict=True):
                array[t - frames] = new
        if frames:
            log_likelihood = streams.log_likelihood(frames - 1)
        filtered, of_phases, of_configs = (np.moveaxis(x, 0, 1) for x in kept)
        arrays = [predicted, filtered, of_phases[:, 1:], of_configs[:, 1:]]
        if not self._structure.independent:
            arrays = [x[0] for x in arrays]
        predicted, filtered, of_phases, of_configs = arrays
        total = np.array([log_likelihood, 0.0])
        return StreamState(predicted, filtered, of_phases, of_configs, self._past, total, np.asarray(frames, np.int32))

    @state.setter
    def state(self, state: StreamState) -> None:
        arrays = [np.asarray(x) for x in (state.filtered, state.phases, state.configs)]
        if not self._structure.independent:
            arrays = [x[None] for x in arrays]
        filtered, phases, configs = arrays
        # The likelihoods of the oldest frame have done their work.
        phases, configs = (np.pad(x, [(0, 0), (1, 0), (0, 0)]) for x in (phases, configs))
        frames, total = int(state.frames), float(np.sum(np.asarray(state.log_likelihood, np.float64)))
        for t in range(max(frames - self._lag - 1, 0), frames):
            self._streams.write(t, [x[:, t - frames] for x in (filtered, phases, configs)], total)
        self.frames, self._past = frames, jax.tree.map(np.asarray, state.past)

    def _lift(self, marginals: np.ndarray) -> tuple[Any, Any]:
        """Return P(phase) (L,) and P(tool present) (K,) from those of the chains' states."""
        states = self._streams.shape[1]
        structure, phases, tools = self._structure, None, None
        if structure.independent:
            tools = marginals[1::2]
        else:
            phases = marginals[:states] if structure.has_phases else None
            tools = marginals[states + 1 :: 2] if structure.num_tools else None
        if phases is not None and self._first_stages is not None:
            phases = np.add.reduceat(phases, self._first_stages)
        phases, tools = (None if x is None else np.minimum(x, 1).astype(self._dtype) for x in (phases, tools))
        return phases, tools


@interpretable(static_argnames="structure")
def _report(structure: lowering.Structure, phases: Any, tools: Any) -> tuple:
    return lowering.report(*structure.lift_states(phases, tools))


class Traced:
    """A stream in programs of XLA.

    Args:
        params: a canonical model.
        lag: frames to wait before smoothing.
        in_logs: whether to sum in logarithms, which is exact for all models.
    """

    def __init__(self, params: Params, lag: int, in_logs: bool) -> None:
        self._params, self._lag = params, lag
        self._chain = recursions.chain_tables(params, in_logs=in_logs)
        self._state = recursions.start(params, self._chain, lag)

    @property
    def frames(self) -> int:
        """Number of frames so far."""
        return int(self._state.frames)

    @property
    def log_likelihood(self) -> np.ndarray:
        """() log-likelihood of all frames."""
        return np.asarray(np.asarray(self._state.log_likelihood).sum())

    @property
    def state(self) -> StreamState:
        """The state."""
        return self._state

    @state.setter
    def state(self, state: StreamState) -> None:
        self._state = jax.tree.map(lambda x, like: jnp.asarray(x, like.dtype), state, self._state)

    def step(self, batch: Batch) -> tuple[Moment, Any]:
        """Return the result for a frame, and the argument of `keep`."""
        observed = recursions.observe(self._params, batch, self._state.past)
        after, moment = recursions.step(self._params, self._chain, self._state, observed)
        return jax.tree.map(np.asarray, moment), after

    def keep(self, after: Any) -> None:
        """Take the frame."""
        self._state = after

    def finish(self) -> tuple:
        """Return what `lowering.report` does of the last `lag` frames, or of all if there are fewer."""
        marginals = recursions.finish(self._params, self._chain, self._state)
        n = min(self._lag, int(self._state.frames))
        return jax.tree.map(lambda x: x[self._lag - n :], marginals)


def run(params: Params, lag: int, *, in_logs: bool = False) -> Compiled | Traced:
    """Return a stream before its first frame, in compiled recursions if these can be used and `in_logs` is False."""
    if not in_logs and native.available():
        try:
            return Compiled(params, lag)
        except OutOfRangeError:
            pass
    return Traced(params, lag, in_logs or not lowering.scaled_is_exact(params))
