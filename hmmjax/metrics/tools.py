"""Metrics of tool presence: average precision in four common definitions, F1, and precision-recall curves."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from hmmjax.metrics.metric import Mean, Metric, check_option, check_threshold, summarize
from hmmjax.metrics.videos import entered, tool_videos

Definition = Literal["sklearn", "voc-all-points", "voc-11-point", "m2cai16"]


@dataclasses.dataclass(frozen=True)
class Curve:
    """The precision-recall curve of one tool, ordered by decreasing threshold.

    Attributes:
        name: the tool.
        convention: how the curve was measured.
        precision: (n,) precision at each threshold; NaN if the tool is absent from the truth.
        recall: (n,) recall at each threshold; NaN if the tool is absent from the truth.
        thresholds: (n,) scores from which the tool counts as present.
        n_videos: number of videos that entered.
        n_frames: number of frames that entered.
        n_positives: number of frames with the tool.
    """

    name: str
    convention: str
    precision: np.ndarray
    recall: np.ndarray
    thresholds: np.ndarray
    n_videos: int
    n_frames: int
    n_positives: int


def _points(truth: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return precision, recall and threshold at every distinct score, highest first."""
    thresholds, place = np.unique(-scores, return_inverse=True)
    called = np.cumsum(np.bincount(place, minlength=len(thresholds)))
    right = np.cumsum(np.bincount(place, weights=truth, minlength=len(thresholds)))
    with np.errstate(invalid="ignore"):
        return right / called, right / truth.sum(), -thresholds


def _sklearn(truth: np.ndarray, scores: np.ndarray) -> float:
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(truth, scores))


def _envelope(truth: np.ndarray, scores: np.ndarray) -> float:
    precision, recall, _ = _points(truth, scores)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * best))


def _eleven(truth: np.ndarray, scores: np.ndarray) -> float:
    precision, recall, _ = _points(truth, scores)
    # The tolerance lets a recall of 3/10 reach the level 0.3 despite rounding.
    return float(np.mean([precision[recall >= r - 1e-12].max(initial=0.0) for r in np.arange(11) / 10]))


def _m2cai16(truth: np.ndarray, scores: np.ndarray) -> float:
    low, high = scores.min(), scores.max()
    if low == high:
        return math.nan
    if high / 2 - low / 2 > np.finfo(float).max / 2:  # halves have the same order, and their range does not overflow
        scores, low, high = scores / 2, low / 2, high / 2
    order = np.argsort(scores, kind="stable")
    hits = np.r_[0, np.cumsum(truth[order][::-1])]  # hits[n]: true frames among the n highest scores
    # At the last threshold, the highest score, no frame counts as present; the script skips it.
    thresholds = low + np.arange(2001) * ((high - low) / 2000)
    called = len(scores) - np.searchsorted(scores[order], thresholds, side="right")
    called = called[called > 0]
    precision, recall = hits[called] / called, hits[called] / truth.sum()
    total = 0.0
    for level in np.arange(11) / 10:
        tolerance = 1e-5
        while not (near := np.abs(recall - level) < tolerance).any():
            tolerance *= 2
        total += precision[near].mean() / 11
    return float(total)


_DEFINITIONS: dict[str, tuple[str, Callable[[np.ndarray, np.ndarray], float]]] = {
    "sklearn": ("scikit-learn step AP", _sklearn),
    "voc-all-points": ("VOC all-points AP", _envelope),
    "voc-11-point": ("VOC 2007 11-point AP", _eleven),
    "m2cai16": ("official M2CAI16 AP (2000 thresholds, 11 points, nearest recall)", _m2cai16),
}


def _tabulate(
    videos: list[tuple[np.ndarray, np.ndarray]],
    measure: Callable[[np.ndarray, np.ndarray], float],
    pooled: bool,
    absent: float,
) -> np.ndarray:
    """Return (videos, tools), or (1, tools) if pooled: `measure` of the known frames, `absent` if a tool never occurs.

    Entries without known frames are NaN, since such a tool may or may not occur.
    """
    if pooled:
        videos = [(np.concatenate([a for a, _ in videos]), np.concatenate([b for _, b in videos]))]
    table = np.full((len(videos), videos[0][0].shape[1]), math.nan)
    for i, (truth, scores) in enumerate(videos):
        for k in range(truth.shape[1]):
            known = truth[:, k] >= 0
            if known.any():
                occurs = (truth[:, k] == 1).any()
                table[i, k] = measure(truth[known, k], scores[known, k]) if occurs else absent
    return table


def _reason(videos: list[tuple[np.ndarray, np.ndarray]], pooled: bool, absent: str, *more: str) -> str:
    """Describe why an entry of `_tabulate` can be NaN."""
    known = np.array([(a >= 0).any(0) for a, _ in videos])
    known = known.any(0) if pooled else known
    reasons = [*(["absent from the truth"] if absent == "nan" else []), *([] if known.all() else ["not labeled"])]
    return " or ".join([*reasons, *more])


_ABSENT = {
    "nan": (math.nan, "tools absent from the truth are left out"),
    "zero": (0.0, "tools absent from the truth count as 0"),
}


