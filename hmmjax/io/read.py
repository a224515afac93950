"""Find files, tell their layouts apart, and read them into tracks."""

import dataclasses
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from hmmjax.io.answers import ANSWERS, is_answers, read_answers
from hmmjax.io.arrays import pickle_error, read_arrays
from hmmjax.io.errors import FormatError
from hmmjax.io.folder import is_unfinished
from hmmjax.io.join import merge_labels
from hmmjax.io.names import Names, resolve_names
from hmmjax.io.records import Track
from hmmjax.io.spec import KINDS, TRACKS, Spec, video_id
from hmmjax.io.special import is_cadene, is_detections, read_cadene, read_detections
from hmmjax.io.text import read_text

PathLike = str | os.PathLike[str]

_TEXT = (".txt", ".csv", ".tsv")
_ARRAYS = (".npz", ".npy")
_PICKLES = (".pkl", ".pickle", ".p", ".pt", ".pth")


RESULTS = "stabilized.npz"
"""The file of posteriors that makes a folder one of results."""


def find_files(paths: PathLike | Sequence[PathLike]) -> tuple[list[str], list[str]]:
    """The prediction files among `paths`, folders searched (not their subfolders).

    Args:
        paths: a file, a folder, or several of either. A folder of results stands for its file of posteriors.

    Returns:
        The files, those of a folder in natural order, and notices about files in folders that were passed over.

    Raises:
        FormatError: for a path that does not exist, a folder without any readable file, and a file given twice.
    """
    found: list[str] = []
    notices: list[str] = []
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        path = Path(path)
        if path.is_dir():
            if (path / RESULTS).is_file():
                # A folder that `hmmjax stabilize` wrote: everything it found is in this one file.
                found.append(str(path / RESULTS))
                if is_unfinished(path):
                    notices.append(f"{path}: results of a run that did not finish, or still runs")
                continue
            # Hidden files are nobody's predictions: systems leave them, and writes that were killed.
            shown = (p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
            inside = sorted(shown, key=lambda p: natural(p.name))
            files = [p for p in inside if p.suffix.lower() in (*_TEXT, *_ARRAYS) and "timestamp" not in p.name]
            if not files:
                raise FormatError("no txt, csv, npz or npy file in this folder", file=path)
            passed = [p.name for p in inside if p not in files]
            if passed:
                notices.append(f"{path}: passed over {', '.join(passed[:5])}{' ...' if len(passed) > 5 else ''}")
            found += [str(p) for p in files]
        elif not path.exists():
            raise FormatError("no such file or folder", file=path)
        else:
            found.append(str(path))
    twice = {os.path.realpath(file): file for file in found}
    if len(twice) < len(found):
        raise FormatError("a file is given twice", file=next(f for f in found if found.count(f) > 1 or f not in twice))
    return found, notices


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sort key that puts video9 before video10.

    Args:
        name: of a file or a video.

    Returns:
        A part for each run of digits and of others; upper and lower case are the same.
    """
    return [(0, int(part), "") if part.isdigit() else (1, 0, part.lower()) for part in re.split(r"(\d+)", name) if part]


def read(
    paths: PathLike | Sequence[PathLike],
    *,
    track: str | None = None,
    kind: str | Mapping[str, str | None] | None = None,
    phase_names: Names | None = None,
    tool_names: Names | None = None,
    fps: float | None = None,
    step: int = 25,
    offset: int | None = None,
    header: str = "auto",
    strict: bool = True,
    unknown: bool = False,
    rename: Mapping[str, str] | None = None,
    progress: Callable[[Iterable[str]], Iterable[str]] | None = None,
) -> list[Track]:
    """Read predictions or annotations, one track per video and file (or array).

    Args:
        paths: a file, a folder, or several of either. Layouts are told apart by content: Cholec80 and M2CAI16 txt,
            MTRCNet, TMRNet and Surgformer txt, csv with a Frame column, NPZ (`hmmjax.io.arrays`), NPY (one video
            each), Cadene's csv, Faster R-CNN detection csv; and, among annotations, answers to `hmmjax suggest`.
        track: "phases" or "tools", where the file does not say.
        kind: "labels", "probabilities" or "logits" (softmax over phases, sigmoid per tool), for both tracks or as
            ``{"phases": ..., "tools": ...}``. None takes whole-number tools and single columns of phases as labels
            and the rest as probabilities, which must then lie in [0, 1].
        phase_names: the classes: for files with indices only, their order; for files with names, the names to expect
            (default Cholec80's). A list, "cholec80", "tf-cholec80", "m2cai16", or a file with one name a line.
        tool_names: likewise ("cholec80", "cholect50").
        fps: frames per second of the counter in the Frame column; 25 on Cholec80, also when only each 25th is there;
            1 where frames number seconds. None means 25, or what an NPZ says of itself.
        step: frames from row to row in files without a Frame column (NPY, most NPZ, Cadene).
        offset: frame of their first row; None means 0, and 24 for Cadene.
        header: "yes", "no" or "auto", for text.
        strict: refuse damaged rows of a detection csv; False leaves their frames out and says so in `notices`.
        unknown: allow -1, unknown, among labels (annotations).
        rename: videos to rename, e.g. ``{"tool_video_11": "video61"}``.
        progress: wraps the iteration over files, for a progress bar.

    Returns:
        Tracks in natural order of video, phases before tools.

    Raises:
        FormatError: for anything that is not as it should be; the message names file, line, cause and fix.
    """
    if track not in (None, *TRACKS):
        raise FormatError(f"unknown track {track!r}", fix="say 'phases' or 'tools'")
    if header not in ("yes", "no", "auto"):
        raise FormatError(f"unknown header declaration {header!r}", fix="say 'yes', 'no' or 'auto'")
    if fps is not None and not fps > 0:
        raise FormatError(f"fps must be positive, not {fps:g}")
    if step < 1:
        raise FormatError(f"step must be at least 1, not {step}")
    kinds: dict[str, str | None] = dict(kind) if isinstance(kind, Mapping) else {name: kind for name in TRACKS}
    for name, value in kinds.items():
        if value not in (None, *KINDS) or name not in TRACKS:
            raise FormatError(f"unknown kind {value!r} of {name}", fix=f"say one of {', '.join(KINDS)}")
    names = {"phases": resolve_names(phase_names, "phases"), "tools": resolve_names(tool_names, "tools")}
    spec = Spec(track, kinds, names, fps, step, offset, header, strict, unknown)
    files, notices = find_files(paths)
    tracks: list[Track] = []
    for file in files if progress is None else progress(files):
        tracks += _read_file(file, spec)
    tracks = _renamed(tracks, rename or {})
    _no_duplicates([track for track in tracks if track.layout.format != ANSWERS])
    if any(track.layout.format == ANSWERS for track in tracks):
        tracks = merge_labels(tracks)
    notices += _doubtful_rate(tracks) if fps is None else []
    if not tracks:
        raise FormatError("no question is answered yet", file=files[0], fix="fill it in, or leave it out")
    if notices:
        tracks[0] = dataclasses.replace(tracks[0], notices=(*tracks[0].notices, *notices))
    return sorted(tracks, key=lambda t: (natural(t.video), t.track))


_SHORTEST_SURGERY = 600.0
"""Seconds; no video of Cholec80 or M2CAI16 is as short."""


def _doubtful_rate(tracks: Sequence[Track]) -> list[str]:
    """A notice when rows numbered 1, 2, 3, ... make videos too short for the 25 frames a second that was assumed."""
    text = [t for t in tracks if t.layout.format in ("text", "csv") and t.fps == 25 and t.frames.size > 25]
    dense = [t for t in text if np.median(np.diff(t.frames)) == 1]
    if not dense or len(dense) < len(text):
        return []
    lasts = float(np.median([t.frames.size for t in dense])) / 25
    if lasts >= _SHORTEST_SURGERY:
        return []
    return [
        f"frames are numbered one by one and taken as 25 a second, so that a video lasts {lasts:.0f} s: if they count "
        "seconds say fps 1 (--fps 1)"
    ]


def read_annotations(paths: PathLike | Sequence[PathLike], **options: object) -> list[Track]:
    """`read` for ground truth: labels only, and -1 may stand for unknown.

    Args:
        paths: a file, a folder, or several of either; among them files that `hmmjax suggest` wrote and a person filled
            in, whose answers add to what other files know of a video.
        **options: of `read`, but `unknown`; `kind` is "labels" unless given.

    Returns:
        Tracks of labels, in natural order of video, phases before tools.

    Raises:
        FormatError: as `read`.
    """
    options.setdefault("kind", "labels")
    return read(paths, unknown=True, **options)  # type: ignore[arg-type]


def _read_file(file: str, spec: Spec) -> list[Track]:
    suffix = Path(file).suffix.lower()
    if suffix in _PICKLES:
        raise pickle_error(file)
    if suffix in _ARRAYS:
        return read_arrays(file, spec)
    try:
        text = Path(file).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FormatError("this is no text file", file=file, fix="give txt, csv, npz or npy files") from None
    except OSError as error:
        raise FormatError(f"the file cannot be read ({error.strerror})", file=file) from None
    if "\0" in text:
        raise FormatError("this is no text file", file=file, fix="give txt, csv, npz or npy files")
    first = next((line for line in text.splitlines() if line.strip()), "")
    if is_answers(first):
        return read_answers(file, text, spec)
    if is_cadene(first):
        return read_cadene(file, text, spec)
    if is_detections(first):
        return [read_detections(file, text, video_id(file), spec)]
    return read_text(file, text, video_id(file), spec)


def rename_videos(tracks: Sequence[Track], names: Mapping[str, str]) -> list[Track]:
    """Tracks with some videos renamed.

    Args:
        tracks: as `read` gives them.
        names: from old to new, for instance ``{"tool_video_11": "video61"}``.

    Returns:
        The tracks, in the same order.

    Raises:
        FormatError: when there is no such video, and when two tracks then are of the same video.
    """
    result = _renamed(tracks, names)
    _no_duplicates(result)
    return result


def _renamed(tracks: Sequence[Track], names: Mapping[str, str]) -> list[Track]:
    wanted = {video_id(old): video_id(new) for old, new in names.items()}
    missing = set(wanted) - {track.video for track in tracks}
    if missing:
        have = ", ".join(dict.fromkeys(track.video for track in tracks))
        raise FormatError(f"no video {', '.join(sorted(missing))} to rename", fix=f"the videos are {have}")
    return [dataclasses.replace(track, video=wanted.get(track.video, track.video)) for track in tracks]


def _no_duplicates(tracks: Sequence[Track]) -> None:
    seen: dict[tuple[str, str], Track] = {}
    for track in tracks:
        other = seen.setdefault((track.video, track.track), track)
        if other is not track:
            raise FormatError(
                f"{track.track} of {track.video} were already read from {other.source}"
                + (f" (there as {other.layout.key}, here as {track.layout.key})" if track.layout.key else ""),
                file=track.source,
                fix="give one file per video and track, or rename one of the videos",
            )
