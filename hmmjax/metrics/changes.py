"""Counts of changes between consecutive frames, where some frames may be unknown."""

from collections.abc import Sequence

import numpy as np


def changes(values: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Bool (n - 1, ...): where a frame differs from the one before it and both are known."""
    return (values[1:] != values[:-1]) & known[1:] & known[:-1]


def between(known: Sequence[np.ndarray]) -> str:
    """What a convention has to add when not every frame is known: a change across a gap cannot be seen."""
    return "" if all(k.all() for k in known) else ", between consecutive frames that are both known"


def without_frames(frames: Sequence[int]) -> tuple[str, ...]:
    """For `Metric.left_out`: how many videos have no known frame, if any."""
    count = sum(n == 0 for n in frames)
    return (f"{count} videos: no frame",) if count else ()
