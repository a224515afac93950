"""Padded videos with labels, from which models are learned."""

import dataclasses
from typing import Any

import numpy as np

from hmmjax.types import Labels, Observations

TRACKS = ("phases", "tools")


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """Padded videos with their labels.

    Attributes:
        obs: (B, T, ...) the recognizer's outputs.
        labels: (B, T) and (B, T, K) int, -1 for unlabeled.
        mask: (B, T) bool, True at valid frames.
    """

    obs: Observations
    labels: Labels
    mask: np.ndarray

    def take(self, positions: Any) -> "Examples":
        """Select videos.

        Args:
            positions: of the videos, or a boolean mask (B,).

        Returns:
            The selected videos, padded to the same T frames.
        """

        def pick(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(map(pick, x))
            return None if x is None else x[positions]

        return Examples(
            Observations(pick(self.obs.phases), pick(self.obs.tools)),
            Labels(pick(self.labels.phases), pick(self.labels.tools)),
            self.mask[positions],
        )


def label_coverage(examples: Examples, track: str) -> tuple[np.ndarray, np.ndarray]:
    """Return for each video whether any, and whether every, valid frame of `track` is labeled: two (B,) bool arrays."""
    labels = getattr(examples.labels, track)
    if labels is None:
        return np.zeros(len(examples.mask), bool), np.zeros(len(examples.mask), bool)
    known = (labels >= 0) if labels.ndim == 2 else (labels >= 0).all(-1)
    some = (labels >= 0) if labels.ndim == 2 else (labels >= 0).any(-1)
    return (some & examples.mask).any(1), (known | ~examples.mask).all(1)