def average_precision(
    truth: Any,
    scores: Any,
    *,
    definition: Definition = "sklearn",
    mean: Mean = "pooled",
    absent: Literal["nan", "zero"] = "nan",
    names: Sequence[str] | None = None,
) -> Metric:
    """Compute the average precision of each tool and its mean over tools (mAP).

    Args:
        truth: presence 0/1, one (n_i, K) array per video or a single array; -1 is unknown and excludes that entry.
        scores: scores of presence in the same shapes: posteriors or recognizer outputs. 0/1 decisions are accepted,
            but have a much lower average precision, and are mentioned in the convention.
        definition: "sklearn" (steps, no interpolation), "voc-all-points" (precision envelope), "voc-11-point", or
            "m2cai16" (the script of the challenge; ties at the lowest score inflate it, and it is NaN if all scores of
            a tool are equal).
        mean: "pooled" (frames of all videos together), "videos-then-classes" or "classes-then-videos".
        absent: AP of a tool that is absent from the truth of a video (of all videos if pooled): "nan" leaves it out
            of the mean, in every version of scikit-learn; "zero" counts it as 0. A tool without any label is left out
            in both cases.
        names: (K,) tool names.

    Returns:
        The metric, between 0 and 1.

    Raises:
        ValueError: if an option is unknown, shapes disagree, scores are not finite, or truth is not -1, 0 or 1.

    Source: scikit-learn's `average_precision_score`; Everingham et al. 2010 (VOC); the M2CAI 2016 tool script.
    """
    check_option("definition", definition, _DEFINITIONS)
    check_option("absent", absent, _ABSENT)
    title, measure = _DEFINITIONS[definition]
    value, policy = _ABSENT[absent]
    videos, labels = tool_videos(truth, scores, names)
    n_videos, n_frames = entered(videos)
    hard = all(np.isin(b[a >= 0], (0.0, 1.0)).all() for a, b in videos)
    more = ["all scores equal"] if definition == "m2cai16" else []
    return summarize(
        _tabulate(videos, measure, mean == "pooled", value),
        mean,
        name="average precision",
        convention=f"{title}{', of hard 0/1 decisions' if hard else ''}; {policy}",
        classes="tools",
        class_names=labels,
        n_videos=n_videos,
        n_frames=n_frames,
        reason=_reason(videos, mean == "pooled", absent, *more),
    )


def tool_f1(
    truth: Any,
    scores: Any,
    *,
    threshold: float = 0.5,
    mean: Mean = "pooled",
    absent: Literal["nan", "zero"] = "nan",
    names: Sequence[str] | None = None,
) -> Metric:
    """Compute the F1 of each tool at a threshold, and its mean over tools (macro F1).

    Args:
        truth: presence 0/1, one (n_i, K) array per video or a single array; -1 is unknown.
        scores: scores of presence, or 0/1 decisions, in the same shapes.
        threshold: the score from which a tool counts as present.
        mean: "pooled", "videos-then-classes" or "classes-then-videos".
        absent: F1 of a tool that is absent from the truth: "nan" leaves it out of the mean, "zero" counts it as 0. A
            tool without any label is left out in both cases.
        names: (K,) tool names.

    Returns:
        The metric, between 0 and 1; a tool that occurs but is never predicted counts as 0.

    Raises:
        ValueError: if an option is unknown, shapes disagree, scores are not finite, or truth is not -1, 0 or 1.

    Source: van Rijsbergen's F1 = 2 TP / (2 TP + FP + FN).
    """

    def measure(present: np.ndarray, score: np.ndarray) -> float:
        called = score >= threshold
        return float(2 * (called & (present == 1)).sum() / (called.sum() + present.sum()))

    check_option("absent", absent, _ABSENT)
    check_threshold(threshold)
    value, policy = _ABSENT[absent]
    videos, labels = tool_videos(truth, scores, names)
    n_videos, n_frames = entered(videos)
    return summarize(
        _tabulate(videos, measure, mean == "pooled", value),
        mean,
        name="tool F1",
        convention=f"present at or above {threshold:g}; {policy}",
        classes="tools",
        class_names=labels,
        n_videos=n_videos,
        n_frames=n_frames,
        reason=_reason(videos, mean == "pooled", absent),
    )


def precision_recall_curves(truth: Any, scores: Any, *, names: Sequence[str] | None = None) -> tuple[Curve, ...]:
    """Compute precision and recall at every distinct score, frames of all videos pooled.

    Args:
        truth: presence 0/1, one (n_i, K) array per video or a single array; -1 is unknown.
        scores: scores of presence in the same shapes.
        names: (K,) tool names.

    Returns:
        One curve per tool; precision and recall are NaN for a tool absent from the truth.

    Raises:
        ValueError: if shapes disagree, scores are not finite, or truth is not -1, 0 or 1.

    Source: the points over which scikit-learn's step AP sums.
    """
    videos, labels = tool_videos(truth, scores, names)
    all_truth, all_scores = (np.concatenate([v[i] for v in videos]) for i in (0, 1))
    curves = []
    for k, label in enumerate(labels):
        known = all_truth[:, k] >= 0
        present = all_truth[known, k]
        precision, recall, thresholds = _points(present, all_scores[known, k])
        if not present.any():
            precision, recall = np.full_like(thresholds, math.nan), np.full_like(thresholds, math.nan)
        curves.append(
            Curve(
                name=label,
                convention="a threshold at every distinct score; frames of all videos pooled",
                precision=precision,
                recall=recall,
                thresholds=thresholds,
                n_videos=entered([(a[:, k], b) for a, b in videos])[0],
                n_frames=int(known.sum()),
                n_positives=int(present.sum()),
            )
        )
    return tuple(curves)
