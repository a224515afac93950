"""Match annotations with predictions: merge them, look them up at frames, and assign them to videos."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.grid import MOST_MOVED, match_tolerance, most_common_step, nearest_rows
from hmmjax.io.tracks import Track, Video, frame_span

SAME_END = 0.05
"""Largest relative difference between the ends of predictions and annotations that is not reported."""


def merge_labels(tracks: Iterable[Track]) -> list[Track]:
    """Merge annotations that belong to the same video and track.

    Args:
        tracks: tracks of labels, several per video allowed.

    Returns:
        One track per video and kind, with the class names and source of the first.

    Raises:
        FormatError: if two annotations contradict each other, or their frame counters are incompatible.
    """
    merged: dict[tuple[str, str], Track] = {}
    for track in tracks:
        key = track.video, track.track
        merged[key] = track if key not in merged else _merge(merged[key], track)
    return list(merged.values())


def _merge(one: Track, other: Track) -> Track:
    if one.names is not None:
        other = other.reorder(one.names)
    elif other.names is not None:
        one = one.reorder(other.names)  # raises: the order of the indices is unknown
    fps = max(one.fps, other.fps)
    for track in (one, other):
        _check_labels(track)
        if len(track.at_fps(fps).frames) < len(track.frames):
            raise FormatError(
                f"{track.video} is counted at {track.fps:g} frames per second here, but at {fps:g} in another file",
                file=track.source,
                fix="pass the fps of each file",
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
            f"{other.track} of {other.video} in frame {frame} differ from those in {one.source}",
            file=other.source,
            fix="keep the correct label in both files",
        )
    values[rows] = np.where(other.values >= 0, other.values, values[rows])
    notices = tuple(dict.fromkeys((*one.notices, *other.notices)))
    return dataclasses.replace(one, frames=frames, values=values, notices=notices)


def label_rows(annotation: Track, frames: np.ndarray, fps: float) -> tuple[np.ndarray, list[str]]:
    """Look up the labels of an annotation at given frames, by time.

    A frame gets the label of the nearest annotated row, up to half the distance of rows (of the denser file) away.

    Args:
        annotation: a track of labels.
        frames: (n,) frame numbers.
        fps: frames per second of the counter of `frames`.

    Returns:
        int32 labels (n,) or (n, K), -1 at frames without annotation; and notices about such frames, about labels that
        lie off their frames, and about annotated frames after the last of `frames`.

    Raises:
        FormatError: if the annotation holds scores, or most labels lie off the given frames.
    """
    _check_labels(annotation)
    track, name = annotation, f"{annotation.video}: "
    values = np.full((frames.size, *track.values.shape[1:]), -1, np.int32)
    tolerance = match_tolerance(frames, fps, track.frames, track.fps)
    known, rows = nearest_rows(frames / fps, track.seconds, tolerance)
    if not known.any():
        return values, [f"{name}no predicted frame is annotated in {track.source}"]
    values[known] = track.values[rows[known]]
    notices = _moved(track, frames[known], rows[known], fps)
    spacing = most_common_step(frames) or 1
    tail = track.seconds > (frames[-1] + spacing - 1) / fps + 1e-9
    if tail.any():
        notices.append(
            f"{name}ignored {int(tail.sum())} row(s) of annotated {track.track} after the last prediction, "
            f"frame {frames[-1]}"
        )
    if not known.all():
        lost = frames[~known]
        notices.append(f"{name}{lost.size} predicted frame(s) have no annotation of {track.track} ({frame_span(lost)})")
    return values, notices


def _moved(track: Track, frames: np.ndarray, rows: np.ndarray, fps: float) -> list[str]:
    """Return a notice about labels that lie a frame or more away from their predictions; raise if most of them do.

    Args:
        track: the annotation.
        frames: (n,) predicted frames with a label.
        rows: (n,) positions of their labels.
        fps: frames per second of the predictions' counter.
    """
    apart = track.seconds[rows] - frames / fps
    # Two counters round the time of one frame to different numbers.
    rounding = 0 if track.fps == fps else 0.5 / fps + 0.5 / track.fps
    moved = np.abs(apart) > rounding + 1e-6
    if not moved.any():
        return []
    some = f"{int(moved.sum())} of {moved.size} annotated {track.track}"
    shift = float(np.median(apart))
    if moved.mean() > MOST_MOVED:
        by = round(-shift * track.fps) or (-1 if shift > 0 else 1)
        raise FormatError(
            f"{track.video}: {some} lie off the predicted frames, most of them by {shift:+.3g} s",
            file=track.source,
            fix="check fps of both; if the annotations' frame numbers do not start like the predictions', correct them "
            f"(annotations_shift={by})",
        )
    return [f"{track.video}: {some} were moved to the nearest predicted frame (up to {np.abs(apart).max():.2g} s)"]


def check_durations(pairs: Sequence[tuple[Video, Track]]) -> list[str]:
    """Compare the ends of predictions and annotations, in seconds: they differ by a factor if a frame rate is wrong.

    Args:
        pairs: videos and their annotations.

    Returns:
        A notice if annotations end earlier or later in a way that a wrong rate does not explain.

    Raises:
        FormatError: the ends differ by the same factor in several videos, or by that of two common frame rates.
    """
    ends = [((v.frames[-1] + 1) / v.fps, (t.frames[-1] + 1) / t.fps, v, t) for v, t in pairs if t.frames.size]
    # A row stands for the time up to the next one, so the last rows of two files may be a row apart.
    slack = [max(map(_row_seconds, ((v.frames, v.fps), (t.frames, t.fps)))) for _, _, v, t in ends]
    off = [abs(a - b) > max(SAME_END * max(a, b), 2 * s) for (a, b, *_), s in zip(ends, slack, strict=True)]
    if not any(off):
        return []
    factors = [end / start for (start, end, *_), bad in zip(ends, off, strict=True) if bad]
    first = next(pair for pair, bad in zip(ends, off, strict=True) if bad)
    what = (
        f"{first[2].id}: the predictions end at {first[0]:,.0f} s ({first[2].fps:g} frames per second), the "
        f"annotations at {first[1]:,.0f} s ({first[3].fps:g} frames per second)"
    )
    alike = len(factors) > 1 and max(factors) < 1.03 * min(factors)
    usual = any(abs(f / c - 1) < 0.03 for f in factors[:1] for c in _usual_factors())
    if all(off) and (alike or (len(factors) == 1 and usual)):
        raise FormatError(
            what,
            file=first[3].source,
            fix="pass the frames per second of the annotations (--annotations-fps) or of the predictions (--fps)",
        )
    count = f", and {sum(off) - 1} more" if sum(off) > 1 else ""
    fix = "check the time between their rows (fps and seconds_per_row, --annotations-fps)"
    return [f"{what}{count}: if the annotations are not partial, {fix}"]


def _row_seconds(rows: tuple[np.ndarray, float]) -> float:
    frames, fps = rows
    return (most_common_step(frames) or 1) / fps


def _usual_factors() -> list[float]:
    """Return the factors by which times are wrong if one of the usual frame rates is taken for another."""
    rates = (1.0, 24.0, 25.0, 29.97, 30.0, 50.0, 59.94, 60.0)
    return [a / b for a in rates for b in rates if not 0.95 < a / b < 1.05 and a / b != 2 and a / b != 0.5]


def match_annotations(
    videos: Sequence[Video], annotations: Sequence[Track]
) -> tuple[dict[str, list[Track]], list[str]]:
    """Assign annotations to predicted videos by identifier.

    Args:
        videos: the predicted videos.
        annotations: tracks of labels, of these or other videos.

    Returns:
        Annotations by video identifier, for the videos that have any, and notices.

    Raises:
        FormatError: if there are annotations, but none of a predicted video.
    """
    ids = {video.id for video in videos}
    found: dict[str, list[Track]] = {}
    for annotation in annotations:
        if annotation.video in ids:
            found.setdefault(annotation.video, []).append(annotation)
    if annotations and not found:
        have = list(dict.fromkeys(annotation.video for annotation in annotations))
        raise FormatError(
            f"the predictions belong to {_some(sorted(ids))}, the annotations to {_some(have)}: no video is in both",
            file=annotations[0].source,
            fix="rename videos whose names differ, for instance rename={'tool11': 'video61'}",
        )
    notices = []
    unused = {annotation.video for annotation in annotations} - ids
    if unused:
        notices.append(f"{len(unused)} annotated video(s) have no predictions and are ignored: {_some(sorted(unused))}")
    missing = [video.id for video in videos if video.id not in found]
    if missing and annotations:
        notices.append(f"{len(missing)} predicted video(s) have no annotations: {_some(missing)}")
    return found, notices


def _check_labels(track: Track) -> None:
    if not track.is_labels:
        raise FormatError(
            f"the annotation holds scores of {track.track}, not labels", file=track.source, fix="pass kind='labels'"
        )


def _some(names: Sequence[str], maximum: int = 5) -> str:
    """List the first names, and the number of all of them if there are more."""
    return ", ".join(names[:maximum]) + (f" ... ({len(names)} in all)" if len(names) > maximum else "")
