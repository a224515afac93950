"""Pad videos of different lengths to one batch, and map arrays back to the frames that were read."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.grid import Placement, common_step, describe, place
from hmmjax.io.join import align_classes
from hmmjax.io.labels import check_durations, label_rows, match_annotations, merge_labels
from hmmjax.io.tracks import Track, Video
from hmmjax.types import Labels, Observations


@dataclasses.dataclass(frozen=True, eq=False)
class BatchIndex:
    """The position of each row of the files in the padded arrays.

    Attributes:
        ids: (B,) video identifiers.
        frames: per video, the (n,) frame numbers of the file; rows that were left out are not among them.
        rows: per video, the (n,) positions of these frames on the padded time axis; positions between them were not
            observed.
        length: T, the padded length.
        step: counter frames per time step, a fraction if rows are not a whole number of frames apart.
        fps: frames per second of the frame counter.
        notices: messages about frames that were inserted, dropped or not found.
    """

    ids: tuple[str, ...]
    frames: tuple[np.ndarray, ...]
    rows: tuple[np.ndarray, ...]
    length: int
    step: float
    fps: float
    notices: tuple[str, ...] = ()

    @property
    def step_seconds(self) -> float:
        """Seconds per time step."""
        return self.step / self.fps

    def split(self, array: Any) -> list[np.ndarray]:
        """Undo the padding: return each video at the frames of its file.

        Args:
            array: (B, T, ...) array.

        Returns:
            One (n, ...) array per video.

        Raises:
            ValueError: if the array has another B or T.
        """
        array = np.asarray(array)
        if array.shape[:2] != (len(self.ids), self.length):
            raise ValueError(
                f"the array has shape {array.shape}, but the index is for ({len(self.ids)}, {self.length}, ...): "
                "pass an array of the same batch"
            )
        return [array[i, rows] for i, rows in enumerate(self.rows)]

    def select(self, positions: Sequence[int]) -> "BatchIndex":
        """Return the index of some of the videos.

        Args:
            positions: positions of the videos in the batch, in the desired order.

        Returns:
            The index of these videos, with the same T and notices.
        """
        return dataclasses.replace(
            self,
            ids=tuple(self.ids[i] for i in positions),
            frames=tuple(self.frames[i] for i in positions),
            rows=tuple(self.rows[i] for i in positions),
        )


MOST_GAPS = 1000
"""Maximum number of unobserved frames per row; more indicate a wrong frame number rather than a gap."""


def to_batch(
    videos: Sequence[Video],
    annotations: Sequence[Track] = (),
    *,
    step: float | None = None,
) -> tuple[Observations, Labels, np.ndarray, BatchIndex]:
    """Pad videos to (B, T) arrays with a mask.

    If files name their classes, all are brought into the order of the first video.

    Args:
        videos: videos from `join`, all with the same tracks.
        annotations: tracks of labels of some of the videos, matched by video and frame. Several annotations of one
            video are merged.
        step: counter frames per time step. None takes the spacing of the rows, a fraction if frame numbers are rounded
            times. Rows belong to the nearest step, and notices say how many are moved by more than a frame or left
            out. Frames that are missing between two rows are inserted as unobserved (mask False), so that time passes
            there.

    Returns:
        Observations (int32 labels or float32 probabilities), Labels (int32, -1 unknown; None for a track without
        annotations), mask (B, T) bool, and the index that maps padded arrays back to the frames of the files.

    Raises:
        FormatError: if videos differ in rate, tracks, classes or kind, annotations contradict each other or have
            other classes, or more than 5 % of a video's rows would be left out.
    """
    if not videos:
        raise FormatError("there are no videos", fix="pass at least one prediction file")
    if step is not None and step < 1:
        raise FormatError(f"step is {step}", fix="pass a number of frames, at least 1")
    videos, names = _align_videos(videos)
    fps = videos[0].fps
    for video in videos:
        if video.fps != fps:
            raise FormatError(
                f"{video.id} is counted at {video.fps:g} frames per second, {videos[0].id} at {fps:g}",
                file=video.tracks[0].source,
                fix="read each with its own fps and convert with Track.at_fps",
            )
    step = common_step(videos) if step is None else step
    placements = [place(video.frames, step) for video in videos]
    moved = describe(videos, placements, step)
    videos = [_take(video, own) for video, own in zip(videos, placements, strict=True)]
    rows = tuple(own.rows for own in placements)
    length = max(int(r[-1]) for r in rows) + 1
    inserted = _inserted(videos, rows)
    mask = np.zeros((len(videos), length), bool)
    for i, r in enumerate(rows):
        mask[i, r] = True
    observations = Observations(
        phases=_pad([v.phases for v in videos], rows, length), tools=_pad([v.tools for v in videos], rows, length)
    )
    labels, label_notices = _pad_labels(videos, annotations, names, rows, length)
    index = BatchIndex(
        ids=tuple(v.id for v in videos),
        frames=tuple(v.frames for v in videos),
        rows=rows,
        length=length,
        step=step,
        fps=fps,
        notices=(*(notice for video in videos for notice in video.notices), *moved, *inserted, *label_notices),
    )
    return observations, labels, mask, index


def _take(video: Video, placement: Placement) -> Video:
    """Return the rows of a video that are kept."""
    keep = placement.keep
    if keep.all():
        return video
    tracks = {track.track: track.take(keep) for track in video.tracks}
    return dataclasses.replace(video, frames=video.frames[keep], **tracks)


def _inserted(videos: Sequence[Video], rows: Sequence[np.ndarray]) -> list[str]:
    """Return a notice about inserted frames; raise FormatError if there are implausibly many."""
    inserted: dict[str, int] = {}
    for video, r in zip(videos, rows, strict=True):
        steps = int(r[-1]) + 1
        if steps > max(MOST_GAPS * r.size, 100_000):
            raise FormatError(
                f"{video.id} has {r.size} rows, but its last frame, {int(video.frames[-1])}, is time step {steps - 1}",
                file=video.tracks[0].source,
                fix="correct the frame number, or pass a larger time step (step=) if rows are that far apart",
            )
        if steps > r.size:
            inserted[video.id] = steps - r.size
    if not inserted:
        return []
    some = ", ".join(f"{name} ({count})" for name, count in list(inserted.items())[:5])
    return [f"inserted unobserved frames between rows that are more than a step apart: {some}"]


def _pad_labels(
    videos: Sequence[Video],
    annotations: Sequence[Track],
    names: dict[str, tuple[str, ...] | None],
    rows: Sequence[np.ndarray],
    length: int,
) -> tuple[Labels, list[str]]:
    """Pad the annotations of each video like its predictions; also return notices."""
    found, notices = match_annotations(videos, merge_labels(annotations))
    pairs = [(v, t) for v in videos for t in found.get(v.id, []) if t.layout.format != "answers"]
    notices += check_durations(pairs)
    padded: dict[str, np.ndarray] = {}
    for i, (video, r) in enumerate(zip(videos, rows, strict=True)):
        for annotation in found.get(video.id, []):
            annotation = _align_annotation(annotation, names[annotation.track], getattr(video, annotation.track))
            values, more = label_rows(annotation, video.frames, video.fps)
            notices += more
            shape = (len(videos), length, *values.shape[1:])
            track = padded.setdefault(annotation.track, np.full(shape, -1, np.int32))
            if track.shape != shape:
                raise FormatError(
                    f"{values.shape[-1]} {annotation.track} are annotated here, but {track.shape[-1]} in other files",
                    file=annotation.source,
                    fix="annotate the same classes in all files",
                )
            track[i, r] = values
    return Labels(padded.get("phases"), padded.get("tools")), notices


def _align_videos(videos: Sequence[Video]) -> tuple[list[Video], dict[str, tuple[str, ...] | None]]:
    """Bring classes into the order of the first video that names them; also return that order."""
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


def _align_annotation(annotation: Track, names: tuple[str, ...] | None, predicted: Track | None) -> Track:
    """Bring an annotation's classes into the order of the predictions; without names, check their number."""
    if names is not None and annotation.names is not None:
        return annotation.reorder(names)
    here, there = annotation.num_classes, None if predicted is None else predicted.num_classes
    if here is not None and there is not None and here != there:
        raise FormatError(
            f"{here} {annotation.track} are annotated, but {there} are predicted",
            file=annotation.source,
            fix="annotate the predicted classes, or declare the class names of both",
        )
    return annotation


def _pad(tracks: Sequence[Track | None], rows: Sequence[np.ndarray], length: int) -> np.ndarray | None:
    present = [track for track in tracks if track is not None]
    if not present:
        return None
    first = present[0]
    for track in tracks:
        if track is None:
            raise FormatError(f"some videos have no {first.track}", fix="pass both tracks for all videos")
        if track.is_labels != first.is_labels or track.values.shape[1:] != first.values.shape[1:]:
            what = [f"{'labels' if t.is_labels else 'probabilities'} {t.values.shape}" for t in (track, first)]
            fix = "pass files of one kind with the same classes"
            if track.values.shape[1:] == first.values.shape[1:]:
                kind = f"kind={{'{track.track}': 'probabilities'}}"
                fix += f"; if the whole numbers are scores that happen to be 0 or 1, pass {kind}"
            raise FormatError(f"{track.video} has {what[0]}, {first.video} has {what[1]}", file=track.source, fix=fix)
    dtype = np.int32 if first.is_labels else np.float32
    padded = np.zeros((len(tracks), length, *first.values.shape[1:]), dtype)
    for i, (track, r) in enumerate(zip(present, rows, strict=True)):
        padded[i, r] = track.values
    return padded
