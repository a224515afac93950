"""Write tracks in the layout in which they were read, and result files (NPZ, csv)."""

import csv
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.io.atomic_write import write_atomically
from hmmjax.io.decode import Encoding
from hmmjax.io.errors import FormatError
from hmmjax.io.names import permutation
from hmmjax.io.segment_files import segment_lines
from hmmjax.io.table import split_cells
from hmmjax.io.tracks import Layout, Track
from hmmjax.io.videos import array_suffix

#: Probabilities are clipped to at least this before they are written as logits.
LOGIT_CLIP = 1e-12

PathLike = str | os.PathLike[str]


def write(tracks: Sequence[Track], folder: PathLike, *, like: Sequence[Track], force: bool = False) -> list[Path]:
    """Write results in the layout and under the names of the files that were read.

    Files with one track are written to ``folder/phases`` or ``folder/tools``, files with both to ``folder/both``.

    Args:
        tracks: results, probabilities or labels, of the same videos and tracks as `like`; classes in any order.
        folder: the output folder.
        like: the tracks as read, which determine layout, kind (labels, probabilities or logits) and class order.
            Tools are labeled at a threshold of 0.5.
        force: overwrite existing files.

    Returns:
        The files written. Detections have no boxes after stabilization, so they become a csv of probabilities.

    Raises:
        FileExistsError: if one of the files exists and `force` is False.
        FormatError: if two files would be written to one path, an input would be overwritten, or classes differ.
        KeyError: if `tracks` lacks a video and track of `like`.
    """
    results = {(track.video, track.track): track for track in tracks}
    targets = plan_files(folder, like)
    files: dict[str, list[Track]] = {}
    for original in like:
        result = results[original.video, original.track]
        files.setdefault(original.source, []).append(_as_read(result, original))
    for source, members in files.items():
        with write_atomically(targets[source], force=force) as temporary:
            _write_file(temporary, members)
    return list(targets.values())


def plan_files(folder: PathLike, like: Sequence[Track]) -> dict[str, Path]:
    """Return the paths that `write` would write to, without writing.

    Args:
        folder: the output folder.
        like: the tracks as read.

    Returns:
        The output path by input file.

    Raises:
        FormatError: if two files would be written to one path, or an input would be overwritten.
    """
    files: dict[str, list[Track]] = {}
    for track in like:
        files.setdefault(track.source, []).append(track)
    targets = {source: _target(Path(folder), source, members) for source, members in files.items()}
    if len(set(targets.values())) < len(targets):
        twice = next(t for t in targets.values() if list(targets.values()).count(t) > 1)
        raise FormatError(
            f"two input files would be written to {twice}", fix="rename one of them, or stabilize them separately"
        )
    read = {os.path.realpath(source) for source in files}
    if own := [t for t in targets.values() if os.path.realpath(t) in read]:
        raise FormatError(f"the input {own[0]} would be overwritten", fix="choose another folder for the results")
    return targets


def _target(folder: Path, source: str, members: Sequence[Track]) -> Path:
    tracks = {member.track for member in members}
    name = Path(source).name
    if members[0].layout.format in ("detections", "segments"):
        name = f"{Path(source).stem}.csv"
    elif members[0].layout.format in ("npz", "npy") and Path(source).suffix.lower() not in (".npz", ".npy"):
        name = f"{Path(source).stem}.{members[0].layout.format}"  # pickles are not written
    return folder / (tracks.pop() if len(tracks) == 1 else "both") / name


def _as_read(result: Track, original: Track) -> Track:
    """Convert a result to the class order, kind and layout of the original."""
    if original.names is not None and result.names is not None:
        order = permutation(result.names, original.names, result.track, original.source)
        if result.values.ndim == 2:
            result = dataclasses.replace(result, values=result.values[:, order], names=original.names)
        else:
            result = result.reorder(original.names)
    values: np.ndarray = result.values
    if original.layout.kind == "labels":
        values = result.labels()
    elif original.layout.kind == "logits":
        p = np.clip(values.astype(np.float64), LOGIT_CLIP, 1)
        values = np.log(p) - (0 if result.track == "phases" else np.log(np.clip(1 - p, LOGIT_CLIP, 1)))
    layout = original.layout
    if layout.heads:
        layout = original.take(np.isin(original.frames, result.frames, assume_unique=True)).layout
    return dataclasses.replace(result, values=values, names=original.names, layout=layout)


