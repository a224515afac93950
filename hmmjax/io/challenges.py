"""Text layouts of their own: PitVis (seconds, one step, up to two instruments) and MS-TCN (labels without frames)."""

import dataclasses
import re

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.names import CHOLEC80_PHASES, PITVIS_PHASES, PITVIS_TOOLS, find_name, unknown_name
from hmmjax.io.spec import Spec, check_frames, check_labels
from hmmjax.io.table import Table, floats, frame_numbers, split_table
from hmmjax.io.tracks import Layout, Track
from hmmjax.io.videos import video_id

_STEP, _INSTRUMENTS = "int_step", ("int_instrument1", "int_instrument2")
_HEADING = "### Frame level recognition"


def is_pitvis(first_line: str) -> bool:
    """Whether a file starts like ``int_video,int_time,int_step,int_instrument1,int_instrument2``."""
    head = [cell.strip(' "') for cell in re.split("[,;\t]", first_line)]
    return "int_time" in head and (_STEP in head or _INSTRUMENTS[0] in head)


def read_pitvis(file: str, text: str, spec: Spec) -> list[Track]:
    """Read steps as phases, and instruments as tools. Both are numbered from 1; frame numbers count seconds.

    Where the endoscope is outside of the patient (-1), steps and instruments are unknown.

    Raises:
        FormatError: if another rate is declared, or a number is out of range; the message names the line.
    """
    if spec.fps not in (None, 1):
        raise FormatError(
            f"int_time counts seconds, but {spec.fps:g} frames per second were declared",
            file=file,
            fix="omit fps, or pass 1 (of annotations: --annotations-fps 1)",
        )
    table = split_table(file, text, spec)
    head = table.header or []
    frames = frame_numbers(table, head.index("int_time"))
    check_frames(frames, table.line_of, file)
    tracks = []
    if _STEP in head and spec.track != "tools":
        names = spec.names.get("phases") or PITVIS_PHASES
        values = floats(table, table.cells[:, [head.index(_STEP)]])
        numbered = dataclasses.replace(spec, first_index=1)
        values = check_labels(values, "phases", len(names), numbered, table.line_of, file)[:, 0]
        layout = Layout("csv", "labels", ",", "int_time,int_step", 2, 0, (1,), first_index=1)
        tracks.append(Track(video_id(file), "phases", frames, values, names, 1.0, layout, file))
    if _INSTRUMENTS[0] in head and spec.track != "phases":
        names = spec.names.get("tools") or PITVIS_TOOLS
        values = _presence(table, [head.index(name) for name in _INSTRUMENTS if name in head], len(names))
        layout = Layout("segments", "labels", ",", spelling=names)
        tracks.append(Track(video_id(file), "tools", frames, values, names, 1.0, layout, file))
    return tracks


def _presence(table: Table, columns: list[int], count: int) -> np.ndarray:
    """Return (n, count) presence of the instruments that each row lists; -1 outside of the patient."""
    slots = floats(table, table.cells[:, columns])
    bad = ~np.isin(slots, np.arange(-2, count + 1))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise FormatError(
            f"instrument {slots[row, column]:g} is out of range (-2 to {count})",
            file=table.file,
            line=table.line_of(int(row)),
            fix="repair the row, or declare all tools in their order (tool_names)",
        )
    values = np.zeros((len(slots), count), np.int32)
    rows, which = np.nonzero(slots > 0)
    values[rows, slots[rows, which].astype(int) - 1] = 1
    values[slots[:, 0] == -1] = -1
    return values


def is_mstcn(first_line: str) -> bool:
    """Whether a file starts like MS-TCN's predictions."""
    return first_line.startswith("###")


def read_mstcn(file: str, text: str, spec: Spec) -> list[Track]:
    """Read the labels after ``### Frame level recognition: ###``, one per row of the features.

    Raises:
        FormatError: there are no labels, or one is unknown.
    """
    lines = text.splitlines()
    place = next((i for i, line in enumerate(lines) if line.startswith(_HEADING)), None)
    labels = [label for line in lines[place + 1 :] for label in line.split()] if place is not None else []
    if place is None or not labels:
        raise FormatError(f"no labels follow {_HEADING!r}", file=file, fix="export the predictions again")
    return [label_rows_track(file, labels, place + 2, spec)]


def label_rows_track(file: str, labels: list[str], line: int, spec: Spec) -> Track:
    """Return a track of phases given by name or index, without frame numbers.

    Args:
        file: the file.
        labels: one per row.
        line: the line of the first label, for error messages.
        spec: the options of the call.

    Raises:
        FormatError: a label is unknown or out of range.
    """
    declared = spec.names.get("phases")
    if all(re.fullmatch(r"-?\d+", label) for label in labels):
        count = None if declared is None else len(declared)
        values = check_labels(np.array(labels, np.int64), "phases", count, spec, lambda _: line, file)
        names, spelling = declared, None
    else:
        names = declared or CHOLEC80_PHASES
        index = {label: find_name(label, names) for label in dict.fromkeys(labels)}
        if unknown := [label for label, i in index.items() if i is None]:
            raise unknown_name(unknown[0], names, "phases", file=file, line=line)
        values = np.array([index[label] for label in labels], np.int32)
        spelling = names
    frames = spec.row_frames(len(labels))
    notice = (
        f"{file}: no frame numbers; labels are read as frames {', '.join(map(str, frames[:3]))} ... at "
        f"{spec.counter_fps:g} frames per second"
    )
    layout = Layout("segments", "labels", ",", spelling=spelling, first_index=0 if spelling else spec.first_index)
    return Track(video_id(file), "phases", frames, values, names, spec.counter_fps, layout, file, (notice,))
