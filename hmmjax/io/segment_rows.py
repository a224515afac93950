"""The rows of tables of segments: with start and end, as events, or as the beginning of each phase."""

import itertools
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from hmmjax.io.columns import Column, column_of
from hmmjax.io.errors import FormatError
from hmmjax.io.spec import Spec
from hmmjax.io.table import DELIMITERS, split_cells
from hmmjax.io.timecodes import CLOCK, WITH_FRAMES, Reading, clock, has_frames
from hmmjax.io.unread import check_unread
from hmmjax.io.videos import video_id

_FRAME_ROWS = re.compile(r"\d+[ \t]+\d+[ \t]+\S*[A-Za-z]\S*\s*")
_CLOCK_ROW = re.compile(rf"(?:{CLOCK}|{WITH_FRAMES})[ \t]+\S.*")
_ELAN_TIME = re.compile(r"\d+:\d{2}:\d{2}\.\d+")
_ELAN_ROW = re.compile(r"[^\t]*\t[^\t]*\t(?:[^\t]*\t)*?\d+:\d{2}:\d{2}\.\d+\t.*\d+:\d{2}:\d{2}\.\d+.*")
_STATES = ("status", "behaviortype")
"""Columns of BORIS that tell whether a row is a start or a stop."""


class Segment(NamedTuple):
    """One segment: seconds, or frames if `fps` is None in its table; `end` None lasts until the next one.

    A blank label of the tier of tools tells that all tools are known.
    """

    video: str
    start: float
    end: float | None
    label: str
    line: int
    fps: float | None = None
    tier: str = ""


def is_segments(first_line: str) -> bool:
    """Whether a file starts like a table of segments or of changes."""
    if _FRAME_ROWS.fullmatch(first_line) or _CLOCK_ROW.fullmatch(first_line) or _ELAN_ROW.fullmatch(first_line):
        return True
    roles = {column_of(cell).role for cell in split_cells(first_line, _delimiter(first_line))}
    events = "time" in roles and not roles.isdisjoint(_STATES)
    return "label" in roles and ("start" in roles or events or {"video", "frame"} <= roles)


def rows_of(file: str, text: str, spec: Spec) -> tuple[list[Segment], list[str]]:
    """Return the segments of a text file, and notices.

    Raises:
        FormatError: a row cannot be read, ends before it starts, comes too late, or the unit of time is unclear; names
            the line.
    """
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip(" \t,;")]
    first = lines[0][1]
    own, times = video_id(file), _Times(file, spec.fps)
    if _FRAME_ROWS.fullmatch(first):
        found = [_frame_row(file, own, i, line.rstrip()) for i, line in lines]
    elif _ELAN_ROW.fullmatch(first):
        found = [_elan_row(times, own, i, line) for i, line in lines]
    elif _CLOCK_ROW.fullmatch(first):
        found = [_clock_row(times, own, i, line) for i, line in lines]
    else:
        found = _table(times, own, lines)
    _check_order(file, found)
    return found, times.notices()


class _Times:
    """The times of a file, in seconds or frames, and how its timecodes were read."""

    def __init__(self, file: str, fps: float | None) -> None:
        self.file = file
        self.fps = fps
        self.unread: list[str] = []
        self._readings: list[Reading] = []

    def read(self, line: int, cell: str, unit: str = "") -> float:
        """Return a time in seconds, or a frame number if the unit is frames."""
        try:
            if ":" in cell:
                seconds, reading = clock(cell, self.fps)
                if reading is not None and reading not in self._readings:
                    self._readings.append(reading)
                return seconds
            return float(cell.replace(",", ".")) * (1e-3 if unit == "ms" else 1.0)
        except ValueError as error:
            cause, _, fix = str(error).rpartition("; ") if has_frames(cell) else (f"{cell!r} is not a time", "", "")
            raise FormatError(
                cause, file=self.file, line=line, fix=fix or "write seconds, hh:mm:ss or frame numbers"
            ) from None

    def notices(self) -> list[str]:
        """Return how timecodes with frame numbers were read, and which columns were not."""
        if len({reading.drops for reading in self._readings}) > 1:
            raise FormatError(
                "some timecodes are hh:mm:ss:ff, others hh:mm:ss;ff", file=self.file, fix="write all of them alike"
            )
        return [*self.unread, *(reading.note(self.file) for reading in self._readings)]


def _check_order(file: str, found: Sequence[Segment]) -> None:
    """Raise FormatError if rows that last until the next one are out of order.

    Segments with an end of their own may come in any order.
    """
    last: dict[str, Segment] = {}
    for segment in (s for s in found if s.end is None):
        before = last.get(segment.video)
        if before is not None and segment.start < before.start:
            raise FormatError(
                f"{segment.label!r} begins at {segment.start:g}, before {before.label!r} on line {before.line}, at "
                f"{before.start:g}; each of them lasts until the next row",
                file=file,
                line=segment.line,
                fix="sort the rows by time, or add a column of ends",
            )
        if before is not None and segment.start == before.start and segment.label != before.label:
            raise FormatError(
                f"{segment.label!r} begins with {before.label!r} on line {before.line}",
                file=file,
                line=segment.line,
                fix="correct the time of one of them",
            )
        last[segment.video] = segment


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


