"""Metrics of predictions, also with each group of videos left out: how far a gain rests on single videos."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

GROUPS = 5
"""Largest number of groups of videos that are left out one after the other for tools."""


class Comparison(NamedTuple):
    """A metric of the chosen predictions and of the recognizer's, on the same held-out videos.

    Attributes:
        metric: "accuracy", the fraction of frames, or of decisions on tools, that are right, mean over videos; or
            "average precision", of frames pooled, mean over tools.
        recognizer: the recognizer's value.
        chosen: that of what was chosen.
        error: standard error of the difference, over videos; NaN for a single one.
    """

    metric: str
    recognizer: float
    chosen: float
    error: float


class Gain(NamedTuple):
    """A gain of a metric, its jackknife standard error (NaN for one video), and the least with a video left out."""

    value: float
    error: float
    least: float

    @property
    def is_clear(self) -> bool:
        """Whether the gain is at least one standard error, and positive with any video left out too."""
        return min(self.value, self.least) > 0 and not self.value < self.error


def gain_of(values: np.ndarray) -> Gain:
    """Return a gain with its jackknife standard error.

    Args:
        values: (1 + N,) the gain over all videos, and with each of N left out.

    Source: Efron and Stein (1981), the jackknife estimate of variance.
    """
    rest = values[1:]
    rest = rest[~np.isnan(rest)]
    if len(rest) < 2:
        return Gain(float(values[0]), float("nan"), float(values[0]))
    scale = (len(rest) - 1) / len(rest)
    return Gain(float(values[0]), float(np.sqrt(scale * np.sum((rest - rest.mean()) ** 2))), float(rest.min()))


def phase_scores(phases: Sequence[np.ndarray], labels: Sequence[np.ndarray], count: int) -> tuple[np.ndarray, ...]:
    """Return the accuracy (V,) and the Jaccard indices (V, L) of videos.

    Args:
        phases: per video (T,) int.
        labels: per video (T,) int, -1 for unknown.
        count: L.

    Returns:
        NaN for videos without labels, and for phases that do not occur in the labels of a video.
    """
    accuracy, jaccard = np.full(len(labels), np.nan), np.full((len(labels), count), np.nan)
    for v, (predicted, known) in enumerate(zip(phases, labels, strict=True)):
        found, truth = predicted[known >= 0], known[known >= 0]
        if not truth.size:
            continue
        accuracy[v] = (found == truth).mean()
        for q in np.unique(truth):
            jaccard[v, q] = np.sum((found == q) & (truth == q)) / np.sum((found == q) | (truth == q))
    return accuracy, jaccard


def phase_gains(before: tuple[np.ndarray, ...], after: tuple[np.ndarray, ...]) -> tuple[Gain, Gain]:
    """Return by how much accuracy and Jaccard index rise, means over videos (and phases).

    Args:
        before: what `phase_scores` returns for the recognizer.
        after: the same for stabilized predictions.
    """
    change = [b - a for a, b in zip(before, after, strict=True)]
    kept = ~np.isnan(change[0])
    accuracy, jaccard = (x[kept] for x in change)
    rows = [np.ones(len(accuracy), bool), *~np.eye(len(accuracy), dtype=bool)]
    return (
        gain_of(np.array([_mean(accuracy[row]) for row in rows])),
        gain_of(np.array([_mean(np.array([_mean(x) for x in jaccard[row].T])) for row in rows])),
    )


def tool_scores(
    probabilities: Sequence[np.ndarray], labels: Sequence[np.ndarray], *, threshold: float = 0.5
) -> tuple[np.ndarray, np.ndarray]:
    """Return average precision and F1 of each tool, frames pooled: of all videos, and with each group left out.

    Args:
        probabilities: per video P(present) (T, K).
        labels: per video (T, K) int, -1 for unknown.
        threshold: probability from which on a tool counts as present.

    Returns:
        Two arrays (1 + N, K), N groups of consecutive videos, at most `GROUPS`; NaN for tools that do not occur.
    """
    groups = np.array_split(np.arange(len(labels)), min(GROUPS, len(labels)))
    number = np.concatenate([np.full(sum(len(labels[v]) for v in part.tolist()), g) for g, part in enumerate(groups)])
    scores, truth = np.concatenate(list(probabilities)), np.concatenate(list(labels))
    shape = 1 + len(groups), truth.shape[-1]
    precision, f1 = np.full(shape, np.nan), np.full(shape, np.nan)
    for k in range(shape[1]):
        known = truth[:, k] >= 0
        score, present, group = scores[known, k], truth[known, k] == 1, number[known]
        order = np.argsort(-score, kind="stable")
        score, present, group = score[order], present[order], group[order]
        last = np.flatnonzero(np.diff(score, append=-np.inf))
        predicted = score >= threshold
        for i in range(shape[0]):
            keep = group != i - 1
            if not (total := np.sum(present & keep)):
                continue
            hits, count = np.cumsum(present & keep)[last], np.cumsum(keep)[last]
            gained = np.diff(hits, prepend=0)
            precision[i, k] = np.sum(gained * hits / np.maximum(count, 1)) / total
            f1[i, k] = 2 * np.sum(present & predicted & keep) / (total + np.sum(predicted & keep))
    return precision, f1


def compare_accuracy(recognizer: np.ndarray, chosen: np.ndarray) -> Comparison:
    """Compare the fractions of right frames, or of right decisions, of videos: (V,) each, NaN without labels."""
    gain, error = mean_and_error(chosen - recognizer)
    own = float(np.nanmean(recognizer))
    return Comparison("accuracy", own, own + gain, error)


def compare_precision(recognizer: np.ndarray, chosen: np.ndarray) -> Comparison:
    """Compare the average precisions (1 + N, K) of tools that `tool_scores` returns."""
    occur = ~np.isnan(recognizer[0])
    if not occur.any():
        return Comparison("average precision", *[float("nan")] * 3)
    gain = gain_of(np.nan_to_num(chosen - recognizer)[:, occur].mean(-1))
    own = float(recognizer[0, occur].mean())
    return Comparison("average precision", own, own + gain.value, gain.error)


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """Return the mean of values (V,) that are numbers, and its standard error, NaN for a single one."""
    values = values[~np.isnan(values)]
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
    return float(values.mean()), error


def _mean(values: np.ndarray) -> float:
    """Return the mean of the values that are numbers."""
    values = values[~np.isnan(values)]
    return float(values.mean()) if values.size else float("nan")
