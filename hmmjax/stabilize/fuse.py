"""Join several recognizers of the same videos by frame; each keeps its own place in the observations."""

import dataclasses
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from hmmjax.io import BatchIndex, FormatError, Track
from hmmjax.io.grid import match_tolerance, most_common_step, nearest_rows
from hmmjax.stabilize.examples import TRACKS
from hmmjax.types import Observations


def union(sources: Sequence[Sequence[Track]]) -> tuple[list[Track], list[list[Track]], list[str]]:
    """Find, video by video, all frames that some recognizer predicts.

    Args:
        sources: the tracks of each recognizer, with classes in one order.

    Returns:
        Tracks of labels with all frames of each video and track (their values mean nothing); the sources on the same
        counters and steps; and notices about missing frames and videos.

    Raises:
        FormatError: frames of two recognizers never coincide, or a recognizer shares no video with any other.
    """
    notices: list[str] = []
    frames: dict[tuple[str, str], list[tuple[int, Track]]] = {}
    for i, source in enumerate(sources):
        for track in source:
            frames.setdefault((track.track, track.video), []).append((i, track))
    everything: list[Track] = []
    sampled: list[list[Track]] = [[] for _ in sources]
    of_track = {name: [i for i, s in enumerate(sources) if any(t.track == name for t in s)] for name in TRACKS}
    absent: dict[tuple[str, int], list[str]] = {}
    for name, members in of_track.items():
        for i in members if len(members) > 1 else ():
            _require_shared_video(name, i, sources)
    for (name, video), members in frames.items():
        for i in set(of_track[name]) - {i for i, _ in members}:
            absent.setdefault((name, i), []).append(video)
        members, more = _on_one_grid(members)
        notices += more
        first = members[0][1]
        union = np.unique(np.concatenate([t.frames for _, t in members]))
        for i, track in members:
            sampled[i].append(track)
            if missing := union.size - track.frames.size:
                notices.append(
                    f"{video}: recognizer {i + 1} has no prediction of {name} in {missing} of {union.size} frames"
                )
        shape = (union.size, *first.values.shape[1:]) if name == "tools" else (union.size,)
        everything.append(dataclasses.replace(first, frames=union, values=np.zeros(shape, np.int32), notices=()))
    for (name, i), videos in absent.items():
        names = f"{', '.join(videos[:5])}{', ...' if len(videos) > 5 else ''}"
        notices.append(f"recognizer {i + 1} has no prediction of {name} in {len(videos)} video(s): {names}")
    for name, members in of_track.items():
        for i, j in combinations(members, 2):
            if _are_equal(name, sampled[i], sampled[j]):
                notices.append(
                    f"recognizers {i + 1} and {j + 1} have identical predictions of {name}, which count twice: leave "
                    "one out, or calibrate"
                )
    return everything, sampled, list(dict.fromkeys(notices))


def _require_shared_video(name: str, i: int, sources: Sequence[Sequence[Track]]) -> None:
    """Raise FormatError unless another recognizer shares a video and track with this one."""
    own = [t.video for t in sources[i] if t.track == name]
    others = [t.video for j, s in enumerate(sources) if j != i for t in s if t.track == name]
    if not set(own) & set(others):
        raise FormatError(
            f"recognizer {i + 1} shares no video of {name} with another: its videos are {', '.join(own[:3])} ..., the "
            f"others' {', '.join(list(dict.fromkeys(others))[:3])} ...",
            fix="name the files of a video alike, or give the files of one recognizer together",
        )


def _are_equal(name: str, one: Sequence[Track], other: Sequence[Track]) -> bool:
    """Return whether two recognizers have the same predictions in the same frames and videos."""
    a, b = ({t.video: t for t in source if t.track == name} for source in (one, other))
    return a.keys() == b.keys() and all(
        np.array_equal(a[v].frames, b[v].frames) and np.array_equal(a[v].values, b[v].values) for v in a
    )