def _write_file(path: str, members: Sequence[Track]) -> None:
    layout = members[0].layout
    if layout.format in ("npz", "npy"):
        _write_arrays(path, members)
    elif layout.format == "segments":
        counted = [dataclasses.replace(m, frames=m.frames - m.layout.shift) for m in members]
        _write_lines(path, segment_lines(counted, layout.times), "\n", layout.encoding)
    elif layout.format == "cadene":
        lines = [
            ";".join((head, *cells))
            for member in members
            for head, cells in zip(member.layout.heads, _cells(member), strict=True)
        ]
        _write_lines(path, lines, "\n", layout.encoding)
    elif layout.format == "detections":
        names = members[0].names or ()
        rows = [[str(f), *cells] for f, cells in zip(members[0].frames, _cells(members[0]), strict=True)]
        _write_lines(path, [",".join(row) for row in [["Frame", *names], *rows]], "\n", layout.encoding)
    else:
        _write_text(path, members, layout)


def _write_text(path: str, members: Sequence[Track], layout: Layout) -> None:
    videos: dict[str, list[Track]] = {}
    for member in members:
        videos.setdefault(member.video, []).append(member)
    kept = {layout.frame_column, *(column for member in members for column in member.layout.columns)}
    columns = sorted(kept if layout.video is None else kept | {layout.video[0]})
    end = layout.delimiter * layout.trailing
    lines = [layout.delimiter.join(row[columns]) + end for own in videos.values() for row in _rows(own)]
    lines = lines if layout.header is None else [_header(layout, columns), *lines]
    _write_lines(path, lines, layout.newline, layout.encoding)


def _header(layout: Layout, columns: Sequence[int]) -> str:
    """Return the header as read, but without the columns that were not read: blank, they would be missing values."""
    header, delimiter = str(layout.header), layout.delimiter
    if len(columns) == layout.header_columns:
        return header
    titles = split_cells(header, delimiter if delimiter in header else " ")
    return delimiter.join(_quoted(titles[i], delimiter) for i in columns) + delimiter * layout.trailing


def _rows(tracks: Sequence[Track]) -> np.ndarray:
    """Return the cells (n, columns) of the tracks of one video; those of columns that were not read are blank."""
    frames, layout = tracks[0].frames, tracks[0].layout
    table = np.full((frames.size, layout.header_columns), "", object)
    table[:, layout.frame_column] = (frames - layout.shift).astype(str)
    if layout.video is not None:
        position, name = layout.video
        table[:, position] = _quoted(name, layout.delimiter)
    for track in tracks:
        table[:, list(track.layout.columns)] = _cells(track)
    return table


def _cells(track: Track) -> list[list[str]]:
    """Format values: labels as names or indices, scores with nine significant digits (exact for float32)."""
    spelling = track.layout.spelling
    if spelling is not None and track.values.ndim == 1:
        cells = [_quoted(name, track.layout.delimiter) for name in spelling]
        return [[cells[i] if i >= 0 else "-1"] for i in track.values]
    rows = track.values if track.values.ndim == 2 else track.values[:, None]
    if track.is_labels:
        offset = 1 if track.layout.format == "cadene" else track.layout.first_index
        return [[str(v + offset if v >= 0 else v) for v in row] for row in rows.tolist()]
    cells = [[f"{v:.9g}" for v in row] for row in rows.tolist()]
    if track.layout.decimal == ".":
        return cells
    return [[cell.replace(".", track.layout.decimal) for cell in row] for row in cells]


