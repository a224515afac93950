"""Per-frame metrics of phases: accuracy, precision, recall, F1, Jaccard and confusion matrices.

Boundaries are strict or relaxed (`hmmjax.metrics.relaxed`).
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from hmmjax.metrics.metric import MEANS, Mean, Metric, check_option, check_rate, nan_mean, nan_std, summarize
from hmmjax.metrics.phase_counts import Counts, count_frames, pool, score
from hmmjax.metrics.relaxed import TMRNET, Mode, Rules, check_order, check_rows
from hmmjax.metrics.videos import phase_videos

Absent = Literal["truth", "both", "zero"]
Unpredicted = Literal["zero", "nan"]

_NAMES = ("accuracy", "precision", "recall", "F1", "Jaccard")

_ABSENT = {
    "truth": "phases absent from the truth are left out",
    "both": "phases absent from truth and prediction are left out, those only predicted count as 0",
    "zero": "phases absent from the truth count as 0",
}
_REASON = {
    "truth": "absent from the truth",
    "both": "absent from truth and prediction",
    "zero": "not measured",
}
_MODES = {
    "strict": "strict boundaries",
    "relaxed-official": "boundaries relaxed by 10 s as in the official script, bug included, {rules} rules, clipped",
    "relaxed-fixed": "boundaries relaxed by 10 s, bug fixed in the official script, {rules} rules, clipped",
}


class PhaseOptions(TypedDict, total=False):
    """Options of all phase metrics, documented in `phase_metrics`."""

    mean: Mean
    absent: Absent
    unpredicted: Unpredicted
    names: Sequence[str] | None
    fps: float
    rules: Rules
    frame_numbers: Any
    video_fps: float


def phase_metrics(
    truth: Any,
    predicted: Any,
    *,
    modes: Sequence[Mode] = ("strict",),
    mean: Mean = "videos-then-classes",
    absent: Absent = "truth",
    unpredicted: Unpredicted = "zero",
    names: Sequence[str] | None = None,
    fps: float = 1.0,
    rules: Rules = TMRNET,
    frame_numbers: Any = None,
    video_fps: float = 25.0,
) -> tuple[Metric, ...]:
    """Compute accuracy, precision, recall, F1 and Jaccard of phases for one or several treatments of boundaries.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown and excludes the frame.
        predicted: int labels of the same shapes.
        modes: "strict", "relaxed-official" (the M2CAI script, bug included), "relaxed-fixed".
        mean: "videos-then-classes" (the order of the official script; ± over phases), "classes-then-videos" (± over
            videos) or "pooled" (frames of all videos together; ± over phases). Accuracy has no classes: it is averaged
            over videos (± over videos) unless "pooled".
        absent: treatment of a phase that a video (if pooled: all videos) lacks. "truth" leaves it out if it is absent
            from the truth. "both" leaves it out if it is absent from truth and prediction, and counts it as 0 if it is
            only predicted. "zero" counts it as 0; pass `names` so that the number of phases is fixed.
        unpredicted: precision of a phase that occurs but is never predicted: "zero", or "nan" as in the official
            Cholec80 script (the phase is then left out of the mean, which hides the error).
        names: phase names in the order of their indices. Without names, the number of phases follows from the largest
            true or predicted label; with absent="zero", the mean then depends on the prediction, so that values of two
            systems cannot be compared.
        fps: rows per second of the arrays, which determines the relaxed window of 10 seconds.
        rules: the differences that relaxed boundaries accept: `TMRNET`, `SVRCNET`, `M2CAI16` or your own.
        frame_numbers: the Frame columns of the files, one (n_i,) array per video, to check `fps`; optional.
        video_fps: frames per second of the counter of `frame_numbers`.

    Returns:
        Five metrics per mode, in the order of `modes`: fractions between 0 and 1. Relaxed metrics are clipped at 1.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if an option is unknown, shapes disagree, labels are negative, a rate is not positive and finite,
            frame numbers do not increase, or the order of `names` is not that of `rules`.

    Warns:
        UserWarning: if `fps` is unlikely to be the number of rows per second.

    Source: M2CAI 2016 evaluation script, as included with TMRNet; Funke et al., arXiv 2305.13961, for its bug.
    """
    options = PhaseOptions(
        mean=mean,
        absent=absent,
        unpredicted=unpredicted,
        names=names,
        fps=fps,
        rules=rules,
        frame_numbers=frame_numbers,
        video_fps=video_fps,
    )
    return _measure(_NAMES, truth, predicted, modes, **options)


def accuracy(truth: Any, predicted: Any, *, mode: Mode = "strict", **options: Unpack[PhaseOptions]) -> Metric:
    """Compute the fraction of frames whose phase is correct.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown.
        predicted: int labels of the same shapes.
        mode: "strict", "relaxed-official" or "relaxed-fixed".
        **options: options of `phase_metrics`, except `modes`.

    Returns:
        The metric; averaged over videos unless mean="pooled".

    Raises:
        TypeError, ValueError: under the conditions of `phase_metrics`.

    Source: see `phase_metrics`.
    """
    return _measure(("accuracy",), truth, predicted, (mode,), **options)[0]


def precision(truth: Any, predicted: Any, *, mode: Mode = "strict", **options: Unpack[PhaseOptions]) -> Metric:
    """Compute the fraction of frames predicted as a phase that are correct.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown.
        predicted: int labels of the same shapes.
        mode: "strict", "relaxed-official" or "relaxed-fixed".
        **options: options of `phase_metrics`, except `modes`.

    Returns:
        The metric, averaged over phases and videos.

    Raises:
        TypeError, ValueError: under the conditions of `phase_metrics`.

    Source: see `phase_metrics`.
    """
    return _measure(("precision",), truth, predicted, (mode,), **options)[0]


def recall(truth: Any, predicted: Any, *, mode: Mode = "strict", **options: Unpack[PhaseOptions]) -> Metric:
    """Compute the fraction of a phase's true frames that are predicted.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown.
        predicted: int labels of the same shapes.
        mode: "strict", "relaxed-official" or "relaxed-fixed".
        **options: options of `phase_metrics`, except `modes`.

    Returns:
        The metric, averaged over phases and videos.

    Raises:
        TypeError, ValueError: under the conditions of `phase_metrics`.

    Source: see `phase_metrics`.
    """
    return _measure(("recall",), truth, predicted, (mode,), **options)[0]


def f1(truth: Any, predicted: Any, *, mode: Mode = "strict", **options: Unpack[PhaseOptions]) -> Metric:
    """Compute the harmonic mean of precision and recall.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown.
        predicted: int labels of the same shapes.
        mode: "strict", "relaxed-official" or "relaxed-fixed".
        **options: options of `phase_metrics`, except `modes`.

    Returns:
        The metric, averaged over phases and videos.

    Raises:
        TypeError, ValueError: under the conditions of `phase_metrics`.

    Source: see `phase_metrics`.
    """
    return _measure(("F1",), truth, predicted, (mode,), **options)[0]


def jaccard(truth: Any, predicted: Any, *, mode: Mode = "strict", **options: Unpack[PhaseOptions]) -> Metric:
    """Compute intersection over union: frames both true and predicted, over frames true or predicted.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown.
        predicted: int labels of the same shapes.
        mode: "strict", "relaxed-official" or "relaxed-fixed".
        **options: options of `phase_metrics`, except `modes`. With absent="zero", pass `names` to fix the number of
            phases.

    Returns:
        The metric, averaged over phases and videos.

    Raises:
        TypeError, ValueError: under the conditions of `phase_metrics`.

    Source: see `phase_metrics`.
    """
    return _measure(("Jaccard",), truth, predicted, (mode,), **options)[0]


def confusion_matrix(truth: Any, predicted: Any, num_phases: int | None = None) -> np.ndarray:
    """Count frames by true phase (row) and predicted phase (column), all videos pooled.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown and excludes the frame.
        predicted: int labels of the same shapes.
        num_phases: L; by default, the largest label plus one.

    Returns:
        (L, L) int64 counts.

    Raises:
        TypeError: if labels are not integers.
        ValueError: if shapes disagree, or labels are negative or not below L.

    Source: a count.
    """
    names = None if num_phases is None else [f"phase {p}" for p in range(num_phases)]
    videos, names = phase_videos(truth, predicted, names)
    matrix = np.zeros((len(names), len(names)), np.int64)
    for a, b in videos:
        np.add.at(matrix, (a, b), 1)
    return matrix


def _measure(
    wanted: Sequence[str],
    truth: Any,
    predicted: Any,
    modes: Sequence[Mode],
    *,
    mean: Mean = "videos-then-classes",
    absent: Absent = "truth",
    unpredicted: Unpredicted = "zero",
    names: Sequence[str] | None = None,
    fps: float = 1.0,
    rules: Rules = TMRNET,
    frame_numbers: Any = None,
    video_fps: float = 25.0,
) -> tuple[Metric, ...]:
    """Compute the metrics named in `wanted` for each mode."""
    check_option("mean", mean, MEANS)
    check_option("absent", absent, _ABSENT)
    check_option("unpredicted", unpredicted, ("zero", "nan"))
    for mode in modes:
        check_option("mode", mode, _MODES)
    check_rate("fps", fps, "rows per second, 1 for one row per second")
    check_rate("video_fps", video_fps, "frames per second of the counter of frame_numbers")
    videos, labels = phase_videos(truth, predicted, names)
    if any(m != "strict" for m in modes):
        check_order(names, rules)
        check_rows([len(a) for a, _ in videos], fps, frame_numbers, video_fps)
    metrics = []
    for mode in modes:
        window, how = round(10 * fps), _MODES[mode].format(rules=rules.name)
        counts = [count_frames(a, b, len(labels), mode, window, rules) for a, b in videos if len(a)]
        counts = counts or [count_frames(*videos[0], len(labels), mode, window, rules)]
        for name in wanted:
            if name == "accuracy":
                metrics.append(_accuracy(counts, how, mean == "pooled", len(videos)))
            else:
                metrics.append(_per_phase(name, counts, how, mean, absent, unpredicted, labels))
    return tuple(metrics)


def _accuracy(counts: Sequence[Counts], how: str, pooled: bool, given: int) -> Metric:
    total = pool(counts)
    per_video = [c.frames_correct / c.frames if c.frames else math.nan for c in counts]
    entered = sum(c.frames > 0 for c in counts)
    fraction = total.frames_correct / total.frames if total.frames else math.nan
    return Metric(
        name="accuracy",
        convention=f"{how}; " + ("frames of all videos pooled" if pooled else "per video, mean over videos"),
        value=fraction if pooled else float(nan_mean(per_video)),
        spread=math.nan if pooled else nan_std(per_video),
        spread_over="" if pooled else "videos",
        n_videos=entered,
        n_frames=int(total.frames),
        n_classes=int((total.true > 0).sum()),
        left_out=(f"{given - entered} videos: no frame",) if given > entered else (),
        per_video=() if pooled else tuple(per_video),
    )


def _per_phase(
    name: str,
    counts: Sequence[Counts],
    how: str,
    mean: Mean,
    absent: Absent,
    unpredicted: Unpredicted,
    labels: Sequence[str],
) -> Metric:
    rows = [pool(counts)] if mean == "pooled" else counts
    table = np.stack([score(name, c, absent, 0.0 if unpredicted == "zero" else math.nan) for c in rows])
    convention, reason = f"{how}; {_ABSENT[absent]}", _REASON[absent]
    if name == "precision":
        convention += f"; phases never predicted {'count as 0' if unpredicted == 'zero' else 'are left out'}"
        reason += " or never predicted" if unpredicted == "nan" else ""
    return summarize(
        table,
        mean,
        name=name,
        convention=convention,
        classes="phases",
        class_names=labels,
        n_videos=sum(c.frames > 0 for c in counts),
        n_frames=sum(c.frames for c in counts),
        reason=reason,
    )
