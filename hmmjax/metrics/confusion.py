"""Confusion matrices of phases."""

from typing import Any

import numpy as np

from hmmjax.metrics.videos import phase_videos


def confusion_matrix(truth: Any, predicted: Any, num_phases: int | None = None) -> np.ndarray:
    """Frames of each true phase (row) given each label (column), all videos pooled.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown and left out.
        predicted: int labels of the same shapes.
        num_phases: L; by default one more than the greatest label.

    Returns:
        (L, L) int64 counts.

    Raises:
        TypeError: labels are not integers.
        ValueError: shapes disagree, negative labels, or a label of L or more.

    Source: plain count.
    """
    names = None if num_phases is None else [f"phase {p}" for p in range(num_phases)]
    videos, names = phase_videos(truth, predicted, names)
    matrix = np.zeros((len(names), len(names)), np.int64)
    for a, b in videos:
        np.add.at(matrix, (a, b), 1)
    return matrix
