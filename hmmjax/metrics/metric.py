"""The result type of all metrics, which names the convention of every value, and the means over videos and classes."""

import dataclasses
import math
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

Mean = Literal["pooled", "classes-then-videos", "videos-then-classes"]

MEANS = {
    "pooled": "frames of all videos pooled, mean over {classes}",
    "classes-then-videos": "per video, mean over {classes}, then over videos",
    "videos-then-classes": "per video, mean over videos, then over {classes}",
}


@dataclasses.dataclass(frozen=True)
class Metric:
    """The value of a metric, its convention, and the data that entered.

    Attributes:
        name: the metric, for instance "Jaccard".
        convention: the exact definition, which distinguishes it from other definitions of the same name.
        value: the value; NaN if nothing could be measured.
        unit: "" for a fraction between 0 and 1, else "seconds", "changes", "phases" or "ratio".
        spread: sample standard deviation (n - 1) over `spread_over`; NaN for fewer than two items and for totals.
        spread_over: the items of `spread`: "videos", "phases", "tools", "transitions" or "" (no spread).
        n_videos: number of videos that entered.
        n_frames: number of frames of all videos that entered.
        n_classes: number of phases or tools that entered the mean.
        left_out: what did not enter, with reasons ("Bipolar: absent from the truth").
        class_names: names along `per_class`.
        per_class: value per class, NaN if left out; empty for metrics without classes.
        per_video: value per video, NaN if left out; empty if videos are pooled.
        split: the set of videos, filled in by the caller ("Cholec80 41-80").
    """

    name: str
    convention: str
    value: float
    unit: str = ""
    spread: float = math.nan
    spread_over: str = ""
    n_videos: int = 0
    n_frames: int = 0
    n_classes: int = 0
    left_out: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    per_class: tuple[float, ...] = ()
    per_video: tuple[float, ...] = ()
    split: str = ""

    def __str__(self) -> str:
        spread = f" ± {self.spread:.4f} over {self.spread_over}" if math.isfinite(self.spread) else ""
        unit = f" {self.unit}" if self.unit else ""
        entered = [f"{self.n_videos} video{'s' * (self.n_videos != 1)}", f"{self.n_frames} frames"]
        if self.n_classes:
            entered.append(f"{self.n_classes} classes")
        if self.split:
            entered.insert(0, self.split)
        if self.left_out:
            entered.append("left out: " + ", ".join(self.left_out))
        return f"{self.name} {self.value:.4f}{unit}{spread} [{self.convention}; {', '.join(entered)}]"

    def asdict(self) -> dict[str, Any]:
        """Return the fields as plain values, for JSON or a row of a table."""
        return dataclasses.asdict(self)


def check_option(name: str, value: Any, allowed: Iterable[str]) -> None:
    """Raise ValueError unless an option has one of the allowed values."""
    allowed = tuple(allowed)
    if value not in allowed:
        raise ValueError(f"{name}={value!r} is unknown: use one of {', '.join(map(repr, allowed))}")


def check_rate(name: str, value: float, meaning: str) -> None:
    """Raise ValueError unless a rate is positive and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value} is not positive and finite: pass {meaning}")


def check_threshold(threshold: float) -> None:
    """Raise ValueError if a threshold is NaN."""
    if math.isnan(threshold):
        raise ValueError("threshold is NaN: pass a number, for instance 0.5 for probabilities")


def nan_mean(values: Any, axis: int | None = None) -> Any:
    """Return the mean without NaN entries; NaN, without a warning, if there are no others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.nanmean(values, axis)


def nan_median(values: Any) -> float:
    """Return the median without NaN entries; NaN, without a warning, if there are no others."""
    finite = np.asarray(values, float)
    finite = finite[~np.isnan(finite)]
    return float(np.median(finite)) if finite.size else math.nan


def nan_std(values: Any) -> float:
    """Return the sample standard deviation (n - 1) without NaN entries; NaN for fewer than two entries."""
    finite = np.asarray(values, float)
    finite = finite[~np.isnan(finite)]
    return float(np.std(finite, ddof=1)) if finite.size > 1 else math.nan


def summarize(
    table: np.ndarray,
    how: Mean,
    *,
    name: str,
    convention: str,
    classes: str,
    class_names: Sequence[str],
    n_videos: int,
    n_frames: int,
    reason: str,
) -> Metric:
    """Average a table of values over videos and classes.

    Args:
        table: (videos, classes) values, or (1, classes) if videos are pooled; NaN for undefined entries.
        how: the order of the means.
        name: name of the metric.
        convention: how each entry was measured.
        classes: "phases" or "tools".
        class_names: names along the second axis.
        n_videos: number of videos that entered.
        n_frames: number of frames that entered.
        reason: why an entry can be NaN.

    Returns:
        The metric, with the order of the means in its convention.

    Raises:
        ValueError: if `how` is not one of the three orders.
    """
    check_option("mean", how, MEANS)
    per_class, per_video = nan_mean(table, 0), nan_mean(table, 1)
    value, over = nan_mean(per_class), classes
    if how == "classes-then-videos":
        value, over = nan_mean(per_video), "videos"
    missing = np.isnan(table).sum(0)
    left_out = []
    for label, count in zip(class_names, missing, strict=True):
        if count == len(table):
            left_out.append(f"{label}: {reason}")
        elif count:
            left_out.append(f"{label} in {count} of {len(table)} videos: {reason}")
    return Metric(
        name=name,
        convention=f"{convention}; {MEANS[how].format(classes=classes)}",
        value=float(value),
        spread=nan_std(per_video if over == "videos" else per_class),
        spread_over=over,
        n_videos=n_videos,
        n_frames=n_frames,
        n_classes=int(np.isfinite(per_class).sum()),
        left_out=tuple(left_out),
        class_names=tuple(class_names),
        per_class=tuple(per_class.tolist()),
        per_video=() if how == "pooled" else tuple(per_video.tolist()),
    )
