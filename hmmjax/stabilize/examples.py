"""Padded videos with labels, from which models are learned."""

import dataclasses
from typing import Any

import numpy as np

from hmmjax.stabilize.gaps import closest, spared
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
    """Return for each video whether `track` has any label, and whether it is labeled throughout: two (B,) bool arrays.

    A video is labeled throughout if no more than 1% of its valid frames lack a label, see `hmmjax.stabilize.gaps`. Both
    are False for empty videos.
    """
    labels = getattr(examples.labels, track)
    if labels is None:
        return np.zeros(len(examples.mask), bool), np.zeros(len(examples.mask), bool)
    known = (labels >= 0) if labels.ndim == 2 else (labels >= 0).all(-1)
    some = (labels >= 0) if labels.ndim == 2 else (labels >= 0).any(-1)
    count = examples.mask.sum(1)
    missing = (~known & examples.mask).sum(1)
    return (some & examples.mask).any(1), (missing <= spared(count)) & (count > 0)


def bridge_gaps(labels: Labels, mask: np.ndarray) -> Labels:
    """Label the few unlabeled frames of videos that are labeled throughout, to count initial states and transitions.

    Each takes the closest label, of two equally close ones the earlier. A change within a gap then counts once, as one
    step, and the frames around it as stays; without that it would not be counted at all.

    Args:
        labels: (B, T) and (B, T, K) int, -1 for unlabeled.
        mask: (B, T) bool, True at valid frames.

    Returns:
        The labels; those of other videos are unchanged.
    """

    def bridge(track: str) -> Any:
        values = getattr(labels, track)
        if values is None:
            return None
        whole = label_coverage(Examples(Observations(), labels, np.asarray(mask)), track)[1]
        filled = np.array(values)
        for i in np.flatnonzero(whole):
            length = int(np.flatnonzero(mask[i]).max()) + 1
            filled[i, :length] = closest(filled[i, :length])
        return filled

    return Labels(bridge("phases"), bridge("tools"))
