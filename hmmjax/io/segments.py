"""Read tables of segments: start, end and label, or the beginning of each phase, instead of one row per frame.

Annotation tools export them in seconds, milliseconds, timecodes or frames: ELAN, BORIS, Label Studio, JIGSAWS, and the
change points of Cataract-101. They become tracks with a row per frame.
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.frame_tables import read_frame_table
from hmmjax.io.names import CHOLEC80_PHASES, CHOLEC80_TOOLS, find_name, unknown_name
from hmmjax.io.segment_rows import Segment, check_times, rows_of
from hmmjax.io.spec import MAX_CLASSES, Spec
from hmmjax.io.table import delimiter_of
from hmmjax.io.tracks import Layout, Track, with_notices

SEGMENTS = "segments"
"""The layout's name."""
LONGEST = 48 * 3600
"""Seconds of the longest video: later times are in another unit, and would be millions of rows."""


def read_segments(file: str, text: str, spec: Spec) -> list[Track]:
    """Read a table of segments.

    Raises:
        FormatError: a time or label cannot be read, segments overlap, or the unit of time is unclear; names the line.
    """
    rows = rows_of(file, text, spec)
    first = [line for line in text.splitlines() if line.strip(" \t,;")][:2]
    if rows.per_frame and not _are_tools(rows.segments, spec) and delimiter_of(*first) != " ":
        return read_frame_table(file, text, spec)
    tracks = tracks_of(file, rows.segments, spec)
    tracks = [dataclasses.replace(t, layout=dataclasses.replace(t.layout, times=rows.unit)) for t in tracks]
    return with_notices(tracks, rows.notices)


def _are_tools(segments: Sequence[Segment], spec: Spec) -> bool:
    """Whether labels are names of tools: a frame may have several of them."""
    phases, tools = (
        spec.names.get(t) or known for t, known in (("phases", CHOLEC80_PHASES), ("tools", CHOLEC80_TOOLS))
    )
    labels = {s.label for s in segments if find_name(s.label, phases) is None}
    return any(find_name(label, tools) is not None for label in labels)


def tracks_of(file: str, found: Sequence[Segment], spec: Spec) -> list[Track]:
    """Return the tracks of segments: a row per frame of annotations, or per `spec.step` frames of predictions."""
    videos: dict[str, list[Segment]] = {}
    blank: list[Segment] = []
    for segment in found:
        check_times(file, segment)
        if segment.label or segment.tier.lower().startswith(("tool", "instrument")):
            videos.setdefault(segment.video, []).append(segment)
        else:
            blank.append(segment)
    if not videos:
        raise FormatError("the file has no segments", file=file, fix="export it again, or leave it out")
    tracks = [track for video, own in videos.items() for track in _video(file, video, own, spec)]
    if blank:
        notice = f"{file}: {len(blank)} segment(s) without a label are left out; the first is on line {blank[0].line}"
        tracks = with_notices(tracks, [notice])
    return tracks


def _video(file: str, video: str, found: list[Segment], spec: Spec) -> list[Track]:
    fps = spec.counter_fps
    found = sorted(found, key=lambda s: (s.start, s.line))
    notices = []
    if found[-1].end is None:
        notices.append(f"{file}: the end of the last segment of {video} is not given, so only its first frame counts")
    spans: list[tuple[int, int, Segment]] = []
    for i, s in enumerate(found):
        scale = 1.0 if s.fps is None else fps
        # Times are often rounded to milliseconds, which may put them just behind the frame that they mean.
        rounding = 1e-6 if s.fps is None else min(6e-4 * fps, 0.1)
        start = int(np.ceil(s.start * scale - rounding))
        after = found[i + 1].start * scale if i + 1 < len(found) else start + 1
        end = after if s.end is None else s.end * scale + (s.fps is None)  # the last frame belongs to its segment
        if max(start, end) > LONGEST * fps:
            raise FormatError(
                f"a segment of {video} is {max(start, end) / fps / 3600:,.0f} hours into the video",
                file=file,
                line=s.line,
                fix="name the columns by their unit, such as start_ms and end_ms, or pass the fps of frame numbers",
            )
        spans.append((start, int(np.ceil(end - rounding)), s))
    if short := [s for a, b, s in spans if b <= a]:
        notices.append(
            f"{file}: {len(short)} segment(s) of {video} contain no frame at {fps:g} per second, the first on line "
            f"{short[0].line}"
        )
    out = []
    tracks: dict[str, str] = {}
    for s in sorted(found, key=lambda s: s.line):  # the first line with an unknown name is reported
        tracks[s.label] = tracks.get(s.label) or _track_of(s, spec, file)
    for track in ("phases", "tools"):
        own = [span for span in spans if tracks[span[2].label] == track]
        if own:
            out.append(_labels(file, video, track, own, spec, tuple(notices)))
    return out