def _quoted(name: str, delimiter: str) -> str:
    """Return a name as a cell, in quotation marks if it holds the delimiter; cells between spaces have none."""
    if delimiter == " " or not (delimiter in name or '"' in name):
        return name
    return '"' + name.replace('"', '""') + '"'


def _write_lines(path: str, lines: Sequence[str], newline: str, encoding: Encoding) -> None:
    Path(path).write_bytes(encoding.encode(newline.join(lines) + newline))


def _write_arrays(path: str, members: Sequence[Track]) -> None:
    def array(track: Track) -> np.ndarray:
        if not track.is_labels:
            return track.values.astype(np.float32)
        return np.where(track.values < 0, -1, track.values + track.layout.first_index)

    if members[0].layout.format == "npy":
        with open(path, "wb") as file:
            np.save(file, array(members[0]), allow_pickle=False)
        return
    arrays: dict[str, Any] = {}
    for member in members:
        key = str(member.layout.key)
        arrays[key] = array(member)
        suffix = key.split("_", 1)[-1]
        # Always write frame numbers: in a result with fewer rows, positions would number other frames.
        arrays[f"frames_{suffix}"] = member.frames - member.layout.shift
        arrays["fps"] = np.float64(member.fps)
        if member.names is not None:
            arrays[f"{member.track[:-1]}_names"] = np.array(member.names)
    save_npz(path, arrays, force=True)


def save_npz(path: PathLike, arrays: Mapping[str, Any], *, force: bool = False) -> None:
    """Write an NPZ atomically, without Python objects.

    Args:
        path: the file.
        arrays: arrays by name, of numbers, booleans or strings.
        force: overwrite an existing file.

    Raises:
        FileExistsError: if `path` exists and `force` is False.
        ValueError: if an array holds Python objects.
    """
    with write_atomically(path, force=force) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **{key: np.asarray(value) for key, value in arrays.items()})


def write_posteriors(
    path: PathLike,
    tracks: Sequence[Track],
    *,
    log_likelihood: Mapping[str, float] | None = None,
    extra: Mapping[str, Any] | None = None,
    force: bool = False,
) -> None:
    """Write posteriors of all videos to one NPZ, which `hmmjax.io.read` reads.

    Arrays per video (``41`` for "video41", else the whole identifier):

    - ``phases_41`` (n, L) float32: P(phase | the whole video); ``tools_41`` (n, K) float32: P(tool present | ...);
    - ``frames_41`` (n,) int64: frame numbers;
    - ``log_likelihood_41``: log-likelihood in nats;

    and for all videos: ``phase_names``, ``tool_names`` (if known), ``fps`` (frames per second of the frame counter).

    Args:
        path: the file.
        tracks: posteriors, or labels, of all videos.
        log_likelihood: log-likelihood in nats by video identifier.
        extra: further arrays by name.
        force: overwrite an existing file.

    Raises:
        FileExistsError: if `path` exists and `force` is False.
    """
    arrays: dict[str, Any] = {}
    for track in tracks:
        suffix = array_suffix(track.video)
        arrays[f"{track.track}_{suffix}"] = track.values if track.is_labels else track.values.astype(np.float32)
        arrays[f"frames_{suffix}"] = track.frames
        arrays["fps"] = np.float64(track.fps)
        if track.names is not None:
            arrays[f"{track.track[:-1]}_names"] = np.array(track.names)
    for video, value in (log_likelihood or {}).items():
        arrays[f"log_likelihood_{array_suffix(video)}"] = np.float64(value)
    save_npz(path, {**arrays, **(extra or {})}, force=force)


def write_csv(path: PathLike, rows: Sequence[Mapping[str, Any]], *, force: bool = False) -> None:
    """Write rows to a csv with a header.

    Args:
        path: the file.
        rows: values by column; the keys of the first row are the header, missing values stay empty.
        force: overwrite an existing file.

    Raises:
        FileExistsError: if `path` exists and `force` is False.
        ValueError: if a row has a key that the first lacks.
    """
    with write_atomically(path, force=force) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
