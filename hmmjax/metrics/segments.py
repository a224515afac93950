"""Metrics of phase segments: over-segmentation, edit score, segmental F1, and transition delays."""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from hmmjax.metrics.metric import Metric, check_option, check_rate, nan_mean, nan_median, nan_std
from hmmjax.metrics.videos import check_labels, paired

Pair = tuple[np.ndarray, np.ndarray]

_MEANS = ("pooled", "videos")


def segments(labels: np.ndarray) -> list[tuple[int, int, int]]:
    """Return the runs of equal labels as (label, first frame, last frame + 1)."""
    if not len(labels):
        return []
    cuts = np.flatnonzero(np.diff(labels)) + 1
    starts, ends = np.r_[0, cuts], np.r_[cuts, len(labels)]
    return [(int(labels[s]), int(s), int(e)) for s, e in zip(starts, ends, strict=True)]


def known_videos(truth: Any, predicted: Any) -> list[Pair]:
    """Return pairs of label videos without unknown frames: dropping those would join the segments around them."""
    videos = paired(truth, predicted, 1)
    for i, (a, b) in enumerate(videos):
        check_labels(a, i, "truth")
        check_labels(b, i, "prediction")
        if len(a) and min(a.min(), b.min()) < 0:
            raise ValueError(
                f"video {i} has a negative phase label, but segments need a label for every frame: remove padding with "
                "hmmjax.metrics.unpad, and leave out partially labeled videos"
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


def over_segmentation(truth: Any, predicted: Any, *, mean: Literal["pooled", "videos"] = "videos") -> Metric:
    """Compute the ratio of predicted to true segments: 1 is ideal, 10 means ten times too many.

    Args:
        truth: int labels, one (n_i,) array per video or a single array.
        predicted: int labels of the same shapes.
        mean: "videos" (mean of the ratios per video, ± over videos) or "pooled" (ratio of the totals).

    Returns:
        The ratio.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if an option is unknown, shapes disagree, or labels are negative.

    Source: a ratio of segment counts, as in the over-segmentation literature.
    """
    check_option("mean", mean, _MEANS)
    videos = known_videos(truth, predicted)
    true = [len(segments(a)) for a, _ in videos]
    found = [len(segments(b)) for _, b in videos]
    ratios = [f / t for f, t in zip(found, true, strict=True)]
    if mean == "pooled":
        total = sum(found) / sum(true) if videos else math.nan
        more = {"value": total, "spread": math.nan, "spread_over": ""}
        return _over_videos("over-segmentation", "segments of all videos pooled", ratios, videos, unit="ratio", **more)
    return _over_videos("over-segmentation", "per video, mean over videos", ratios, videos, unit="ratio")


def _edit_distance(a: Sequence[int], b: Sequence[int]) -> int:
    """Compute the Levenshtein distance row by row; insertions along a row are a running minimum."""
    target, steps = np.asarray(b), np.arange(len(b) + 1)
    row = steps.copy()
    for i, symbol in enumerate(a, 1):
        fresh = np.empty_like(row)
        fresh[0] = i
        fresh[1:] = np.minimum(row[1:] + 1, row[:-1] + (target != symbol))
        row = np.minimum.accumulate(fresh - steps) + steps
    return int(row[-1])


def edit_score(truth: Any, predicted: Any) -> Metric:
    """Compute one minus the Levenshtein distance between the phase orders, divided by the length of the longer order.

    Args:
        truth: int labels, one (n_i,) array per video or a single array.
        predicted: int labels of the same shapes.

    Returns:
        The mean over videos, between 0 and 1; ± over videos. Only the order of segments matters, not their durations.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if shapes disagree or labels are negative.

    Source: Lea et al. 2017, as in MS-TCN's evaluation (which multiplies by 100).
    """
    scores = []
    videos = known_videos(truth, predicted)
    for a, b in videos:
        order, found = [s[0] for s in segments(a)], [s[0] for s in segments(b)]
        scores.append(1 - _edit_distance(order, found) / max(len(order), len(found)))
    return _over_videos("edit score", "segment order, per video, mean over videos", scores, videos)


def _match(truth: np.ndarray, predicted: np.ndarray, overlap: float) -> tuple[int, int, int]:
    """Return the numbers of correct, predicted and true segments; a true segment is matched at most once."""
    true, found = segments(truth), segments(predicted)
    label, start, end = (np.array(column) for column in zip(*true, strict=True))
    matched = np.zeros(len(true), bool)
    for phase, s, e in found:
        common = np.minimum(end, e) - np.maximum(start, s)
        iou = common / (np.maximum(end, e) - np.minimum(start, s)) * (label == phase)
        best = int(np.argmax(iou))
        if iou[best] >= overlap:
            matched[best] = True
    return int(matched.sum()), len(found), len(true)


def segmental_f1(
    truth: Any, predicted: Any, overlap: float = 0.5, *, mean: Literal["pooled", "videos"] = "pooled"
) -> Metric:
    """Compute F1 over segments; a segment is correct if it sufficiently overlaps a true segment of its phase.

    Args:
        truth: int labels, one (n_i,) array per video or a single array.
        predicted: int labels of the same shapes.
        overlap: the required intersection over union, in (0, 1]; 0.1, 0.25 and 0.5 are common.
        mean: "pooled" (segments of all videos together, as in MS-TCN) or "videos" (mean of the F1 per video).

    Returns:
        The metric, between 0 and 1; a second segment on the same true segment is a false positive.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if an option is unknown, shapes disagree, labels are negative, or `overlap` is not in (0, 1].

    Source: Lea et al. 2017, as in MS-TCN's evaluation.
    """
    check_option("mean", mean, _MEANS)
    if not 0 < overlap <= 1:
        raise ValueError(f"overlap={overlap} is not in (0, 1]: pass for instance 0.1, 0.25 or 0.5")
    videos = known_videos(truth, predicted)
    counts = np.array([_match(a, b, overlap) for a, b in videos]).reshape(-1, 3)
    scores = (2 * counts[:, 0] / (counts[:, 1] + counts[:, 2])).tolist()
    name = f"segmental F1@{100 * overlap:g}"
    if mean == "pooled":
        right, found, true = counts.sum(0)
        value = 2 * right / (found + true) if len(counts) else math.nan
        more = {"value": float(value), "spread": math.nan, "spread_over": ""}
        return _over_videos(name, "segments of all videos pooled", scores, videos, **more)
    return _over_videos(name, "per video, mean over videos", scores, videos)


def transition_delay(
    truth: Any,
    predicted: Any,
    *,
    fps: float = 1.0,
    absolute: bool = False,
    average: Literal["mean", "median"] = "mean",
) -> Metric:
    """Compute how long after a true phase change the prediction shows the new phase.

    For each true segment except the first of a video, the delay is counted to the first frame inside it whose
    prediction is its phase. If that is the first frame of the segment and the predicted run began earlier, the delay
    is counted to the beginning of that run and is negative.

    Args:
        truth: int labels, one (n_i,) array per video or a single array.
        predicted: int labels of the same shapes.
        fps: rows per second.
        absolute: average absolute values of the delays.
        average: "mean", or "median", which one late change does not move.

    Returns:
        The average delay in seconds over transitions; ± over transitions. Transitions whose phase is never predicted
        inside its segment are counted in `left_out`.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if `average` is unknown, shapes disagree, labels are negative, or `fps` is not positive and finite.

    Source: transition latency as reported for online recognizers; the definition above is this library's.
    """
    check_rate("fps", fps, "rows per second, 1 for one row per second")
    check_option("average", average, ("mean", "median"))
    summary = nan_mean if average == "mean" else nan_median
    videos = known_videos(truth, predicted)
    delays, per_video, missed = [], [], 0
    for a, b in videos:
        own = [x / fps for x in delays_of(a, b)]
        missed += sum(map(math.isnan, own))
        own = [x for x in own if not math.isnan(x)]
        own = np.abs(own).tolist() if absolute else own
        delays += own
        per_video.append(summary(own))
    kind = "absolute delay" if absolute else "signed delay (negative: early)"
    return _over_videos(
        "transition delay",
        f"{kind} of the new phase, {average} over transitions",
        per_video,
        videos,
        value=float(summary(delays)),
        unit="seconds",
        spread=nan_std(delays),
        spread_over="transitions",
        left_out=(f"{missed} of {missed + len(delays)} transitions: phase never predicted in its segment",)
        if missed
        else (),
    )


def delays_of(truth: np.ndarray, predicted: np.ndarray) -> list[float]:
    """Compute the delays of `transition_delay` for one video, in frames.

    Args:
        truth: (n,) int labels, none unknown.
        predicted: (n,) int labels, none unknown.

    Returns:
        One delay per true segment except the first; NaN if its phase is never predicted inside it.
    """
    found, delays = segments(predicted), []
    for phase, start, end in segments(truth)[1:]:
        hits = np.flatnonzero(predicted[start:end] == phase)
        onset = start + int(hits[0]) if len(hits) else math.nan
        if onset == start:
            onset = next(s for _, s, e in found if s <= start < e)
        delays.append(float(onset - start))
    return delays
