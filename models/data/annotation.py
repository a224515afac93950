"""The annotation of one recording: phase and tool labels at the used frames, joined on frame numbers."""

import dataclasses
from typing import Any

import numpy as np

from hmmjax.data.annotations import check_complete
from hmmjax.io import FormatError, Track, read_annotations
from models.data.recording import END_TOLERANCE, Recording, Sampling, own_frames, probe_recording
from models.data.video import count_frames
from models.data.video_images import find_images


@dataclasses.dataclass(frozen=True, eq=False)
class Annotation:
    """The labels of one video at its used frames.

    Attributes:
        id: name of the video.
        frames: (n,) int64 frame numbers in the video, ascending.
        seconds: (n,) float64 times.
        phases: (n,) int32, -1 if unknown.
        tools: (n, K) int32, 0 or 1, -1 if unknown.
        notices: rows that are not used, and why.
        phase_names: L names, in the order of `phases`; empty if unknown.
        tool_names: K names, in the order of `tools`; empty if unknown.
    """

    id: str
    frames: np.ndarray
    seconds: np.ndarray
    phases: np.ndarray
    tools: np.ndarray
    notices: tuple[str, ...] = ()
    phase_names: tuple[str, ...] = ()
    tool_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.frames)


def annotate(
    recording: Recording,
    sampling: Sampling,
    phase_names: tuple[str, ...],
    tool_names: tuple[str, ...],
    available: np.ndarray | None = None,
) -> Annotation:
    """Read and join the annotation of a recording, see `models.data.collections.Collection.annotation`.

    Args:
        recording: to annotate.
        sampling: gives the used frames.
        phase_names: L names; may be empty.
        tool_names: K names; may be empty.
        available: numbers of the frames that a recording without complete tracks has; None looks at its images or
            video.
    """
    step = sampling.step(recording)
    tracks = _read_tracks(recording, phase_names, tool_names)
    notices = list(dict.fromkeys(notice for track in tracks.values() for notice in track.notices))
    if tracks and not recording.partial:
        frames = _common_frames(recording, sampling, tracks, notices)
    else:
        # A partial track does not give the video's length, but the images or the video do.
        frames = sampling.select(own_frames(recording, sampling) if available is None else available, step)
        for track in tracks.values():
            notices += _unused_labels(track, frames, step)
    if not len(frames):
        raise FormatError(f"{recording.id}: no used frame has all tracks", fix="check fps, rate and offset")
    phases, tools = (_values(tracks.get(kind), frames) for kind in ("phases", "tools"))
    return Annotation(
        id=recording.id,
        frames=frames,
        seconds=frames / recording.fps,
        phases=np.full(len(frames), -1, np.int32) if phases is None else phases,
        tools=np.full((len(frames), len(tool_names)), -1, np.int32) if tools is None else tools,
        notices=tuple(notices),
        phase_names=phase_names,
        tool_names=tool_names,
    )


def _read_tracks(recording: Recording, phase_names: tuple[str, ...], tool_names: tuple[str, ...]) -> dict[str, Track]:
    tracks: dict[str, Track] = {}
    names: dict[str, Any] = {"phase_names": phase_names or None, "tool_names": tool_names or None}
    names["first_index"] = recording.first_index
    for kind, file in (("phases", recording.phases), ("tools", recording.tools)):
        if file is None:
            continue
        found = [t for t in read_annotations(file, fps=recording.fps, **names) if t.track == kind]
        if len(found) != 1:
            raise FormatError(
                f"the file has {len(found)} tracks of {kind}, expected one", file=file, fix="give a file of one video"
            )
        track = found[0].reorder(phase_names if kind == "phases" else tool_names)
        if not recording.partial:
            check_complete(track)
        tracks[kind] = track
    return tracks


def _common_frames(
    recording: Recording, sampling: Sampling, tracks: dict[str, Track], notices: list[str]
) -> np.ndarray:
    """Return the used frames that all complete tracks have, and append those that only some have to `notices`."""
    step = sampling.step(recording)
    for track in tracks.values():
        # check_complete made sure that rows are equally spaced.
        spacing = int(track.frames[1] - track.frames[0]) if len(track.frames) > 1 else step
        if step % spacing:
            raise FormatError(
                f"{recording.id} is annotated every {spacing} frames, but {sampling.rate:g} frames per second are every"
                f" {step}",
                file=track.source,
                fix=f"use rate={recording.fps / spacing:g}, or declare the fps that the Frame column counts",
            )
    kinds = list(tracks)
    frames = sampling.select(tracks[kinds[0]].frames, step)
    if len(kinds) == 2:
        other = sampling.select(tracks[kinds[1]].frames, step)
        common = np.intersect1d(frames, other, assume_unique=True)
        for having, reason in ((frames, f"{kinds[1]} are missing"), (other, f"{kinds[0]} are missing")):
            lost = np.setdiff1d(having, common, assume_unique=True)
            if len(lost):
                notices.append(f"{recording.id}: skipped {len(lost)} frame(s) from {lost[0]}, where {reason}")
        frames = common
    _check_end(recording, sampling, tracks)
    return frames


def _check_end(recording: Recording, sampling: Sampling, tracks: dict[str, Track]) -> None:
    """Raise FormatError unless complete annotations end with their video; without video or images there is no check."""
    if recording.video is not None:
        length, file = count_frames(recording.video), recording.video
        probe_recording(recording)
    elif recording.images is not None and recording.naming is not None:
        images = find_images(recording.images, recording.naming, fps=recording.fps, rate=sampling.rate)
        length, file = max(images) + 1, recording.images
    else:
        return
    tolerance = END_TOLERANCE + 1 / sampling.rate
    for track in tracks.values():
        off = (length - 1 - int(track.frames[-1])) / recording.fps
        if abs(off) > tolerance:
            raise FormatError(
                f"the {track.track} of {recording.id} end at frame {track.frames[-1]}, {abs(off):.0f} s "
                f"{'before' if off > 0 else 'after'} {file}",
                file=track.source,
                fix="check that the two belong together, naming, and fps (of the Frame column; 1 for seconds), or "
                "declare the annotation partial",
            )


def _values(track: Track | None, frames: np.ndarray) -> np.ndarray | None:
    if track is None:
        return None
    rows = np.minimum(np.searchsorted(track.frames, frames), len(track.frames) - 1)
    values = track.values[rows].astype(np.int32)
    values[track.frames[rows] != frames] = -1
    return values


def _unused_labels(track: Track, frames: np.ndarray, step: int) -> list[str]:
    """Return notices about labels of a partial track that are not at a used frame."""
    labeled = track.frames[(track.values >= 0).reshape(len(track.frames), -1).any(1)]
    lost = np.setdiff1d(labeled, frames)
    late = lost[lost > frames[-1]] if len(frames) else lost
    between = np.setdiff1d(lost, late)
    return [
        f"{track.video}: {len(gone)} labeled row(s) of {track.track} not used, from frame {gone[0]} on: {why}"
        for gone, why in ((between, f"not at a used frame (one in {step})"), (late, "after the end of the video"))
        if len(gone)
    ]