def _labels(
    file: str, video: str, track: str, spans: list[tuple[int, int, Segment]], spec: Spec, notices: tuple[str, ...]
) -> Track:
    first, last = min(a for a, _, _ in spans), max(b for _, b, _ in spans)
    frames = np.arange(max(first, 0), last)
    if not spec.unknown:
        frames = np.arange(-(-first // spec.step) * spec.step, last, spec.step)
    names = spec.names.get(track) or (CHOLEC80_PHASES if track == "phases" else CHOLEC80_TOOLS)
    # A blank label tells in which frames all tools are known; without one, from the first to the last segment.
    named = [span for span in spans if span[2].label]
    numbered = track == "phases" and all(re.fullmatch(r"\d+", s.label) for _, _, s in named)
    blank = [span for span in spans if not span[2].label and track == "tools"]
    absent = 0 if track == "tools" and not blank else -1
    values = np.full(frames.size if track == "phases" else (frames.size, len(names)), absent)
    for a, b, _ in blank:
        values[slice(*np.searchsorted(frames, [a, b]).tolist())] = 0
    by_line = sorted((s for _, _, s in named), key=lambda s: s.line)
    indices = {} if numbered else {s.label: _index(s, names, track, file) for s in by_line}
    twice: list[Segment] = []
    for a, b, s in named:
        inside = slice(*np.searchsorted(frames, [a, b]).tolist())
        if track == "tools":
            values[inside, indices[s.label]] = 1
            continue
        index = int(s.label) - spec.first_index if numbered else indices[s.label]
        if numbered and not 0 <= index < (len(spec.names.get("phases") or ()) or MAX_CLASSES):
            fix = "declare all classes, or pass first_index=1 if they are numbered from 1"
            fix = "pass first_index=0, since it is below the first index" if index < 0 else fix
            raise FormatError(f"phase label {s.label} is out of range", file=file, line=s.line, fix=fix)
        if ((values[inside] >= 0) & (values[inside] != index)).any():
            raise FormatError(
                f"{s.label!r} overlaps another phase of {video}", file=file, line=s.line, fix="correct start or end"
            )
        twice += [s] if (values[inside] >= 0).any() else []
        values[inside] = index
    if twice:
        notice = f"{file}: {len(twice)} segment(s) of {video} overlap others of the same phase, and are joined"
        notices = (*notices, f"{notice}; the first is on line {twice[0].line}")
    if not spec.unknown and track == "phases":
        known = values >= 0
        frames, values = frames[known], values[known]
    if not frames.size:
        raise FormatError("no frame lies in a segment", file=file, fix="check fps and the unit of time")
    declared = spec.names.get(track)
    layout = Layout(format=SEGMENTS, kind="labels", delimiter=",", spelling=None if numbered else tuple(names))
    known_names = declared if numbered else tuple(names)
    return Track(video, track, frames, values.astype(np.int32), known_names, spec.counter_fps, layout, file, notices)


def _index(segment: Segment, names: Sequence[str], track: str, file: str) -> int:
    found = find_name(segment.label, names)
    if found is None:
        raise unknown_name(segment.label, names, track, file=file, line=segment.line)
    return found


def _track_of(segment: Segment, spec: Spec, file: str) -> str:
    """Return whether a label is a phase or a tool; a blank one is that no tool is present."""
    if spec.track or not segment.label:
        return spec.track or "tools"
    phases = spec.names.get("phases") or CHOLEC80_PHASES
    tools = spec.names.get("tools") or CHOLEC80_TOOLS
    if re.fullmatch(r"\d+", segment.label) or find_name(segment.label, phases) is not None:
        return "phases"
    if find_name(segment.label, tools) is not None:
        return "tools"
    raise unknown_name(segment.label, phases, "phases", file=file, line=segment.line)
