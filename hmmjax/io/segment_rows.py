"""The rows of tables of segments: with start and end, as events, or as the beginning of each phase."""

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from hmmjax.io.changes import are_changes
from hmmjax.io.columns import column_of, label_columns
from hmmjax.io.errors import FormatError
from hmmjax.io.segment_times import Row, Segment, Times, decimal_points, unit_of
from hmmjax.io.spec import Spec
from hmmjax.io.table import DELIMITERS, split_cells
from hmmjax.io.timecodes import CLOCK, WITH_FRAMES
from hmmjax.io.unread import check_unread
from hmmjax.io.videos import check_video_names, ids_of_paths, video_id

_FRAME_ROWS = re.compile(r"\d+[ \t]+\d+[ \t]+\S*[A-Za-z]\S*\s*")
_CLOCK_ROW = re.compile(rf"(?:{CLOCK}|{WITH_FRAMES})[ \t]+\S.*")
_ELAN_TIME = re.compile(r"\d+:\d{2}:\d{2}\.\d+")
_ELAN_ROW = re.compile(r"[^\t]*\t[^\t]*\t(?:[^\t]*\t)*?\d+:\d{2}:\d{2}\.\d+\t.*\d+:\d{2}:\d{2}\.\d+.*")
_STATES = ("status", "behaviortype")
"""Columns of BORIS that tell whether a row is a start or a stop."""


class Rows(NamedTuple):
    """The rows of a file.

    Attributes:
        segments: what they hold.
        unit: unit of the times, as in `Layout.times`.
        notices: messages for the user.
        per_frame: whether each row is one frame, rather than a segment or change.
    """

    segments: list[Segment]
    unit: str
    notices: list[str]
    per_frame: bool


def is_segments(first_line: str) -> bool:
    """Whether a file starts like a table of segments or of changes."""
    if _FRAME_ROWS.fullmatch(first_line) or _CLOCK_ROW.fullmatch(first_line) or _ELAN_ROW.fullmatch(first_line):
        return True
    roles = {column_of(cell).role for cell in split_cells(first_line, _delimiter(first_line))}
    events = "time" in roles and not roles.isdisjoint(_STATES)
    return "label" in roles and ("start" in roles or events or {"video", "frame"} <= roles)


def rows_of(file: str, text: str, spec: Spec) -> Rows:
    """Return the segments of a text file.

    Raises:
        FormatError: a row cannot be read, ends before it starts, comes too late, or the unit of time is unclear; names
            the line.
    """
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip(" \t,;")]
    first = lines[0][1]
    own, times = video_id(file), Times(file, text, spec)
    if _FRAME_ROWS.fullmatch(first):
        found = [_frame_row(times, own, i, line.rstrip()) for i, line in lines]
    elif _ELAN_ROW.fullmatch(first):
        found = [_elan_row(times, own, i, line) for i, line in lines]
    elif _CLOCK_ROW.fullmatch(first):
        found = [_clock_row(times, own, i, line) for i, line in lines]
    else:
        found = _table(times, own, lines, spec)
    _check_order(file, found)
    return Rows(found, times.unit, times.notices(), times.per_frame)


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


def _frame_row(times: Times, video: str, line: int, text: str) -> Segment:
    """Return a row of JIGSAWS: first frame, last frame, label."""
    cells = text.split()
    if not _FRAME_ROWS.fullmatch(text + " "):
        cause = f"{text!r} is not a start, an end and a label"
        raise FormatError(cause, file=times.file, line=line, fix="repair the row")
    begin, end = (times.read(line, cell, "frames") for cell in cells[:2])
    return Segment(video, begin, end, " ".join(cells[2:]), line)


def _elan_row(times: Times, video: str, line: int, text: str) -> Segment:
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


def _clock_row(times: Times, video: str, line: int, text: str) -> Segment:
    """Return the phase that begins at a timecode."""
    time, _, label = text.strip().replace("\t", " ").partition(" ")
    return Segment(video, times.read(line, time), None, label.strip(), line, 1.0)


# Tables with a header.


