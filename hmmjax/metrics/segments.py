"""Metrics of the order and lengths of phases: changes, over-segmentation, edit score, segmental F1, delays."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from hmmjax.metrics.changes import between, changes, without_frames
from hmmjax.metrics.records import Metric, check_option, check_rate, nan_mean, nan_std
from hmmjax.metrics.relaxed import segments
from hmmjax.metrics.videos import as_videos, check_labels, paired

Pair = tuple[np.ndarray, np.ndarray]

_MEANS = ("pooled", "videos")


def _known(truth: Any, predicted: Any) -> list[Pair]:
    """Pairs of label videos; unknown frames are refused, since dropping them would join what lies around them."""
    videos = paired(truth, predicted, 1)
    for i, (a, b) in enumerate(videos):
        check_labels(a, i, "truth")
        check_labels(b, i, "prediction")
        if len(a) and min(a.min(), b.min()) < 0:
            raise ValueError(
                f"video {i} has a negative phase label, and segments need every frame: cut padding off with "
                "hmmjax.metrics.unpad, and leave out videos that are labeled in part"
            )
    return [(a.astype(np.int64), b.astype(np.int64)) for a, b in videos if len(a)]


def _over_videos(name: str, convention: str, per_video: Sequence[float], videos: Sequence[Pair], **more: Any) -> Metric:
    given = {"value": float(nan_mean(per_video)), "spread": nan_std(per_video), "spread_over": "videos", **more}
    return Metric(
        name=name,
        convention=convention,
        n_videos=len(videos),
        n_frames=sum(len(a) for a, _ in videos),
        per_video=tuple(map(float, per_video)),
        **given,
    )


def phase_changes(predicted: Any) -> Metric:
    """How often the phase changes between consecutive frames, over all videos.

    Args:
        predicted: int labels, one (n_i,) array per video or a single array; -1, as in padding, is unknown.

    Returns:
        The total over videos of changes between frames that are both known; ± over videos.

    Raises:
        TypeError: labels are not integers.
        ValueError: labels are not (n,) arrays, or below -1.

    Source: plain count.
    """
    videos = as_videos(predicted, 1, "prediction")
    for i, v in enumerate(videos):
        check_labels(v, i, "prediction")
        if v.min(initial=0) < -1:
            raise ValueError(f"video {i} has the phase label {v.min()}: labels start at 0, and -1 is unknown")
    known = [v >= 0 for v in videos]
    frames = [int(k.sum()) for k in known]
    counts = [float(changes(v, k).sum()) if k.any() else math.nan for v, k in zip(videos, known, strict=True)]
    return Metric(
        name="phase changes",
        convention=f"total over videos{between(known)}",
        value=float(np.nansum(counts)) if sum(frames) else math.nan,
        unit="changes",
        spread=nan_std(counts),
        spread_over="videos",
        n_videos=sum(n > 0 for n in frames),
        n_frames=sum(frames),
        left_out=without_frames(frames),
        per_video=tuple(counts),
    )


def over_segmentation(truth: Any, predicted: Any, *, mean: Literal["pooled", "videos"] = "videos") -> Metric:
    """Segments predicted for each true segment: 1 is right, 10 means ten times too many.

    Args:
        truth: int labels, one (n_i,) array per video or a single array.
        predicted: int labels of the same shapes.
        mean: "videos" (ratio per video, then their mean, ± over videos) or "pooled" (ratio of the totals).

    Returns:
        The ratio.

    Raises:
        TypeError: labels are not integers.
        ValueError: unknown option, shapes disagree or labels are negative.

    Source: ratio of segment counts as in the over-segmentation literature.
    """
    check_option("mean", mean, _MEANS)
    videos = _known(truth, predicted)
    true = [len(segments(a)) for a, _ in videos]
    found = [len(segments(b)) for _, b in videos]
    ratios = [f / t for f, t in zip(found, true, strict=True)]
    if mean == "pooled":
        total = sum(found) / sum(true) if videos else math.nan
        more = {"value": total, "spread": math.nan, "spread_over": ""}
        return _over_videos("over-segmentation", "segments of all videos pooled", ratios, videos, unit="ratio", **more)
    return _over_videos("over-segmentation", "per video, mean over videos", ratios, videos, unit="ratio")


def _edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Levenshtein distance, one row at a time; insertions along a row by a running minimum."""
    target, steps = np.asarray(b), np.arange(len(b) + 1)
    row = steps.copy()
    for i, symbol in enumerate(a, 1):
        fresh = np.empty_like(row)
        fresh[0] = i
        fresh[1:] = np.minimum(row[1:] + 1, row[:-1] + (target != symbol))
        row = np.minimum.accumulate(fresh - steps) + steps
    return int(row[-1])


def edit_score(truth: Any, predicted: Any) -> Metric:
    """One minus the Levenshtein distance between the orders of segments, over the longer order's length.

    Args:
        truth: int labels, one (n_i,) array per video or a single array.
        predicted: int labels of the same shapes.

    Returns:
        The mean over videos, between 0 and 1; ± over videos. Durations do not count, only the order.

    Raises:
        TypeError: labels are not integers.
        ValueError: shapes disagree or labels are negative.

    Source: Lea et al. 2017, as in MS-TCN's evaluation (which multiplies by 100).
    """
    scores = []
    videos = _known(truth, predicted)
    for a, b in videos:
        order, found = [s[0] for s in segments(a)], [s[0] for s in segments(b)]
        scores.append(1 - _edit_distance(order, found) / max(len(order), len(found)))
    return _over_videos("edit score", "segment order, per video, mean over videos", scores, videos)


