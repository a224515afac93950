"""Tell whether the rows of a table are one per frame, or changes of phase, each of which lasts until the next row."""

import itertools
from collections.abc import Sequence

from hmmjax.io.errors import FormatError
from hmmjax.io.names import fold
from hmmjax.io.segment_times import Segment, Times
from hmmjax.io.spec import Spec

CHANGE_SECONDS = 10.0
"""Median distance from which on rows with frame numbers are taken for changes of phase."""


def are_changes(times: Times, found: Sequence[Segment], spec: Spec) -> bool:
    """Return whether each row lasts until the next one: as declared, or if every row of a video has another label.

    Args:
        times: the times of the file.
        found: its rows, in any order; those of several videos may alternate.
        spec: the options of the call.

    Raises:
        FormatError: it is unclear, as most rows begin another phase, or are far apart, but not all do.
    """
    if spec.rows != "auto":
        return spec.rows == "changes"
    videos: dict[str, list[Segment]] = {}
    for row in sorted(found, key=lambda row: row.start):
        videos.setdefault(row.video, []).append(row)
    pairs = [pair for own in videos.values() for pair in itertools.pairwise(own)]
    same = [b for a, b in pairs if fold(a.label) == fold(b.label)]
    if not same:
        return True
    apart = sorted(b.start - a.start for a, b in pairs)[len(pairs) // 2] / times.counter_fps
    if apart >= CHANGE_SECONDS or 2 * len(same) < len(pairs):
        repeated = min(same, key=lambda row: row.line)
        raise FormatError(
            f"{len(pairs) - len(same)} of {len(pairs)} rows begin another phase, and rows are {apart:,.1f} s apart: "
            f"these may be changes of phase or one row per frame ({repeated.label!r} is repeated)",
            file=times.file,
            line=repeated.line,
            fix="pass rows='changes' if each phase lasts until the next row, or rows='frames'",
        )
    return False
