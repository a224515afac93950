"""From videos of different lengths to padded arrays, and back to exactly the frames that were read."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.join import align_classes, label_rows, match_annotations, merge_labels
from hmmjax.io.records import Track, Video
from hmmjax.types import Labels, Observations


@dataclasses.dataclass(frozen=True, eq=False)
class BatchIndex:
    """Where each row that was read went in the padded arrays.

    Attributes:
        ids: (B,) the videos.
        frames: for each video its (n,) frame numbers as read.
        rows: for each video the (n,) positions of those frames on the padded time axis; unread frames lie between.
        length: T, the padded length.
        step: counter frames from one position to the next.
        fps: the counter's frames per second.
        notices: what was inserted, left out or not found.
    """

    ids: tuple[str, ...]
    frames: tuple[np.ndarray, ...]
    rows: tuple[np.ndarray, ...]
    length: int
    step: int
    fps: float
    notices: tuple[str, ...] = ()

    @property
    def step_seconds(self) -> float:
        """Seconds from one position to the next."""
        return self.step / self.fps

    def split(self, array: Any) -> list[np.ndarray]:
        """The inverse of padding: each video at the frames that were read.

        Args:
            array: (B, T, ...).

        Returns:
            One (n, ...) array per video.

        Raises:
            ValueError: another B or T.
        """
        array = np.asarray(array)
        if array.shape[:2] != (len(self.ids), self.length):
            raise ValueError(f"an array ({len(self.ids)}, {self.length}, ...) expected, {array.shape} found")
        return [array[i, rows] for i, rows in enumerate(self.rows)]

    def select(self, positions: Sequence[int]) -> "BatchIndex":
        """The index of some of the videos.

        Args:
            positions: of the videos, in the wanted order.

        Returns:
            The index of those; T and notices stay.
        """
        return dataclasses.replace(
            self,
            ids=tuple(self.ids[i] for i in positions),
            frames=tuple(self.frames[i] for i in positions),
            rows=tuple(self.rows[i] for i in positions),
        )


MOST_GAPS = 1000
"""Unobserved frames per row beyond which a frame number is a slip of the pen, not a gap."""


def to_batch(
    videos: Sequence[Video],
    annotations: Sequence[Track] = (),
    *,
    step: int | None = None,
) -> tuple[Observations, Labels, np.ndarray, BatchIndex]:
    """Pad videos to (B, T) arrays with a mask.

    Classes are brought into the order of the first video's, wherever files name them.

    Args:
        videos: from `join`, all with the same tracks.
        annotations: tracks of labels for some of the videos; matched by video, then by frame. Several of one video add
            up: a person's answers to what a file leaves open.
        step: counter frames per time step. None takes the spacing that the files have; frames missing between two
            rows are inserted as unobserved (mask False), so that time passes there.

    Returns:
        Observations (int32 labels or float32 probabilities), Labels (int32, -1 unknown; a track without any
        annotation is None), mask (B, T) bool, and the index that undoes it all.

    Raises:
        FormatError: when videos disagree in rate, tracks, classes, or labels against probabilities, when annotations
            contradict each other or have other classes, or when a frame does not fall on the step.
    """
    if not videos:
        raise FormatError("no videos", fix="give at least one prediction file")
    if step is not None and step < 1:
        raise FormatError(f"a time step of {step} frames", fix="give at least 1")
    videos, names = _one_order(videos)
    fps = videos[0].fps
    for video in videos:
        if video.fps != fps:
            raise FormatError(
                f"{video.id} counts {video.fps:g} frames per second, {videos[0].id} {fps:g}",
                file=video.tracks[0].source,
                fix="read them with their own fps and convert with Track.at_fps",
            )
    step = _step(videos) if step is None else step
    rows = tuple(_rows(video, step) for video in videos)
    length = max(int(r[-1]) for r in rows) + 1
    for video, r in zip(videos, rows, strict=True):
        if r[-1] + 1 > max(MOST_GAPS * r.size, 100_000):
            raise FormatError(
                f"{video.id} has {r.size} rows but its last frame, {int(video.frames[-1])}, is step {int(r[-1])}",
                file=video.tracks[0].source,
                fix="correct the frame number, or give the time step (step=) if rows are really that far apart",
            )
    notices = [notice for video in videos for notice in video.notices]
    inserted = {v.id: int(r[-1]) + 1 - r.size for v, r in zip(videos, rows, strict=True) if r[-1] + 1 > r.size}
    if inserted:
        some = ", ".join(f"{name} ({count})" for name, count in list(inserted.items())[:5])
        notices.append(f"unobserved frames inserted where files have none: {some}")
    mask = np.zeros((len(videos), length), bool)
    for i, r in enumerate(rows):
        mask[i, r] = True
    observations = Observations(
        phases=_pad([v.phases for v in videos], rows, length), tools=_pad([v.tools for v in videos], rows, length)
    )
    found, told = match_annotations(videos, merge_labels(annotations))
    labels: dict[str, np.ndarray] = {}
    for i, (video, r) in enumerate(zip(videos, rows, strict=True)):
        for annotation in found.get(video.id, []):
            annotation = _in_order(annotation, names[annotation.track], getattr(video, annotation.track))
            values, more = label_rows(annotation, video.frames, fps)
            told += more
            shape = (len(videos), length, *values.shape[1:])
            everything = labels.setdefault(annotation.track, np.full(shape, -1, np.int32))
            if everything.shape != shape:
                raise FormatError(
                    f"{values.shape[-1]} {annotation.track} are annotated here, {everything.shape[-1]} elsewhere",
                    file=annotation.source,
                    fix="give annotations of the same classes",
                )
            everything[i, r] = values
    index = BatchIndex(
        ids=tuple(v.id for v in videos),
        frames=tuple(v.frames for v in videos),
        rows=rows,
        length=length,
        step=step,
        fps=fps,
        notices=(*notices, *told),
    )
    return observations, Labels(labels.get("phases"), labels.get("tools")), mask, index


def _one_order(videos: Sequence[Video]) -> tuple[list[Video], dict[str, tuple[str, ...] | None]]:
    """Videos with classes in the order of the first that names them, and that order."""
    names: dict[str, tuple[str, ...] | None] = {"phases": None, "tools": None}
    ordered: dict[str, list[Track]] = {}
    for name in names:
        tracks = [track for video in videos if (track := getattr(video, name)) is not None]
        if len(tracks) == len(videos) and any(track.names is not None for track in tracks):
            ordered[name], names[name] = align_classes(tracks)
    moved = [
        dataclasses.replace(video, **{name: tracks[i] for name, tracks in ordered.items()})
        for i, video in enumerate(videos)
    ]
    return moved, names


def _in_order(annotation: Track, names: tuple[str, ...] | None, predicted: Track | None) -> Track:
    """The annotation with its classes in the predictions' order, where both are named; else as many of them."""
    if names is not None and annotation.names is not None:
        return annotation.reorder(names)
    here, there = annotation.num_classes, None if predicted is None else predicted.num_classes
    if here is not None and there is not None and here != there:
        raise FormatError(
            f"{here} {annotation.track} are annotated, {there} are predicted",
            file=annotation.source,
            fix="give annotations of the predicted classes, or name the classes of both",
        )
    return annotation


