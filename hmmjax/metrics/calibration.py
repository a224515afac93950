"""Calibration of probabilities: reliability curves and expected calibration error (ECE)."""

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax.metrics.metric import Metric, nan_std
from hmmjax.metrics.videos import check_labels, entered, paired, same_classes, tool_videos

#: Largest deviation of the sum of phase probabilities from one; text files round.
SUM_TOLERANCE = 1e-3


@dataclasses.dataclass(frozen=True)
class Reliability:
    """A reliability curve over bins of equal width in [0, 1]; NaN in empty bins.

    Attributes:
        name: "phase", or the name of a tool.
        convention: how the curve was measured.
        confidence: (bins,) mean predicted probability.
        frequency: (bins,) fraction of frames in which the event occurred.
        count: (bins,) number of frames.
    """

    name: str
    convention: str
    confidence: np.ndarray
    frequency: np.ndarray
    count: np.ndarray

    @property
    def error(self) -> float:
        """The expected calibration error: mean of |frequency - confidence| over frames; NaN without frames."""
        total = self.count.sum()
        gap = np.abs(self.frequency - self.confidence)
        return float(np.nansum(self.count * gap) / total) if total else math.nan


def _curve(name: str, convention: str, probability: np.ndarray, occurred: np.ndarray, bins: int) -> Reliability:
    place = _bin_of(probability, bins)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(place, weights=probability, minlength=bins) / count
        frequency = np.bincount(place, weights=occurred, minlength=bins) / count
    return Reliability(name, convention, confidence, frequency, count)


def _bin_of(probability: np.ndarray, bins: int) -> np.ndarray:
    """Return the bin of each probability: the first is [0, 1/bins], the others are open below and closed above.

    A float32 probability at an edge, such as 0.2 with 15 bins, may lie one rounding error above or below it.
    """
    exact = probability * bins
    edge = np.rint(exact)
    exact = np.where(np.abs(exact - edge) <= bins * np.finfo(np.float32).eps, edge, exact)
    return np.clip(np.ceil(exact).astype(int) - 1, 0, bins - 1)


def _phase_curve(truth: Any, probabilities: Any, bins: int) -> tuple[Reliability, int, int, int]:
    videos = paired(truth, probabilities, 1, 2)
    num_phases = same_classes([b for _, b in videos], "phase")
    for i, (a, _) in enumerate(videos):
        check_labels(a, i, "truth")
        low, high = a.min(initial=0), a.max(initial=-1)
        if low < -1 or high >= num_phases:
            raise ValueError(
                f"video {i} has the true phase {low if low < -1 else high}, but probabilities of {num_phases} phases: "
                "use labels from 0, -1 for unknown, and pass a column for every phase"
            )
    labels = np.concatenate([a for a, _ in videos])
    table = np.concatenate([b for _, b in videos]).astype(float)
    known = labels >= 0
    labels, table = labels[known], table[known]
    _check(table, bins)
    # The sum of L entries may deviate from one by L rounding errors of its type, or by the rounding of a text file.
    rounding = max(float(jnp.finfo(b.dtype).eps) if jnp.issubdtype(b.dtype, jnp.floating) else 0.0 for _, b in videos)
    off = np.abs(table.sum(1) - 1) > max(SUM_TOLERANCE, num_phases * rounding)
    if off.any():
        raise ValueError(
            f"probabilities of a frame sum to {table.sum(1)[off][0]:g}, not to one: pass softmax outputs or posteriors "
            "of all phases"
        )
    top = table.max(1) if len(table) else np.zeros(0)
    right = table.argmax(1) == labels if len(table) else np.zeros(0)
    text = f"probability of the most probable phase, {bins} bins of equal width, frames of all videos pooled"
    return _curve("phase", text, top, right, bins), *entered(videos), num_phases


def _check(probabilities: np.ndarray, bins: int) -> None:
    """Raise ValueError unless all probabilities are in [0, 1] and there is at least one bin."""
    if operator.index(bins) < 1:
        raise ValueError(f"bins={bins} is less than 1: pass for instance 15")
    if np.isnan(probabilities).any() or (len(probabilities) and not (0 <= probabilities.min() <= probabilities.max())):
        raise ValueError("probabilities hold NaN or negative numbers: remove unobserved frames from both arrays")
    if len(probabilities) and probabilities.max() > 1 + 1e-4:
        raise ValueError(f"probabilities reach {probabilities.max():g}: pass softmax or sigmoid outputs, not logits")


