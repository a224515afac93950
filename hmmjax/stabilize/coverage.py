"""What partial annotations show of the classes: labels that stop early, or miss classes, say nothing about the rest."""

import numpy as np

from hmmjax.stabilize.examples import Examples, label_coverage

#: A class with fewer labeled runs than this is hardly shown. Chosen on TMRNet's videos 41-51 with labels of every 30th,
#: 120th, 300th and 600th second: tables that are counted from fewer do worse than no annotations at all.
FEW_RUNS = 5
#: Labels that end this many seconds before their video stop early.
EARLY = 60.0


def is_partial(examples: Examples, track: str) -> bool:
    """Return whether no video is labeled throughout, so that labels show neither the order nor the length of classes.

    Args:
        examples: the videos.
        track: "phases" or "tools".
    """
    return not label_coverage(examples, track)[1].any()


def shows_classes(examples: Examples, track: str, num_classes: int) -> bool:
    """Return whether single labels show every class often enough to count a recognizer's errors in them.

    Consecutive frames with the same label count once, because they resemble each other.

    Args:
        examples: the videos.
        track: "phases" or "tools"; of tools, presence and absence of each are the classes.
        num_classes: number of classes of a label: L of phases, 2 of tools.
    """
    labels = getattr(examples.labels, track)
    if labels is None:
        return False
    known = np.where(examples.mask.reshape(*examples.mask.shape, *[1] * (labels.ndim - 2)), labels, -1)
    before = np.concatenate([np.full_like(known[:, :1], -1), known[:, :-1]], 1)
    starts = np.where(known != before, known, -1)
    counts = (starts[..., None] == np.arange(num_classes)).sum((0, 1))
    return bool((counts >= FEW_RUNS).all())


def describe_missing(examples: Examples, num_phases: int, step_seconds: float) -> list[str]:
    """Say that annotations show too little of the phases to learn from, and what to annotate.

    Args:
        examples: the videos.
        num_phases: L.
        step_seconds: seconds per frame.

    Returns:
        At most one notice: none if some video is labeled throughout, if no phase is labeled, or if all phases are.
    """
    labels = examples.labels.phases
    if labels is None or not num_phases or not is_partial(examples, "phases"):
        return []
    known = (labels >= 0) & examples.mask
    missing = num_phases - len(np.unique(labels[known]))
    if not known.any() or not missing:
        return []
    length = examples.mask.shape[1]
    ends = [length - np.argmax(x[known.any(1), ::-1], axis=1) for x in (known, examples.mask)]
    stop = ""
    if ((ends[1] - ends[0]) * step_seconds >= EARLY).all():
        stop = f"stop at minute {ends[0].max() * step_seconds / 60:.0f} and "
    return [
        f"your annotations {stop}never show {missing} of {num_phases} phases: annotate whole videos, or sparse frames "
        "throughout"
    ]
