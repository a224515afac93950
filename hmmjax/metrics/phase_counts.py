"""Count correct frames per phase, and score phases by these counts."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hmmjax.metrics.relaxed import Mode, Rules, forgiven


class Counts(NamedTuple):
    """Frames per phase (C,): correct within the union, predicted, true, in the union; and frames over all phases."""

    correct: np.ndarray
    predicted: np.ndarray
    true: np.ndarray
    union: np.ndarray
    frames_correct: int
    frames: int


def count_frames(truth: np.ndarray, predicted: np.ndarray, num: int, mode: Mode, window: int, rules: Rules) -> Counts:
    """Count the frames of one video; with relaxed boundaries, `window` frames around them follow `rules`."""
    if mode == "strict":
        correct = truth == predicted
    else:
        correct = forgiven(truth, predicted, window, rules, bug=mode == "relaxed-official")
    true = np.bincount(truth, minlength=num)
    guess = np.bincount(predicted, minlength=num)
    # A forgiven frame is correct for both the true and the predicted phase: it lies in both unions.
    hits = np.bincount(truth[correct], minlength=num)
    both = correct & (truth != predicted)
    hits = hits + np.bincount(predicted[both], minlength=num)
    union = true + guess - np.bincount(truth[truth == predicted], minlength=num)
    return Counts(hits, guess, true, union, int(correct.sum()), len(truth))


def pool(counts: Sequence[Counts]) -> Counts:
    """Add up the counts of videos."""
    return Counts(
        np.sum([c.correct for c in counts], 0),
        np.sum([c.predicted for c in counts], 0),
        np.sum([c.true for c in counts], 0),
        np.sum([c.union for c in counts], 0),
        sum(c.frames_correct for c in counts),
        sum(c.frames for c in counts),
    )


def score(name: str, c: Counts, absent: str, unpredicted: float) -> np.ndarray:
    """Compute precision, recall, F1 or Jaccard per phase; NaN if the phase is left out.

    Args:
        name: "precision", "recall", "F1" or "Jaccard".
        c: the counts.
        absent: "truth", "both" or "zero", see `hmmjax.metrics.phase_metrics`.
        unpredicted: the precision of a phase that is never predicted.

    Returns:
        (C,) values.
    """
    if name == "precision":
        table = _ratio(c.correct, c.predicted, unpredicted)
    elif name == "recall":
        table = _ratio(c.correct, c.true, 0.0)
    elif name == "F1":
        precision, recall = _ratio(c.correct, c.predicted, 0.0), _ratio(c.correct, c.true, 0.0)
        total = precision + recall
        table = np.where(total > 0, 2 * precision * recall / np.where(total > 0, total, 1), 0.0)
    else:
        table = _ratio(c.correct, c.union, 0.0)
    missing = c.true == 0
    if absent == "both":
        missing &= c.predicted == 0
        table = np.where(c.true == 0, 0.0, table)
    return np.where(missing, 0.0 if absent == "zero" else math.nan, table)


def _ratio(above: np.ndarray, below: np.ndarray, empty: float) -> np.ndarray:
    return np.where(below > 0, np.minimum(above / np.maximum(below, 1), 1.0), empty)
