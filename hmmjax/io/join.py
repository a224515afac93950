"""Bring tracks together: always on frame numbers, never on row numbers, and never dropping anything silently."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.records import Track, Video


def align_classes(
    tracks: Sequence[Track], names: Sequence[str] | None = None
) -> tuple[list[Track], tuple[str, ...] | None]:
    """All tracks (of one kind) with the same classes in the same order.

    The order is `names` or that of the first track. Where no track names its classes nothing is moved, and indices
    are taken to mean the same in all of them.

    Args:
        tracks: all phases, or all tools.
        names: the wanted order.

    Returns:
        The tracks, and the class names (None where nobody gives any).

    Raises:
        FormatError: when some tracks have names and others only indices, when names differ, or when nobody gives any
            and the numbers of classes differ.
    """
    if names is None:
        names = next((track.names for track in tracks if track.names is not None), None)
    if names is None:
        widths = {track.num_classes: track for track in tracks if track.num_classes is not None}
        if len(widths) > 1:
            (few, one), (many, other) = sorted(widths.items())[:2]
            raise FormatError(f"{few} classes in {one.source}", file=other.source, fix=f"here are {many}: name them")
        return list(tracks), None
    return [track.reorder(names) for track in tracks], tuple(names)


def join(tracks: Sequence[Track]) -> list[Video]:
    """Phases and tools of each video on the frames that both have.

    Rows between the frames of the sparser file (Cholec80 has 25 phase rows for one tool row) are passed over; what
    else has no partner, a tail above all, is named in `Video.notices`.

    Args:
        tracks: one of phases, one of tools, or one of each, for every video.

    Returns:
        The videos, in the order in which they come first. Where phases and tools count frames at different rates the
        faster counter is taken.

    Raises:
        FormatError: when two tracks have no frame in common, when only some videos have both, or when a video has one
            twice.
    """
    videos: dict[str, dict[str, Track]] = {}
    for track in tracks:
        if track.track in videos.setdefault(track.video, {}):
            raise FormatError(f"{track.track} of {track.video} are there twice", file=track.source)
        videos[track.video][track.track] = track
    kinds = {name for have in videos.values() for name in have}
    for video, have in videos.items():
        if len(have) < len(kinds):
            missing = (kinds - set(have)).pop()
            others = [other for other in videos if missing in videos[other]]
            raise FormatError(
                f"{video} has no {missing}, {', '.join(others[:3])}{' ...' if len(others) > 3 else ''} do",
                file=next(iter(have.values())).source,
                fix="give both for all videos, or leave one track out",
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
                f"{video}: {lost} {name} row(s) fall between two frames of a counter at {fps:g} per second: left out"
            )
    phases, tools = have["phases"], have["tools"]
    frames = np.intersect1d(phases.frames, tools.frames, assume_unique=True)
    if frames.size == 0:
        raise FormatError(
            f"{video}: phases (frames {_span(phases.frames)}) and tools (frames {_span(tools.frames)}) "
            "have no frame in common",
            file=tools.source,
            fix="check that both count frames at the same rate (fps, step, offset)",
        )
    for track, other in ((phases, tools), (tools, phases)):
        lost = np.setdiff1d(track.frames, frames, assume_unique=True)
        # Rows between those of a sparser partner are its sampling, not a loss.
        lost = lost[~_between(lost, other.frames)]
        if lost.size:
            notices.append(f"{video}: {lost.size} {track.track} row(s) without {other.track} left out ({_span(lost)})")
    phases = phases.take(np.isin(phases.frames, frames, assume_unique=True))
    tools = tools.take(np.isin(tools.frames, frames, assume_unique=True))
    return Video(video, frames, phases.fps, phases, tools, tuple(notices))


def _between(frames: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Which frames lie strictly inside a regular step of `grid` (where it has no hole)."""
    if grid.size < 2:
        return np.zeros(frames.shape, bool)
    step = np.diff(grid).min()
    after = np.searchsorted(grid, frames)
    inside = (after > 0) & (after < grid.size)
    after = np.clip(after, 1, grid.size - 1)
    return inside & (grid[after] - grid[after - 1] == step)


def _span(frames: np.ndarray) -> str:
    return f"frame {frames[0]}" if frames.size == 1 else f"{frames[0]} to {frames[-1]}"


def merge_labels(tracks: Iterable[Track]) -> list[Track]:
    """One track for each video and kind: what several annotations of it know together.

    Args:
        tracks: of labels; several may be of one video.

    Returns:
        The tracks, with the first one's classes, rate and source where there were several.

    Raises:
        FormatError: when two contradict each other, or count frames at rates that do not fit.
    """
    merged: dict[tuple[str, str], Track] = {}
    for track in tracks:
        key = track.video, track.track
        merged[key] = track if key not in merged else _together(merged[key], track)
    return list(merged.values())


