"""Check a folder of annotations or predictions in any of the layouts that `hmmjax data formats` lists.

Tells which layout it is, how many of the data set's videos are there, and what is wrong with them: files that cannot be
read, labels that do not occur in the data set, missing rows, and phases and tools of different lengths.
"""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hmmjax.data.formats import FORMATS, Format
from hmmjax.data.recognize import recognize
from hmmjax.io import FormatError, Track, find_files, natural, read, read_annotations
from hmmjax.io.decode import read_text_file
from hmmjax.io.doubts import doubts_of
from hmmjax.io.grid import row_step
from hmmjax.io.notices import merge_alike
from hmmjax.io.table import delimiter_of, split_cells

#: Annotated videos in the data sets' public releases, by layout.
VIDEOS = {
    "Cholec80, phases": 80,
    "Cholec80, tools": 80,
    "M2CAI16-workflow": 41,
    "M2CAI16-tool": 15,
    "CholecT50": 50,
    "CholecT45": 45,
    "AutoLaparo": 21,
    "PitVis": 25,
    "CATARACTS, tools": 50,
    "CATARACTS, steps": 50,
    "HeiChole, phases": 24,
    "HeiChole, instruments": 24,
    "Cataract-101": 101,
    "MultiBypass140": 140,
    "JIGSAWS": 103,
}

_GESTURES = [f"G{i}" for i in range(1, 16)]
_SAME_LENGTH = 0.02
"""Largest relative difference in duration of a video's phases and tools."""


class Checked(NamedTuple):
    """What a folder holds in one layout.

    Attributes:
        layout: the layout's name in `hmmjax data formats`, or "tables and arrays" for others.
        videos: names of the videos that were read.
        expected: number of videos in the data set; None for layouts of annotation tools.
        summary: what there is, in one line.
        problems: what is wrong, one line each.
        notes: how files were read and what may be meant otherwise, as other commands tell it.
    """

    layout: str
    videos: tuple[str, ...]
    expected: int | None
    summary: str
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether nothing is wrong or missing."""
        return not self.problems and (self.expected is None or len(self.videos) >= self.expected)


def check_folder(
    folder: str | os.PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
    progress: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> list[Checked]:
    """Read all annotations, or predictions, in a folder, or in its subfolders if it has no files, and check them.

    Args:
        folder: the folder, or one file.
        options: arguments of `hmmjax.io.read` that take the place of the layouts' own, such as phase_names; None stands
            for the default. With kind="probabilities" or "logits" files are predictions.
        progress: wraps the iteration over files, for a progress bar.

    Returns:
        One result per layout, that with most files first.

    Raises:
        FormatError: there are no files to read.
    """
    layouts: dict[str, list[str]] = {}
    known = {layout.name: layout for layout in FORMATS}
    problems: list[str] = []
    options = {key: value for key, value in (options or {}).items() if value is not None}
    scores = options.get("kind", "labels") != "labels"
    for file in progress(_files(Path(folder))):
        try:
            found = None if scores else recognize(file)
        except FormatError as error:
            problems.append(str(error))
            continue
        other = "predictions" if scores else "tables and arrays"
        layouts.setdefault(other if found is None else found.name, []).append(file)
    results = [_check(name, known.get(name), files, options) for name, files in layouts.items()]
    results.sort(key=lambda result: -len(result[0].videos))
    checked = _with_doubts(results)
    if problems:
        checked.append(Checked("other files", (), None, f"other files: {len(problems)}", tuple(problems)))
    return checked


def _files(folder: Path) -> list[str]:
    """Return the files of a folder, of its subfolders if it has none."""
    try:
        return find_files(folder)[0]
    except FormatError:
        below = sorted(p for p in folder.iterdir() if p.is_dir()) if folder.is_dir() else []
        found = []
        for inside in below:
            try:
                found += find_files(inside)[0]
            except FormatError:
                continue
        if not found:
            raise
        return found


class _Declared(NamedTuple):
    """What was declared when files were read: doubts are about what was not."""

    fps: float | None
    first_index: int


def _with_doubts(results: Sequence[tuple[Checked, list[Track], _Declared]]) -> list[Checked]:
    """Add doubts about rates and numbering, over all files that were read alike, to the first of their layouts."""
    groups: dict[_Declared, list[Track]] = {}
    for _, tracks, declared in results:
        groups.setdefault(declared, []).extend(tracks)
    checked = []
    for own, _, declared in results:
        doubts = doubts_of(groups.pop(declared, []), **declared._asdict())
        checked.append(own._replace(notes=(*own.notes, *doubts)))
    return checked


def _check(
    name: str, layout: Format | None, files: Sequence[str], given: Mapping[str, Any]
) -> tuple[Checked, list[Track], _Declared]:
    tracks: list[Track] = []
    problems: list[str] = []
    notes: list[str] = []
    options, declared = {}, _Declared(given.get("fps"), given.get("first_index", 0))
    reader = read_annotations if given.get("kind", "labels") == "labels" else read
    for file in files:
        try:
            options = ({} if layout is None else _arguments(layout, file)) | dict(given)
            declared = _Declared(options.get("fps"), options.get("first_index", 0))
            found = reader(file, **options)
        except FormatError as error:
            problems.append(str(error))
            continue
        tracks += found
        # Doubts are about all files, not about each.
        doubts = doubts_of(found, **declared._asdict())
        notes += [line for track in found for line in track.notices if line not in doubts]
    videos = tuple(sorted({track.video for track in tracks}, key=natural))
    for track in tracks:
        problems += _gaps(track)
    problems += _lengths(tracks)
    expected = VIDEOS.get(name)
    if expected is not None and len(videos) > expected:
        problems.append(f"{len(videos)} videos, but the data set has {expected}: some may be there twice")
    text = f"{len(videos)} of {expected} videos present" if expected else f"{len(videos)} video(s)"
    summary = f"{name}: {text}{_content(tracks)}{_assumed(options, given)}"
    return Checked(name, videos, expected, summary, tuple(problems), tuple(merge_alike(notes))), tracks, declared


def _assumed(options: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Tell which options of the layout were assumed: other commands need to be given them."""
    own = {key: value for key, value in options.items() if key not in given and isinstance(value, str | int | float)}
    words = [f"--{k.replace('_', '-')} {shlex.quote(v if isinstance(v, str) else f'{v:g}')}" for k, v in own.items()]
    return f"; read with {' '.join(words)}" if words else ""


