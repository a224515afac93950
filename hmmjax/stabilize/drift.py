"""Warnings that need no annotations: states that are not the recognizer's classes, and phases that vanish."""

from collections.abc import Sequence

import numpy as np

from hmmjax.agreement import agreement
from hmmjax.metrics.segments import segments
from hmmjax.stabilize.systems import System

#: A phase that the recognizer's labels hold for this many seconds in a video should not vanish without notice.
LONG_ENOUGH = 10.0


def drifted_states(
    outputs: System, stabilized: System, names: Sequence[str] | None, truth: Sequence[np.ndarray] | None = None
) -> list[str]:
    """Warn if stabilized phases are mostly not what the recognizer predicts.

    Args:
        outputs: the recognizer.
        stabilized: the stabilized predictions.
        names: (L,) phase names; or None to number them.
        truth: for each video (n,) int labels, -1 for unlabeled; or None. Where every video has labels, the advice is
            not to annotate some.

    Returns:
        At most one warning.
    """
    raw, kept = outputs.phases, stabilized.phases
    if raw is None or not kept or not _are_states(outputs, kept):
        return []
    found = agreement(list(kept), list(raw), kept[0].shape[-1]).describe(names)
    advice = "compare the pictures with the raw predictions"
    if truth is None or not all((labels >= 0).any() for labels in truth):
        advice = (
            "without enough labels a model may learn other states than these phases: "
            f"{advice}, and annotate {'some' if truth is None else 'more'} videos"
        )
    return [f"{text}. {advice[0].upper()}{advice[1:]}" for text in found]


def _are_states(outputs: System, kept: Sequence[np.ndarray]) -> bool:
    """Whether all phases that the recognizer predicts are states of the model."""
    return all(x.max(initial=0) < kept[0].shape[-1] for x in outputs.phase_labels())


def vanished_phases(
    outputs: System, stabilized: System, names: Sequence[str] | None, ids: Sequence[str], step_seconds: float
) -> list[str]:
    """Warn about phases that the recognizer's labels hold for a while in a video, but stabilized predictions lack.

    Args:
        outputs: the recognizer.
        stabilized: the stabilized predictions.
        names: (L,) phase names; or None to number them.
        ids: names of the videos.
        step_seconds: seconds per frame.

    Returns:
        At most one warning, with the three longest runs.
    """
    if outputs.phases is None or not stabilized.phases or not _are_states(outputs, stabilized.phases):
        return []
    found = []
    for video, raw, kept in zip(ids, outputs.phase_labels(), stabilized.phase_labels(), strict=True):
        longest: dict[int, float] = {}
        for phase, start, end in segments(raw):
            if phase >= 0:
                longest[phase] = max(longest.get(phase, 0.0), (end - start) * step_seconds)
        for phase, seconds in longest.items():
            if seconds >= LONG_ENOUGH and not (kept == phase).any():
                name = str(phase) if names is None else names[phase]
                frames = float((raw == phase).sum()) * step_seconds
                instead = int(np.bincount(kept[(raw == phase) & (kept >= 0)], minlength=1).argmax())
                other = str(instead) if names is None else names[instead]
                where = f"{name} in {video} ({frames:.0f} s, at most {seconds:.0f} s in a row; now {other})"
                found.append((-seconds, where))
    if not found:
        return []
    shown = "; ".join(text for _, text in sorted(found)[:3]) + ("; ..." if len(found) > 3 else "")
    return [
        f"phases that the recognizer predicts for {LONG_ENOUGH:g} s or more are missing from a video after stabilizing "
        f"({len(found)}): {shown}. The model holds a change there and back for less probable than errors of the "
        "recognizer: check these videos, and try --durations if such phases are real"
    ]
