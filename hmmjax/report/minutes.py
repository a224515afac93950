"""Minutes of each phase and of each tool's use in each video, with intervals."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hmmjax._core.occupancy import occupancy_variance
from hmmjax.ensembles import main_member
from hmmjax.stabilize import Stabilized
from hmmjax.stabilize.gaps import without_gaps
from hmmjax.stabilize.prepare import observations_for
from hmmjax.stabilize.settings import Progress, ignore_progress
from hmmjax.stabilize.systems import as_phases, as_tools
from hmmjax.types import Observations

#: Number of videos that are inferred together: bounds memory.
GROUP = 4


@dataclasses.dataclass(frozen=True, eq=False)
class Minutes:
    """Minutes of the classes of one track in B videos; NaN if missing.

    Attributes:
        names: (C,) class names.
        truth: (B, C) annotated minutes; NaN for videos that are not annotated throughout.
        raw: (B, C) minutes predicted by the recognizer.
        stabilized: (B, C) expected minutes under the posterior.
        deviation: (B, C) posterior standard deviation of the minutes; None if it was not computed.
    """

    names: tuple[str, ...]
    truth: np.ndarray
    raw: np.ndarray
    stabilized: np.ndarray
    deviation: np.ndarray | None

    def bands(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Compute 80 % intervals from the errors in the other annotated videos.

        Errors are asymmetric, so each end is a separate conformal quantile (one in ten beyond it) of truth minus
        stabilized over the other annotated videos. Ends are at least 0.

        Returns:
            Lower and upper ends (B, C); None with fewer than ten annotated videos.
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
        """Compute the medians and 90 % quantiles of absolute errors over annotated videos.

        Args:
            system: "raw" or "stabilized".

        Returns:
            Medians (C,) and quantiles (C,) in minutes; NaN without annotated videos.
        """
        error = np.abs(getattr(self, system) - self.truth)
        error = error[~np.isnan(error).any(1)]
        if not len(error):
            return np.full(len(self.names), np.nan), np.full(len(self.names), np.nan)
        return np.median(error, 0), np.quantile(error, 0.9, axis=0, method="higher")

    def interval(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the model's 95 % intervals (B, C): the mean plus and minus 1.96 deviations, at least 0.

        Raises:
            ValueError: deviations were not computed.
        """
        if self.deviation is None:
            raise ValueError("these minutes have no deviations. Compute them with intervals=True.")
        reach = 1.96 * self.deviation
        return np.maximum(self.stabilized - reach, 0), self.stabilized + reach

    def coverage(self) -> tuple[int, int]:
        """Count the true values inside the model's intervals, and all true values.

        Raises:
            ValueError: deviations were not computed.
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
    progress: Progress | None = None,
) -> Minutes | None:
    """Compute the minutes of every phase or tool in every video.

    Args:
        result: from `hmmjax.stabilize.stabilize`.
        track: "phases" or "tools".
        names: (C,) class names.
        intervals: compute deviations, at the cost of two passes of the smoother per class.
        progress: called with a stage's name, the number of videos done, and the number of videos.

    Returns:
        The minutes; None if the track was not inferred.
    """
    means = getattr(result.smoothed, track)
    if means is None:
        return None
    unit, count = result.step_seconds / 60, len(names)
    raw, known = getattr(result.raw, track), getattr(result, f"truth_{track}")

    def tally(values: Any) -> np.ndarray:
        labels = without_gaps(as_phases(values) if track == "phases" else as_tools(values))
        if labels is None:
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
        deviation = np.sqrt(np.maximum(_variances(result, track, progress or ignore_progress), 0)) * unit
    stabilized = np.stack([np.asarray(p, float).sum(0) * unit for p in means])
    return Minutes(tuple(names), table(known), table(raw), stabilized, deviation)


def _variances(result: Stabilized, track: str, progress: Progress) -> np.ndarray:
    """Return the variances (B, C) of the number of frames, under the model of all videos."""
    params, count = main_member(result.model.params, track), len(result.ids)
    found = []
    for start in range(0, count, GROUP):
        progress(f"intervals of {track}", start, count)
        obs, mask = _padded(result, range(start, min(start + GROUP, count)))
        found.append(occupancy_variance(params, observations_for(obs, params, 0.5), mask, track))
    progress(f"intervals of {track}", count, count)
    return np.concatenate(found)


def _padded(result: Stabilized, group: Sequence[int]) -> tuple[Observations, np.ndarray]:
    """Return the raw observations of some videos, padded to one length; gaps in time are unobserved."""
    step = result.step_seconds * result.fps
    rows = [np.rint((result.frames[i] - result.frames[i][0]) / step).astype(int) for i in group]
    length = 1 + max(int(r[-1]) for r in rows)
    mask = np.zeros((len(group), length), bool)
    arrays: dict[str, Any] = {"phases": None, "tools": None}
    for track in arrays:
        outputs = result.outputs(track, 0)
        arrays[track] = jax.tree.map(lambda x: np.zeros((len(group), length, *x.shape[1:]), x.dtype), outputs)
    for place, (i, r) in enumerate(zip(group, rows, strict=True)):
        mask[place, r] = True
        for track, array in arrays.items():
            for padded, own in zip(jax.tree.leaves(array), jax.tree.leaves(result.outputs(track, i)), strict=True):
                padded[place, r] = own
    return Observations(**arrays), mask
