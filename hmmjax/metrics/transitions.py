"""Which phase changes are found in time, and which phases of a video are lost or invented."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.metrics.metric import Metric, check_rate
from hmmjax.metrics.segments import delays_of, known_videos, segments
from hmmjax.metrics.videos import phase_videos

WITHIN = 10.0
"""Seconds by which a change may be off, as in metrics with relaxed boundaries."""


def changes_found(truth: Any, predicted: Any, *, fps: float = 1.0, within: float = WITHIN) -> Metric:
    """Count the true phase changes that the prediction shows in time, with the delays of `transition_delay`.

    Args:
        truth: int labels, one (n_i,) array per video or a single array.
        predicted: int labels of the same shapes.
        fps: rows per second.
        within: largest delay in seconds, early or late.

    Returns:
        The number of changes over all videos, and `per_video`. Flicker is not penalized: a phase that is shown for a
        moment counts. `change_f1` penalizes it.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if shapes disagree, labels are negative, or `fps` or `within` is not positive and finite.

    Source: a count; the tolerance is that of the M2CAI 2016 workflow challenge.
    """
    _check(fps, within)
    videos = known_videos(truth, predicted)
    tolerance = _tolerance(fps, within)
    delays = [np.array(delays_of(a, b)) for a, b in videos]
    counts = [float((np.abs(d) <= tolerance).sum()) for d in delays]
    total, missed = sum(map(len, delays)), sum(int(np.isnan(d).sum()) for d in delays)
    return Metric(
        name="phase changes found",
        convention=f"of {total} true changes, those whose new phase is shown within {within:g} s; total over videos",
        value=sum(counts) if videos else math.nan,
        unit="changes",
        n_videos=len(videos),
        n_frames=sum(len(a) for a, _ in videos),
        left_out=(f"{missed} of {total} transitions: phase never predicted in its segment",) if missed else (),
        per_video=tuple(counts),
    )


def change_f1(truth: Any, predicted: Any, *, fps: float = 1.0, within: float = WITHIN) -> Metric:
    """Compute F1 of phase changes: a predicted change is correct if a true change into the same phase is near.

    As many changes as possible are matched one to one.

    Args:
        truth: int labels, one (n_i,) array per video or a single array.
        predicted: int labels of the same shapes.
        fps: rows per second.
        within: largest distance of matched changes in seconds.

    Returns:
        F1 over the changes of all videos together, between 0 and 1; NaN without any change.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if shapes disagree, labels are negative, or `fps` or `within` is not positive and finite.

    Source: boundary F1 of temporal segmentation; the definition above is this library's.
    """
    _check(fps, within)
    tolerance = _tolerance(fps, within)
    videos = known_videos(truth, predicted)
    counts = [_matches(a, b, tolerance) for a, b in videos]
    scores = [2 * both / (found + true) if found + true else math.nan for both, found, true in counts]
    both, found, true = np.array(counts).reshape(-1, 3).sum(0)
    return Metric(
        name="phase change F1",
        convention=f"changes into the same phase, at most {within:g} s apart, one to one; all videos pooled",
        value=float(2 * both / (found + true)) if found + true else math.nan,
        n_videos=len(videos),
        n_frames=sum(len(a) for a, _ in videos),
        per_video=tuple(scores),
    )


def phases_lost(truth: Any, predicted: Any, *, names: Sequence[str] | None = None) -> Metric:
    """Count the phases of videos of which the prediction hits no frame.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown.
        predicted: int labels of the same shapes.
        names: names of the phases.

    Returns:
        The number of lost phases, summed over videos, with the counts of each phase and each video.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if shapes disagree, labels are negative, or names are too few.

    Source: a count.
    """
    return _count_phases("lost", "annotated, but predicted in none of its frames", truth, predicted, names)


def phases_gained(truth: Any, predicted: Any, *, names: Sequence[str] | None = None) -> Metric:
    """Count the phases that are predicted in videos in which they do not occur.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown, and such frames are not counted.
        predicted: int labels of the same shapes.
        names: names of the phases.

    Returns:
        The number of such phases, summed over videos, with the counts of each phase and each video.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if shapes disagree, labels are negative, or names are too few.

    Source: a count.
    """
    return _count_phases("gained", "predicted, but not annotated in the video", truth, predicted, names)


def _check(fps: float, within: float) -> None:
    check_rate("fps", fps, "rows per second, 1 for one row per second")
    check_rate("within", within, "seconds")


def _tolerance(fps: float, within: float) -> float:
    """Return the tolerance in rows: a whole number if it is one but for rounding, as .29 s at 100 rows per second."""
    rows = within * fps
    return round(rows) if math.isclose(rows, round(rows), rel_tol=1e-9) else rows


def _matches(truth: np.ndarray, predicted: np.ndarray, frames: float) -> tuple[int, int, int]:
    """Return the numbers of matched, predicted and true changes, matched at most `frames` apart."""
    true, found = segments(truth)[1:], segments(predicted)[1:]
    both = 0
    for phase in {p for p, _, _ in true}:
        left, right = ([start for p, start, _ in changes if p == phase] for changes in (true, found))
        # In order of time, the first pair that is near enough is part of some largest matching.
        i = j = 0
        while i < len(left) and j < len(right):
            if abs(left[i] - right[j]) <= frames:
                both, i, j = both + 1, i + 1, j + 1
            elif left[i] < right[j]:
                i += 1
            else:
                j += 1
    return both, len(found), len(true)


def _count_phases(what: str, meaning: str, truth: Any, predicted: Any, names: Sequence[str] | None) -> Metric:
    """Count phases that are lost or gained, by phase and by video."""
    videos, labels = phase_videos(truth, predicted, names)
    table = np.full((len(videos), len(labels)), np.nan)
    for row, (a, b) in zip(table, videos, strict=True):
        if len(a):
            hit, true = np.unique(a[a == b]), np.unique(a)
            row[:] = np.isin(np.arange(len(labels)), np.setdiff1d(*((true, hit) if what == "lost" else (b, true))))
    known = ~np.isnan(table).all(1)
    per_video = np.where(known, np.nansum(table, 1), np.nan)
    return Metric(
        name=f"phases {what}",
        convention=f"{meaning}; total over videos",
        value=float(np.nansum(per_video)) if known.any() else math.nan,
        unit="phases",
        n_videos=int(known.sum()),
        n_frames=sum(len(a) for a, _ in videos),
        class_names=labels,
        per_class=tuple(np.nansum(table, 0).tolist()),
        per_video=tuple(per_video.tolist()),
    )