def _arguments(layout: Format, file: str) -> dict[str, Any]:
    """Return the arguments that read a whole data set, of which the layout's example shows some classes only."""
    options = layout.arguments
    if layout.name in ("CATARACTS, tools", "HeiChole, instruments"):
        lines = read_text_file(file).splitlines()
        cells = split_cells(lines[0], delimiter_of(lines[0], lines[min(1, len(lines) - 1)]))[1:]
        named = layout.name.startswith("CATARACTS")
        options["tool_names"] = cells if named else [f"column {i}" for i in range(1, len(cells) + 1)]
    elif layout.name == "JIGSAWS":
        options["phase_names"] = _GESTURES
    elif layout.name == "TeCNO":
        options = {}
    return options


def _content(tracks: Sequence[Track]) -> str:
    """Describe how much there is, and which classes occur."""
    if not tracks:
        return ""
    lengths = [_seconds(track) / 60 for track in tracks]
    shortest, longest = f"{min(lengths):.1f}", f"{max(lengths):.1f}"
    parts = [f", {longest} minutes" if shortest == longest else f", {shortest} to {longest} minutes"]
    for kind, occurring in (("phases", _phases), ("tools", _tools)):
        own = [t for t in tracks if t.track == kind]
        if own:
            unknown = sum(int((t.labels() < 0).reshape(len(t.frames), -1).any(1).sum()) for t in own)
            parts.append(f"; {kind}: {sum(len(t.frames) for t in own):,} rows, {occurring(own)}")
            parts += [f", {unknown:,} rows unknown"] if unknown else []
    return "".join(parts)


def _phases(tracks: Sequence[Track]) -> str:
    """Return which phases occur: how many of those with names, or the range of indices in the files."""
    seen = sorted({int(v) for t in tracks for v in np.unique(t.labels()) if v >= 0})
    names, first = tracks[0].names, tracks[0].layout.first_index
    if names:
        return f"{len(seen)} of {len(names)} occur"
    return f"labels {seen[0] + first} to {seen[-1] + first}" if seen else "no label"


def _tools(tracks: Sequence[Track]) -> str:
    """Return how many tools occur."""
    wide = max(t.values.shape[1] for t in tracks)
    present = {int(k) for t in tracks for k in np.flatnonzero((t.labels() > 0).any(0))}
    return f"{len(present)} of {wide} occur"


def _seconds(track: Track) -> float:
    return float(track.frames[-1] - track.frames[0] + (row_step(track.frames, track.fps) or 1)) / track.fps


def _gaps(track: Track) -> list[str]:
    """Return a line if rows are missing; segments may leave frames out."""
    step = row_step(track.frames, track.fps)
    if not step or track.layout.format == "segments":
        return []
    apart = np.diff(track.frames)
    gaps = np.flatnonzero(apart > 1.5 * step)
    if not gaps.size:
        return []
    before, after = track.frames[gaps[0] : gaps[0] + 2]
    more = f", and {gaps.size - 1} more gaps" if gaps.size > 1 else ""
    return [f"{track.source}: no rows between frames {before} and {after}{more}; others are {step:g} frames apart"]


def _lengths(tracks: Sequence[Track]) -> list[str]:
    """Return a line per video whose phases and tools differ in length."""
    found: dict[str, dict[str, Track]] = {}
    for track in tracks:
        found.setdefault(track.video, {})[track.track] = track
    lines = []
    for video, own in found.items():
        if len(own) == 2:
            phases, tools = _seconds(own["phases"]), _seconds(own["tools"])
            if abs(phases - tools) > max(_SAME_LENGTH * max(phases, tools), 2):
                lines.append(f"{video}: phases last {phases:,.0f} s, tools {tools:,.0f} s")
    return lines
