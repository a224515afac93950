"""Several recognizers of the same videos: their files joined by frame, each with its own place in the observations."""

import dataclasses
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from hmmjax.io import BatchIndex, FormatError, Track
from hmmjax.io.batch import most_common_step
from hmmjax.types import Observations


def union(sources: Sequence[Sequence[Track]]) -> tuple[list[Track], list[list[Track]], list[str]]:
    """Every frame of which some recognizer says something, video by video.

    Args:
        sources: of each recognizer its tracks; classes in one order.

    Returns:
        A track of labels for each video and track, which stands for all frames (its values say nothing); the sources on
        the same counters and steps; and notices about what is missing where.

    Raises:
        FormatError: when frames of two recognizers never meet, or a recognizer shares no video with any other.
    """
    notices: list[str] = []
    frames: dict[tuple[str, str], list[tuple[int, Track]]] = {}
    for i, source in enumerate(sources):
        for track in source:
            frames.setdefault((track.track, track.video), []).append((i, track))
    everything: list[Track] = []
    sampled: list[list[Track]] = [[] for _ in sources]
    of_track = {name: [i for i, s in enumerate(sources) if any(t.track == name for t in s)] for name in _TRACKS}
    absent: dict[tuple[str, int], list[str]] = {}
    for name, members in of_track.items():
        for i in members if len(members) > 1 else ():
            _require_company(name, i, sources)
    for (name, video), members in frames.items():
        for i in set(of_track[name]) - {i for i, _ in members}:
            absent.setdefault((name, i), []).append(video)
        members, more = _on_one_grid(members)
        notices += more
        first = members[0][1]
        union = np.unique(np.concatenate([t.frames for _, t in members]))
        for i, track in members:
            sampled[i].append(track)
            if lacks := union.size - track.frames.size:
                notices.append(f"{video}: recognizer {i + 1} says nothing of {name} in {lacks} of {union.size} frames")
        shape = (union.size, *first.values.shape[1:]) if name == "tools" else (union.size,)
        everything.append(dataclasses.replace(first, frames=union, values=np.zeros(shape, np.int32), notices=()))
    for (name, i), videos in absent.items():
        notices.append(f"recognizer {i + 1} says nothing of {name} in {len(videos)} video(s): {', '.join(videos[:5])}")
    for name, members in of_track.items():
        for i, j in combinations(members, 2):
            if _alike(name, sampled[i], sampled[j]):
                notices.append(
                    f"recognizers {i + 1} and {j + 1} say the same of {name} everywhere: their evidence counts twice; "
                    "leave one out, or calibrate"
                )
    return everything, sampled, list(dict.fromkeys(notices))


def _require_company(name: str, i: int, sources: Sequence[Sequence[Track]]) -> None:
    """FormatError where nobody else speaks of this track in any video of this recognizer."""
    own = [t.video for t in sources[i] if t.track == name]
    others = [t.video for j, s in enumerate(sources) if j != i for t in s if t.track == name]
    if not set(own) & set(others):
        raise FormatError(
            f"recognizer {i + 1} shares no video of {name} with another: its videos are {', '.join(own[:3])} ..., the "
            f"others' {', '.join(list(dict.fromkeys(others))[:3])} ...",
            fix="call a video's files alike, or give the files of one recognizer together",
        )


def _alike(name: str, one: Sequence[Track], other: Sequence[Track]) -> bool:
    """Whether two recognizers give the same numbers, frame by frame, in the same videos."""
    a, b = ({t.video: t for t in source if t.track == name} for source in (one, other))
    return a.keys() == b.keys() and all(
        np.array_equal(a[v].frames, b[v].frames) and np.array_equal(a[v].values, b[v].values) for v in a
    )


_TRACKS = ("phases", "tools")


def _on_one_grid(members: list[tuple[int, Track]]) -> tuple[list[tuple[int, Track]], list[str]]:
    """One video's tracks at the frame rate and on the frames of the one with the longest steps."""
    fps = max(t.fps for _, t in members)
    members = [(i, t.at_fps(fps)) for i, t in members]
    steps = [most_common_step(t.frames) or 1 for _, t in members]
    step, start = max(steps), members[int(np.argmax(steps))][1].frames[0]
    out, notices = [], []
    for (i, track), own in zip(members, steps, strict=True):
        on = (track.frames - start) % step == 0
        if not on.any():
            raise FormatError(
                f"{track.video}: frames of recognizer {i + 1} ({track.frames[0]}, ...) never fall on those of another "
                f"({start}, then every {step})",
                file=track.source,
                fix="check fps, step and offset of both",
            )
        if own < step and not on.all():
            notices.append(f"recognizer {i + 1} has {track.track} between the steps of another ({step}): not used")
        elif not on.all():
            notices.append(f"{track.video}: {int((~on).sum())} {track.track} row(s) of recognizer {i + 1} left out")
        out.append((i, track.take(on)))
    return out, notices


def observations(sources: Sequence[Sequence[Track]], index: BatchIndex) -> list[Observations]:
    """What each recognizer says at all frames: (B, T, ...); -1 or NaN in frames of which it says nothing.

    Args:
        sources: as `union` gives them.
        index: of the union of all frames.

    Raises:
        FormatError: when one recognizer gives labels here and probabilities there.
    """
    out = []
    for source in sources:
        arrays: dict[str, Any] = {}
        for name in _TRACKS:
            own = {t.video: t for t in source if t.track == name and t.video in index.ids}
            if own:
                arrays[name] = _spread(own, index)
        out.append(Observations(**arrays))
    return out


def _spread(own: dict[str, Track], index: BatchIndex) -> np.ndarray:
    first = next(iter(own.values()))
    for track in own.values():
        if track.is_labels != first.is_labels or track.values.shape[1:] != first.values.shape[1:]:
            raise FormatError(
                f"one recognizer gives labels in one video and probabilities in another ({first.video})",
                file=track.source,
                fix="give one kind of file, or each kind as a recognizer of its own",
            )
    shape = (len(index.ids), index.length, *first.values.shape[1:])
    values = np.full(shape, -1 if first.is_labels else np.nan, np.int32 if first.is_labels else np.float32)
    for i, (video, frames, rows) in enumerate(zip(index.ids, index.frames, index.rows, strict=True)):
        if video in own:
            track = own[video].at_fps(index.fps)
            _, here, there = np.intersect1d(frames, track.frames, assume_unique=True, return_indices=True)
            values[i, rows[here]] = track.values[there]
    return values


def together(said: Sequence[Observations]) -> Observations:
    """One for all: a tuple where several recognizers watch a track, and the array itself where one does."""
    tracks = {}
    for name in _TRACKS:
        arrays = tuple(getattr(o, name) for o in said if getattr(o, name) is not None)
        if len(arrays) == 1:
            # What it does not say is unobserved.
            only = arrays[0]
            arrays = np.nan_to_num(only) if only.dtype.kind == "f" else np.maximum(only, 0)
        tracks[name] = arrays if len(arrays) else None
    return Observations(**tracks)


def originals(sources: Sequence[Sequence[Track]]) -> list[Track]:
    """Whose layouts results come back in: of each track the files of the first recognizer that says anything of it.

    Args:
        sources: of each recognizer its tracks, as `hmmjax.io.read` gives them.

    Returns:
        Tracks, for `write_results`.
    """
    out: list[Track] = []
    for name in _TRACKS:
        out += next((own for s in sources if (own := [t for t in s if t.track == name])), [])
    return out
