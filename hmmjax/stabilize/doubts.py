"""What looks wrong with the class names that somebody declared: files of indices cannot contradict them."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from hmmjax.io import Track
from hmmjax.stabilize.table import System

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
