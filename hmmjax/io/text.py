"""Text tables: Cholec80, M2CAI16, MTRCNet, TMRNet and Surgformer txt, and csv with a header.

All have one row per frame, with the frame number in one column and labels or scores in the others. Header, separator,
names or indices, and line endings are detected and stored in the track's `Layout`.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping

import numpy as np

from hmmjax.io.challenges import label_rows_track
from hmmjax.io.changes import CHANGE_SECONDS
from hmmjax.io.columns import ACCEPTED, column_of
from hmmjax.io.errors import FormatError
from hmmjax.io.label_cells import as_presence, is_undecided, match_names
from hmmjax.io.names import CHOLEC80_PHASES, CHOLEC80_TOOLS, M2CAI16_PHASES, find_name, fold, unknown_name
from hmmjax.io.scores import check_scores
from hmmjax.io.spec import Spec, check_frames, check_labels
from hmmjax.io.table import Table, floats, frame_numbers, is_missing, is_number, split_table
from hmmjax.io.tracks import Layout, Track
from hmmjax.io.videos import video_id

_SECONDS = ("second", "seconds", "sec", "s", "t", "timestamp")
_NUMBERED_TOOL = re.compile(r"tool\d+")
_WHOLE = re.compile(r"-?\d+(\.0*)?")  # pandas writes 1.0 if another label is missing


def read_text(file: str, text: str, spec: Spec) -> list[Track]:
    """Read the tracks of one text table: phases, tools, or both.

    Raises:
        FormatError: if the file is damaged or ambiguous; the message names file, line, cause and fix.
    """
    table = split_table(file, text, spec)
    if _is_list_of_names(table, spec):
        labels = [str(cell) for cell in (*(table.header or ()), *table.cells[:, 0])]
        return [label_rows_track(file, labels, 1, spec)]
    frame_column, columns = columns_of(table, spec)
    return tracks_of(table, {video_id(file): np.arange(len(table.lines))}, frame_column, columns, spec)


Columns = dict[str, tuple[list[int], tuple[str, ...] | None]]
"""The columns of each track, and their class names; None if the file does not name them."""


def tracks_of(
    table: Table,
    videos: Mapping[str, np.ndarray],
    frame_column: int,
    columns: Columns,
    spec: Spec,
    video_column: int | None = None,
) -> list[Track]:
    """Return the tracks of a table. Each column is of one kind, also if a video has only some of its values.

    Args:
        table: the rows of all videos.
        videos: the positions of each video's rows, by its identifier.
        frame_column: position of the frame numbers.
        columns: the columns of each track.
        spec: the options of the call.
        video_column: position of the cells that name the videos, if there are such.

    Raises:
        FormatError: if frame numbers, labels or scores cannot be read; the message names the line.
    """
    frames = frame_numbers(table, frame_column)
    for rows in videos.values():
        lines = [table.lines[row] for row in rows]
        check_frames(frames[rows], lines.__getitem__, table.file)
    tracks = []
    for track, (positions, names) in columns.items():
        values, kind, names, spelling = _values(table, track, positions, names, spec)
        layout = Layout(
            format="csv" if table.delimiter in (",", ";") else "text",
            kind=kind,
            delimiter=table.delimiter,
            header=table.header_line,
            header_columns=table.cells.shape[1],
            frame_column=frame_column,
            columns=tuple(positions),
            newline=table.newline,
            trailing=table.trailing,
            decimal=table.decimal,
            spelling=spelling,
        )
        undecided = int(is_undecided(table.cells[:, positions], track, kind, spec).sum())
        notices = () if not undecided else (f"{table.file}: {undecided} label(s) of 0.5 are read as unknown",)
        for video, rows in videos.items():
            if video_column is not None:
                layout = dataclasses.replace(layout, video=(video_column, str(table.cells[rows[0], video_column])))
            of_rows = frames[rows], values[rows], names, spec.counter_fps
            read = Track(video, track, *of_rows, layout, table.file, notices)
            tracks.append(_with_changes(read, spec) if track == "phases" and kind == "labels" else read)
    return tracks


def _is_list_of_names(table: Table, spec: Spec) -> bool:
    """Whether a file has one phase name per line and nothing else, as MS-TCN's annotations."""
    first = (table.header or [""])[0]
    return table.cells.shape[1] == 1 and find_name(first, spec.names.get("phases") or M2CAI16_PHASES) is not None


