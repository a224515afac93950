"""Any collection of surgical videos: fully labelled, partly labelled and unlabelled ones, side by side.

A `Collection` is a list of `Recording`s, each with a video or a folder of pictures and whatever annotation files there
are. The known datasets are collections too (`cholec80`, `m2cai`); one's own is described by a manifest.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hmmjax.data.annotations import check_complete
from hmmjax.io import FormatError, Track, read_annotations
from models.data.video import content_box, probe, read_frames
from models.data.video_images import align_images, find_images, load_image


@dataclasses.dataclass(frozen=True)
class Recording:
    """One video and its files.

    Attributes:
        id: its name.
        video: path of the video, or None.
        images: folder of pictures dumped from it, or None; pictures are preferred, being faster to read at random.
        naming: what the numbers in the pictures' names mean: "frame", "second" or "counter".
        phases: path of the phase annotation, or None.
        tools: path of the tool annotation, or None; may be the same file.
        partial: whether annotated rows may be missing or unknown. Otherwise a gap is an error.
        fps: frames per second that the Frame column and the video count.
        part: "train", "test" or whatever the collection calls its parts.
    """

    id: str
    video: str | None = None
    images: str | None = None
    naming: str | None = None
    phases: str | None = None
    tools: str | None = None
    partial: bool = False
    fps: float = 25.0
    part: str = ""


@dataclasses.dataclass(frozen=True, eq=False)
class Annotation:
    """What is known of one video at the frames that are used.

    Attributes:
        id: the video's name.
        frames: (n,) int64 frame numbers on the video's counter, ascending.
        seconds: (n,) float64 times.
        phases: (n,) int32, -1 unknown.
        tools: (n, K) int32 0 or 1, -1 unknown.
        notices: rows that were left out, and why.
    """

    id: str
    frames: np.ndarray
    seconds: np.ndarray
    phases: np.ndarray
    tools: np.ndarray
    notices: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.frames)


@dataclasses.dataclass(frozen=True)
class Collection:
    """Videos with one set of phases and tools.

    Attributes:
        name: of the collection.
        recordings: the videos, in natural order.
        phase_names: L names; may be empty.
        tool_names: K names; may be empty.
        rate: frames per second to use; must divide each recording's `fps`.
        offset: number of each video's first used frame.
    """

    name: str
    recordings: tuple[Recording, ...]
    phase_names: tuple[str, ...]
    tool_names: tuple[str, ...]
    rate: float = 1.0
    offset: int = 0

    def __post_init__(self) -> None:
        for recording in self.recordings:
            self.step(recording)

    @property
    def ids(self) -> tuple[str, ...]:
        """The videos' names."""
        return tuple(recording.id for recording in self.recordings)

    def __getitem__(self, video: str) -> Recording:
        for recording in self.recordings:
            if recording.id == video:
                return recording
        raise FormatError(f"no video {video!r} in {self.name}", fix=f"there are {', '.join(self.ids[:5])} ...")

    def part(self, name: str) -> tuple[str, ...]:
        """The videos of one part.

        Raises:
            FormatError: when the collection has no such part.
        """
        found = tuple(recording.id for recording in self.recordings if recording.part == name)
        if not found:
            parts = dict.fromkeys(recording.part for recording in self.recordings)
            raise FormatError(f"no part {name!r} in {self.name}", fix=f"its parts are {', '.join(parts)}")
        return found

    def step(self, recording: Recording) -> int:
        """Frames of the recording's counter from one used frame to the next.

        Raises:
            FormatError: when the collection's rate does not divide the recording's.
        """
        step = round(recording.fps / self.rate)
        if step < 1 or abs(step * self.rate - recording.fps) > 1e-6:
            raise FormatError(
                f"{self.rate:g} frames a second cannot be taken from {recording.id} at {recording.fps:g}",
                fix="choose a rate that divides it",
            )
        return step

    def annotation(self, video: str) -> Annotation:
        """Phases and tools of one video at the used frames, joined on frame numbers.

        Used frames are those that each fully annotated track has; a partly annotated track is -1 elsewhere. Without
        any annotation they are the video's own, all unknown.

        Raises:
            FormatError: for damaged files and for gaps in a track that is not declared partial.
        """
        recording = self[video]
        step = self.step(recording)
        tracks = self._tracks(recording)
        # A partly annotated track says nothing of the video's length; the pictures or the other track do.
        whole = [track.frames for track in tracks.values()] if not recording.partial else []
        frames = self._used(np.array(self._own_frames(recording)) if not whole else whole[0], step)
        notices = []
        for track in tracks.values() if whole else ():
            kept = np.intersect1d(frames, track.frames, assume_unique=True)
            lost = np.setdiff1d(frames, kept, assume_unique=True)
            frames = kept
            extra = np.setdiff1d(self._used(track.frames, step), kept, assume_unique=True)
            for gone, where in ((lost, f"no {track.track} there"), (extra, f"only {track.track} there")):
                if len(gone):
                    notices.append(f"{video}: {len(gone)} frame(s) from {gone[0]} left out, {where}")
        if not len(frames):
            raise FormatError(f"{video}: no frame is annotated in all tracks", fix="check fps, rate and offset")
        if whole and len(frames) > 1 and (spacing := np.diff(frames).min()) > step:
            raise FormatError(
                f"{video} is annotated every {spacing} frames, but {self.rate:g} frames a second are every {step}",
                fix=f"use rate={recording.fps / spacing:g}",
            )
        phases, tools = (_values(tracks.get(kind), frames) for kind in ("phases", "tools"))
        return Annotation(
            id=video,
            frames=frames,
            seconds=frames / recording.fps,
            phases=np.full(len(frames), -1, np.int32) if phases is None else phases,
            tools=np.full((len(frames), len(self.tool_names)), -1, np.int32) if tools is None else tools,
            notices=tuple(notices),
        )

    def pictures(
        self,
        video: str,
        frames: Sequence[int] | np.ndarray | None = None,
        *,
        size: tuple[int, int] | None = None,
        crop: bool = False,
        progress: bool = False,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Used frames of one video as (number, picture), in order.

        Args:
            video: its name.
            frames: which, ascending and on the collection's rate; those of `annotation` when left out.
            size: (height, width) to scale to.
            crop: cut black borders off first.
            progress: show a progress bar.

        Raises:
            FormatError: when a frame has no picture, or the video is damaged.
        """
        recording = self[video]
        wanted = [int(frame) for frame in (self.annotation(video).frames if frames is None else frames)]
        if recording.images is not None:
            images = find_images(recording.images, self._naming(recording), fps=recording.fps, rate=self.rate)
            for number, path in zip(wanted, align_images(images, wanted, complete=frames is None), strict=True):
                yield number, load_image(path, size=size, crop=crop)
            return
        if recording.video is None:
            raise FormatError(f"{video} has neither video nor pictures", fix="give one of them in the manifest")
        rate = probe(recording.video).fps
        if abs(rate - recording.fps) > 0.01 * recording.fps:
            raise FormatError(
                f"{rate:g} frames a second, but {video} is declared to count {recording.fps:g}",
                file=recording.video,
                fix="declare fps, or re-encode the video",
            )
        box = content_box(recording.video) if crop else None
        left = iter(wanted)
        due = next(left, None)
        decoded = read_frames(
            recording.video, rate=self.rate, offset=self.offset, size=size, crop=box, progress=progress
        )
        for number, picture in decoded:
            if number == due:
                yield number, picture
                due = next(left, None)
        if due is not None:
            raise FormatError(
                f"frame {due} is annotated but not in the video", file=recording.video, fix="check that they belong"
            )

    def _own_frames(self, recording: Recording) -> Sequence[int]:
        if recording.images is not None:
            rule = self._naming(recording)
            return list(find_images(recording.images, rule, fps=recording.fps, rate=self.rate))
        if recording.video is None:
            raise FormatError(
                f"nothing says how long {recording.id} is", fix="give a video, pictures or complete annotations"
            )
        return range(probe(recording.video).num_frames)

    def _naming(self, recording: Recording) -> str:
        if recording.naming is None:
            raise FormatError(
                f"what do the numbers in the names of {recording.id}'s pictures count?",
                file=recording.images,
                fix="declare naming: frame, second or counter",
            )
        return recording.naming

    def _used(self, frames: np.ndarray, step: int) -> np.ndarray:
        frames = np.asarray(frames, np.int64)
        return frames[(frames >= self.offset) & ((frames - self.offset) % step == 0)]

    def _tracks(self, recording: Recording) -> dict[str, Track]:
        tracks: dict[str, Track] = {}
        for kind, file in (("phases", recording.phases), ("tools", recording.tools)):
            if file is None:
                continue
            names: dict[str, Any] = {"phase_names": self.phase_names or None, "tool_names": self.tool_names or None}
            found = [t for t in read_annotations(file, fps=recording.fps, **names) if t.track == kind]
            if len(found) != 1:
                raise FormatError(f"{len(found)} {kind} tracks found, one expected", file=file)
            track = found[0].reorder(self.phase_names if kind == "phases" else self.tool_names)
            if not recording.partial:
                check_complete(track)
            tracks[kind] = track
        return tracks


def _values(track: Track | None, frames: np.ndarray) -> np.ndarray | None:
    if track is None:
        return None
    rows = np.minimum(np.searchsorted(track.frames, frames), len(track.frames) - 1)
    values = track.values[rows].astype(np.int32)
    values[track.frames[rows] != frames] = -1
    return values