def _on_one_grid(members: list[tuple[int, Track]]) -> tuple[list[tuple[int, Track]], list[str]]:
    """Resample one video's tracks to the frame rate and the frames of the track with the longest steps."""
    fps = max(t.fps for _, t in members)
    members = [(i, t.at_fps(fps)) for i, t in members]
    steps = [most_common_step(t.frames) or 1 for _, t in members]
    slowest = members[int(np.argmax(steps))][1]
    step, start = max(steps), slowest.frames[0]
    out, notices = [], []
    for (i, track), own in zip(members, steps, strict=True):
        on = (track.frames - start) % step == 0
        if track is not slowest and not on.all():
            # Frame numbers may be rounded times: rows nearest to those of the slowest recognizer take their numbers.
            tolerance = match_tolerance(slowest.frames, fps, track.frames, fps)
            near, rows = nearest_rows(slowest.seconds, track.seconds, tolerance)
            if near.sum() > on.sum() and np.abs(slowest.frames[near] - track.frames[rows[near]]).max() <= 1:
                track = dataclasses.replace(track.take(rows[near]), frames=slowest.frames[near])
                on = np.ones(track.frames.shape, bool)
        if not on.any():
            raise FormatError(
                f"{track.video}: no frame of recognizer {i + 1} ({track.frames[0]}, ...) coincides with a frame of "
                f"another recognizer ({start}, then every {step})",
                file=track.source,
                fix="check fps, step and offset of both",
            )
        if own < step and not on.all():
            notices.append(f"recognizer {i + 1} predicts {track.track} between the steps of another ({step}): not used")
        elif not on.all():
            left_out = int((~on).sum())
            notices.append(f"{track.video}: {left_out} row(s) of {track.track} of recognizer {i + 1} are not used")
        out.append((i, track.take(on)))
    return out, notices


def join_observations(sources: Sequence[Sequence[Track]], index: BatchIndex) -> list[Observations]:
    """Return each recognizer's outputs (B, T, ...) at all frames; -1 or NaN at frames that it does not predict.

    Args:
        sources: the sampled sources that `union` returns.
        index: of the union of all frames.

    Raises:
        FormatError: one recognizer predicts labels in one video and probabilities in another.
    """
    out = []
    for source in sources:
        arrays: dict[str, Any] = {}
        for name in TRACKS:
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
                f"one recognizer predicts labels in one video and probabilities in another ({first.video})",
                file=track.source,
                fix="give files of one kind, or each kind as a separate recognizer",
            )
    shape = (len(index.ids), index.length, *first.values.shape[1:])
    values = np.full(shape, -1 if first.is_labels else np.nan, np.int32 if first.is_labels else np.float32)
    for i, (video, frames, rows) in enumerate(zip(index.ids, index.frames, index.rows, strict=True)):
        if video in own:
            track = own[video].at_fps(index.fps)
            _, here, there = np.intersect1d(frames, track.frames, assume_unique=True, return_indices=True)
            values[i, rows[here]] = track.values[there]
    return values


def merge_observations(each: Sequence[Observations], mask: np.ndarray) -> Observations:
    """Return one `Observations`: a tuple of arrays if several recognizers predict a track, the array if one does.

    Args:
        each: the outputs of each recognizer.
        mask: (B, T) bool, the observed frames.
    """
    tracks = {}
    for name in TRACKS:
        arrays = tuple(getattr(o, name) for o in each if getattr(o, name) is not None)
        if len(arrays) == 1:
            # A single recognizer's values at frames that are not observed do not matter: 0 is not missing.
            (only,) = arrays
            arrays = np.where(mask.reshape(*mask.shape, *[1] * (only.ndim - 2)), only, only.dtype.type(0))
        tracks[name] = arrays if len(arrays) else None
    return Observations(**tracks)


def originals(sources: Sequence[Sequence[Track]]) -> list[Track]:
    """Return the tracks in whose layouts results are written: of each track, the first recognizer that predicts it.

    Args:
        sources: the tracks of each recognizer, from `hmmjax.io.read`.

    Returns:
        Tracks, for `write_results`.
    """
    out: list[Track] = []
    for name in TRACKS:
        out += next((own for s in sources if (own := [t for t in s if t.track == name])), [])
    return out
