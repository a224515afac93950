"""Minutes of each phase and of each tool's use in each video, with intervals.

The number of frames N that a phase takes is a sum of dependent indicators; adding theta to the phase's log-evidence in
every frame makes the log-likelihood its cumulant generating function, so its derivatives at 0 are N's mean and variance
given the whole video: exact, whatever the coupling, with nothing but the smoother's own gradient.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import lowering
from hmmjax._core.batch import prepare
from hmmjax._core.tables import tabulate
from hmmjax.stabilize import Stabilized
from hmmjax.stabilize.prepare import observations_for
from hmmjax.stabilize.table import as_phases, as_tools
from hmmjax.types import Observations, Params

#: The half-step of the difference quotient, in nats a frame: small beside one over the counts' deviations, large beside
#: float32's rounding.
STEP = 0.01
GROUP = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Minutes:
    """Minutes of the classes of one track; NaN where a system or the truth says nothing.

    Attributes:
        names: (C,) classes.
        truth: (B, C) minutes in the annotation; NaN for a video that is not annotated throughout.
        raw: (B, C) minutes in what was read.
        stabilized: (B, C) expected minutes under the posterior.
        deviation: (B, C) the posterior's standard deviation of them; None where it was not asked for.
    """

    names: tuple[str, ...]
    truth: np.ndarray
    raw: np.ndarray
    stabilized: np.ndarray
    deviation: np.ndarray | None

    def bands(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(B, C) ends of 80 % bands from the other videos' errors; None with fewer than ten annotated videos.

        What the model cannot know of itself: how far its minutes are off in videos that it had not seen. Errors lean
        to one side, so each end is a conformal quantile of its own, of truth minus stabilized over the other annotated
        videos, beyond which one in ten is to be expected: of twenty videos, one in twenty would be
        the worst error alone. Nothing lasts less than 0 minutes.
        """
        error = self.truth - self.stabilized
        known = ~np.isnan(error).any(1)
        if known.sum() < 10:
            return None
        low, high = np.empty_like(error), np.empty_like(error)
        for i in range(len(error)):
            others = np.sort(error[known & (np.arange(len(error)) != i)], axis=0)
            reach = min(int(np.ceil(0.9 * (len(others) + 1))), len(others))
            low[i], high[i] = others[len(others) - reach], others[reach - 1]
        return np.maximum(self.stabilized + low, 0), np.maximum(self.stabilized + high, 0)

    def errors(self, system: str) -> tuple[np.ndarray, np.ndarray]:
        """How far a video's minutes are off: (C,) medians and 90 % quantiles of absolute errors over annotated videos.

        Args:
            system: "raw" or "stabilized".

        Returns:
            Medians and quantiles in minutes; NaN without annotated videos.
        """
        error = np.abs(getattr(self, system) - self.truth)
        error = error[~np.isnan(error).any(1)]
        if not len(error):
            return np.full(len(self.names), np.nan), np.full(len(self.names), np.nan)
        return np.median(error, 0), np.quantile(error, 0.9, axis=0, method="higher")

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """(B, C) ends of 95 % intervals: the mean and 1.96 deviations either way, not below 0.

        Raises:
            ValueError: deviations were not asked for.
        """
        if self.deviation is None:
            raise ValueError("these minutes have no deviations: compute them with intervals=True.")
        reach = 1.96 * self.deviation
        return np.maximum(self.stabilized - reach, 0), self.stabilized + reach

    def coverage(self) -> tuple[int, int]:
        """How many true values lie inside their intervals, and of how many.

        Raises:
            ValueError: deviations were not asked for.
        """
        low, high = self.interval()
        known = ~np.isnan(self.truth)
        inside = known & (low - 1e-9 <= self.truth) & (self.truth <= high + 1e-9)
        return int(inside.sum()), int(known.sum())


