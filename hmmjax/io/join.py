"""Join tracks on frame numbers, never on row numbers; report every row that is dropped."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.tracks import Track, Video, frame_span


def align_classes(
    tracks: Sequence[Track], names: Sequence[str] | None = None
) -> tuple[list[Track], tuple[str, ...] | None]:
    """Bring the classes of tracks of one kind into the same order.

    If no track has class names, nothing is moved: indices are assumed to mean the same in all of them.

    Args:
        tracks: tracks of phases, or tracks of tools.
        names: the class order; None takes that of the first track with names.

    Returns:
        The tracks, and the class names (None if no track has any).

    Raises:
        FormatError: if some tracks have names and others only indices, if names differ, or if there are no names and
            the numbers of classes differ.
    """
    if names is None:
        names = next((track.names for track in tracks if track.names is not None), None)
    if names is None:
        widths = {track.num_classes: track for track in tracks if track.num_classes is not None}
        if len(widths) > 1:
            (few, one), (many, other) = sorted(widths.items())[:2]
            raise FormatError(
                f"the file has {many} {other.track}, but {one.source} has {few}",
                file=other.source,
                fix="declare the class names of each file, or give all files the same classes",
            )
        return list(tracks), None
    return [track.reorder(names) for track in tracks], tuple(names)


def join(tracks: Sequence[Track]) -> list[Video]:
    """Join the phases and tools of each video at the frames that both have.

    Rows between the frames of the sparser file are skipped (Cholec80 has 25 phase rows per tool row). All other rows
    without a partner, in particular at the end, are reported in `Video.notices`.

    Args:
        tracks: phases, tools, or both of every video.

    Returns:
        The videos in order of first appearance. If phases and tools count frames at different rates, both are
        converted to the faster counter.

    Raises:
        FormatError: if two tracks have no frame in common, only some videos have both, or a track is repeated.
    """
    videos: dict[str, dict[str, Track]] = {}
    for track in tracks:
        if track.track in videos.setdefault(track.video, {}):
            raise FormatError(
                f"{track.track} of {track.video} are given twice",
                file=track.source,
                fix="pass one track per video and kind",
            )
        videos[track.video][track.track] = track
    kinds = {name for have in videos.values() for name in have}
    for video, have in videos.items():
        if len(have) < len(kinds):
            missing = (kinds - set(have)).pop()
            others = [other for other in videos if missing in videos[other]]
            raise FormatError(
                f"{video} has no {missing}, unlike {', '.join(others[:3])}{' ...' if len(others) > 3 else ''}",
                file=next(iter(have.values())).source,
                fix="pass both for all videos, or only one kind",
            )
    return [_join_one(video, have) for video, have in videos.items()]


def _join_one(video: str, have: dict[str, Track]) -> Video:
    if len(have) == 1:
        (track,) = have.values()
        one = Video(video, track.frames, track.fps)
        return dataclasses.replace(one, **{track.track: track})
    notices = []
    fps = max(track.fps for track in have.values())
    for name, track in have.items():
        have = {**have, name: (same := track.at_fps(fps))}
        if lost := track.frames.size - same.frames.size:
            notices.append(
                f"{video}: dropped {lost} {name} row(s) that fall between frames of a counter at {fps:g} per second"
            )
    phases, tools = have["phases"], have["tools"]
    frames = np.intersect1d(phases.frames, tools.frames, assume_unique=True)
    if frames.size == 0:
        raise FormatError(
            f"{video}: phases ({frame_span(phases.frames)}) and tools ({frame_span(tools.frames)}) have no frame in "
            "common",
            file=tools.source,
            fix="check that both count frames at the same rate (fps, step, offset)",
        )
    for track, other in ((phases, tools), (tools, phases)):
        lost = np.setdiff1d(track.frames, frames, assume_unique=True)
        # Rows between those of the sparser track are not reported: it was sampled at a lower rate.
        lost = lost[~_between(lost, other.frames)]
        if lost.size:
            notices.append(
                f"{video}: dropped {lost.size} {track.track} row(s) without {other.track} ({frame_span(lost)})"
            )
    phases = phases.take(np.isin(phases.frames, frames, assume_unique=True))
    tools = tools.take(np.isin(tools.frames, frames, assume_unique=True))
    return Video(video, frames, phases.fps, phases, tools, tuple(notices))


def _between(frames: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Which frames lie between two consecutive frames of `grid` that are one regular step apart."""
    if grid.size < 2:
        return np.zeros(frames.shape, bool)
    step = np.diff(grid).min()
    after = np.searchsorted(grid, frames)
    inside = (after > 0) & (after < grid.size)
    after = np.clip(after, 1, grid.size - 1)
    return inside & (grid[after] - grid[after - 1] == step)


def sample(video: Video, step_seconds: float) -> Video:
    """Sample a video at one frame per `step_seconds`, starting with its first frame.

    Args:
        video: a video with at least that many frames.
        step_seconds: seconds between sampled frames.

    Returns:
        The video at the sampled frames, with unchanged frame numbers.

    Raises:
        FormatError: if the step is not a whole number of frames, or the video has fewer frames.
    """
    step = step_seconds * video.fps
    if abs(step - round(step)) > 1e-6 or round(step) < 1:
        raise FormatError(
            f"{video.id}: {step_seconds:g} s are not a whole number of frames at {video.fps:g} frames per second",
            file=video.tracks[0].source,
            fix="check fps",
        )
    keep = (video.frames - video.frames[0]) % round(step) == 0
    frames = video.frames[keep]
    if frames.size > 1 and np.diff(frames).min() > round(step):
        spacing = np.diff(frames).min() / video.fps
        raise FormatError(
            f"{video.id} has one row per {spacing:g} s, but the model needs one per {step_seconds:g} s",
            file=video.tracks[0].source,
            fix="pass annotations as dense as the predictions, or check fps",
        )
    return dataclasses.replace(
        video,
        frames=frames,
        phases=None if video.phases is None else video.phases.take(keep),
        tools=None if video.tools is None else video.tools.take(keep),
    )
