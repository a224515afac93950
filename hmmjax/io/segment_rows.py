"""The rows of tables of segments: with start and end, as events, or as the beginning of each phase."""

import csv
import itertools
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from hmmjax.io.errors import FormatError
from hmmjax.io.names import fold
from hmmjax.io.spec import Spec
from hmmjax.io.videos import video_id

_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:[.,]\d+)?)")
_FRAME_ROWS = re.compile(r"\d+[ \t]+\d+[ \t]+\S*[A-Za-z]\S*\s*")
_CLOCK_ROW = re.compile(r"(?:\d+:)?\d{1,2}:\d{2}(?:[.,]\d+)?[ \t]+\S.*")
_ELAN_ROW = re.compile(r"[^\t]*\t[^\t]*\t(?:[^\t]*\t)*?\d+:\d{2}:\d{2}\.\d+\t.*\d+:\d{2}:\d{2}\.\d+.*")

_VIDEO = ("video", "videoid", "videoname", "mediafilepath", "mediafilename", "mediafile", "file", "filename", "case")
_LABEL = ("label", "phase", "phases", "name", "annotation", "behavior", "step", "class", "gesture", "value", "category")
_START = ("start", "begin", "begintime", "starttime", "onset", "startframe", "beginframe", "startseconds", "from")
_END = ("end", "stop", "endtime", "stoptime", "offset", "endframe", "stopframe", "endseconds", "to")
_FRAME = ("frameno", "framenumber", "frame", "frameid")
_UNITS = (("ms", 1e-3), ("msec", 1e-3), ("milliseconds", 1e-3), ("sec", 1.0), ("seconds", 1.0), ("s", 1.0))


class Segment(NamedTuple):
    """One segment: seconds, or frames if `fps` is None in its table; `end` None lasts until the next one."""

    video: str
    start: float
    end: float | None
    label: str
    line: int
    fps: float | None = None


def is_segments(first_line: str) -> bool:
    """Whether a file starts like a table of segments or of changes."""
    if _FRAME_ROWS.fullmatch(first_line) or _CLOCK_ROW.fullmatch(first_line) or _ELAN_ROW.fullmatch(first_line):
        return True
    head = [_column(cell)[0] for cell in _split(first_line)]
    spans = any(c in _START for c in head) and any(c in _END for c in head)
    events = {"time", "behavior", "status"} <= set(head)
    changes = any(c in _VIDEO for c in head) and any(c in _FRAME for c in head)
    return (spans or events or changes) and any(c in _LABEL for c in head)