def _with_changes(track: Track, spec: Spec) -> Track:
    """Return a track of changes of phase with a row per frame; raise if it is unclear whether rows are changes."""
    frames, values = track.frames, track.values
    if spec.rows == "changes":
        every = np.arange(frames[0], frames[-1] + 1, 1 if spec.unknown else spec.step)
        return dataclasses.replace(track, frames=every, values=values[np.searchsorted(frames, every, "right") - 1])
    apart = np.median(np.diff(frames)) / track.fps if frames.size > 2 else 0.0
    changes = int((np.diff(values) != 0).sum())
    if spec.rows == "auto" and apart >= CHANGE_SECONDS and 2 * changes > frames.size - 1:
        rows = f"each of the {frames.size} rows begins" if changes == frames.size - 1 else "most rows begin"
        raise FormatError(
            f"{rows} another phase, and they are {apart:,.0f} s apart: these seem to be "
            "changes of phase, not one row per frame",
            file=track.source,
            fix="pass rows='changes' if each phase lasts until the next row, or rows='frames'",
        )
    return track


def columns_of(table: Table, spec: Spec, skipped: Collection[int] = ()) -> tuple[int, Columns]:
    """Return the Frame column, and the columns of each track.

    Args:
        table: the table.
        spec: the options of the call.
        skipped: positions of columns that are of neither.

    Raises:
        FormatError: there is no Frame column, or a column is of no known class.
    """
    width = table.cells.shape[1]
    if width < 2:
        raise FormatError(
            "found one column, expected at least a frame number and a value",
            file=table.file,
            line=table.lines[0],
            fix="add the frame number of each row, since rows are never matched by their order",
        )
    if table.header is None:
        # Without a header, the number of declared names tells what the columns are.
        named = [t for t in ("tools", "phases") if len(spec.names.get(t) or ()) == width - 1]
        track = spec.track or ("phases" if width == 2 else named[0] if named else None)
        if track is None:
            raise FormatError(
                f"the file has a frame number and {width - 1} columns, and no header",
                file=table.file,
                line=table.lines[0],
                fix=f"name the {width - 1} columns in their order: pass tool_names if they are tools, or phase_names",
            )
        return 0, {track: (list(range(1, width)), None)}
    frame = [i for i, cell in enumerate(table.header) if column_of(cell).role == "frame"]
    if len(frame) != 1:
        segments = "" if frame else f"; a table of segments needs {ACCEPTED}"
        if not frame and any(column_of(cell).role in ("time", *_SECONDS) for cell in table.header):
            segments = f"; if the times are whole seconds, pass fps=1{segments}"
        raise FormatError(
            f"the header has {len(frame)} Frame columns: {', '.join(table.header)}",
            file=table.file,
            line=1,
            fix=f"name exactly one column 'Frame', since rows are never matched by their order{segments}",
        )
    found: dict[str, tuple[list[int], list[str] | None]] = {}
    named = [i for i, _ in enumerate(table.header) if not (i == frame[0] or i in skipped or _is_row_number(table, i))]
    single = len(named) == 1
    for position in named:
        name = table.header[position]
        name = "Phase" if single and _holds_labels(name, table.cells[:, position], spec) else name
        track, canonical = _classify(name, table, spec)
        positions, names = found.setdefault(track, ([], []))
        positions.append(position)
        names.append(canonical)  # type: ignore[union-attr]
    result: Columns = {}
    for track, (positions, names) in found.items():
        assert names is not None
        if all(name is None for name in names):
            result[track] = (positions, None)
            continue
        if None in names or len({fold(name) for name in names}) < len(names):
            raise FormatError(
                f"the header repeats a {track[:-1]} or leaves some unnamed: {', '.join(table.header)}",
                file=table.file,
                line=1,
                fix="name each column once",
            )
        result[track] = (positions, tuple(names))
    return frame[0], result


def _holds_labels(title: str, cells: np.ndarray, spec: Spec) -> bool:
    """Whether the only column next to the frame numbers holds phases, by its title, or else by their names.

    The steps of CATARACTS are its phases; next to a column of phases, steps are another level.
    """
    known = spec.names.get("phases") or M2CAI16_PHASES
    if spec.track == "tools" or find_name(title, (*known, *(spec.names.get("tools") or CHOLEC80_TOOLS))) is not None:
        return False
    if column_of(title).role == "label" or re.search("phase|step", fold(title)):
        return re.search("tool|instrument", title, re.IGNORECASE) is None
    return find_name(str(cells[0]), known) is not None


