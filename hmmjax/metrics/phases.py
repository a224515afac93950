"""Frame by frame metrics of phases: accuracy, precision, recall, F1 and Jaccard, strict or with relaxed boundaries."""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from hmmjax.metrics.records import Mean, Metric, check_option, check_rate, nan_mean, nan_std, summarize
from hmmjax.metrics.relaxed import TMRNET, Mode, Rules, check_order, check_rows, forgiven
from hmmjax.metrics.videos import phase_videos

Absent = Literal["truth", "both", "zero"]
Unpredicted = Literal["zero", "nan"]

_ABSENT = {
    "truth": "a phase absent from the truth has none",
    "both": "a phase absent from truth and prediction has none, one only predicted has 0",
    "zero": "a phase absent from the truth has 0",
}
_REASON = {
    "truth": "absent from the truth",
    "both": "absent from truth and prediction",
    "zero": "not measured",
}
_MODES = {
    "strict": "strict boundaries",
    "relaxed-official": "relaxed 10 s as in the official script, its bug included, {rules} rules, clipped at 1",
    "relaxed-fixed": "relaxed 10 s, the official script's bug fixed, {rules} rules, clipped at 1",
}


class Counts(NamedTuple):
    """Frames of each phase, each (C,): right within the union, predicted, true, in the union; and frames right."""

    right: np.ndarray
    predicted: np.ndarray
    true: np.ndarray
    union: np.ndarray
    frames_right: int
    frames: int


def _count(truth: np.ndarray, predicted: np.ndarray, num: int, mode: Mode, window: int, rules: Rules) -> Counts:
    if mode == "strict":
        right = truth == predicted
    else:
        right = forgiven(truth, predicted, window, rules, bug=mode == "relaxed-official")
    true = np.bincount(truth, minlength=num)
    guess = np.bincount(predicted, minlength=num)
    # A forgiven frame is right for both the true and the predicted phase: it lies in both unions.
    hits = np.bincount(truth[right], minlength=num)
    both = right & (truth != predicted)
    hits = hits + np.bincount(predicted[both], minlength=num)
    union = true + guess - np.bincount(truth[truth == predicted], minlength=num)
    return Counts(hits, guess, true, union, int(right.sum()), len(truth))


def _pool(counts: Sequence[Counts]) -> Counts:
    return Counts(*(np.sum([getattr(c, f) for c in counts], 0) for f in Counts._fields))


def _ratio(above: np.ndarray, below: np.ndarray, empty: float) -> np.ndarray:
    return np.where(below > 0, np.minimum(above / np.maximum(below, 1), 1.0), empty)


def _score(name: str, c: Counts, absent: Absent, unpredicted: float) -> np.ndarray:
    precision, recall = _ratio(c.right, c.predicted, 0.0), _ratio(c.right, c.true, 0.0)
    if name == "precision":
        table = _ratio(c.right, c.predicted, unpredicted)
    elif name == "recall":
        table = recall
    elif name == "F1":
        total = precision + recall
        table = np.where(total > 0, 2 * precision * recall / np.where(total > 0, total, 1), 0.0)
    else:
        table = _ratio(c.right, c.union, 0.0)
    missing = c.true == 0
    if absent == "both":
        missing &= c.predicted == 0
        table = np.where(c.true == 0, 0.0, table)
    return np.where(missing, 0.0 if absent == "zero" else math.nan, table)


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
    """Accuracy, precision, recall, F1 and Jaccard of phases, for each mode asked for.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown and such frames are left out.
        predicted: int labels of the same shapes.
        modes: "strict", "relaxed-official" (the M2CAI script, bug included), "relaxed-fixed".
        mean: "videos-then-classes" (the official script's order; ± over phases), "classes-then-videos" (± over
            videos) or "pooled" (frames of all videos together; ± over phases). Accuracy has no classes: it is per
            video (± over videos) unless "pooled".
        absent: NaN policy for a phase that a video (with "pooled": the whole set) lacks. "truth": no figure when absent
            from the truth; "both": no figure when absent from truth and prediction, 0 when only predicted; "zero": 0,
            which needs `names` to mean anything: see there.
        unpredicted: precision of a phase that is there but never predicted: "zero", or "nan" as the official Cholec80
            script has it (the phase then leaves the mean, which hides the miss).
        names: names of the phases, in the order of their indices. Without them there are as many phases as the
            greatest label, true or predicted, says: with absent="zero" the mean then depends on what is predicted,
            so that figures of two systems cannot be compared.
        fps: rows per second of the arrays, for the relaxed window of 10 seconds.
        rules: what relaxed boundaries forgive: `TMRNET`, `SVRCNET`, `M2CAI16` or your own.
        frame_numbers: the files' Frame columns, one (n_i,) array per video, to check `fps` against; optional.
        video_fps: frames per second that `frame_numbers` count.

    Returns:
        Five metrics for each mode, in the order of `modes`. Shares between 0 and 1; relaxed figures are clipped at 1.

    Raises:
        TypeError: labels are not integers.
        ValueError: unknown option, shapes disagree, negative labels, a rate that is not positive and finite, frame
            numbers that do not rise, or `names` is not the order `rules` need.

    Warns:
        UserWarning: `fps` does not look like the number of rows per second.

    Source: M2CAI 2016 evaluation script as carried by TMRNet; Funke et al., arXiv 2305.13961, for its bug.
    """
    check_option("absent", absent, _ABSENT)
    check_option("unpredicted", unpredicted, ("zero", "nan"))
    for mode in modes:
        check_option("mode", mode, _MODES)
    check_rate("fps", fps, "rows per second, 1 for rows one second apart")
    check_rate("video_fps", video_fps, "the frames per second that frame_numbers count")
    videos, labels = phase_videos(truth, predicted, names)
    if any(m != "strict" for m in modes):
        check_order(names, rules)
        check_rows([len(a) for a, _ in videos], fps, frame_numbers, video_fps)
    window, n_frames = round(10 * fps), sum(len(a) for a, _ in videos)
    results = []
    for mode in modes:
        counts = [_count(a, b, len(labels), mode, window, rules) for a, b in videos if len(a)]
        counts = counts or [_count(*videos[0], len(labels), mode, window, rules)]
        how = _MODES[mode].format(rules=rules.name)
        results.append(_accuracy(counts, how, mean == "pooled", len(videos)))
        for name in ("precision", "recall", "F1", "Jaccard"):
            rows = [_pool(counts)] if mean == "pooled" else counts
            table = np.stack([_score(name, c, absent, 0.0 if unpredicted == "zero" else math.nan) for c in rows])
            convention, reason = f"{how}; {_ABSENT[absent]}", _REASON[absent]
            if name == "precision":
                convention += f"; a phase never predicted has {'0' if unpredicted == 'zero' else 'none'}"
                reason += " or never predicted" if unpredicted == "nan" else ""
            results.append(
                summarize(
                    table,
                    mean,
                    name=name,
                    convention=convention,
                    classes="phases",
                    class_names=labels,
                    n_videos=sum(c.frames > 0 for c in counts),
                    n_frames=n_frames,
                    reason=reason,
                )
            )
    return tuple(results)


