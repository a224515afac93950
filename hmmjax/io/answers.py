"""Answers to `hmmjax suggest`, filled in by a person: partial labels of some frames, beside or instead of annotations.

One row per frame: video, frame, fps, second, why; then Phase (a name), a column per tool (0 or 1), and for phases the
names to choose among. Blank and "?" are unknown.
"""

import csv
import io
import math
from collections.abc import Sequence

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.names import find_name, fold, resolve_names, unknown_name
from hmmjax.io.records import Layout, Track
from hmmjax.io.spec import Spec, video_id

#: The layout's name.
ANSWERS = "answers"
#: Columns of every file; of phases' answers; of the phases' names, which older files lack.
FIXED, PHASE, PHASES = ("video", "frame", "fps", "second", "why"), "Phase", "phases"
#: Between the names in the last column.
BAR = " | "
_BLANK = ("", "?")


def is_answers(first_line: str) -> bool:
    """Whether this is the header of a file that `hmmjax suggest` wrote."""
    return tuple(cell.strip() for cell in first_line.split(",")[: len(FIXED)]) == FIXED


def read_answers(file: str, text: str, spec: Spec) -> list[Track]:
    """Tracks of labels with -1 for unknown, for the videos with any answer; `notices` say what is still open.

    Raises:
        FormatError: naming the line of a cell that is no answer, of a repeated frame, of an unknown phase, of a frame
            rate other than the video's; a column that is there twice; phases that nobody names.
    """
    if not spec.unknown:
        raise FormatError(
            "these are a person's answers, not predictions", file=file, fix="give them as annotations (--annotations)"
        )
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), restkey="")
        columns = tuple(reader.fieldnames or ())
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise FormatError(f"the file cannot be read ({error})", file=file) from None
    if columns[:3] != FIXED[:3]:
        raise FormatError(f"the columns {', '.join(FIXED)}, ... expected", file=file, line=1)
    folded = [fold(column) if column not in (PHASE, PHASES) else column for column in columns]
    if twice := [column for column, name in zip(columns, folded, strict=True) if folded.count(name) > 1]:
        raise FormatError(f"the column {twice[0]} is there twice", file=file, line=1, fix="keep one")
    tools = tuple(c for c in columns if c not in (*FIXED, PHASE, PHASES))
    phases: tuple[str, ...] = spec.names.get("phases") or ()
    answers: dict[str, list[tuple[int, float, int, np.ndarray]]] = {}
    seen: dict[tuple[str, int], int] = {}
    still_open: dict[str, int] = {}
    for line, row in rows:
        if "" in row or None in row.values():
            raise FormatError(f"{len(columns)} cells expected", file=file, line=line)
        video, frame, fps = _place(row, file, line)
        first = seen.setdefault((video, frame), line)
        if first != line:
            raise FormatError(f"frame {frame} of {video} is also on line {first}", file=file, line=line)
        if video in answers and fps != answers[video][0][1]:
            raise FormatError(f"fps is {fps:g}, and {answers[video][0][1]:g} above", file=file, line=line)
        phases = phases or _names(row.get(PHASES, ""))
        phase = _phase(row.get(PHASE, ""), phases, file, line)
        present = np.array([_presence(row[tool], tool, file, line) for tool in tools], np.int32)
        still_open[video] = still_open.get(video, 0) + sum(cell.strip() == "?" for cell in row.values())
        answers.setdefault(video, []).append((frame, fps, phase, present))
    tracks = []
    for video, found in answers.items():
        notices = (f"{video}: {still_open[video]} question(s) still open",) if still_open[video] else ()
        for track in _tracks(video, sorted(found, key=lambda r: r[0]), tools, phases, file, notices):
            wanted = spec.names.get(track.track)
            if spec.track in (None, track.track):
                tracks.append(track if wanted is None else track.reorder(wanted))
    return tracks


def _tracks(
    video: str,
    rows: list[tuple[int, float, int, np.ndarray]],
    tools: tuple[str, ...],
    phases: tuple[str, ...],
    source: str,
    notices: tuple[str, ...],
) -> list[Track]:
    layout = Layout(format=ANSWERS, kind="labels", delimiter=",")
    frames = np.array([row[0] for row in rows], np.int64)
    fps = rows[0][1]
    tracks = []
    for track, values, names in (
        ("phases", np.array([row[2] for row in rows], np.int32), phases),
        ("tools", np.stack([row[3] for row in rows]), tools),
    ):
        told = (values >= 0).reshape(len(rows), -1).any(1)
        if told.any():
            tracks.append(Track(video, track, frames[told], values[told], names, fps, layout, source, notices))
    return tracks


def _names(cell: str) -> tuple[str, ...]:
    return tuple(name for part in cell.split(BAR.strip()) if (name := part.strip()))


def _place(row: dict[str, str], file: str, line: int) -> tuple[str, int, float]:
    try:
        frame, fps = int(row["frame"]), float(row["fps"])
    except ValueError:
        raise FormatError(f"frame {row['frame']!r} or fps {row['fps']!r} is no number", file=file, line=line) from None
    if not row["video"].strip() or not 0 <= frame < 2**63 or not 0 < fps < math.inf:
        raise FormatError("a row needs video, frame and fps", file=file, line=line)
    return video_id(row["video"].strip()), frame, fps


def _presence(cell: str, tool: str, file: str, line: int) -> int:
    text = cell.strip()
    if text in _BLANK:
        return -1
    if text not in ("0", "1"):
        raise FormatError(f"{tool} is {text!r}", file=file, line=line, fix="write 1, 0, or nothing when unsure")
    return int(text)


def _phase(cell: str, names: Sequence[str], file: str, line: int) -> int:
    text = cell.strip()
    if text in _BLANK:
        return -1
    if not names:
        raise FormatError(
            f"the phase {text!r}, and the file does not say which phases there are",
            file=file,
            line=line,
            fix="say phase_names='cholec80' or a list",
        )
    found = find_name(text, names)
    if found is None:
        raise unknown_name(text, names, "phases", file=file, line=line)
    return found


def answers_spec(phase_names: str | Sequence[str]) -> Spec:
    """How answers are read on their own.

    Args:
        phase_names: the phases' names and order; empty for what the file says.

    Returns:
        The declarations.
    """
    return Spec(names={"phases": resolve_names(phase_names or None, "phases")}, unknown=True)