def _step(videos: Sequence[Video]) -> int:
    """The spacing that the files have: in each video the most common difference, the same in all."""
    steps: dict[int, str] = {}
    for video in videos:
        if own := most_common_step(video.frames):
            steps.setdefault(own, video.id)
    if len(steps) > 1:
        (one, first), (other, second) = list(steps.items())[:2]
        raise FormatError(
            f"{first} has a row each {one} frames, {second} each {other}",
            fix="read them with the right fps each, or say which step to use",
        )
    return next(iter(steps), 1)


def most_common_step(frames: np.ndarray) -> int:
    """The most common difference of frame numbers, the smallest of equally common ones; 0 of a single frame."""
    differences, counts = np.unique(np.diff(frames), return_counts=True)
    return int(differences[counts.argmax()]) if counts.size else 0


def _rows(video: Video, step: int) -> np.ndarray:
    rows, rest = np.divmod(video.frames - video.frames[0], step)
    if rest.any():
        raise FormatError(
            f"{video.id}: frame {video.frames[int(np.argmax(rest > 0))]} does not fall on steps of {step} frames from "
            f"frame {video.frames[0]}",
            file=video.tracks[0].source,
            fix="give a step that divides all distances between frames",
        )
    return rows


def _pad(tracks: Sequence[Track | None], rows: Sequence[np.ndarray], length: int) -> np.ndarray | None:
    present = [track for track in tracks if track is not None]
    if not present:
        return None
    first = present[0]
    for track in tracks:
        if track is None:
            raise FormatError(f"some videos have no {first.track}", fix="give both tracks for all videos")
        if track.is_labels != first.is_labels or track.values.shape[1:] != first.values.shape[1:]:
            what = [f"{'labels' if t.is_labels else 'probabilities'} {t.values.shape[1:]}" for t in (track, first)]
            raise FormatError(
                f"{track.video} holds {what[0]}, {first.video} {what[1]}",
                file=track.source,
                fix="give one kind of file",
            )
    dtype = np.int32 if first.is_labels else np.float32
    padded = np.zeros((len(tracks), length, *first.values.shape[1:]), dtype)
    for i, (track, r) in enumerate(zip(present, rows, strict=True)):
        padded[i, r] = track.values
    return padded
