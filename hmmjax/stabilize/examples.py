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

    def only(self, positions: Any) -> "Examples":
        """Make all videos but some empty, without observations or labels.

        A model learns the same from the result as from `take`. Since its shape does not depend on the number of videos,
        the programs compiled for one selection serve every other; empty videos cost next to nothing.

        Args:
            positions: of the videos to keep, or a boolean mask (B,).

        Returns:
            All videos, of which the others have no valid frame.
        """
        keep = np.zeros(len(self.mask), bool)
        keep[positions] = True

        def unknown(labels: Any) -> Any:
            return None if labels is None else np.where(keep.reshape(-1, *[1] * (labels.ndim - 1)), labels, -1)

        labels = Labels(unknown(self.labels.phases), unknown(self.labels.tools))
        return Examples(self.obs, labels, self.mask & keep[:, None])


def label_coverage(examples: Examples, track: str) -> tuple[np.ndarray, np.ndarray]:
    """Return for each video whether any, and whether every, valid frame of `track` is labeled: two (B,) bool arrays.

    Both are False for empty videos.
    """
    labels = getattr(examples.labels, track)
    if labels is None:
        return np.zeros(len(examples.mask), bool), np.zeros(len(examples.mask), bool)
    known = (labels >= 0) if labels.ndim == 2 else (labels >= 0).all(-1)
    some = (labels >= 0) if labels.ndim == 2 else (labels >= 0).any(-1)
    return (some & examples.mask).any(1), (known | ~examples.mask).all(1) & examples.mask.any(1)