def _table(times: Times, own: str, lines: list[tuple[int, str]], spec: Spec) -> list[Segment]:
    delimiter = _delimiter(lines[0][1])
    titles = split_cells(lines[0][1], delimiter)
    head = [column_of(cell) for cell in titles]

    def find(*roles: str) -> int | None:
        known = [(column.rank, i) for i, column in enumerate(head) if column.role in roles]
        return min(known)[1] if known else None

    video, tier = find("video"), find("track", "tier")
    label, tool_columns = label_columns(titles, spec.track)
    rows = _rows(times.file, lines[1:], delimiter, len(head), label)
    if tools := [titles[i] for i in tool_columns if any(cells[i] for _, cells in rows)]:
        times.notes.append(
            f"{times.file}: {', '.join(map(repr, tools))} is not read, because {titles[label]!r} holds the labels; "
            "pass track='tools' to read the tools instead"
        )
    videos = [own] * len(rows)
    if video is not None:
        paths = [(line, cells[video]) for line, cells in rows]
        videos = ids_of_paths(times.file, paths)
        times.notes += check_video_names(times.file, paths, videos)
    if (time := find("time")) is not None and (state := find(*_STATES)) is not None:
        rows = decimal_points(times.file, rows, {time: "seconds"})
        return _events(
            times, [(i, v, c[time], c[label], c[state].upper()) for v, (i, c) in zip(videos, rows, strict=True)]
        )
    start, end, duration, frame = (find(role) for role in ("start", "end", "duration", "frame"))
    last = duration if end is None else end
    if start is None and frame is not None and last is not None:
        start, head = frame, [c._replace(unit="frames") if c.role == "frame" else c for c in head]
    known = frame if start is None else start
    assert known is not None
    found = []
    if start is None:
        found = [
            Segment(v, times.read(i, cells[known], "frames"), None, cells[label], i)
            for v, (i, cells) in zip(videos, rows, strict=True)
        ]
        times.per_frame = not are_changes(times, found, spec)
    by_video = [(v, *row) for v, row in zip(videos, rows, strict=True)]
    complete = last is not None or times.per_frame
    times.notes += check_unread(times.file, titles, head, by_video, known, ends=complete, fps=times.fps)
    if start is None:
        return [s._replace(end=s.start) for s in found] if times.per_frame else found
    units = {start: unit_of(times.file, titles, head, rows, start, last)}
    if last is not None:
        units[last] = unit_of(times.file, titles, head, rows, last, start)
    rows = decimal_points(times.file, rows, units)
    tiers = [""] * len(rows) if tier is None else [cells[tier] for _, cells in rows]
    in_frames = set(units.values()) == {"frames"}
    if not in_frames and "frames" in units.values():
        times.notes.append(f"{times.file}: frame numbers next to seconds are read at {times.counter_fps:g} per second")
    found = []
    for v, (line, cells), own_tier in zip(videos, rows, tiers, strict=True):
        begin, until = _span(times, line, cells, units, is_duration=end is None)
        found.append(Segment(v, begin, until, cells[label], line, None if in_frames else 1.0, own_tier))
    return found


def _rows(file: str, lines: list[tuple[int, str]], delimiter: str, width: int, label: int) -> list[Row]:
    """Return the rows of a table, each as long as its header."""
    rows = [(i, split_cells(line, delimiter)) for i, line in lines]
    if not rows:
        raise FormatError("the file has a header but no rows", file=file, fix="export it again, or leave it out")
    if delimiter == " " and label == width - 1:  # "0.0 9.5 Calot Triangle Dissection"
        rows = [(i, [*cells[:label], " ".join(cells[label:])]) for i, cells in rows]
    for i, cells in rows:
        if any(cells[width:]):
            raise FormatError(
                f"expected {width} columns as in the header, found {len(cells)}",
                file=file,
                line=i,
                fix="if commas are decimal, separate cells by semicolons or tabs, or write decimal points; if a label "
                "holds the separator, put it in quotes",
            )
    return [(i, (cells + [""] * width)[:width]) for i, cells in rows]


def _span(
    times: Times, line: int, cells: Sequence[str], units: dict[int, str], is_duration: bool
) -> tuple[float, float | None]:
    """Return the start and end of a row: in frames if both are, otherwise in seconds."""
    start, *rest = units
    begin = times.read(line, cells[start], units[start])
    in_frames = set(units.values()) == {"frames"}
    if units[start] == "frames" and not in_frames:
        begin /= times.counter_fps
    if not rest:
        return begin, None
    until = times.read(line, cells[rest[0]], units[rest[0]])
    if units[rest[0]] == "frames" and not in_frames:
        until = (until + (not is_duration)) / times.counter_fps  # the last frame is included
    return begin, until if not is_duration else begin + until - in_frames


def _events(times: Times, rows: list[tuple[int, str, str, str, str]]) -> list[Segment]:
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
