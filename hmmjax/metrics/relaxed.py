"""Phase evaluation with relaxed boundaries, as the M2CAI challenge's script does it and as it was meant.

Within `window` seconds of a true boundary some confusions are forgiven: late transitions at the beginning of a true
segment, early ones at its end. Forgiveness goes by distance between phase indices, so the figures depend on how phases
are numbered. The published script (M2CAI 2016; SV-RCNet, TMRNet and others carry it) applies the mask that it computes
on a segment's end to the segment's beginning (Funke et al. 2023, arXiv 2305.13961); "relaxed-official" reproduces this,
"relaxed-fixed" does not.
"""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hmmjax.metrics.videos import PHASES

Mode = Literal["strict", "relaxed-official", "relaxed-fixed"]

_SHORTEST_SURGERY = 300.0  # seconds; the shortest video of Cholec80 has 739


@dataclasses.dataclass(frozen=True)
class Rules:
    """Which differences, prediction minus truth, are forgiven.

    Attributes:
        name: where the rules come from.
        late: forgiven at the beginning of a true segment of a phase, where not only -1.
        early: forgiven at the end, where not only +1.
        order: names of the phases in the numbering the rules were made for; None when they fit any.
    """

    name: str
    late: Mapping[int, tuple[int, ...]]
    early: Mapping[int, tuple[int, ...]]
    order: tuple[str, ...] | None = None


_LATE, _EARLY = (-1, -2), (1, 2)
TMRNET = Rules("TMRNet", {5: _LATE, 6: _LATE}, {3: _EARLY, 4: _EARLY, 5: _EARLY, 6: _EARLY}, PHASES)
"""Cholec80, as in TMRNet and most later work."""
SVRCNET = Rules("SV-RCNet", {5: _LATE, 6: _LATE}, {3: _EARLY, 4: _EARLY}, PHASES)
"""Cholec80, as in SV-RCNet: one less forgiveness for the last two phases."""
M2CAI16 = Rules(
    "M2CAI16", {6: _LATE, 7: _LATE}, {4: _EARLY, 5: _EARLY, 6: _EARLY, 7: _EARLY}, ("TrocarPlacement", *PHASES)
)
"""The challenge's eight phases."""


def segments(labels: np.ndarray) -> list[tuple[int, int, int]]:
    """Runs of equal labels: (label, first frame, frame after the last)."""
    if not len(labels):
        return []
    cuts = np.flatnonzero(np.diff(labels)) + 1
    starts, ends = np.r_[0, cuts], np.r_[cuts, len(labels)]
    return [(int(labels[s]), int(s), int(e)) for s, e in zip(starts, ends, strict=True)]


def forgiven(truth: np.ndarray, predicted: np.ndarray, window: int, rules: Rules, bug: bool) -> np.ndarray:
    """Bool (n,): frames that count as right once boundaries are relaxed by `window` frames."""
    difference = np.asarray(predicted, np.int64) - truth
    for phase, start, end in segments(truth):
        part = difference[start:end]  # a view: what is set here is set in `difference`
        t = min(window, end - start)
        if t == 0:
            continue
        part[:t][np.isin(part[:t], rules.late.get(phase, (-1,)))] = 0
        early = np.isin(part[-t:], rules.early.get(phase, (1,)))
        if bug:
            part[:t][early] = 0
        else:
            part[-t:][early] = 0
    return difference == 0


def check_order(names: Sequence[str] | None, rules: Rules) -> None:
    """Raise ValueError when phases are named and their numbering is not the one the rules were made for."""

    def plain(name: str) -> str:
        return "".join(c for c in name.lower() if c.isalnum())

    if names is None or rules.order is None:
        return
    if [plain(n) for n in names] != [plain(n) for n in rules.order]:
        raise ValueError(
            f"relaxed metrics forgive by distance between phase indices, and the {rules.name} rules were made for the "
            f"order {', '.join(rules.order)}, not {', '.join(names)}: renumber the phases, or pass rules of your own"
        )


def check_rows(lengths: Sequence[int], fps: float, frame_numbers: Any, video_fps: float) -> None:
    """Warn when `fps` is not the number of rows per second; ValueError when frame numbers do not rise.

    With 1 fps rows and fps=25 the forgiven 10 seconds become 250, which lifts Jaccard by more than ten points.
    """
    advice = "pass fps=rows per second (1 for rows one second apart)"
    if frame_numbers is not None:
        numbers = frame_numbers if isinstance(frame_numbers, list | tuple) else [frame_numbers]
        steps = [float(np.median(np.diff(n))) for n in numbers if len(n) > 1]
        if not all(step > 0 for step in steps):
            raise ValueError("frame_numbers do not rise within a video: pass the files' Frame columns, one per video")
        if steps and not np.isclose(video_fps / np.median(steps), fps):
            rate = video_fps / np.median(steps)
            warnings.warn(
                f"rows are {np.median(steps):g} video frames apart, which is {rate:g} rows per second at {video_fps:g} "
                f"fps, but fps={fps:g}: relaxed boundaries would be {10 * fps / rate:g} s wide instead of 10 s; "
                + advice,
                stacklevel=3,
            )
    elif fps > 1 and len(lengths) and np.mean(lengths) / fps < _SHORTEST_SURGERY:
        warnings.warn(
            f"with fps={fps:g} the videos would last {np.mean(lengths) / fps:.0f} s on average, so these rows are "
            f"probably not {fps:g} per second and relaxed metrics would flatter: {advice}, or frame_numbers if right",
            stacklevel=3,
        )