def rows_of(file: str, text: str, spec: Spec) -> list[Segment]:
    """Return the segments of a text file.

    Raises:
        FormatError: a row cannot be read, ends before it starts, or the unit of time is unclear; names the line.
    """
    lines = [(i, line.rstrip()) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    first = lines[0][1]
    own = video_id(file)
    if _FRAME_ROWS.fullmatch(first):
        found = [_frame_row(file, own, i, line) for i, line in lines]
    elif _ELAN_ROW.fullmatch(first):
        found = [_elan_row(file, own, i, line) for i, line in lines]
    elif _CLOCK_ROW.fullmatch(first):
        found = [_clock_row(file, own, i, line) for i, line in lines]
    else:
        found = _table(file, own, lines, spec)
    return found


def check_times(file: str, segment: Segment) -> None:
    """Raise FormatError unless a segment's times are finite and in order."""
    start, end = segment.start, segment.end
    if not math.isfinite(start) or start < 0 or (end is not None and not math.isfinite(end)):
        raise FormatError(
            f"the segment {segment.label!r} has no valid time ({start:g} to {end})",
            file=file,
            line=segment.line,
            fix="write start and end as numbers from 0 on",
        )
    if end is not None and end < start:
        raise FormatError(
            f"the segment {segment.label!r} ends at {end:g}, before it starts at {start:g}",
            file=file,
            line=segment.line,
            fix="correct start or end",
        )


# Rows without a header.


def _frame_row(file: str, video: str, line: int, text: str) -> Segment:
    """Return a row of JIGSAWS: first frame, last frame, label."""
    cells = text.split()
    if not _FRAME_ROWS.fullmatch(text + " "):
        raise FormatError(f"{text!r} is not a start, an end and a label", file=file, line=line, fix="repair the row")
    return Segment(video, int(cells[0]), int(cells[1]), " ".join(cells[2:]), line)


def _elan_row(file: str, video: str, line: int, text: str) -> Segment:
    """ELAN's tab-delimited export: the first two timecodes are begin and end, the last cell the annotation."""
    cells = text.split("\t")
    times = [seconds for cell in cells if re.fullmatch(r"\d+:\d{2}:\d{2}\.\d+", cell) for seconds in [clock(cell)]]
    if len(times) < 2:
        raise FormatError("the row has no begin and end", file=file, line=line, fix="export hh:mm:ss.ms of both")
    return Segment(video, times[0], times[1], cells[-1].strip(), line, 1.0)


def _clock_row(file: str, video: str, line: int, text: str) -> Segment:
    """Return the phase that begins at a timecode."""
    time, _, label = text.strip().replace("\t", " ").partition(" ")
    return Segment(video, _time(file, line, time, ""), None, label.strip(), line, 1.0)


# Tables with a header.


def _table(file: str, own: str, lines: list[tuple[int, str]], spec: Spec) -> list[Segment]:
    head = [_column(cell) for cell in _split(lines[0][1])]
    names = [name for name, _ in head]

    def find(known: Sequence[str]) -> int | None:
        return next((i for name in known for i, other in enumerate(names) if other == name), None)

    rows = []
    for i, line in lines[1:]:
        cells = [cell.strip() for cell in _split(line)]
        if len(cells) < len(names):
            cells += [""] * (len(names) - len(cells))
        rows.append((i, cells))
    if not rows:
        raise FormatError("the file has a header but no rows", file=file, fix="export it again, or leave it out")
    video, label = find(_VIDEO), find(_LABEL)
    assert label is not None

    def of(cells: Sequence[str]) -> str:
        return own if video is None else video_id(re.sub(r"\.\w{2,4}$", "", re.split(r"[/\\]", cells[video])[-1]))

    if {"time", "behavior", "status"} <= set(names):
        return _events(file, rows, names, of)
    if (start := find(_START)) is not None and (end := find(_END)) is not None:
        times = [cell for _, cells in rows for cell in (cells[start], cells[end])]
        unit = _unit(file, names[start], head[start][1], times)
        return [
            Segment(
                of(cells),
                _time(file, i, cells[start], unit),
                _time(file, i, cells[end], unit),
                cells[label],
                i,
                None if unit == "frames" else 1.0,
            )
            for i, cells in rows
        ]
    frame = find(_FRAME)
    assert frame is not None
    found = [Segment(of(cells), _time(file, i, cells[frame], "frames"), None, cells[label], i) for i, cells in rows]
    if not _are_changes(found):
        # One row per frame: each lasts for the distance to the next.
        found = [s._replace(end=s.start) for s in found]
    return found


def _are_changes(found: Sequence[Segment]) -> bool:
    """Whether every row of a video has another label than the row before."""
    return all(a.label != b.label for a, b in itertools.pairwise(found) if a.video == b.video)


def _events(file: str, rows: list[tuple[int, list[str]]], names: list[str], of: object) -> list[Segment]:
    """BORIS: a row at the start and one at the stop of each behavior."""
    time, label, status = (names.index(name) for name in ("time", "behavior", "status"))
    running: dict[tuple[str, str], tuple[float, int]] = {}
    out = []
    for i, cells in rows:
        key, at = (of(cells), cells[label]), _time(file, i, cells[time], "seconds")  # type: ignore[operator]
        state = cells[status].upper()
        if state == "START" and key in running:
            raise FormatError(
                f"{cells[label]!r} starts again, without a stop since line {running[key][1]}",
                file=file,
                line=i,
                fix="add the stop",
            )
        if state == "START":
            running[key] = (at, i)
        elif state == "STOP" and key in running:
            out.append(Segment(key[0], running.pop(key)[0], at, key[1], i, 1.0))
        else:
            raise FormatError(f"status {cells[status]!r} has no start", file=file, line=i, fix="export state events")
    out += [Segment(video, at, None, name, i, 1.0) for (video, name), (at, i) in running.items()]
    return out


def _split(line: str) -> list[str]:
    delimiter = next((d for d in ("\t", ";", ",") if d in line), " ")
    return next(csv.reader([line.strip("\r\n")], delimiter=delimiter))


def _column(cell: str) -> tuple[str, str]:
    """Return a column's name in one spelling, without its unit, and the unit: "seconds", "ms", "frames" or ""."""
    name = fold(re.sub(r"[()\[\].]", "_", cell.strip()))
    for suffix, scale in sorted(_UNITS, key=lambda u: -len(u[0])):
        if name.endswith(suffix) and name[: -len(suffix)] in (*_START, *_END):
            return name[: -len(suffix)], "ms" if scale < 1 else "seconds"
    return name, "frames" if name.endswith("frame") else ""


def _unit(file: str, name: str, unit: str, cells: Sequence[str]) -> str:
    if unit:
        return unit
    if any(":" in cell or re.search(r"[.,]\d", cell) for cell in cells):
        return "seconds"
    raise FormatError(
        f"the column {name!r} does not tell its unit",
        file=file,
        line=1,
        fix=f"rename it {name}_seconds, {name}_ms or {name}_frame",
    )


def _time(file: str, line: int, cell: str, unit: str) -> float:
    """Return a time in seconds, or a frame number if the unit is frames."""
    try:
        if ":" in cell:
            return clock(cell)
        return float(cell.replace(",", ".")) * (1e-3 if unit == "ms" else 1.0)
    except ValueError:
        raise FormatError(
            f"{cell!r} is not a time", file=file, line=line, fix="write seconds, hh:mm:ss or frame numbers"
        ) from None


def clock(text: str) -> float:
    """Return the seconds of a timecode, hh:mm:ss.ms or mm:ss.

    Raises:
        ValueError: the text is not a timecode.
    """
    match = _CLOCK.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a timecode; write hh:mm:ss")
    return 3600 * int(match[1] or 0) + 60 * int(match[2]) + float(match[3].replace(",", "."))
