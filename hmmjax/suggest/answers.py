"""The file that a person fills in, and reading it back as partial labels.

One row per frame: video, frame, fps, second, why; then Phase (a name) and a column per tool (0 or 1). A "?" marks what
is asked; every other cell may be filled in as well, and whatever is left blank or "?" stays unknown.
"""

import csv
import math
import os
from collections.abc import Sequence

import numpy as np

from hmmjax.io import FormatError, Layout, Track, atomic, natural, video_id
from hmmjax.io.names import find_name, unknown_name
from hmmjax.suggest.ranking import Suggestion

_FIXED = ("video", "frame", "fps", "second", "why")
_PHASE = "Phase"
_BLANK = ("", "?")

PathLike = str | os.PathLike[str]


def write_answers(path: PathLike, suggestions: Sequence[Suggestion], *, force: bool = False) -> None:
    """Write the file to fill in, a row for each frame.

    Args:
        path: the file.
        suggestions: from `rank`.
        force: overwrite.

    Raises:
        FileExistsError: when it exists and `force` is False; somebody may have filled it in.
    """
    tools = next((s.names for s in suggestions if s.track == "tools"), ())
    phases = any(s.track == "phases" for s in suggestions)
    columns = (*_FIXED, *([_PHASE] if phases else []), *tools)
    rows: dict[tuple[str, int], dict[str, str]] = {}
    for s in suggestions:
        start = {"video": s.video, "frame": str(s.frame), "fps": f"{s.fps:g}", "second": f"{s.second:.2f}", "why": ""}
        row = rows.setdefault((s.video, s.frame), dict.fromkeys(columns, "") | start)
        row["why"] += ("; " if row["why"] else "") + f"{s.reason} {s.name} {s.stabilised:.2f}"
        row[_PHASE if s.track == "phases" else s.name] = "?"
    with atomic(path, force=force) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows, key=lambda k: (natural(k[0]), k[1])))


def read_answers(path: PathLike, *, phase_names: Sequence[str] = ()) -> list[Track]:
    """Read a filled-in file.

    Args:
        path: the file.
        phase_names: the phases' names and order, where phases were asked for.

    Returns:
        Tracks of labels with -1 for unknown, for the videos with any answer; `notices` say what is still open.

    Raises:
        FormatError: naming the line of a cell that is no answer, of a repeated frame, of an unknown phase, of a frame
            rate other than the video's; or a file that cannot be read.
    """
    name = os.fspath(path)
    try:
        with open(name, newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restkey="")
            columns = tuple(reader.fieldnames or ())
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FormatError(f"the file cannot be read ({error})", file=name) from None
    if columns[:3] != _FIXED[:3]:
        raise FormatError(f"the columns {', '.join(_FIXED)}, ... expected", file=name, line=1)
    tools = tuple(c for c in columns if c not in (*_FIXED, _PHASE))
    answers: dict[str, list[tuple[int, float, int, np.ndarray]]] = {}
    seen: dict[tuple[str, int], int] = {}
    still_open: dict[str, int] = {}
    for line, row in rows:
        if "" in row or None in row.values():
            raise FormatError(f"{len(columns)} cells expected", file=name, line=line)
        video, frame, fps = _place(row, name, line)
        first = seen.setdefault((video, frame), line)
        if first != line:
            raise FormatError(f"frame {frame} of {video} is also on line {first}", file=name, line=line)
        if video in answers and fps != answers[video][0][1]:
            raise FormatError(f"fps is {fps:g}, and {answers[video][0][1]:g} above", file=name, line=line)
        phase = _phase(row.get(_PHASE, ""), phase_names, name, line)
        present = np.array([_presence(row[tool], tool, name, line) for tool in tools], np.int32)
        still_open[video] = still_open.get(video, 0) + sum(cell.strip() == "?" for cell in row.values())
        answers.setdefault(video, []).append((frame, fps, phase, present))
    tracks = []
    for video in sorted(answers, key=natural):
        notices = (f"{video}: {still_open[video]} question(s) still open",) if still_open[video] else ()
        tracks += _tracks(video, sorted(answers[video], key=lambda r: r[0]), tools, phase_names, name, notices)
    return tracks


def _tracks(
    video: str,
    rows: list[tuple[int, float, int, np.ndarray]],
    tools: tuple[str, ...],
    phase_names: Sequence[str],
    source: str,
    notices: tuple[str, ...],
) -> list[Track]:
    layout = Layout(format="csv", kind="labels", delimiter=",")
    frames = np.array([row[0] for row in rows], np.int64)
    fps = rows[0][1]
    tracks = []
    for track, values, names in (
        ("phases", np.array([row[2] for row in rows], np.int32), tuple(phase_names)),
        ("tools", np.stack([row[3] for row in rows]), tools),
    ):
        told = (values >= 0).reshape(len(rows), -1).any(1)
        if told.any():
            tracks.append(Track(video, track, frames[told], values[told], names, fps, layout, source, notices))
    return tracks


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
    found = find_name(text, names)
    if found is None:
        raise unknown_name(text, names, "phases", file=file, line=line)
    return found
