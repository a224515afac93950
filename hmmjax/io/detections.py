"""Read Faster R-CNN's csv of tool detections."""

import dataclasses
import re

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.names import CHOLEC80_TOOLS, find_name, unknown_name
from hmmjax.io.scores import check_scores
from hmmjax.io.spec import Spec, check_frames
from hmmjax.io.tracks import Layout, Track
from hmmjax.io.videos import video_id


def is_detections(first_line: str) -> bool:
    """Whether a file starts with the header of a detection csv (``seq,frame,coord_ 1,...,class``)."""
    cells = [cell.strip().lower() for cell in first_line.split(",")]
    return "class" in cells and any(cell.startswith("coord") for cell in cells)


def read_detections(file: str, text: str, spec: Spec) -> list[Track]:
    """Read the best detection score per tool and frame; 0 if the tool was not detected.

    A row holds the k boxes of one tool, column by column: all x1, all y1, all x2, all y2, then all k scores.

    Raises:
        FormatError: if a row is damaged. With ``strict=False``, frames with damaged rows are dropped and reported
            in the track's notices instead.
    """
    names = spec.names.get("tools") or CHOLEC80_TOOLS
    scores, first_line, damaged = _best_scores(file, text, names, spec)
    complete = [frame for frame in scores if frame not in damaged]
    for frame in complete:
        if np.isnan(scores[frame]).any():
            tool = names[int(np.argmax(np.isnan(scores[frame])))]
            raise FormatError(
                f"frame {frame} has no row for {tool}",
                file=file,
                line=first_line[frame],
                fix="write one row per tool and frame, without boxes if nothing was detected",
            )
    frames = np.array(complete, np.int64)
    check_frames(frames, lambda row: first_line[int(frames[row])], file)
    values = np.array([scores[frame] for frame in complete])
    notices = ()
    if damaged:
        notices = (f"{file}: dropped {len(damaged)} frame(s) with damaged rows: {'; '.join(damaged.values())}",)
    layout = Layout(format="detections", kind="probabilities")
    track = Track(video_id(file), "tools", frames, values, tuple(names), spec.counter_fps, layout, file, notices)
    checked = check_scores(values, "tools", "probabilities", lambda row: row + 1, file)
    return [dataclasses.replace(track, values=checked)]


def _best_scores(
    file: str, text: str, names: tuple[str, ...], spec: Spec
) -> tuple[dict[int, np.ndarray], dict[int, int], dict[int, str]]:
    """By frame: the best score of each tool (NaN without a row), the first line, and a description of damaged rows."""
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
                f"expected {len(header)} columns, found {len(cells)}",
                file=file,
                line=number,
                fix="export the file again",
            )
        match = re.match(r"(\d+)(\.\w+)?$", cells[frame_column])
        if match is None:
            raise FormatError(
                f"no frame number in {cells[frame_column]!r}", file=file, line=number, fix="number the images"
            )
        frame = int(match[1])
        tool = find_name(cells[class_column], names)
        if tool is None:
            raise unknown_name(cells[class_column], names, "tools", file=file, line=number)
        row = scores.setdefault(frame, np.full(len(names), np.nan))
        first_line.setdefault(frame, number)
        if not np.isnan(row[tool]):
            raise FormatError(
                f"frame {frame} has two rows for {names[tool]}", file=file, line=number, fix="keep one of them"
            )
        best = _best_score([cells[i] for i in coords], cells[class_column + 1 :])
        if best is None:
            if spec.strict:
                raise FormatError(
                    f"damaged row of {names[tool]} in frame {frame}: not 4 coordinates and a score in [0, 1] per box",
                    file=file,
                    line=number,
                    fix="repair the row, or drop its frame with strict=False (--lenient)",
                )
            damaged[frame] = f"line {number} ({names[tool]}, frame {frame})"
            best = 0.0
        row[tool] = best
    return scores, first_line, damaged


def _best_score(coords: list[str], after: list[str]) -> float | None:
    """Return the best score of a row's boxes: 0 if there are no boxes, None if the row is damaged."""
    if any(after):
        return None  # boxes extend past the class column
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
