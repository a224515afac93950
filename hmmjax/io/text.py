"""Text tables: Cholec80, M2CAI16, MTRCNet, TMRNet and Surgformer txt, and csv with a header.

They share one idea: a row per frame, the frame number in one column, labels or scores in the others. What differs
(header, separators, names or indices, line ends) is found out here and kept in the track's `Layout`.
"""

import re
from collections.abc import Sequence

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.names import CHOLEC80_PHASES, CHOLEC80_TOOLS, M2CAI16_PHASES, find_name, fold, unknown_name
from hmmjax.io.records import Layout, Track
from hmmjax.io.spec import Spec, check_frames, check_labels, check_scores
from hmmjax.io.table import Table, floats, frame_numbers, is_number, split_table

_NUMBERED_TOOL = re.compile(r"tool\d+")
_UNKNOWN = ("-1", "?", "unknown", "unlabelled", "unlabeled", "none")


def read_text(file: str, text: str, video: str, spec: Spec) -> list[Track]:
    """The tracks of one text table: phases, tools, or both in one csv.

    Raises:
        FormatError: naming file, line, cause and fix.
    """
    table = split_table(file, text, spec)
    frame_column, columns = _columns(table, spec)
    frames = frame_numbers(table, frame_column)
    check_frames(frames, table.where, file)
    tracks = []
    for track, (positions, names) in columns.items():
        values, kind, names, spelling = _values(table, track, positions, names, spec)
        layout = Layout(
            format="csv" if table.delimiter == "," else "text",
            kind=kind,
            delimiter=table.delimiter,
            header=table.header_line,
            header_columns=table.cells.shape[1],
            frame_column=frame_column,
            columns=tuple(positions),
            newline=table.newline,
            trailing=table.trailing,
            spelling=spelling,
        )
        tracks.append(Track(video, track, frames, values, names, spec.counter_fps, layout, file))
    return tracks


def _columns(table: Table, spec: Spec) -> tuple[int, dict[str, tuple[list[int], tuple[str, ...] | None]]]:
    """The Frame column, and each track's columns with their names (None where the file does not name them)."""
    width = table.cells.shape[1]
    if width < 2:
        raise FormatError(
            "one column found, at least a frame number and a value expected",
            file=table.file,
            line=table.lines[0],
            fix="add the frame number of each row; rows are never matched by their order",
        )
    if table.header is None:
        track = spec.track or ("phases" if width == 2 else None)
        if track is None:
            raise FormatError(
                f"{width} columns without a header",
                file=table.file,
                line=table.lines[0],
                fix="say track='tools' or track='phases', and the class order (tool_names or phase_names)",
            )
        return 0, {track: (list(range(1, width)), None)}
    frame = [i for i, cell in enumerate(table.header) if fold(cell) == "frame"]
    if len(frame) != 1:
        raise FormatError(
            f"the header has {len(frame)} Frame columns: {', '.join(table.header)}",
            file=table.file,
            line=1,
            fix="name the column of frame numbers 'Frame'; rows are never matched by their order",
        )
    found: dict[str, tuple[list[int], list[str] | None]] = {}
    for position, name in enumerate(table.header):
        if position == frame[0]:
            continue
        track, canonical = _classify(name, table, spec)
        positions, names = found.setdefault(track, ([], []))
        positions.append(position)
        names.append(canonical)  # type: ignore[union-attr]
    result: dict[str, tuple[list[int], tuple[str, ...] | None]] = {}
    for track, (positions, names) in found.items():
        assert names is not None
        if all(name is None for name in names):
            result[track] = (positions, None)
            continue
        if None in names or len({fold(name) for name in names}) < len(names):
            raise FormatError(
                f"the header names a {track[:-1]} twice, or only some of them: {', '.join(table.header)}",
                file=table.file,
                line=1,
            )
        result[track] = (positions, tuple(names))
    return frame[0], result


def _classify(name: str, table: Table, spec: Spec) -> tuple[str, str | None]:
    """Which track a header cell belongs to, and its class's canonical name (None: a Phase or a ToolN column)."""
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
        return spec.track, name  # the caller says what these are and lets the file name them
    track = spec.track or "tools"
    listed = known[track] if spec.track else (*known["phases"], *known["tools"])
    raise unknown_name(name, listed, track, file=table.file, line=1)


def _values(
    table: Table, track: str, positions: list[int], names: tuple[str, ...] | None, spec: Spec
) -> tuple[np.ndarray, str, tuple[str, ...] | None, tuple[str, ...] | None]:
    """Values, kind, class names in their order, and for phases given by name how the file spells them."""
    kind = spec.kind.get(track)
    declared = spec.names.get(track)
    cells = table.cells[:, positions]
    if track == "phases" and len(positions) == 1 and names is None:
        if kind not in (None, "labels"):
            raise FormatError(
                f"one column of phases holds labels, not {kind}", file=table.file, fix="say kind='labels' for phases"
            )
        unique, inverse = np.unique(cells[:, 0], return_inverse=True)
        if all(is_number(cell) for cell in unique):
            count = None if declared is None else len(declared)
            values = check_labels(floats(table, cells), track, count, spec, table.where, table.file)
            return values[:, 0], "labels", declared, None
        known = declared or CHOLEC80_PHASES
        codes, spelling = _match_names(unique, inverse, known, table, spec)
        return codes, "labels", known, spelling
    if names is None and declared is not None:
        if len(declared) != len(positions):
            raise FormatError(
                f"{len(positions)} columns of {track}, {len(declared)} names given",
                file=table.file,
                fix="give one name per column, in the file's order",
            )
        names = declared
    elif names is not None and declared is not None and len(declared) != len(names):
        missing = [name for name in declared if find_name(name, names) is None]
        raise FormatError(f"no column for {', '.join(missing)}", file=table.file, line=1, fix="add the missing column")
    scores = floats(table, cells)
    if kind is None:
        whole = track == "tools" and all(re.fullmatch(r"-?\d+", cell) for cell in np.unique(cells))
        kind = "labels" if whole else "probabilities"
    if kind == "labels":
        if track == "phases":
            raise FormatError(
                "one column per phase holds scores, not labels",
                file=table.file,
                fix="say kind='probabilities' or kind='logits'",
            )
        return check_labels(scores, track, None, spec, table.where, table.file), kind, names, None
    return check_scores(scores, track, kind, table.where, table.file), kind, names, None


def _match_names(
    unique: np.ndarray, inverse: np.ndarray, known: Sequence[str], table: Table, spec: Spec
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Phase names to indices into `known`; also the spelling of each, as the file has it."""
    spelling = list(known)
    codes = np.empty(len(unique), np.int32)
    for i, name in enumerate(unique):
        position = find_name(str(name), known)
        if position is None:
            row = int(np.argmax(inverse == i))
            if name.lower() in _UNKNOWN and spec.unknown:
                codes[i] = -1
                continue
            if is_number(name):
                raise FormatError(
                    f"{str(name)!r} among phase names", file=table.file, line=table.where(row), fix="repair the row"
                )
            raise unknown_name(str(name), known, "phases", file=table.file, line=table.where(row))
        codes[i] = position
        spelling[position] = str(name)
    return codes[inverse.reshape(-1)], tuple(spelling)