def _elan_row(times: _Times, video: str, line: int, text: str) -> Segment:
    """ELAN's tab-delimited export: the first two timecodes are begin and end, the last cell the annotation."""
    cells = [cell.strip() for cell in text.split("\t")]
    found = [times.read(line, cell) for cell in cells if _ELAN_TIME.fullmatch(cell)]
    if len(found) < 2:
        raise FormatError("the row has no begin and end", file=times.file, line=line, fix="export hh:mm:ss.ms of both")
    label = cells[-1]
    if not label:  # a blank annotation, or a delimiter after the last cell
        before = next((cell for cell in reversed(cells) if cell), "")
        label = "" if re.fullmatch(r"[\d:.,]+", before) else before
    return Segment(video, found[0], found[1], label, line, 1.0, cells[0])


def _clock_row(times: _Times, video: str, line: int, text: str) -> Segment:
    """Return the phase that begins at a timecode."""
    time, _, label = text.strip().replace("\t", " ").partition(" ")
    return Segment(video, times.read(line, time), None, label.strip(), line, 1.0)


# Tables with a header.


def _table(times: _Times, own: str, lines: list[tuple[int, str]]) -> list[Segment]:
    delimiter = _delimiter(lines[0][1])
    titles = split_cells(lines[0][1], delimiter)
    head = [column_of(cell) for cell in titles]

    def find(*roles: str) -> int | None:
        known = [(column.rank, i) for i, column in enumerate(head) if column.role in roles]
        return min(known)[1] if known else None

    rows = [(i, split_cells(line, delimiter)) for i, line in lines[1:]]
    rows = [(i, cells + [""] * (len(head) - len(cells))) for i, cells in rows]
    if not rows:
        raise FormatError("the file has a header but no rows", file=times.file, fix="export it again, or leave it out")
    video, label, tier = find("video"), find("label"), find("track", "tier")
    assert label is not None

    def of(cells: Sequence[str]) -> str:
        return own if video is None else video_id(re.sub(r"\.\w{2,4}$", "", re.split(r"[/\\]", cells[video])[-1]))

    if (time := find("time")) is not None and (state := find(*_STATES)) is not None:
        return _events(times, [(i, of(c), c[time], c[label], c[state].upper()) for i, c in rows])
    start, end, duration, frame = (find(role) for role in ("start", "end", "duration", "frame"))
    last = duration if end is None else end
    if start is None and frame is not None and last is not None:
        start, head = frame, [c._replace(unit="frames") if c.role == "frame" else c for c in head]
    known = frame if start is None else start
    assert known is not None
    times.unread = check_unread(times.file, titles, head, rows, known, ends=last is not None, fps=times.fps)
    if start is None:
        assert frame is not None
        found = [Segment(of(cells), times.read(i, cells[frame]), None, cells[label], i) for i, cells in rows]
        # One row per frame: each lasts for the distance to the next.
        return found if _are_changes(found) else [s._replace(end=s.start) for s in found]
    units = [_unit(times.file, titles, head, rows, column, other) for column, other in ((start, last), (last, start))]
    fps = None if units[0] == "frames" else 1.0

    def segment(line: int, cells: Sequence[str]) -> Segment:
        begin = times.read(line, cells[start], units[0])
        until = None if last is None else times.read(line, cells[last], units[1])
        if end is None and until is not None:
            until += begin - (fps is None)  # of frames, the last one is included
        return Segment(of(cells), begin, until, cells[label], line, fps, "" if tier is None else cells[tier])

    return [segment(i, cells) for i, cells in rows]


def _are_changes(found: Sequence[Segment]) -> bool:
    """Whether every row of a video has another label than the row before."""
    return all(a.label != b.label for a, b in itertools.pairwise(found) if a.video == b.video)


def _events(times: _Times, rows: list[tuple[int, str, str, str, str]]) -> list[Segment]:
    """BORIS: a row (line, video, time, label, status) at the start and one at the stop of each behavior."""
    running: dict[tuple[str, str], tuple[float, int]] = {}
    out = []
    for line, video, time, label, status in rows:
        key, at = (video, label), times.read(line, time)
        if status == "START" and key in running:
            raise FormatError(
                f"{label!r} starts again, without a stop since line {running[key][1]}",
                file=times.file,
                line=line,
                fix="add the stop",
            )
        if status == "START":
            running[key] = (at, line)
        elif status == "STOP" and key in running:
            out.append(Segment(video, running.pop(key)[0], at, label, line, 1.0))
        else:
            raise FormatError(f"status {status!r} has no start", file=times.file, line=line, fix="export state events")
    out += [Segment(video, at, None, name, i, 1.0) for (video, name), (at, i) in running.items()]
    return out


def _delimiter(line: str) -> str:
    return next((d for d in DELIMITERS if d in line), " ")


def _unit(
    file: str,
    titles: Sequence[str],
    head: Sequence[Column],
    rows: Sequence[tuple[int, list[str]]],
    column: int | None,
    other: int | None,
) -> str:
    """Return the unit of a column of times: by its name, that of the other one, or how its cells are written."""
    columns = [c for c in (column, other) if c is not None]
    unit = next((head[c].unit for c in columns if head[c].unit), "")
    cells = [row[c] for _, row in rows for c in columns]
    if unit or any(":" in cell or re.search(r"[.,]\d", cell) for cell in cells):
        return unit or "seconds"
    name = titles[columns[0]]
    raise FormatError(
        f"the column {name!r} does not tell its unit",
        file=file,
        line=1,
        fix=f"rename it {name}_seconds, {name}_ms or {name}_frame",
    )