def estimate_minutes(
    result: Stabilized,
    track: str,
    names: Sequence[str],
    *,
    intervals: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> Minutes | None:
    """Minutes of every phase or tool in every video.

    Args:
        result: from `hmmjax.stabilize.stabilize`.
        track: "phases" or "tools".
        names: (C,) classes.
        intervals: compute deviations, at the cost of two passes of the smoother per class.
        progress: called with a stage's name, how many parts are done, and of how many.

    Returns:
        The minutes; None where the track was not inferred.

    Source: the log-likelihood as cumulant generating function; see the module.
    """
    means = getattr(result.smoothed, track)
    if means is None:
        return None
    unit, count = result.step_seconds / 60, len(names)
    raw, known = getattr(result.raw, track), getattr(result, f"truth_{track}")

    def tally(values: Any) -> np.ndarray:
        labels = as_phases(values) if track == "phases" else as_tools(values)
        if (labels < 0).any():
            return np.full(count, np.nan)
        if track == "tools":
            return labels.sum(0) * unit
        return np.bincount(labels, minlength=count)[:count] * unit

    def table(videos: Any) -> np.ndarray:
        if videos is None:
            return np.full((len(result.ids), count), np.nan)
        return np.stack([tally(v) for v in videos])

    deviation = None
    if intervals:
        deviation = np.sqrt(np.maximum(_variances(result, track, progress), 0)) * unit
    stabilized = np.stack([np.asarray(p, float).sum(0) * unit for p in means])
    return Minutes(tuple(names), table(known), table(raw), stabilized, deviation)


def _variances(result: Stabilized, track: str, progress: Callable[[str, int, int], None] | None) -> np.ndarray:
    """(B, C) variances of the number of frames, by the model of all videos."""
    params = result.model.params
    count = params.num_phases if track == "phases" else params.num_tools
    found = np.zeros((len(result.ids), count))
    for start in range(0, len(result.ids), GROUP):
        if progress is not None:
            progress(f"intervals of {track}", start, len(result.ids))
        group = list(range(start, min(start + GROUP, len(result.ids))))
        obs, mask = _padded(result, group)
        found[group] = variances(params, observations_for(obs, params, 0.5), mask, track)
    if progress is not None:
        progress(f"intervals of {track}", len(result.ids), len(result.ids))
    return found


def variances(params: Params, obs: Observations, mask: Any, track: str) -> np.ndarray:
    """Variance of the number of observed frames in each phase, or with each tool, given the whole video.

    Args:
        params: the model.
        obs: (B, T, ...) observations.
        mask: (B, T) bool.
        track: "phases" or "tools".

    Returns:
        (B, L) or (B, K), in frames squared.
    """
    data = prepare(params, obs, mask, None)
    backend = lowering.choose_backend("auto", params)
    count = params.num_phases if track == "phases" else params.num_tools
    columns = []
    for c in range(count):
        up, down = (_expected(params, data, sign * STEP, c, track=track, backend=backend) for sign in (1, -1))
        columns.append((np.asarray(up, np.float64) - np.asarray(down, np.float64)) / (2 * STEP))
    return np.stack(columns, 1)


@partial(jax.jit, static_argnames=("track", "backend"))
def _expected(params: Params, data: Any, theta: Any, c: Any, *, track: str, backend: str) -> Any:
    """(B,) expected frames of class c when each of its frames weighs exp(theta) more."""
    table = tabulate(params, data)

    def log_likelihood(tilt: Any) -> Any:
        extra = tilt[:, None] * data.observed
        if track == "phases":
            return lowering.log_normalizer(
                params, dataclasses.replace(table, phases=table.phases.at[..., c].add(extra)), data.lengths, backend
            ).sum()
        return lowering.log_normalizer(
            params, dataclasses.replace(table, tools=table.tools.at[..., c, 1].add(extra)), data.lengths, backend
        ).sum()

    return jax.grad(log_likelihood)(jnp.full(data.lengths.shape, theta, jnp.float32))


def _padded(result: Stabilized, group: Sequence[int]) -> tuple[Observations, np.ndarray]:
    """What was read of some videos, padded to one length with gaps in time left unobserved."""
    step = result.step_seconds * result.fps
    rows = [np.rint((result.frames[i] - result.frames[i][0]) / step).astype(int) for i in group]
    length = 1 + max(int(r[-1]) for r in rows)
    mask = np.zeros((len(group), length), bool)
    arrays: dict[str, Any] = {"phases": None, "tools": None}
    for track in arrays:
        said = result.outputs(track, 0)
        arrays[track] = jax.tree.map(lambda x: np.zeros((len(group), length, *x.shape[1:]), x.dtype), said)
    for place, (i, r) in enumerate(zip(group, rows, strict=True)):
        mask[place, r] = True
        for track, array in arrays.items():
            for whole, own in zip(jax.tree.leaves(array), jax.tree.leaves(result.outputs(track, i)), strict=True):
                whole[place, r] = own
    return Observations(**arrays), mask


__all__ = ["Minutes", "estimate_minutes", "variances"]