def _is_row_number(table: Table, position: int) -> bool:
    """Whether a column without a name numbers the rows, as pandas writes its index."""
    assert table.header is not None
    unnamed = not table.header[position] or table.header[position].startswith("Unnamed: ")
    return unnamed and table.cells[:, position].tolist() == [str(i) for i in range(len(table.cells))]


def _classify(name: str, table: Table, spec: Spec) -> tuple[str, str | None]:
    """Return the track of a header cell and its canonical class name (None for a Phase or ToolN column)."""
    folded = fold(name)
    if folded == "phase" and spec.track != "tools":
        return "phases", None
    if _NUMBERED_TOOL.fullmatch(folded) and spec.track != "phases":
        return "tools", None
    known = {
        "phases": spec.names.get("phases") or M2CAI16_PHASES,
        "tools": spec.names.get("tools") or CHOLEC80_TOOLS,
    }
    for track in [spec.track] if spec.track else ["phases", "tools"]:
        position = find_name(name, known[track])
        if position is not None:
            return track, known[track][position]
    if spec.track and not spec.names.get(spec.track):
        return spec.track, name  # the caller declared the track but no names: take those of the file
    if "phase" in folded and any(fold(cell) == "phase" for cell in table.header or ()):
        raise FormatError(
            f"{name!r} seems to be a second column of phases",
            file=table.file,
            line=1,
            fix="keep one of them; predictions and annotations are files of their own",
        )
    track = spec.track or "tools"
    listed = known[track] if spec.track else (*known["phases"], *known["tools"])
    raise unknown_name(name, listed, track, file=table.file, line=1)


def _values(
    table: Table, track: str, positions: list[int], names: tuple[str, ...] | None, spec: Spec
) -> tuple[np.ndarray, str, tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return values, kind, class names in order, and the file's spelling of phases stored by name."""
    kind = spec.kind.get(track)
    declared = spec.names.get(track)
    cells = table.cells[:, positions]
    if track == "phases" and len(positions) == 1 and names is None:
        if kind not in (None, "labels"):
            raise FormatError(
                f"a single column of phases holds labels, not {kind}",
                file=table.file,
                fix="pass kind='labels' for phases",
            )
        unique, inverse = np.unique(cells[:, 0], return_inverse=True)
        if all(is_missing(cell) or is_number(cell) for cell in unique):
            count = None if declared is None else len(declared)
            values = check_labels(floats(table, cells), track, count, spec, table.line_of, table.file)
            return values[:, 0], "labels", declared, None
        known = declared or CHOLEC80_PHASES
        codes, spelling = match_names(unique, inverse, known, table)
        return codes, "labels", known, spelling
    if names is None and declared is not None:
        if len(declared) != len(positions):
            raise FormatError(
                f"the file has {len(positions)} columns of {track}, but {len(declared)} names were declared",
                file=table.file,
                fix="declare one name per column, in the file's order",
            )
        names = declared
    elif names is not None and declared is not None and len(declared) != len(names):
        missing = [name for name in declared if find_name(name, names) is None]
        raise FormatError(
            f"the file has no column for {', '.join(missing)}",
            file=table.file,
            line=1,
            fix="add the column, or declare the classes of this file",
        )
    if track == "tools" and kind in (None, "labels"):
        cells = as_presence(cells)
    scores = floats(table, np.where(is_undecided(cells, track, kind, spec), "-1", cells))
    if kind is None:
        whole = track == "tools" and all(_WHOLE.fullmatch(cell) or is_missing(cell) for cell in np.unique(cells))
        kind = "labels" if whole else "probabilities"
    if kind == "labels":
        if track == "phases":
            raise FormatError(
                "a column per phase holds scores, not labels",
                file=table.file,
                fix="if they are predictions, pass kind='probabilities' or kind='logits'; else give one column Phase",
            )
        return check_labels(scores, track, None, spec, table.line_of, table.file), kind, names, None
    return check_scores(scores, track, kind, table.line_of, table.file), kind, names, None
