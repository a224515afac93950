"""Read Cadene's csv of phase probabilities (M2CAI16 workflow)."""

import dataclasses
import re

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.scores import check_scores
from hmmjax.io.spec import Spec, check_frames, check_labels
from hmmjax.io.tracks import Layout, Track
from hmmjax.io.videos import video_id

#: Image 1 shows annotation row 24, the last of the first second; image 2 shows row 49, and so on.
CADENE_OFFSET = 24

_IMAGE = re.compile(r"([^/\\]*?_?\d+)-(\d+)\.\w+$")


def is_cadene(first_line: str) -> bool:
    """Whether a file starts like ``imgpath;[stepInt;stepStr;]probabilities...``."""
    first = first_line.split(";")[0].strip('" ')
    return first_line.count(";") >= 2 and bool(_IMAGE.search(first) or re.match(r"im(g|age)", first, re.IGNORECASE))


def read_cadene(file: str, text: str, spec: Spec) -> list[Track]:
    """Read phase probabilities of many videos: ``imgpath;stepInt;stepStr;p0;p1;...`` or ``imgpath;p0;p1;...``.

    The image name gives the video and a counter that starts at 1 (``..._02-0013.jpg``); counter c is frame
    ``(c - 1) * step + offset``. With kind="labels", the annotation column stepInt (1-based) is read instead.

    Raises:
        FormatError: if the file is damaged; the message names file, line, cause and fix.
    """
    lines = [(i, line.rstrip("\r;")) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not _IMAGE.search(lines[0][1].split(";")[0]):
        lines = lines[1:]  # a header
    if not lines:
        raise FormatError("the file has a header but no rows", file=file, fix="export it again, or leave it out")
    rows: dict[str, list[tuple[int, int, str, list[str]]]] = {}
    width = len(lines[0][1].split(";"))
    for number, line in lines:
        cells = line.split(";")
        if len(cells) != width:
            raise FormatError(
                f"expected {width} columns, found {len(cells)}", file=file, line=number, fix="export the file again"
            )
        match = _IMAGE.search(cells[0])
        if match is None:
            raise FormatError(
                f"no video and image number in {cells[0]!r}", file=file, line=number, fix="name images <video>-<n>.jpg"
            )
        rows.setdefault(match[1], []).append((int(match[2]), number, line, cells))
    # If the file has annotations, the second cell is a whole number and the third a name.
    first = lines[0][1].split(";")
    skip = 3 if width > 3 and re.fullmatch(r"\d+", first[1]) and not re.fullmatch(r"[\d.eE+-]+", first[2]) else 1
    return [_video(file, name, sorted(entries), skip, spec) for name, entries in rows.items()]


def _video(file: str, name: str, entries: list[tuple[int, int, str, list[str]]], skip: int, spec: Spec) -> Track:
    def line_of(row: int) -> int:
        return entries[row][1]

    offset = CADENE_OFFSET if spec.offset is None else spec.offset
    frames = (np.array([entry[0] for entry in entries], np.int64) - 1) * spec.step + offset
    check_frames(frames, line_of, file)
    names = spec.names.get("phases")
    kind = spec.kind.get("phases") or "probabilities"
    labels = kind == "labels"
    if labels and skip == 1:
        raise FormatError("the file has no annotations (stepInt;stepStr)", file=file, fix="drop kind='labels'")
    columns = slice(1, 2) if labels else slice(skip, None)
    try:
        cells = np.array([entry[3][columns] for entry in entries]).astype(np.float64)
    except ValueError as error:
        raise FormatError(
            f"a cell is not a number ({error})", file=file, line=line_of(0), fix="export the file again"
        ) from None
    if names is not None and not labels and cells.shape[1] != len(names):
        raise FormatError(
            f"{cells.shape[1]} columns of probabilities, but {len(names)} phase names were declared",
            file=file,
            line=line_of(0),
            fix="declare one phase name per column (phase_names)",
        )
    if labels:
        counted = dataclasses.replace(spec, first_index=1)
        values = check_labels(cells, "phases", None if names is None else len(names), counted, line_of, file)[:, 0]
    else:
        values = check_scores(cells, "phases", kind, line_of, file)
    heads = tuple(";".join(entry[3][:skip]) for entry in entries)
    layout = Layout(format="cadene", kind=kind, delimiter=";", heads=heads)
    notice = f"{file}: image n is read as frame {offset} + {spec.step} (n - 1)"
    return Track(video_id(name), "phases", frames, values, names, spec.counter_fps, layout, file, (notice,))