def phase_calibration(truth: Any, probabilities: Any, *, bins: int = 15) -> Metric:
    """Compute the expected calibration error of the most probable phase.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown and excludes the frame.
        probabilities: (n_i, L) phase probabilities.
        bins: number of bins of equal width.

    Returns:
        The mean over frames of |accuracy - confidence| of the frame's bin, between 0 and 1.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if shapes disagree, probabilities are NaN or not in [0, 1], rows do not sum to one, or a label has
            no column.

    Source: Guo et al. 2017, "On calibration of modern neural networks", equation 3.
    """
    curve, n_videos, n_frames, num_phases = _phase_curve(truth, probabilities, bins)
    return Metric(
        name="phase calibration error",
        convention=f"ECE: {curve.convention}",
        value=curve.error,
        n_videos=n_videos,
        n_frames=n_frames,
        n_classes=num_phases,
    )


def tool_calibration(truth: Any, probabilities: Any, *, bins: int = 15, names: Sequence[str] | None = None) -> Metric:
    """Compute the expected calibration error of the probability of presence of each tool, and its mean over tools.

    Args:
        truth: presence 0/1, one (n_i, K) array per video or a single array; -1 is unknown and excludes that entry.
        probabilities: (n_i, K) probabilities of presence.
        bins: number of bins of equal width.
        names: (K,) tool names.

    Returns:
        The mean over tools; ± over tools. Tools that are absent from the truth are included, since their probabilities
        should be near 0.

    Raises:
        ValueError: if shapes disagree, or probabilities are NaN or not in [0, 1].

    Source: Guo et al. 2017, equation 3, with presence as the event.
    """
    curves = reliability(tools=(truth, probabilities), bins=bins, names=names)
    errors = [c.error for c in curves]
    videos, labels = tool_videos(truth, probabilities, names)
    n_videos, n_frames = entered(videos)
    measured = [e for e in errors if not math.isnan(e)]
    return Metric(
        name="tool calibration error",
        convention=f"ECE: {curves[0].convention}; mean over tools",
        value=float(np.mean(measured)) if measured else math.nan,
        spread=nan_std(errors),
        spread_over="tools",
        n_videos=n_videos,
        n_frames=n_frames,
        n_classes=len(measured),
        left_out=tuple(f"{n}: no known frame" for n, e in zip(labels, errors, strict=True) if math.isnan(e)),
        class_names=labels,
        per_class=tuple(errors),
    )


def reliability(
    *,
    phases: tuple[Any, Any] | None = None,
    tools: tuple[Any, Any] | None = None,
    bins: int = 15,
    names: Sequence[str] | None = None,
) -> tuple[Reliability, ...]:
    """Compute reliability curves: one for the most probable phase, and one for each tool.

    Args:
        phases: (truth, probabilities): labels (n_i,) and probabilities (n_i, L), one array per video or single arrays.
        tools: (truth, probabilities): presence and probabilities (n_i, K), one array per video or single arrays.
        bins: number of bins of equal width.
        names: (K,) tool names.

    Returns:
        The curves, that of phases first.

    Raises:
        TypeError: if labels are not integers.
        ValueError: under the conditions of `phase_calibration` and `tool_calibration`.

    Source: Guo et al. 2017, figure 1.
    """
    curves = []
    if phases is not None:
        curves.append(_phase_curve(*phases, bins)[0])
    if tools is not None:
        videos, labels = tool_videos(*tools, names)
        truth, table = (np.concatenate([v[i] for v in videos]) for i in (0, 1))
        _check(table[truth >= 0], bins)
        text = f"probability of presence, {bins} bins of equal width, frames of all videos pooled"
        for k, label in enumerate(labels):
            known = truth[:, k] >= 0
            curves.append(_curve(label, text, table[known, k], truth[known, k], bins))
    return tuple(curves)
