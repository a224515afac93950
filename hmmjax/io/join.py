"""Join tracks by frame number or time, never by row number; report every row that is dropped."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.grid import MOST_MOVED, describe, match_tolerance, nearest_rows, place, row_step
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
        converted to the faster counter, and rows are matched that are nearest in time.

    Raises:
        FormatError: if most rows of two tracks have no frame in common, only some videos have both, or a track is
            repeated.
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
    fps = max(track.fps for track in have.values())
    phases, tools = (have[name].at_fps(fps) for name in ("phases", "tools"))
    matched, moved = _match(phases, tools, have)
    if moved > MOST_MOVED * max(len(matched[0]), 1) or not len(matched[0]):
        raise FormatError(
            f"{video}: phases ({frame_span(phases.frames)}) and tools ({frame_span(tools.frames)}) have "
            f"{'no' if moved == len(matched[0]) else 'few'} frame{'s' * (moved != len(matched[0]))} in common",
            file=tools.source,
            fix="check that both count frames at the same rate and from the same frame (fps, step, offset, shift)",
        )
    notices = []
    if moved:
        notices.append(f"{video}: {moved} of {len(matched[0])} rows of tools are a frame or more away from the phases'")
    for track, other, kept in ((phases, tools, matched[0]), (tools, phases, matched[1])):
        lost = np.delete(track.frames, kept)
        # Rows between those of the sparser track are not reported: it was sampled at a lower rate.
        lost = lost[~_between(lost, other.frames)]
        if lost.size:
            notices.append(
                f"{video}: dropped {lost.size} {track.track} row(s) without {other.track} ({frame_span(lost)})"
            )
    phases, tools = phases.take(matched[0]), tools.take(matched[1])
    frames = phases.frames if len(have["phases"].frames) <= len(have["tools"].frames) else tools.frames
    phases, tools = (dataclasses.replace(track, frames=frames) for track in (phases, tools))
    return Video(video, frames, fps, phases, tools, tuple(notices))


def _match(phases: Track, tools: Track, have: dict[str, Track]) -> tuple[tuple[np.ndarray, np.ndarray], int]:
    """Return positions of rows of phases and of tools that are nearest in time, and how many are a frame apart."""
    few, many = (phases, tools) if phases.frames.size <= tools.frames.size else (tools, phases)
    tolerance = match_tolerance(few.frames, few.fps, many.frames, many.fps)
    near, nearest = nearest_rows(few.seconds, many.seconds, tolerance)
    # A row belongs to one row of the other track at most.
    near &= np.append(True, np.diff(nearest) > 0) if nearest.size else near
    rows = np.flatnonzero(near), nearest[near]
    apart = np.abs(few.frames[rows[0]] - many.frames[rows[1]])
    # Two counters round the times of the same frame to different numbers.
    rounded = 0 if have["phases"].fps == have["tools"].fps else 1
    return (rows if few is phases else (rows[1], rows[0])), int((apart > rounded).sum())


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
        The video at the rows nearest to the steps, with unchanged frame numbers.

    Raises:
        FormatError: if the video has fewer rows than steps, or too many rows would be left out.
    """
    step = step_seconds * video.fps
    spacing = row_step(video.frames, video.fps)
    # A counter may be so slow that rows lie a fraction of a frame off the steps.
    if spacing > 1.01 * step or step < 1 - 1e-6:
        raise FormatError(
            f"{video.id} has one row per {spacing / video.fps:g} s, but the model needs one per {step_seconds:g} s",
            file=video.tracks[0].source,
            fix="pass annotations as dense as the predictions, or check fps",
        )
    placement = place(video.frames, step)
    keep = placement.keep
    notices = describe([video], [placement], step)
    return dataclasses.replace(
        video,
        frames=video.frames[keep],
        phases=None if video.phases is None else video.phases.take(keep),
        tools=None if video.tools is None else video.tools.take(keep),
        notices=(*video.notices, *(f"{video.id}: {notice}" for notice in notices)),
    )
