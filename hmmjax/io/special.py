"""Two layouts of their own: Cadene's csv of phase probabilities and the Faster R-CNN's csv of detections."""

import dataclasses
import re

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.names import CHOLEC80_TOOLS, find_name, unknown_name
from hmmjax.io.records import Layout, Track
from hmmjax.io.spec import Spec, check_frames, check_labels, check_scores, video_id

#: Cadene's images are annotation rows 24, 49, 74 ... (the last of each second), counted from 1.
CADENE_OFFSET = 24

_IMAGE = re.compile(r"([^/\\]*?_?\d+)-(\d+)\.\w+$")


def is_cadene(first_line: str) -> bool:
    """Whether this is the first line of ``imgpath;[stepInt;stepStr;]probabilities...``."""
    return first_line.count(";") >= 2 and not first_line.lower().startswith(("frame", '"frame'))


def read_cadene(file: str, text: str, spec: Spec) -> list[Track]:
    """Phase probabilities of many videos: ``imgpath;stepInt;stepStr;p0;p1;...`` or ``imgpath;p0;p1;...``.

    The image's name gives video and 1-based counter (``..._02-0013.jpg``); counter c is frame
    ``(c - 1) * step + offset``. With kind="labels" the annotation column stepInt (1-based) is read instead.

    Raises:
        FormatError: naming file, line, cause and fix.
    """
    lines = [(i, line.rstrip("\r;")) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not _IMAGE.search(lines[0][1].split(";")[0]):
        lines = lines[1:]  # a header
    if not lines:
        raise FormatError("the file has no rows", file=file)
    rows: dict[str, list[tuple[int, int, str, list[str]]]] = {}
    width = len(lines[0][1].split(";"))
    for number, line in lines:
        cells = line.split(";")
        if len(cells) != width:
            raise FormatError(f"{width} columns expected, {len(cells)} found", file=file, line=number)
        match = _IMAGE.search(cells[0])
        if match is None:
            raise FormatError(
                f"no video and image number in {cells[0]!r}", file=file, line=number, fix="name images <video>-<n>.jpg"
            )
        rows.setdefault(match[1], []).append((int(match[2]), number, line, cells))
    # With annotations the second cell is a whole number and the third a name.
    first = lines[0][1].split(";")
    skip = 3 if width > 3 and re.fullmatch(r"\d+", first[1]) and not re.fullmatch(r"[\d.eE+-]+", first[2]) else 1
    return [_cadene_video(file, name, sorted(entries), skip, spec) for name, entries in rows.items()]


def _cadene_video(file: str, name: str, entries: list[tuple[int, int, str, list[str]]], skip: int, spec: Spec) -> Track:
    def where(row: int) -> int:
        return entries[row][1]

    offset = CADENE_OFFSET if spec.offset is None else spec.offset
    frames = (np.array([entry[0] for entry in entries], np.int64) - 1) * spec.step + offset
    check_frames(frames, where, file)
    names = spec.names.get("phases")
    kind = spec.kind.get("phases") or "probabilities"
    labels = kind == "labels"
    if labels and skip == 1:
        raise FormatError("no annotations (stepInt;stepStr) in this file", file=file, fix="drop kind='labels'")
    columns = slice(1, 2) if labels else slice(skip, None)
    try:
        cells = np.array([entry[3][columns] for entry in entries]).astype(np.float64)
    except ValueError as error:
        raise FormatError(f"not a number ({error})", file=file, line=where(0)) from None
    if names is not None and not labels and cells.shape[1] != len(names):
        raise FormatError(f"{cells.shape[1]} probabilities, {len(names)} phase names", file=file, line=where(0))
    if labels:
        values = check_labels(cells - 1, "phases", None if names is None else len(names), spec, where, file)[:, 0]
    else:
        values = check_scores(cells, "phases", kind, where, file)
    heads = tuple(";".join(entry[3][:skip]) for entry in entries)
    layout = Layout(format="cadene", kind=kind, delimiter=";", heads=heads)
    notice = f"{file}: image n is taken as frame {offset} + {spec.step} (n - 1)"
    return Track(video_id(name), "phases", frames, values, names, spec.counter_fps, layout, file, (notice,))


def is_detections(first_line: str) -> bool:
    """Whether this is the header of a detection csv (``seq,frame,coord_ 1,...,class``)."""
    cells = [cell.strip().lower() for cell in first_line.split(",")]
    return "class" in cells and any(cell.startswith("coord") for cell in cells)


def read_detections(file: str, text: str, video: str, spec: Spec) -> Track:
    """Best detection score of each tool in each frame; 0 where nothing was detected.

    A row holds k boxes of one tool column by column (all x1, y1, x2, y2, then all k scores).

    Raises:
        FormatError: for damaged rows. With ``strict=False`` their frames are left out (unobserved) and reported.
    """
    names = spec.names.get("tools") or CHOLEC80_TOOLS
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    header = [cell.strip().lower() for cell in lines[0][1].split(",")]
    frame_column, class_column = header.index("frame"), header.index("class")
    coords = [i for i, cell in enumerate(header) if cell.startswith("coord")]
    scores: dict[int, np.ndarray] = {}
    first_line: dict[int, int] = {}
    damaged: dict[int, str] = {}
    for number, line in lines[1:]:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) <= class_column:
            raise FormatError(
                f"{len(header)} columns expected, {len(cells)} found", file=file, line=number, fix="export it again"
            )
        match = re.match(r"(\d+)(\.\w+)?$", cells[frame_column])
        if match is None:
            raise FormatError(f"no frame number in {cells[frame_column]!r}", file=file, line=number)
        frame = int(match[1])
        tool = find_name(cells[class_column], names)
        if tool is None:
            raise unknown_name(cells[class_column], names, "tools", file=file, line=number)
        row = scores.setdefault(frame, np.full(len(names), np.nan))
        first_line.setdefault(frame, number)
        if not np.isnan(row[tool]):
            raise FormatError(f"{names[tool]} of frame {frame} is there twice", file=file, line=number)
        best = _best_score([cells[i] for i in coords], cells[class_column + 1 :])
        if best is None:
            if spec.strict:
                raise FormatError(
                    f"damaged row of {names[tool]} in frame {frame}: not 4 coordinates and a score in [0, 1] per box",
                    file=file,
                    line=number,
                    fix="repair the row, or leave its frame out: strict=False (--lenient)",
                )
            damaged[frame] = f"line {number} ({names[tool]}, frame {frame})"
            best = 0.0
        row[tool] = best
    kept = [frame for frame in scores if frame not in damaged]
    for frame in kept:
        if np.isnan(scores[frame]).any():
            tool = names[int(np.argmax(np.isnan(scores[frame])))]
            raise FormatError(f"no row of {tool} for frame {frame}", file=file, line=first_line[frame])
    frames = np.array(kept, np.int64)
    check_frames(frames, lambda row: first_line[int(frames[row])], file)
    values = np.array([scores[frame] for frame in kept])
    notices = ()
    if damaged:
        notices = (f"{file}: left out {len(damaged)} frame(s) with damaged rows: {'; '.join(damaged.values())}",)
    layout = Layout(format="detections", kind="probabilities")
    track = Track(video, "tools", frames, values, tuple(names), spec.counter_fps, layout, file, notices)
    return dataclasses.replace(track, values=check_scores(values, "tools", "probabilities", lambda row: row + 1, file))


def _best_score(coords: list[str], after: list[str]) -> float | None:
    """The best score of a row's boxes, 0 without boxes, None when the row is damaged."""
    if any(after):
        return None  # boxes ran over the class column
    filled = [cell for cell in coords if cell]
    try:
        numbers = [float(cell) for cell in filled]
    except ValueError:
        return None
    boxes, rest = divmod(len(numbers), 5)
    if rest or coords[: len(filled)] != filled:
        return None
    best = max(numbers[4 * boxes :], default=0.0)
    valid = all(0 <= score <= 1 for score in numbers[4 * boxes :])
    return best if valid else None