def _together(one: Track, other: Track) -> Track:
    if one.names is not None:
        other = other.reorder(one.names)
    elif other.names is not None:
        one = one.reorder(other.names)  # which says that names are missing
    fps = max(one.fps, other.fps)
    for track in (one, other):
        if not track.is_labels:
            raise FormatError("annotations must be labels", file=track.source, fix="say kind='labels'")
        if len(track.at_fps(fps).frames) < len(track.frames):
            raise FormatError(
                f"{track.video} counts {track.fps:g} frames a second here and {fps:g} elsewhere",
                file=track.source,
                fix="say fps",
            )
    one, other = one.at_fps(fps), other.at_fps(fps)
    frames = np.union1d(one.frames, other.frames)
    values = np.full((len(frames), *one.values.shape[1:]), -1, np.int32)
    values[np.searchsorted(frames, one.frames)] = one.values
    rows = np.searchsorted(frames, other.frames)
    clash = (values[rows] >= 0) & (other.values >= 0) & (values[rows] != other.values)
    if clash.any():
        frame = other.frames[int(np.argmax(clash.reshape(len(rows), -1).any(1)))]
        raise FormatError(
            f"{other.track} of {other.video} in frame {frame} are not what {one.source} says",
            file=other.source,
            fix="keep the right one",
        )
    values[rows] = np.where(other.values >= 0, other.values, values[rows])
    notices = tuple(dict.fromkeys((*one.notices, *other.notices)))
    return dataclasses.replace(one, frames=frames, values=values, notices=notices)


def label_rows(annotation: Track, frames: np.ndarray, fps: float) -> tuple[np.ndarray, list[str]]:
    """Labels of an annotation at given frames, -1 where it has none.

    Args:
        annotation: a track of labels.
        frames: (n,) the wanted frames, counted at `fps` per second.
        fps: see `frames`.

    Returns:
        int32 labels (n,) or (n, K), and notices about frames that have no annotation and about annotated frames
        after the last wanted one.

    Raises:
        FormatError: an annotation that holds scores.
    """
    if not annotation.is_labels:
        raise FormatError("annotations must be labels", file=annotation.source, fix="say kind='labels'")
    track = annotation.at_fps(fps)
    rows = np.searchsorted(track.frames, frames)
    rows = np.minimum(rows, max(track.frames.size - 1, 0))
    known = track.frames[rows] == frames if track.frames.size else np.zeros(frames.shape, bool)
    values = np.full((frames.size, *track.values.shape[1:]), -1, np.int32)
    values[known] = track.values[rows[known]]
    notices = []
    name = f"{track.video}: "
    if not known.any():
        return values, [f"{name}no prediction falls on an annotated frame of {track.source}"]
    step = np.diff(frames).min() if frames.size > 1 else 1
    tail = track.frames > frames[-1] + (step - 1)
    if tail.any():
        notices.append(
            f"{name}{int(tail.sum())} annotated {track.track} row(s) after the last prediction "
            f"(frame {frames[-1]}) not used"
        )
    if not known.all():
        lost = frames[~known]
        notices.append(f"{name}{lost.size} predicted frame(s) without annotated {track.track} ({_span(lost)})")
    return values, notices


def match_annotations(
    videos: Sequence[Video], annotations: Sequence[Track]
) -> tuple[dict[str, list[Track]], list[str]]:
    """The annotation tracks of each video, by identifier.

    Args:
        videos: those predicted.
        annotations: tracks of labels, of some of them and of others.

    Returns:
        Tracks by video id (only videos that have any), and notices.

    Raises:
        FormatError: when there are annotations but not one of them is of a predicted video.
    """
    ids = {video.id for video in videos}
    found: dict[str, list[Track]] = {}
    for annotation in annotations:
        if annotation.video in ids:
            found.setdefault(annotation.video, []).append(annotation)
    if annotations and not found:
        have = list(dict.fromkeys(annotation.video for annotation in annotations))
        raise FormatError(
            f"no annotation belongs to a predicted video: predictions are of {_some(sorted(ids))}, annotations of "
            f"{_some(have)}",
            file=annotations[0].source,
            fix="rename videos that are called differently (rename={'tool11': 'video61'})",
        )
    notices = []
    unused = {annotation.video for annotation in annotations} - ids
    if unused:
        said = "annotated video(s) without predictions teach nothing about the recognizer"
        notices.append(f"{len(unused)} {said}: {_some(sorted(unused))}")
    missing = [video.id for video in videos if video.id not in found]
    if missing and annotations:
        notices.append(f"{len(missing)} video(s) without annotations: {_some(missing)}")
    return found, notices


def _some(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" ... ({len(names)} in all)" if len(names) > most else "")


def sample(video: Video, step_seconds: float) -> Video:
    """A denser video at one frame per `step_seconds`, from its first frame on.

    Args:
        video: with frames at least as dense.
        step_seconds: seconds from one frame to the next.

    Returns:
        The video with the frames that fall on steps; its counter stays.

    Raises:
        FormatError: when the counter has no such steps, or frames are less dense.
    """
    step = step_seconds * video.fps
    if abs(step - round(step)) > 1e-6 or round(step) < 1:
        raise FormatError(
            f"{video.id}: a counter at {video.fps:g} frames per second has no steps of {step_seconds:g} s",
            file=video.tracks[0].source,
            fix="check fps",
        )
    keep = (video.frames - video.frames[0]) % round(step) == 0
    frames = video.frames[keep]
    if frames.size > 1 and np.diff(frames).min() > round(step):
        raise FormatError(
            f"{video.id} has a row each {np.diff(frames).min() / video.fps:g} s, the model steps by {step_seconds:g} s",
            file=video.tracks[0].source,
            fix="give annotations as dense as the predictions, or check fps",
        )
    return dataclasses.replace(
        video,
        frames=frames,
        phases=None if video.phases is None else video.phases.take(keep),
        tools=None if video.tools is None else video.tools.take(keep),
    )
