"""Lists of videos, checked: what every metric takes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.io.names import CHOLEC80_PHASES, CHOLEC80_TOOLS

PHASES, TOOLS = CHOLEC80_PHASES, CHOLEC80_TOOLS
"""Phases and tools of Cholec80 in their standard order."""


def unpad(values: Any, mask: Any) -> list[np.ndarray]:
    """A padded batch as a list of videos, each without the frames that were not observed.

    Args:
        values: (B, T, ...) array, or (T, ...) of one video.
        mask: bool (B, T), or (T,) of one video; True where a frame was observed.

    Returns:
        B arrays (n_i, ...).

    Raises:
        ValueError: the mask's shape is not the values' leading shape.
    """
    values, mask = np.asarray(values), np.asarray(mask, bool)
    if values.shape[: mask.ndim] != mask.shape:
        raise ValueError(f"mask has shape {mask.shape} but values {values.shape}: pass the mask of the same videos")
    if mask.ndim == 1:
        values, mask = values[None], mask[None]
    return [video[seen] for video, seen in zip(values, mask, strict=True)]


def as_videos(values: Any, ndim: int, what: str) -> list[np.ndarray]:
    """One array (one video) or a sequence of arrays as a list of arrays with `ndim` axes."""
    if hasattr(values, "ndim"):
        videos = [np.asarray(values)] if values.ndim == ndim else [np.asarray(v) for v in values]
    elif len(values) and np.ndim(values[0]) == ndim - 1:
        videos = [np.asarray(values)]
    else:
        videos = [np.asarray(v) for v in values]
    if not videos:
        raise ValueError(f"{what} holds no video: pass one array, or a sequence with one array per video")
    for i, video in enumerate(videos):
        if video.ndim != ndim:
            raise ValueError(
                f"{what} of video {i} has shape {video.shape}, but {ndim} axes are needed: pass one array per video, "
                "without a batch axis (hmmjax.metrics.unpad makes such a list from a padded batch)"
            )
    return videos


def paired(truth: Any, predicted: Any, ndim: int, predicted_ndim: int | None = None) -> list[tuple[Any, Any]]:
    """Videos of truth and prediction side by side, of equal lengths."""
    left = as_videos(truth, ndim, "truth")
    right = as_videos(predicted, ndim if predicted_ndim is None else predicted_ndim, "prediction")
    if len(left) != len(right):
        raise ValueError(f"truth holds {len(left)} videos and the prediction {len(right)}: pass the same videos twice")
    for i, (a, b) in enumerate(zip(left, right, strict=True)):
        if len(a) != len(b):
            raise ValueError(
                f"video {i} has {len(a)} frames of truth and {len(b)} of prediction: join them on their frame numbers "
                "first (row numbers do not match between files)"
            )
        if b.ndim == ndim == 2 and a.shape != b.shape:
            raise ValueError(f"video {i} has truth of shape {a.shape} and prediction of {b.shape}: same tools, please")
    return list(zip(left, right, strict=True))


def class_names(names: Sequence[str] | None, count: int, kind: str) -> tuple[str, ...]:
    """Given names, or "phase 0", "phase 1", ...; at least `count` of them."""
    if names is None:
        return tuple(f"{kind} {c}" for c in range(count))
    if len(names) < count:
        raise ValueError(f"{count} {kind}s occur but only {len(names)} names are given: name every {kind}")
    return tuple(names)


def all_names(names: Sequence[str] | None, count: int, kind: str) -> tuple[str, ...]:
    """`class_names` where `count` is known for certain: neither fewer names nor more."""
    labels = class_names(names, count, kind)
    if len(labels) != count:
        raise ValueError(f"{len(labels)} names for {count} {kind}s: name every {kind} once")
    return labels


def same_classes(videos: Sequence[np.ndarray], kind: str) -> int:
    """The number of columns of every video; ValueError when they differ."""
    counts = {v.shape[1] for v in videos}
    if len(counts) > 1:
        raise ValueError(f"videos have {sorted(counts)} {kind}s: every video needs the same {kind}s in the same order")
    return counts.pop()


def entered(videos: Sequence[tuple[np.ndarray, Any]]) -> tuple[int, int]:
    """Videos, and frames over all videos, of whose truth anything is known."""
    known = [(a >= 0).any(-1) if a.ndim == 2 else a >= 0 for a, _ in videos]
    return sum(bool(k.any()) for k in known), sum(int(k.sum()) for k in known)


def check_labels(labels: np.ndarray, video: int, what: str) -> None:
    """TypeError unless the labels of a video, if it has any, are integers: others would be cut off to integers."""
    if labels.size and not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(
            f"{what} of video {video} is {labels.dtype}, but labels are integers: take argmax(-1) of probabilities "
            "first"
        )


def phase_videos(
    truth: Any, predicted: Any, names: Sequence[str] | None
) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[str, ...]]:
    """Integer phase videos and class names; frames whose truth is -1 (unknown) are dropped."""
    videos = paired(truth, predicted, 1)
    for i, (a, b) in enumerate(videos):
        check_labels(a, i, "truth")
        check_labels(b, i, "prediction")
        if len(a) and (a.min() < -1 or b[a >= 0].min(initial=0) < 0):
            raise ValueError(
                f"video {i} has a negative phase label: only the truth may be -1 (unknown); cut padding off with "
                "hmmjax.metrics.unpad"
            )
    kept = [(a[a >= 0].astype(np.int64), b[a >= 0].astype(np.int64)) for a, b in videos]
    count = 1 + max((int(max(a.max(), b.max())) for a, b in kept if len(a)), default=-1)
    return kept, class_names(names, count, "phase")


def tool_videos(
    truth: Any, scores: Any, names: Sequence[str] | None
) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[str, ...]]:
    """Tool videos: truth int (n, K) with -1 for unknown, scores (n, K), finite where known; and the tools' names."""
    videos = paired(truth, scores, 2)
    count = same_classes([a for a, _ in videos], "tool")
    for i, (a, b) in enumerate(videos):
        if not np.isin(a, (-1, 0, 1)).all():
            raise ValueError(f"tool truth of video {i} holds something else than 0, 1 and -1 (unknown): pass presence")
        # A score of infinity has no place between thresholds; what is said where the truth is unknown does not matter.
        if not np.isfinite(b.astype(float)[a >= 0]).all():
            raise ValueError(
                f"tool scores of video {i} hold NaN or infinity: leave unobserved frames out of truth and scores, or "
                "make their truth -1, and pass logits that are finite"
            )
    return [(a.astype(np.int64), b.astype(np.float64)) for a, b in videos], all_names(names, count, "tool")
