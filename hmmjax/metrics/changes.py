"""Count changes between consecutive frames: of the phase, and of tools switching on and off."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.metrics.metric import Metric, check_threshold
from hmmjax.metrics.videos import all_names, as_videos, check_labels, same_classes


def phase_changes(predicted: Any) -> Metric:
    """Count phase changes between consecutive frames of all videos.

    Args:
        predicted: int labels, one (n_i,) array per video or a single array; -1 is unknown (for instance padding).

    Returns:
        The total number of changes between frames that are both known, and `per_video`. A total has no ±.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if labels are not (n,) arrays, or below -1.

    Source: a count.
    """
    videos = as_videos(predicted, 1, "prediction")
    for i, v in enumerate(videos):
        check_labels(v, i, "prediction")
        if v.min(initial=0) < -1:
            raise ValueError(f"video {i} has the phase label {v.min()}: use labels from 0, and -1 for unknown")
    known = [v >= 0 for v in videos]
    frames = [int(k.sum()) for k in known]
    counts = [float(_changes(v, k).sum()) if k.any() else math.nan for v, k in zip(videos, known, strict=True)]
    return Metric(
        name="phase changes",
        convention=f"total over videos{_between(known)}",
        value=float(np.nansum(counts)) if sum(frames) else math.nan,
        unit="changes",
        n_videos=sum(n > 0 for n in frames),
        n_frames=sum(frames),
        left_out=_without_frames(frames),
        per_video=tuple(counts),
    )


def tool_changes(scores: Any, *, threshold: float = 0.5, names: Sequence[str] | None = None) -> Metric:
    """Count how often tools switch on or off between consecutive frames of all videos.

    Args:
        scores: scores of presence or 0/1 decisions, one (n_i, K) array per video or a single array; NaN, or -1 in
            integer arrays, is unknown.
        threshold: the score from which a tool is on.
        names: (K,) tool names.

    Returns:
        The total number of changes between frames that are both known, and `per_video`. A total has no ±.

    Raises:
        ValueError: if scores are not (n, K) arrays of the same tools, the number of names is not K, or the threshold
            is NaN.

    Source: a count.
    """
    check_threshold(threshold)
    videos = as_videos(scores, 2, "scores")
    labels = all_names(names, same_classes(videos, "tool"), "tool")
    known = [v >= 0 if v.dtype.kind in "iu" else ~np.isnan(v.astype(float)) for v in videos]
    counts = np.array([_changes(v >= threshold, k).sum(0) for v, k in zip(videos, known, strict=True)])
    frames = [int(k.any(1).sum()) for k in known]
    per_video = np.where(np.array(frames) > 0, counts.sum(1), math.nan)
    return Metric(
        name="tool on/off changes",
        convention=f"on at or above {threshold:g}; total over tools and videos{_between(known)}",
        value=float(counts.sum()) if sum(frames) else math.nan,
        unit="changes",
        n_videos=sum(n > 0 for n in frames),
        n_frames=sum(frames),
        n_classes=len(labels),
        left_out=_without_frames(frames),
        class_names=labels,
        per_class=tuple(map(float, counts.sum(0))),
        per_video=tuple(map(float, per_video)),
    )


def _changes(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Bool (n - 1, ...): whether a frame differs from the one before it and both are known."""
    return (values[1:] != values[:-1]) & known[1:] & known[:-1]


def _between(known: Sequence[np.ndarray]) -> str:
    """Return the addition to the convention if some frames are unknown: changes across gaps are not counted."""
    return "" if all(k.all() for k in known) else ", between consecutive frames that are both known"


def _without_frames(frames: Sequence[int]) -> tuple[str, ...]:
    """Return the entry of `Metric.left_out` for videos without known frames, if any."""
    count = sum(n == 0 for n in frames)
    return (f"{count} videos: no frame",) if count else ()