def _accuracy(counts: Sequence[Counts], how: str, pooled: bool, given: int) -> Metric:
    total = _pool(counts)
    per_video = [c.frames_right / c.frames if c.frames else math.nan for c in counts]
    entered = sum(c.frames > 0 for c in counts)
    share = total.frames_right / total.frames if total.frames else math.nan
    return Metric(
        name="accuracy",
        convention=f"{how}; " + ("frames of all videos pooled" if pooled else "per video, mean over videos"),
        value=share if pooled else float(nan_mean(per_video)),
        spread=math.nan if pooled else nan_std(per_video),
        spread_over="" if pooled else "videos",
        n_videos=entered,
        n_frames=int(total.frames),
        n_classes=int((total.true > 0).sum()),
        left_out=(f"{given - entered} videos: no frame",) if given > entered else (),
        per_video=() if pooled else tuple(per_video),
    )


def _one(name: str, truth: Any, predicted: Any, mode: Mode, options: dict[str, Any]) -> Metric:
    return next(m for m in phase_metrics(truth, predicted, modes=(mode,), **options) if m.name == name)


def accuracy(truth: Any, predicted: Any, *, mode: Mode = "strict", **options: Any) -> Metric:
    """Share of frames whose phase is right.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown.
        predicted: int labels of the same shapes.
        mode: "strict", "relaxed-official" or "relaxed-fixed".
        **options: of `phase_metrics`, but `modes`.

    Returns:
        The accuracy alone of the five metrics.

    Raises:
        TypeError, ValueError: as `phase_metrics`.

    Source: as `phase_metrics`.
    """
    return _one("accuracy", truth, predicted, mode, options)


def precision(truth: Any, predicted: Any, *, mode: Mode = "strict", **options: Any) -> Metric:
    """Share of a phase's predicted frames that are right.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown.
        predicted: int labels of the same shapes.
        mode: "strict", "relaxed-official" or "relaxed-fixed".
        **options: of `phase_metrics`, but `modes`.

    Returns:
        The precision alone of the five metrics.

    Raises:
        TypeError, ValueError: as `phase_metrics`.

    Source: as `phase_metrics`.
    """
    return _one("precision", truth, predicted, mode, options)


def recall(truth: Any, predicted: Any, *, mode: Mode = "strict", **options: Any) -> Metric:
    """Share of a phase's true frames that are found.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown.
        predicted: int labels of the same shapes.
        mode: "strict", "relaxed-official" or "relaxed-fixed".
        **options: of `phase_metrics`, but `modes`.

    Returns:
        The recall alone of the five metrics.

    Raises:
        TypeError, ValueError: as `phase_metrics`.

    Source: as `phase_metrics`.
    """
    return _one("recall", truth, predicted, mode, options)


def f1(truth: Any, predicted: Any, *, mode: Mode = "strict", **options: Any) -> Metric:
    """Harmonic mean of precision and recall.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown.
        predicted: int labels of the same shapes.
        mode: "strict", "relaxed-official" or "relaxed-fixed".
        **options: of `phase_metrics`, but `modes`.

    Returns:
        The F1 alone of the five metrics.

    Raises:
        TypeError, ValueError: as `phase_metrics`.

    Source: as `phase_metrics`.
    """
    return _one("F1", truth, predicted, mode, options)


def jaccard(truth: Any, predicted: Any, *, mode: Mode = "strict", **options: Any) -> Metric:
    """Frames both true and predicted over frames either.

    Args:
        truth: int labels, one (n_i,) array per video or a single array; -1 is unknown.
        predicted: int labels of the same shapes.
        mode: "strict", "relaxed-official" or "relaxed-fixed".
        **options: of `phase_metrics`, but `modes`. With absent="zero" pass `names`, or the mean is over as many phases
            as the greatest label says, predicted ones included.

    Returns:
        The Jaccard alone of the five metrics.

    Raises:
        TypeError, ValueError: as `phase_metrics`.

    Source: as `phase_metrics`.
    """
    return _one("Jaccard", truth, predicted, mode, options)
