"""Convert and check the arrays that metrics take, one per video."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax._core.arrays import native
from hmmjax.io.names import CHOLEC80_PHASES, CHOLEC80_TOOLS, resolve_names

PHASES, TOOLS = CHOLEC80_PHASES, CHOLEC80_TOOLS
"""Phases and tools of Cholec80 in the standard order."""


def unpad(values: Any, mask: Any) -> list[np.ndarray]:
    """Split a padded batch into a list of videos, without unobserved frames.

    Args:
        values: (B, T, ...) array, or (T, ...) for one video.
        mask: bool (B, T), or (T,) for one video; True for observed frames.

    Returns:
        B arrays (n_i, ...).

    Raises:
        ValueError: if the shape of the mask is not the leading shape of the values.
    """
    values, mask = np.asarray(native("values", values)), np.asarray(native("mask", mask), bool)
    if values.shape[: mask.ndim] != mask.shape:
        raise ValueError(f"mask has shape {mask.shape}, but values {values.shape}: pass the mask of the same videos")
    if mask.ndim == 1:
        values, mask = values[None], mask[None]
    return [video[seen] for video, seen in zip(values, mask, strict=True)]


def as_videos(values: Any, ndim: int, what: str) -> list[np.ndarray]:
    """Return a list of arrays with `ndim` axes from one array (one video) or a sequence of arrays."""
    values = native(what, values)
    if hasattr(values, "ndim"):
        videos = [np.asarray(values)] if values.ndim == ndim else [np.asarray(v) for v in values]
    elif len(values) and np.ndim(values[0]) == ndim - 1:
        videos = [np.asarray(values)]
    else:
        videos = [np.asarray(v) for v in values]
    if not videos:
        raise ValueError(f"{what} contains no videos: pass one array, or a sequence with one array per video")
    for i, video in enumerate(videos):
        if video.ndim != ndim:
            raise ValueError(
                f"{what} of video {i} has shape {video.shape}, but needs {ndim} axes: pass one array per video "
                "without a batch axis (hmmjax.metrics.unpad splits a padded batch)"
            )
    return videos


def paired(truth: Any, predicted: Any, ndim: int, predicted_ndim: int | None = None) -> list[tuple[Any, Any]]:
    """Return pairs of truth and prediction per video, and check that their lengths agree."""
    left = as_videos(truth, ndim, "truth")
    right = as_videos(predicted, ndim if predicted_ndim is None else predicted_ndim, "prediction")
    if len(left) != len(right):
        raise ValueError(f"truth has {len(left)} videos, but the prediction {len(right)}: pass the same videos in both")
    for i, (a, b) in enumerate(zip(left, right, strict=True)):
        if len(a) != len(b):
            raise ValueError(
                f"video {i} has {len(a)} frames of truth, but {len(b)} of prediction: join them on their frame numbers "
                "(rows of different files do not correspond)"
            )
        if b.ndim == ndim == 2 and a.shape != b.shape:
            raise ValueError(
                f"video {i} has truth of shape {a.shape}, but a prediction of shape {b.shape}: pass the same tools"
            )
    return list(zip(left, right, strict=True))


def class_names(names: Sequence[str] | None, count: int, kind: str) -> tuple[str, ...]:
    """Return the given names, or "phase 0", "phase 1", ...; at least `count` of them."""
    if names is None:
        return tuple(f"{kind} {c}" for c in range(count))
    if isinstance(names, str):  # "cholec80"
        names = resolve_names(names, f"{kind}s") or ()
    if len(names) < count:
        raise ValueError(f"{count} {kind}s occur, but only {len(names)} names are given: name every {kind}")
    return tuple(names)


def all_names(names: Sequence[str] | None, count: int, kind: str) -> tuple[str, ...]:
    """Return the given names, or "tool 0", "tool 1", ...; exactly `count` of them."""
    labels = class_names(names, count, kind)
    if len(labels) != count:
        raise ValueError(f"{len(labels)} names are given for {count} {kind}s: name every {kind} once")
    return labels


def same_classes(videos: Sequence[np.ndarray], kind: str) -> int:
    """Return the number of columns, which must be the same in all videos."""
    counts = {v.shape[1] for v in videos}
    if len(counts) > 1:
        raise ValueError(f"videos have {sorted(counts)} {kind}s: pass the same {kind}s in the same order in all videos")
    return counts.pop()


def entered(videos: Sequence[tuple[np.ndarray, Any]]) -> tuple[int, int]:
    """Return the numbers of videos and of frames whose truth is at least partly known."""
    known = [(a >= 0).any(-1) if a.ndim == 2 else a >= 0 for a, _ in videos]
    return sum(bool(k.any()) for k in known), sum(int(k.sum()) for k in known)


def check_labels(labels: np.ndarray, video: int, what: str) -> None:
    """Raise TypeError unless the labels of a video are integers; floats would be truncated."""
    if labels.size and not np.issubdtype(labels.dtype, np.integer):
        raise TypeError(
            f"{what} of video {video} is {labels.dtype}, but labels are integers: pass argmax(-1) of probabilities"
        )


def phase_videos(
    truth: Any, predicted: Any, names: Sequence[str] | None
) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[str, ...]]:
    """Return pairs of true and predicted labels, without frames whose truth is unknown, and class names."""
    videos = paired(truth, predicted, 1)
    for i, (a, b) in enumerate(videos):
        check_labels(a, i, "truth")
        check_labels(b, i, "prediction")
        if len(a) and (a.min() < -1 or b[a >= 0].min(initial=0) < 0):
            raise ValueError(
                f"video {i} has a negative phase label, but only the truth may be -1 (unknown): remove padding with "
                "hmmjax.metrics.unpad"
            )
    known = [(a[a >= 0].astype(np.int64), b[a >= 0].astype(np.int64)) for a, b in videos]
    count = 1 + max((int(max(a.max(), b.max())) for a, b in known if len(a)), default=-1)
    return known, class_names(names, count, "phase")


def tool_videos(
    truth: Any, scores: Any, names: Sequence[str] | None
) -> tuple[list[tuple[np.ndarray, np.ndarray]], tuple[str, ...]]:
    """Return pairs of truth (n, K), -1 for unknown, and scores (n, K), finite where truth is known; and tool names."""
    videos = paired(truth, scores, 2)
    count = same_classes([a for a, _ in videos], "tool")
    for i, (a, b) in enumerate(videos):
        if not np.isin(a, (-1, 0, 1)).all():
            raise ValueError(f"tool truth of video {i} has values other than 0, 1 and -1 (unknown): pass presence")
        # An infinite score cannot be compared with thresholds; scores where the truth is unknown are not used.
        if not np.isfinite(b.astype(float)[a >= 0]).all():
            raise ValueError(
                f"tool scores of video {i} hold NaN or infinity: remove unobserved frames from truth and scores or set "
                "their truth to -1, and pass finite logits"
            )
    return [(a.astype(np.int64), b.astype(np.float64)) for a, b in videos], all_names(names, count, "tool")
