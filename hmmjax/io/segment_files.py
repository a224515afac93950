"""Write labels as segments, for annotation tools: csv, ELAN's tab-delimited text and Label Studio's JSON."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hmmjax.io.atomic_write import write_atomically
from hmmjax.io.errors import FormatError
from hmmjax.io.grid import row_step
from hmmjax.io.tracks import Track

FORMATS = ("segments", "elan", "label-studio")
"""What `write_segments` writes."""


KNOWN_TOOLS = "known_tools"
"""The key of tasks of Label Studio under which the ranges of frames are stored in which all tools are known."""


class Span(NamedTuple):
    """A run of one label: its track, name, first frame, and the frame after its last one.

    A blank name stands for a run in which all tools are known, so that those that are not listed are absent.
    """

    track: str
    label: str
    start: int
    end: int


def spans_of(track: Track) -> list[Span]:
    """Return the runs of each phase, or of the presence of each tool and of what is known; gaps between rows end them.

    Args:
        track: labels or probabilities; the most probable phase, and tools at or above 0.5.
    """
    labels, frames = track.labels(), track.frames
    step = max(1, round(row_step(frames, track.fps)))
    columns = [(None, labels)] if labels.ndim == 1 else list(enumerate(labels.T))
    names = track.names or [f"{track.track[:-1]} {i}" for i in range(int(labels.max(initial=0)) + 1)]
    if labels.ndim == 2 and track.names is None:
        names = [f"tool {i + 1}" for i in range(labels.shape[1])]
    if labels.ndim == 2:
        columns = [(-1, (labels >= 0).all(1).astype(int)), *columns]
        names = [*names, ""]  # of column -1
    out = []
    for k, values in columns:
        cut = np.flatnonzero((np.diff(values) != 0) | (np.diff(frames) > 1.5 * step)) + 1
        for a, b in zip(np.r_[0, cut], np.r_[cut, len(values)], strict=True):
            value = int(values[a])
            if value < 0 or (k is not None and value == 0):
                continue
            follows = b < len(frames) and frames[b] - frames[b - 1] <= 1.5 * step
            end = int(frames[b]) if follows else int(frames[b - 1]) + step
            out.append(Span(track.track, names[value if k is None else k], int(frames[a]), end))
    return sorted(out, key=lambda s: (s.track, s.start))


def write_segments(
    tracks: Sequence[Track],
    folder: str | os.PathLike[str],
    formats: Sequence[str] = ("segments",),
    *,
    force: bool = False,
) -> list[Path]:
    """Write the labels of all videos as segments.

    - "segments": ``segments/<video>.csv`` with the columns video, track, label, start and end in seconds;
    - "elan": ``elan/<video>.txt``, which ELAN imports as tab-delimited text: tier, participant, begin, end, annotation;
    - "label-studio": ``label-studio.json``, tasks with timeline labels in frames.

    `hmmjax.io.read_annotations` reads all of them back. Rows without a label, or ``known_tools`` in the data of a task,
    tell in which frames all tools are known: other tools are unknown elsewhere.

    Args:
        tracks: labels or probabilities of all videos.
        folder: the output folder.
        formats: which of `FORMATS` to write.
        force: overwrite existing files.

    Returns:
        The files written.

    Raises:
        FormatError: an unknown format.
        FileExistsError: a file exists and `force` is False.
    """
    if unknown := [name for name in formats if name not in FORMATS]:
        raise FormatError(f"unknown format {unknown[0]!r}", fix=f"choose among {', '.join(FORMATS)}")
    videos: dict[str, list[Track]] = {}
    for track in tracks:
        videos.setdefault(track.video, []).append(track)
    texts: dict[Path, str] = {}
    for video, own in videos.items():
        spans = [(span, track.fps) for track in own for span in spans_of(track)]
        if "segments" in formats:
            texts[Path(folder) / "segments" / f"{video}.csv"] = "\n".join(segment_lines(own)) + "\n"
        if "elan" in formats:
            lines = [f"{s.track}\t\t{_clock(s.start / fps)}\t{_clock(s.end / fps)}\t{s.label}" for s, fps in spans]
            texts[Path(folder) / "elan" / f"{video}.txt"] = "\n".join(lines) + "\n"
    if "label-studio" in formats:
        tasks = [_task(video, own) for video, own in videos.items()]
        texts[Path(folder) / "label-studio.json"] = json.dumps(tasks, indent=1, ensure_ascii=False) + "\n"
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path, force=force) as temporary:
            Path(temporary).write_text(text, encoding="utf-8")
    return list(texts)


_TITLES = {"seconds": "start,end", "ms": "start_ms,end_ms", "frames": "start_frame,end_frame", "clock": "start,end"}
"""Titles of the columns of times, by their unit, which readers tell from them and the cells."""


def segment_lines(tracks: Sequence[Track], times: str = "seconds") -> list[str]:
    """Return the lines of a csv of segments, with its header.

    Args:
        tracks: labels or probabilities.
        times: unit of the times, as in `Layout.times`; the last frame of a segment is its end if times are frames.
    """
    rows = [f"video,track,label,{_TITLES[times]}"]
    for track in tracks:
        for s in spans_of(track):
            start, end = _time(s.start, track.fps, times), _time(s.end - (times == "frames"), track.fps, times)
            rows.append(f"{track.video},{s.track},{_quoted(s.label)},{start},{end}")
    return rows


def _time(frame: int, fps: float, unit: str) -> str:
    seconds = frame / fps
    if unit == "frames":
        return str(frame)
    if unit == "clock":
        return _clock(seconds)
    return f"{1000 * seconds:.0f}" if unit == "ms" else f"{seconds:.3f}"


def _quoted(cell: str) -> str:
    """Return a cell of a csv, in quotation marks if it needs them."""
    return '"' + cell.replace('"', '""') + '"' if any(c in cell for c in ',;"\t\n\r') else cell


def _task(video: str, tracks: Sequence[Track]) -> dict[str, Any]:
    spans = [span for track in tracks for span in spans_of(track)]
    data: dict[str, Any] = {"video": f"{video}.mp4"}
    if known := [[span.start + 1, span.end] for span in spans if not span.label]:
        data[KNOWN_TOOLS] = known
    results = [
        {
            "type": "timelinelabels",
            "from_name": span.track,
            "to_name": "video",
            "value": {"ranges": [{"start": span.start + 1, "end": span.end}], "timelinelabels": [span.label]},
        }
        for span in spans
        if span.label
    ]
    return {"data": data, "annotations": [{"result": results}]}


def _clock(seconds: float) -> str:
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{rest / 1000:06.3f}"