def _match(truth: np.ndarray, predicted: np.ndarray, overlap: float) -> tuple[int, int, int]:
    """Segments right, predicted and true. Each true segment can be claimed once, by the first that overlaps enough."""
    true, found = segments(truth), segments(predicted)
    label, start, end = (np.array(column) for column in zip(*true, strict=True))
    claimed = np.zeros(len(true), bool)
    for phase, s, e in found:
        common = np.minimum(end, e) - np.maximum(start, s)
        share = common / (np.maximum(end, e) - np.minimum(start, s)) * (label == phase)
        best = int(np.argmax(share))
        if share[best] >= overlap:
            claimed[best] = True
    return int(claimed.sum()), len(found), len(true)


def segmental_f1(
    truth: Any, predicted: Any, overlap: float = 0.5, *, mean: Literal["pooled", "videos"] = "pooled"
) -> Metric:
    """F1 of whole segments: one is right when it overlaps a true segment of its phase by enough.

    Args:
        truth: int labels, one (n_i,) array per video or a single array.
        predicted: int labels of the same shapes.
        overlap: intersection over union that is enough, in (0, 1]: 0.1, 0.25 and 0.5 are usual.
        mean: "pooled" (segments of all videos together, as MS-TCN does) or "videos" (per video, then their mean).

    Returns:
        The metric, between 0 and 1; a second segment on one true segment is a false one.

    Raises:
        TypeError: labels are not integers.
        ValueError: unknown option, shapes disagree, labels are negative, or `overlap` is not in (0, 1].

    Source: Lea et al. 2017, as in MS-TCN's evaluation.
    """
    check_option("mean", mean, _MEANS)
    if not 0 < overlap <= 1:
        raise ValueError(f"overlap={overlap} must lie in (0, 1]: 0.1, 0.25 and 0.5 are usual")
    videos = _known(truth, predicted)
    counts = np.array([_match(a, b, overlap) for a, b in videos]).reshape(-1, 3)
    scores = (2 * counts[:, 0] / (counts[:, 1] + counts[:, 2])).tolist()
    name = f"segmental F1@{100 * overlap:g}"
    if mean == "pooled":
        right, found, true = counts.sum(0)
        value = 2 * right / (found + true) if len(counts) else math.nan
        more = {"value": float(value), "spread": math.nan, "spread_over": ""}
        return _over_videos(name, "segments of all videos pooled", scores, videos, **more)
    return _over_videos(name, "per video, mean over videos", scores, videos)


def transition_delay(truth: Any, predicted: Any, *, fps: float = 1.0, absolute: bool = False) -> Metric:
    """How long after a true change of phase the prediction shows the new phase.

    For each true segment but a video's first: the first frame inside it whose prediction is its phase. When that is
    the segment's first frame, the predicted run may have begun before it, and the delay is negative by as much.

    Args:
        truth: int labels, one (n_i,) array per video or a single array.
        predicted: int labels of the same shapes.
        fps: rows per second.
        absolute: average the delays' absolute values.

    Returns:
        The mean delay in seconds over transitions; ± over transitions. Transitions whose phase is never predicted
        inside its segment are left out, and counted in `left_out`.

    Raises:
        TypeError: labels are not integers.
        ValueError: shapes disagree, labels are negative, or `fps` is not positive and finite.

    Source: transition latency as reported for online recognizers; the definition above is this library's.
    """
    check_rate("fps", fps, "rows per second, 1 for rows one second apart")
    videos = _known(truth, predicted)
    delays, per_video, missed = [], [], 0
    for a, b in videos:
        own = [x / fps for x in delays_of(a, b)]
        missed += sum(map(math.isnan, own))
        own = [x for x in own if not math.isnan(x)]
        own = np.abs(own).tolist() if absolute else own
        delays += own
        per_video.append(nan_mean(own))
    kind = "absolute delay" if absolute else "signed delay (negative: early)"
    return _over_videos(
        "transition delay",
        f"{kind} of the new phase, mean over transitions",
        per_video,
        videos,
        value=float(nan_mean(delays)),
        unit="seconds",
        spread=nan_std(delays),
        spread_over="transitions",
        left_out=(f"{missed} of {missed + len(delays)} transitions: phase never predicted in its segment",)
        if missed
        else (),
    )


def delays_of(truth: np.ndarray, predicted: np.ndarray) -> list[float]:
    """Frames from each true change of phase of one video to the predicted one, as `transition_delay` defines it.

    Args:
        truth: (n,) int labels without unknown ones.
        predicted: (n,) likewise.

    Returns:
        One for each true segment but the first; NaN where its phase is never predicted inside it.
    """
    found, delays = segments(predicted), []
    for phase, start, end in segments(truth)[1:]:
        hits = np.flatnonzero(predicted[start:end] == phase)
        onset = start + int(hits[0]) if len(hits) else math.nan
        if onset == start:
            onset = next(s for _, s, e in found if s <= start < e)
        delays.append(float(onset - start))
    return delays
