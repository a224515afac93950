"""Warnings about what averages hide: mismatched class names, and results, videos and classes that became worse."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from hmmjax import metrics
from hmmjax.io import Track
from hmmjax.stabilize.systems import System, as_phases, as_tools, restrict_truth
from hmmjax.stabilize.table import Row

#: A metric that falls by more than this has become worse; smaller differences count as rounding.
MIN_DROP = 0.01
#: Two class names are suspected to be exchanged if exchanging them would correct more than this fraction of frames.
SUSPICIOUS = 0.05
_MEANS = ("phase accuracy, per video", "phase Jaccard, strict", "tool mAP", "tool F1, macro")
_UNNAMED = (
    "phases are numbers without names, so it cannot be checked that all files mean the same by them: give their names "
    "(phase_names, --phase-names), for instance cholec80"
)


def mismatched_names(
    outputs: System, truth: Sequence[np.ndarray] | None, names: Sequence[str] | None, tracks: Sequence[Track]
) -> list[str]:
    """Warn if phase names do not seem to fit the files.

    Args:
        outputs: the recognizer.
        truth: for each video (n,) int labels, -1 for unlabeled; or None.
        names: (L,) phase names; or None.
        tracks: everything that was read.

    Returns:
        A note if phases are read as numbers and have no names. Otherwise a warning if the last classes occur in
        no file of indices, and one if the annotations would agree much better with two classes exchanged. Both
        must be annotated and mostly predicted as the other, in two videos or more if so many are annotated: a
        class that a recognizer invents is no sign of another order.
    """
    own = [t for t in tracks if t.track == "phases"]
    if names is None:
        return [_UNNAMED] * bool(own)
    notices = []
    if own and all(t.values.ndim == 1 and t.layout.spelling is None for t in own):
        used = 1 + max(int(t.values.max(initial=-1)) for t in own)
        if used < len(names):
            notices.append(
                f"{len(names)} phase names are given ({', '.join(names)}), but no file has an index above {used - 1}: "
                "check that these are the classes of the files"
            )
    if truth is None or outputs.phases is None:
        return notices
    count = len(names)
    tables = np.zeros((len(truth), count, count))
    for own_table, known, labels in zip(tables, truth, outputs.phase_labels(), strict=True):
        keep = (known >= 0) & (labels >= 0)
        np.add.at(own_table, (known[keep], labels[keep]), 1)
    table, videos = tables.sum(0), int(tables.any((1, 2)).sum())
    total = table.sum()
    gains = [(_gain(tables, i, j, min(2, videos)), i, j) for i, j in combinations(range(count), 2)]
    gain, i, j = max(gains, default=(0.0, 0, 0))
    if total and gain > SUSPICIOUS * total:
        right, better = np.trace(table) / total, (np.trace(table) + gain) / total
        notices.append(
            f"predicted phases agree with the annotations in {right:.0%} of frames, but in {better:.0%} with "
            f"{names[i]} and {names[j]} exchanged: check the order of the phase names"
        )
    return notices


def _gain(tables: np.ndarray, i: int, j: int, videos: int) -> float:
    """Return how many more frames agree if two classes are exchanged; 0 if too few videos show an exchange.

    Args:
        tables: (B, L, L) number of frames by video, annotated class and predicted class.
        i: one class.
        j: the other class.
        videos: smallest number of videos that must gain.
    """
    by_video = tables[:, i, j] + tables[:, j, i] - tables[:, i, i] - tables[:, j, j]
    table = tables.sum(0)
    both = table[i, j] > table[i, i] and table[j, i] > table[j, j]
    return float(by_video.sum()) if both and (by_video > 0).sum() >= videos else 0.0


def worse_videos(
    outputs: System, stabilized: System, truth: Sequence[np.ndarray] | None, ids: Sequence[str]
) -> list[str]:
    """Warn about videos in which fewer phases are correct after stabilizing, by however little.

    Args:
        outputs: the recognizer.
        stabilized: the stabilized predictions.
        truth: for each video (n,) int labels, -1 for unlabeled; or None.
        ids: names of the videos.

    Returns:
        At most one warning, with the three worst videos and their frame accuracies.
    """
    if truth is None or outputs.phases is None or stabilized.phases is None:
        return []
    found, predicted = [], restrict_truth(outputs, System("truth", truth)).phases or ()
    for name, known, *both in zip(ids, predicted, outputs.phases, stabilized.phases, strict=True):
        before, after = (video_score("phases", known, values) for values in both)
        if not math.isnan(before):
            found.append((after - before, f"{name} {' to '.join(score_texts(before, after))}"))
    worse = sorted(x for x in found if x[0] < 0)
    if not worse:
        return []
    return [
        f"phases are less accurate after stabilizing in {len(worse)} of {len(found)} videos (frame accuracy: "
        f"{_first_three(worse)}): look at the pictures of these videos before relying on the mean"
    ]


def worse_means(table: Sequence[Row], family: str) -> list[str]:
    """Warn about metrics of all videos that are lower after stabilizing with a named family.

    Args:
        table: metrics of "M", "M_H" and "M_H online". Accuracy, Jaccard, mAP and F1 are compared.
        family: name of the family.

    Returns:
        At most one warning.
    """
    worse = []
    for row in table:
        raw = row.metrics.get("M")
        if raw is None or row.figure not in _MEANS:
            continue
        lower = {n: m.value for n, m in row.metrics.items() if n.startswith("M_H") and m.value < raw.value}
        if lower:
            after = ", ".join(f"{name} {value:.4f}" for name, value in lower.items())
            worse.append(f"{row.figure}: M {raw.value:.4f}, {after}")
    if not worse:
        return []
    return [
        f"with {family} emissions, metrics are below those of the recognizer ({'; '.join(worse)}): leave out "
        '--emissions and --learn (emissions="auto"), to keep the recognizer where no model is better on inner folds'
    ]


def worse_classes(
    outputs: System, stabilized: System, truth: System, names: Mapping[str, Sequence[str] | None]
) -> list[str]:
    """Warn about phases and tools that are recognized less well after stabilizing, whatever their mean.

    Args:
        outputs: the recognizer.
        stabilized: the stabilized predictions.
        truth: int labels, -1 for unlabeled.
        names: of "phases" (L,) and "tools" (K,), or None to number them.

    Returns:
        At most one warning per track, with the three worst classes: strict Jaccard of phases, average precision of
        tools, as in the table.
    """
    notices, truth = [], restrict_truth(outputs, truth)
    for track, measure, metric in (
        ("phases", metrics.jaccard, "Jaccard"),
        ("tools", metrics.average_precision, "average precision"),
    ):
        labels = getattr(truth, track)
        systems = [s.phases if track == "phases" else s.tool_ranking for s in (outputs, stabilized)]
        keep = [i for i, known in enumerate(labels or []) if (known >= 0).any()]
        if labels is None or not keep or any(s is None for s in systems):
            continue
        known = [labels[i] for i in keep]
        values = [[as_phases(s[i]) if track == "phases" else s[i] for i in keep] for s in systems if s is not None]
        before, after = (measure(known, x, names=names[track]) for x in values)
        then = dict(zip(after.class_names, after.per_class, strict=True))
        pairs = [
            (name, a, then.get(name, math.nan)) for name, a in zip(before.class_names, before.per_class, strict=True)
        ]
        worse = sorted((b - a, f"{name} {a:.3f} to {b:.3f}") for name, a, b in pairs if b - a < -MIN_DROP)
        if worse:
            verb = "is" if len(worse) == 1 else "are"
            total = sum(not math.isnan(x) for x in before.per_class)
            notices.append(
                f"{len(worse)} of {total} {track} {verb} recognized less well after stabilizing ({metric}: "
                f"{_first_three(worse)}; mean over {track} {before.value:.3f} to {after.value:.3f})"
            )
    return notices


def score_texts(before: float, after: float) -> tuple[str, str]:
    """Format two scores with three digits, or with as many more as show that they differ."""
    digits = 3
    while before != after and digits < 6 and f"{before:.{digits}f}" == f"{after:.{digits}f}":
        digits += 1
    return f"{before:.{digits}f}", f"{after:.{digits}f}"


def _first_three(worse: Sequence[tuple[float, str]]) -> str:
    return ", ".join(text for _, text in worse[:3]) + (", ..." if len(worse) > 3 else "")


def video_score(track: str, truth: np.ndarray, values: np.ndarray) -> float:
    """Score one system on one video.

    Args:
        track: "phases" or "tools".
        truth: (n,) int labels of phases or (n, K) of tools, -1 for unlabeled.
        values: labels or probabilities at the same frames; missing ones (-1 or NaN) are not scored.

    Returns:
        Frame accuracy of phases, macro F1 at 0.5 of tools; NaN without labels.
    """
    truth = np.where((as_phases(values) if track == "phases" else as_tools(values)) < 0, -1, truth)
    if not (truth >= 0).any():
        return math.nan
    if track == "phases":
        known = truth >= 0
        return float((as_phases(values) == truth)[known].mean())
    return metrics.tool_f1([truth], [values]).value
