"""A few frames without labels: which videos count as labeled throughout nevertheless, and what their gaps take."""

from typing import Any

import numpy as np

#: Largest fraction of a video's frames without labels with which it still counts as labeled throughout.
SPARED = 0.01
#: One frame without a label is spared in videos of at least this many frames.
ONE_OF = 20


def spared(count: Any) -> Any:
    """Return how many frames may lack labels in videos of `count` frames: at least one from `ONE_OF` frames on.

    Args:
        count: a number or an array.
    """
    return np.maximum(SPARED * count, count >= ONE_OF)


def closest(labels: np.ndarray) -> np.ndarray:
    """Give each unlabeled frame the closest label, of two equally close ones the earlier.

    Args:
        labels: (n,) or (n, K) int of one video, -1 for unlabeled; each tool by itself.

    Returns:
        A new array. A tool without any label stays unlabeled.
    """
    filled = np.array(labels)
    for column in filled.reshape(len(filled), -1).T:  # views
        known = np.flatnonzero(column >= 0)
        if 0 < known.size < len(column):
            column[:] = column[known[np.searchsorted((known[1:] + known[:-1]) / 2, np.arange(len(column)))]]
    return filled


def without_gaps(labels: np.ndarray) -> np.ndarray | None:
    """Return the labels of a video that is labeled throughout, its few unlabeled frames with the closest label.

    Args:
        labels: (n,) or (n, K) int, -1 for unlabeled.

    Returns:
        Labels of the same shape; None if more than `spared` frames, or all of them, lack a label.
    """
    missing = int(((labels < 0) if labels.ndim == 1 else (labels < 0).any(-1)).sum())
    return closest(labels) if missing <= spared(len(labels)) and missing < len(labels) else None


def annotated_span(labels: np.ndarray) -> tuple[slice, np.ndarray] | None:
    """Return the frames from the first to the last label, and their labels without gaps.

    Args:
        labels: (n,) or (n, K) int, -1 for unlabeled.

    Returns:
        The frames, and labels (m,) or (m, K); None if it is unknown when labels change, because more than `spared` of
        these frames lack a label, or fewer than two frames have one.
    """
    known = np.flatnonzero(labels >= 0 if labels.ndim == 1 else (labels >= 0).all(-1))
    if known.size < 2:
        return None
    span = slice(int(known[0]), int(known[-1]) + 1)
    filled = without_gaps(labels[span])
    return None if filled is None else (span, filled)
