"""What means do not show: class names that fit the files badly, and videos and classes that come out worse."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from hmmjax import metrics
from hmmjax.io import Track
from hmmjax.stabilize.table import System, as_phases

#: A video or class whose figure falls by more than this has been harmed, not rounded.
HARMED = 0.01
#: An exchange of two classes that would make so many more of the frames right is no accident.
SUSPICIOUS = 0.05


def class_doubts(
    said: System, truth: Sequence[np.ndarray] | None, names: Sequence[str] | None, tracks: Sequence[Track]
) -> list[str]:
    """Notices about names of phases that fit the files badly.

    Args:
        said: the recognizer.
        truth: for each video (n,) int labels, -1 unknown; or None.
        names: (L,) phase names; or None.
        tracks: everything that was read.

    Returns:
        A notice where the last classes never occur in any file of indices, and one where the annotation would agree
        far better with two classes exchanged.
    """
    if names is None:
        return []
    own = [t for t in tracks if t.track == "phases"]
    notices = []
    if own and all(t.values.ndim == 1 and t.layout.spelling is None for t in own):
        used = 1 + max(int(t.values.max(initial=-1)) for t in own)
        if used < len(names):
            notices.append(
                f"{len(names)} phase names are declared ({', '.join(names)}), but no file has an index above "
                f"{used - 1}: is that the list of these files?"
            )
    if truth is None or said.phases is None:
        return notices
    labels = np.concatenate(said.phase_labels())
    known = np.concatenate(list(truth))
    keep = known >= 0
    count = len(names)
    table = np.zeros((count, count))
    np.add.at(table, (known[keep], labels[keep]), 1)
    total = table.sum()
    if not total:
        return notices
    pairs = combinations(range(count), 2)
    gains = [(table[i, j] + table[j, i] - table[i, i] - table[j, j], i, j) for i, j in pairs]
    gain, i, j = max(gains, default=(0.0, 0, 0))
    if gain > SUSPICIOUS * total:
        right, better = np.trace(table) / total, (np.trace(table) + gain) / total
        notices.append(
            f"predicted phases agree with the annotation in {right:.0%} of frames, and would in {better:.0%} with "
            f"{names[i]} and {names[j]} exchanged: check the order of the phase names"
        )
    return notices


def harmed_videos(
    said: System, stabilized: System, truth: Sequence[np.ndarray] | None, ids: Sequence[str]
) -> list[str]:
    """A notice about videos whose phases agree less with the annotation than before.

    Args:
        said: the recognizer.
        stabilized: what the model made of it.
        truth: for each video (n,) int labels, -1 unknown; or None.
        ids: the videos' names.

    Returns:
        None or one notice, with the three worst videos and their frame accuracies.
    """
    if truth is None or said.phases is None or stabilized.phases is None:
        return []
    found = []
    for name, known, *both in zip(ids, truth, said.phases, stabilized.phases, strict=True):
        before, after = (agreement("phases", known, values) for values in both)
        if not math.isnan(before):
            found.append((after - before, f"{name} {before:.3f} to {after:.3f}"))
    worse = sorted(x for x in found if x[0] < -HARMED)
    if not worse:
        return []
    named = ", ".join(text for _, text in worse[:3])
    return [
        f"phases agree with the annotation less after stabilizing in {len(worse)} of {len(found)} videos (frame "
        f"accuracy: {named}{', ...' if len(worse) > 3 else ''}): look at their pictures before trusting the mean"
    ]


def harmed_classes(
    said: System,
    stabilized: System,
    truth_phases: Sequence[np.ndarray] | None,
    truth_tools: Sequence[np.ndarray] | None,
    phase_names: Sequence[str] | None,
    tool_names: Sequence[str] | None,
) -> list[str]:
    """Notices about phases and tools that are recognized worse than before, whatever the mean over them says.

    Args:
        said: the recognizer.
        stabilized: what the model made of it.
        truth_phases: for each video (n,) int labels, -1 unknown; or None.
        truth_tools: for each video (n, K) likewise.
        phase_names: (L,); None numbers them.
        tool_names: (K,); None numbers them.

    Returns:
        At most one notice for each track, with the three worst classes: strict Jaccard of phases, average precision of
        tools, both as in the table.
    """
    notices = []
    for track, truth, measure, names in (
        ("phases", truth_phases, metrics.jaccard, phase_names),
        ("tools", truth_tools, metrics.average_precision, tool_names),
    ):
        systems = [getattr(s, track) for s in (said, stabilized)]
        keep = [i for i, known in enumerate(truth or []) if (known >= 0).any()]
        if truth is None or not keep or any(s is None for s in systems):
            continue
        known = [truth[i] for i in keep]
        values = [[as_phases(s[i]) if track == "phases" else s[i] for i in keep] for s in systems]
        before, after = (measure(known, x, names=names) for x in values)
        then = dict(zip(after.class_names, after.per_class, strict=True))
        pairs = [
            (name, a, then.get(name, math.nan)) for name, a in zip(before.class_names, before.per_class, strict=True)
        ]
        worse = sorted((b - a, f"{name} {a:.3f} to {b:.3f}") for name, a, b in pairs if b - a < -HARMED)
        if worse:
            figure = "Jaccard" if track == "phases" else "average precision"
            named = ", ".join(text for _, text in worse[:3])
            total = sum(not math.isnan(x) for x in before.per_class)
            notices.append(
                f"{len(worse)} of {total} {track} got worse by stabilizing ({figure}: {named}"
                f"{', ...' if len(worse) > 3 else ''}; mean over {track} {before.value:.3f} to {after.value:.3f})"
            )
    return notices


def agreement(track: str, truth: np.ndarray, values: np.ndarray) -> float:
    """How well a system agrees with one video's annotation.

    Args:
        track: "phases" or "tools".
        truth: (n,) int labels, -1 unknown, or (n, K).
        values: labels or probabilities of the same frames.

    Returns:
        The share of labeled frames that are right for phases, macro F1 at 0.5 for tools; NaN without annotation.
    """
    if not (truth >= 0).any():
        return math.nan
    if track == "phases":
        known = truth >= 0
        return float((as_phases(values) == truth)[known].mean())
    return metrics.tool_f1([truth], [values]).value
