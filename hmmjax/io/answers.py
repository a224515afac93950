"""Read filled-in answer sheets of `hmmjax suggest`: partial labels of some frames, with or instead of annotations.

One row per frame with the columns video, frame, fps, second, why; then Phase (a name), one column per tool (0 or 1),
and for phases the names to choose from. Blank and "?" mean unknown.
"""

import csv
import io
import math
from collections.abc import Sequence

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.names import find_name, fold, resolve_names, unknown_name
from hmmjax.io.spec import Spec
from hmmjax.io.tracks import Layout, Track
from hmmjax.io.videos import video_id

#: The layout's name.
ANSWERS = "answers"
#: The columns of every file, the column of phases, and the column of phase names, which older files lack.
FIXED, PHASE, PHASES = ("video", "frame", "fps", "second", "why"), "Phase", "phases"
#: Separates the names in the last column.
BAR = " | "
_BLANK = ("", "?")


def is_answers(first_line: str) -> bool:
    """Whether a file starts with the header of an answer sheet."""
    return tuple(cell.strip() for cell in first_line.split(",")[: len(FIXED)]) == FIXED


def read_answers(file: str, text: str, spec: Spec) -> list[Track]:
    """Read tracks of labels, -1 for unknown, of the videos with any answer; `notices` count the open questions.

    Raises:
        FormatError: if a cell is not a valid answer, a frame or column is repeated, a phase is unknown, or the frame
            rate changes within a video; the message names the line.
    """
    if not spec.unknown:
        raise FormatError(
            "this is an answer sheet, not predictions", file=file, fix="pass it as annotations (--annotations)"
        )
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), restkey="")
        columns = tuple(reader.fieldnames or ())
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise FormatError(f"the file cannot be parsed ({error})", file=file, fix="save it as csv again") from None
    if columns[:3] != FIXED[:3]:
        raise FormatError(
            f"the first columns are not {', '.join(FIXED)}", file=file, line=1, fix="keep the header of the sheet"
        )
    folded = [fold(column) if column not in (PHASE, PHASES) else column for column in columns]
    if twice := [column for column, name in zip(columns, folded, strict=True) if folded.count(name) > 1]:
        raise FormatError(f"the column {twice[0]} is repeated", file=file, line=1, fix="keep one of them")
    tools = tuple(c for c in columns if c not in (*FIXED, PHASE, PHASES))
    phases: tuple[str, ...] = spec.names.get("phases") or ()
    answers: dict[str, list[tuple[int, float, int, np.ndarray]]] = {}
    seen: dict[tuple[str, int], int] = {}
    still_open: dict[str, int] = {}
    for line, row in rows:
        if "" in row or None in row.values():
            raise FormatError(
                f"the row does not have {len(columns)} cells", file=file, line=line, fix="restore the row"
            )
        video, frame, fps = _place(row, file, line)
        first = seen.setdefault((video, frame), line)
        if first != line:
            raise FormatError(
                f"frame {frame} of {video} is also on line {first}", file=file, line=line, fix="keep one of the rows"
            )
        if video in answers and fps != answers[video][0][1]:
            raise FormatError(
                f"fps is {fps:g} here, but {answers[video][0][1]:g} in earlier rows of {video}",
                file=file,
                line=line,
                fix="use one frame rate per video",
            )
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
        known = (values >= 0).reshape(len(rows), -1).any(1)
        if known.any():
            tracks.append(Track(video, track, frames[known], values[known], names, fps, layout, source, notices))
    return tracks


def _names(cell: str) -> tuple[str, ...]:
    return tuple(name for part in cell.split(BAR.strip()) if (name := part.strip()))


def _place(row: dict[str, str], file: str, line: int) -> tuple[str, int, float]:
    try:
        frame, fps = int(row["frame"]), float(row["fps"])
    except ValueError:
        raise FormatError(
            f"frame {row['frame']!r} or fps {row['fps']!r} is not a number", file=file, line=line, fix="restore the row"
        ) from None
    if not row["video"].strip() or not 0 <= frame < 2**63 or not 0 < fps < math.inf:
        raise FormatError(
            f"video {row['video']!r}, frame {frame} or fps {fps:g} is missing or out of range",
            file=file,
            line=line,
            fix="restore the row",
        )
    return video_id(row["video"].strip()), frame, fps


def _presence(cell: str, tool: str, file: str, line: int) -> int:
    text = cell.strip()
    if text in _BLANK:
        return -1
    if text not in ("0", "1"):
        raise FormatError(f"{tool} is {text!r}", file=file, line=line, fix="enter 1 or 0, or leave the cell blank")
    return int(text)


def _phase(cell: str, names: Sequence[str], file: str, line: int) -> int:
    text = cell.strip()
    if text in _BLANK:
        return -1
    if not names:
        raise FormatError(
            f"the phase is {text!r}, but the file does not list the phase names",
            file=file,
            line=line,
            fix="pass phase_names='cholec80' or a list",
        )
    found = find_name(text, names)
    if found is None:
        raise unknown_name(text, names, "phases", file=file, line=line)
    return found


def answers_spec(phase_names: str | Sequence[str]) -> Spec:
    """Return the options for reading an answer sheet by itself.

    Args:
        phase_names: names and order of the phases; empty to take those of the file.

    Returns:
        The options, as `hmmjax.io.read` would build them.
    """
    return Spec(names={"phases": resolve_names(phase_names or None, "phases")}, unknown=True)
