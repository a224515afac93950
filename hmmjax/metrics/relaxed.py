"""Phase evaluation with relaxed boundaries, as in the script of the M2CAI challenge and with its bug fixed.

Near a true boundary, some confusions count as correct: late transitions at the beginning of a true segment, early ones
at its end. The rules compare phase indices, so the metrics depend on the numbering of phases. The published script
(M2CAI 2016; included with SV-RCNet, TMRNet and others) applies the mask computed for the end of a segment to its
beginning (Funke et al. 2023, arXiv 2305.13961). "relaxed-official" reproduces this bug, "relaxed-fixed" does not.
"""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from hmmjax.io.names import resolve_names
from hmmjax.metrics.segments import segments
from hmmjax.metrics.videos import PHASES

Mode = Literal["strict", "relaxed-official", "relaxed-fixed"]

_SHORTEST_SURGERY = 300.0  # seconds; the shortest video of Cholec80 lasts 739


@dataclasses.dataclass(frozen=True)
class Rules:
    """The differences, predicted minus true phase index, that count as correct near boundaries.

    Attributes:
        name: the source of the rules.
        late: by phase, the differences accepted at the beginning of a true segment; other phases accept -1.
        early: by phase, the differences accepted at the end of a true segment; other phases accept +1.
        order: phase names in the numbering for which the rules were made; None if they apply to any numbering.
    """

    name: str
    late: Mapping[int, tuple[int, ...]]
    early: Mapping[int, tuple[int, ...]]
    order: tuple[str, ...] | None = None


_LATE, _EARLY = (-1, -2), (1, 2)
TMRNET = Rules("TMRNet", {5: _LATE, 6: _LATE}, {3: _EARLY, 4: _EARLY, 5: _EARLY, 6: _EARLY}, PHASES)
"""Cholec80, as in TMRNet and most later work."""
SVRCNET = Rules("SV-RCNet", {5: _LATE, 6: _LATE}, {3: _EARLY, 4: _EARLY}, PHASES)
"""Cholec80, as in SV-RCNet: phases 5 and 6 accept only +1 at the end of a segment."""
M2CAI16 = Rules(
    "M2CAI16", {6: _LATE, 7: _LATE}, {4: _EARLY, 5: _EARLY, 6: _EARLY, 7: _EARLY}, ("TrocarPlacement", *PHASES)
)
"""The challenge's eight phases."""


def forgiven(truth: np.ndarray, predicted: np.ndarray, window: int, rules: Rules, bug: bool) -> np.ndarray:
    """Return (n,) bool: frames that count as correct if boundaries are relaxed by `window` frames."""
    difference = np.asarray(predicted, np.int64) - truth
    for phase, start, end in segments(truth):
        part = difference[start:end]  # a view: assignments change `difference`
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
    """Raise ValueError if phase names are given and their order is not the one for which the rules were made."""

    def normalized(name: str) -> str:
        return "".join(c for c in name.lower() if c.isalnum())

    if names is None or rules.order is None:
        return
    names = resolve_names(names, "phases") or ()
    if [normalized(n) for n in names] != [normalized(n) for n in rules.order]:
        raise ValueError(
            f"the {rules.name} rules compare phase indices in the order {', '.join(rules.order)}, not "
            f"{', '.join(names)}: renumber the phases, or pass your own rules"
        )


def check_rows(lengths: Sequence[int], fps: float, frame_numbers: Any, video_fps: float) -> None:
    """Warn if `fps` is not the number of rows per second; raise ValueError if frame numbers do not increase.

    With one row per second and fps=25, the window of 10 seconds becomes 250, which raises Jaccard by more than ten
    points.
    """
    advice = "pass fps=rows per second (1 for one row per second)"
    if frame_numbers is not None:
        numbers = frame_numbers if isinstance(frame_numbers, list | tuple) else [frame_numbers]
        steps = [float(np.median(np.diff(n))) for n in numbers if len(n) > 1]
        if not all(step > 0 for step in steps):
            raise ValueError("frame_numbers do not increase within a video: pass the Frame column of each video's file")
        if steps and not np.isclose(video_fps / np.median(steps), fps):
            rate = video_fps / np.median(steps)
            warnings.warn(
                f"rows are {np.median(steps):g} video frames apart, which is {rate:g} rows per second at {video_fps:g} "
                f"fps, but fps={fps:g}: relaxed boundaries would be {10 * fps / rate:g} s wide instead of 10 s; "
                + advice,
                stacklevel=4,
            )
    elif fps > 1 and len(lengths) and np.mean(lengths) / fps < _SHORTEST_SURGERY:
        warnings.warn(
            f"with fps={fps:g} the videos would last {np.mean(lengths) / fps:.0f} s on average; with fewer rows per "
            f"second, relaxed metrics are too high: {advice}, or frame_numbers if fps is correct",
            stacklevel=4,
        )
