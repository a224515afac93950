"""Read tables of several videos with a row per frame: the video, the frame number, and labels or scores."""

import math
import re

import numpy as np

from hmmjax.io.columns import column_of, label_columns
from hmmjax.io.errors import FormatError
from hmmjax.io.names import CHOLEC80_TOOLS, find_name, fold
from hmmjax.io.spec import Spec
from hmmjax.io.table import DELIMITERS, Table, frame_numbers, is_missing, split_cells, split_table
from hmmjax.io.text import Columns, columns_of, tracks_of
from hmmjax.io.tracks import Track, with_notices
from hmmjax.io.unread import numbers_rows, unread_columns
from hmmjax.io.videos import check_video_names, ids_of_paths

_SEGMENTS = frozenset(("label", "start"))


def is_frame_table(first_line: str) -> bool:
    """Whether a file starts like a table with a video, a frame number and a column per class; not with labels."""
    delimiter = next((d for d in DELIMITERS if d in first_line), None)
    roles = {column_of(cell).role for cell in split_cells(first_line, delimiter)} if delimiter else set()
    return {"video", "frame"} <= roles and roles.isdisjoint(_SEGMENTS)


def read_frame_table(file: str, text: str, spec: Spec) -> list[Track]:
    """Read a table of one row per video and frame.

    A column of labels is read as phases, and columns of tools next to it as tools; without labels, there is a column
    per class.

    Raises:
        FormatError: if the file is damaged or ambiguous; the message names file, line, cause and fix.
    """
    table = split_table(file, text, spec)
    titles = table.header or []
    head = [column_of(title).role for title in titles]
    video, frame = head.index("video"), head.index("frame")
    notices: list[str] = []
    if "label" in head:
        label, _ = label_columns(titles, "phases")
        tools = _tool_columns(table, spec)
        columns: Columns = {} if spec.track == "tools" else {"phases": ([label], None)}
        columns |= {} if tools is None or spec.track == "phases" else {"tools": tools}
        read = {video, frame, label, *(p for positions, _ in columns.values() for p in positions)}
        rest = [i for i in range(len(titles)) if i not in read and any(table.cells[:, i])]
        notices = unread_columns(file, titles, [i for i in rest if not numbers_rows(table.cells[:, i].tolist())])
        notices = [f"{notice}; results are written without them" for notice in notices]
    else:
        frame, columns = columns_of(table, spec, {video})
    paths = list(zip(table.lines, table.cells[:, video].tolist(), strict=True))
    ids = np.array(ids_of_paths(file, paths))
    notices += check_video_names(file, paths, ids.tolist())
    frames = frame_numbers(table, frame)
    videos = {name: np.flatnonzero(ids == name) for name in dict.fromkeys(ids.tolist())}
    ordered = {name: rows[np.argsort(frames[rows], kind="stable")] for name, rows in videos.items()}
    tracks = tracks_of(table, ordered, frame, columns, spec, video)
    return with_notices(tracks, notices)


def _tool_columns(table: Table, spec: Spec) -> tuple[list[int], tuple[str, ...] | None] | None:
    """Return the columns with names of tools, or ToolN, if all their cells are labels or probabilities of tools."""
    known = spec.names.get("tools") or CHOLEC80_TOOLS
    titles = table.header or []
    named = {i: known[k] for i, title in enumerate(titles) if (k := find_name(title, known)) is not None}
    numbered = [i for i, title in enumerate(titles) if re.fullmatch(r"tool\d+", fold(title))]
    positions = list(named) or numbered
    if not positions or not all(_is_presence(str(cell), spec) for cell in np.unique(table.cells[:, positions])):
        return None
    if len(set(named.values())) < len(named):
        raise FormatError(
            f"the header repeats a tool: {', '.join(titles)}", file=table.file, line=1, fix="name each column once"
        )
    return positions, tuple(named.values()) or None


def _is_presence(cell: str, spec: Spec) -> bool:
    """Whether a cell is a label of a tool, or a score of the declared kind; a missing one is either."""
    if is_missing(cell):
        return True
    try:
        value = float(cell)
    except ValueError:
        return False
    kind = spec.kind.get("tools")
    if kind == "logits":
        return math.isfinite(value)
    if kind == "labels":
        return value in (0, 1, -1) or (value == 0.5 and spec.unknown)
    return 0 <= value <= 1 or value == -1
