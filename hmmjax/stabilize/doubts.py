"""What the figures' means do not show: class names that fit the files badly, and videos that come out worse."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from hmmjax.io import Track
from hmmjax.stabilize.table import System

#: A video whose phases agree so much less with the annotation has been harmed, not rounded.
HARMED = 0.01
#: An exchange of two classes that would make so many more of the frames right is no accident.
SUSPICIOUS = 0.05


def class_doubts(
    said: System, truth: Sequence[np.ndarray] | None, names: Sequence[str] | None, tracks: Sequence[Track]
) -> list[str]:
    """Notices about names of phases that fit the files badly.

    Args:
        said: the recogniser.
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
    said: System, stabilised: System, truth: Sequence[np.ndarray] | None, ids: Sequence[str]
) -> list[str]:
    """A notice about videos whose phases agree less with the annotation than before.

    Args:
        said: the recogniser.
        stabilised: what the model made of it.
        truth: for each video (n,) int labels, -1 unknown; or None.
        ids: the videos' names.

    Returns:
        None or one notice, with the three worst videos and their frame accuracies.
    """
    if truth is None or said.phases is None or stabilised.phases is None:
        return []
    found = []
    for name, known, *both in zip(ids, truth, said.phase_labels(), stabilised.phase_labels(), strict=True):
        scored = known >= 0
        if scored.any():
            before, after = (float((labels == known)[scored].mean()) for labels in both)
            found.append((after - before, f"{name} {before:.3f} to {after:.3f}"))
    worse = sorted(x for x in found if x[0] < -HARMED)
    if not worse:
        return []
    named = ", ".join(text for _, text in worse[:3])
    return [
        f"phases agree with the annotation less after stabilising in {len(worse)} of {len(found)} videos (frame "
        f"accuracy: {named}{', ...' if len(worse) > 3 else ''}): look at their pictures before trusting the mean"
    ]
