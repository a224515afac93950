"""Notices about tracks that were read, but may mean something else: numbering, rates, copies."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hmmjax.io.answers import ANSWERS
from hmmjax.io.errors import FormatError
from hmmjax.io.segments import SEGMENTS
from hmmjax.io.tracks import Track
from hmmjax.io.videos import natural

_COPIED = 25
"""Number of rows from which on two videos are not taken to be equal by chance."""
_ONE = "if they are one video, leave all but one of the files out, since each counts"
_SHORTEST_SURGERY = 600.0
"""Seconds; all videos of Cholec80 and M2CAI16 are longer."""


def doubts_of(tracks: Sequence[Track], *, fps: float | None, first_index: int) -> list[str]:
    """Return notices about rates and numbering that were not declared, and about copies of videos, over all files.

    Args:
        tracks: the tracks of all files.
        fps: the declared frames per second, None if not declared.
        first_index: the declared index of the first phase.
    """
    rates = _doubtful_rate(tracks) if fps is None else []
    return [*([] if first_index else _doubtful_index(tracks)), *rates, *_copies(tracks)]


def missing_outputs(tracks: Sequence[Track]) -> list[str]:
    """Return a notice about missing predictions of each kind; raise if all of a file are missing."""
    found: dict[str, list[tuple[int, int, str]]] = {}
    for track in tracks:
        missing = track.values < 0 if track.is_labels else np.isnan(track.values)
        if track.track == "phases" and missing.ndim == 2:
            missing = missing.any(-1)
        if missing.all():
            raise FormatError(
                f"all predicted {track.track} of {track.video} are missing (NaN or -1)",
                file=track.source,
                fix="export the file again, or leave it out",
            )
        found.setdefault(track.track, []).append((int(missing.sum()), missing.size, track.video))
    notices = []
    for kind, counts in found.items():
        own = [(n, video) for n, _, video in counts if n]
        if own:
            videos = f"{own[0][1]}{f' and {len(own) - 1} more' * (len(own) > 1)}"
            notices.append(
                f"{sum(n for n, _ in own):,} of {sum(size for _, size, _ in counts):,} predictions of {kind} are "
                f"missing (NaN or -1; {videos}): nothing is observed there, and the rest of each frame counts"
            )
    return notices


def _doubtful_index(tracks: Sequence[Track]) -> list[str]:
    """Return a notice if phases are stored as indices, and none is the first class."""
    own = [t for t in tracks if t.track == "phases" and t.is_labels and t.layout.spelling is None]
    own = [t for t in own if t.layout.format not in (ANSWERS, SEGMENTS) and (t.values >= 0).any()]
    own = [t for t in own if not t.layout.first_index]
    if not own or min(int(t.values[t.values >= 0].min()) for t in own) != 1:
        return []
    highest = max(int(t.values.max()) for t in own)
    return [
        f"{own[0].source}{' and others' * (len(own) > 1)}: no phase has the index 0, and the indices are 1 to "
        f"{highest}; if they are numbered from 1, pass first_index=1"
    ]


def _doubtful_rate(tracks: Sequence[Track]) -> list[str]:
    """Return a notice if 25 frames per second would make videos too short, or numbers seem to be milliseconds."""
    text = [t for t in tracks if t.layout.format in ("text", "csv") and t.fps == 25 and t.frames.size > 25]
    apart = [float(np.median(np.diff(t.frames))) for t in text]
    if text and all(x >= 1000 and x % 1000 == 0 for x in apart):
        return [
            f"{text[0].source}{' and others' * (len(text) > 1)}: rows are {apart[0]:,.0f} frames apart, "
            f"{apart[0] / 25:,.0f} s at 25 per second; if frame numbers count milliseconds, read these files with "
            "fps=1000"
        ]
    dense = [t for t in text if np.median(np.diff(t.frames)) == 1]
    if not dense or len(dense) < len(text):
        return []
    seconds = float(np.median([t.frames.size for t in dense])) / 25
    if seconds >= _SHORTEST_SURGERY:
        return []
    return [
        f"{dense[0].source}{' and others' * (len(dense) > 1)}: frames are numbered consecutively and read as 25 per "
        f"second, so that videos last {seconds:.0f} s; if frame numbers count seconds, read these files with fps=1"
    ]


def _copies(tracks: Sequence[Track]) -> list[str]:
    """Return notices about videos with the same rows, and about names that differ in case only."""
    rows: dict[tuple[str, bytes, bytes], list[str]] = {}
    names: dict[str, set[str]] = {}
    for track in tracks:
        names.setdefault(track.video.casefold(), set()).add(track.video)
        if track.layout.format != ANSWERS and track.frames.size >= _COPIED and (track.values != track.values[0]).any():
            key = (track.track, track.frames.tobytes(), track.values.tobytes())
            rows.setdefault(key, []).append(track.video)
    same = {(sorted(own, key=natural)[0], track): own for (track, *_), own in rows.items() if len(own) > 1}
    notices = [
        f"{' and '.join(sorted(own, key=natural)[:3])} have the same {track} in all rows: {_ONE}"
        for (_, track), own in same.items()
    ]
    cases = [sorted(own) for own in names.values() if len(own) > 1]
    return notices + [f"{' and '.join(own)} differ in upper and lower case only: {_ONE}" for own in cases]


def check_not_doubled(tracks: Sequence[Track]) -> None:
    """Raise FormatError if tables and arrays in one folder seem to hold the same videos under different names.

    Names of videos differ, so that each would count twice, but they end in the same numbers.

    Args:
        tracks: of different videos, or different tracks of the same ones.

    Raises:
        FormatError: naming the pairs of files.
    """
    kinds: dict[tuple[Path, str, str], dict[bool, Track]] = {}
    for track in tracks:
        number = re.search(r"(\d+)$", track.video)
        if number:
            folder, arrays = Path(track.source).parent, track.layout.format in ("npz", "npy")
            kinds.setdefault((folder, track.track, str(int(number[1]))), {}).setdefault(arrays, track)
    pairs = [(own[False], own[True]) for own in kinds.values() if len(own) == 2]
    if not pairs:
        return
    shown = [f"{Path(a.source).name} and {_array_of(b)}" for a, b in pairs[:3]]
    more = f" and {len(pairs) - 3} more pairs" if len(pairs) > 3 else ""
    table, arrays = Path(pairs[0][0].source), Path(pairs[0][1].source)
    raise FormatError(
        f"tables and arrays hold {pairs[0][0].track} of videos with the same numbers ({', '.join(shown)}{more}), which "
        "would count twice",
        file=table.parent,
        fix=f"pass one kind: {table.parent}/*{table.suffix} or {table.parent}/{arrays.name}; if they are different "
        "videos, put them into two folders",
    )


def _array_of(track: Track) -> str:
    """Return the name of a file of arrays, and of the array in it."""
    return Path(track.source).name + (f" [{track.layout.key}]" if track.layout.key else "")
