"""Any collection of surgical videos: fully labeled, partly labeled and unlabeled ones, side by side.

A `Collection` is a list of `Recording`s, each with a video or a folder of pictures and whatever annotation files there
are. The known datasets are collections too (`cholec80`, `m2cai`); one's own is described by a manifest.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hmmjax.data.annotations import check_complete
from hmmjax.io import FormatError, Track, read_annotations
from models.data.video import VideoInfo, content_box, count_frames, probe, read_frames
from models.data.video_images import RULES, align_images, check_spacing, common_box, find_images, load_image

#: Seconds by which the end of a complete annotation and that of its video may differ.
LOOSE_END = 5.0


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
        phase_names: L names, in the order of `phases`; empty where nobody says.
        tool_names: K names, in the order of `tools`; likewise.
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
        if not 0 < self.rate < math.inf:
            raise FormatError(f"rate is {self.rate:g}", fix="give a positive number of frames a second")
        for recording in self.recordings:
            if recording.naming not in (None, *RULES):
                raise FormatError(
                    f"{recording.id}: unknown naming rule {recording.naming!r}", fix=f"say one of {', '.join(RULES)}"
                )
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
        if not 0 < recording.fps < math.inf:
            raise FormatError(f"{recording.id} counts {recording.fps:g} frames a second", fix="give a positive number")
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
            FormatError: for damaged files; for gaps in a track that is not declared partial, or one that ends seconds
                before or after its video; for rows or pictures that are not as far apart as `rate` says; for a video
                of another rate than the recording's.
        """
        recording = self[video]
        step = self.step(recording)
        tracks = self._tracks(recording)
        notices = list(dict.fromkeys(notice for track in tracks.values() for notice in track.notices))
        if tracks and not recording.partial:
            frames = self._common(recording, tracks, step, notices)
        else:
            # A partly annotated track says nothing of the video's length; the pictures or the other track do.
            frames = self._used(np.array(self._own_frames(recording)), step)
            for track in tracks.values():
                notices += _unused(track, frames, step)
        if not len(frames):
            raise FormatError(f"{video}: no frame is used in all tracks", fix="check fps, rate and offset")
        phases, tools = (_values(tracks.get(kind), frames) for kind in ("phases", "tools"))
        return Annotation(
            id=video,
            frames=frames,
            seconds=frames / recording.fps,
            phases=np.full(len(frames), -1, np.int32) if phases is None else phases,
            tools=np.full((len(frames), len(self.tool_names)), -1, np.int32) if tools is None else tools,
            notices=tuple(notices),
            phase_names=self.phase_names,
            tool_names=self.tool_names,
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

        Yields:
            Frame number and (height, width, 3) uint8 RGB.

        Raises:
            FormatError: when `frames` are not ascending or not on the rate, when a frame has no picture, or when the
                video is damaged.
        """
        recording = self[video]
        if frames is None:
            wanted = self.annotation(video).frames.tolist()
        else:
            wanted = [int(frame) for frame in frames]
            self._check_asked(recording, wanted)
        if recording.images is not None:
            images = find_images(recording.images, self._naming(recording), fps=recording.fps, rate=self.rate)
            paths = align_images(images, wanted, complete=frames is None)
            box = common_box(list(images.values())) if crop else None
            for number, path in zip(wanted, paths, strict=True):
                yield number, load_image(path, size=size, crop=box)
            return
        if recording.video is None:
            raise FormatError(f"{video} has neither video nor pictures", fix="give one of them in the manifest")
        _probe(recording)
        if wanted and wanted[-1] >= (length := count_frames(recording.video)):
            raise FormatError(
                f"frame {wanted[-1]} is annotated but not in the video, which has {length}",
                file=recording.video,
                fix="check that they belong",
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
                f"frame {due} is annotated but not in the video", file=recording.video, fix="get the video again"
            )

    def _common(self, recording: Recording, tracks: dict[str, Track], step: int, notices: list[str]) -> np.ndarray:
        """Used frames that all complete tracks have; what only some have goes to `notices`."""
        for track in tracks.values():
            # check_complete has seen that rows are equally far apart.
            spacing = int(track.frames[1] - track.frames[0]) if len(track.frames) > 1 else step
            if step % spacing:
                raise FormatError(
                    f"{recording.id} is annotated every {spacing} frames, but {self.rate:g} frames a second are every "
                    f"{step}",
                    file=track.source,
                    fix=f"use rate={recording.fps / spacing:g}, or declare the fps that the Frame column counts",
                )
        kinds = list(tracks)
        frames = self._used(tracks[kinds[0]].frames, step)
        if len(kinds) == 2:
            other = self._used(tracks[kinds[1]].frames, step)
            kept = np.intersect1d(frames, other, assume_unique=True)
            for having, where in ((frames, f"no {kinds[1]} there"), (other, f"only {kinds[1]} there")):
                lost = np.setdiff1d(having, kept, assume_unique=True)
                if len(lost):
                    notices.append(f"{recording.id}: {len(lost)} frame(s) from {lost[0]} left out, {where}")
            frames = kept
        self._check_end(recording, tracks)
        return frames

    def _check_end(self, recording: Recording, tracks: dict[str, Track]) -> None:
        """A complete annotation lasts as long as its video; without video or pictures nobody knows."""
        if recording.video is not None:
            length, file = count_frames(recording.video), recording.video
            _probe(recording)
        elif recording.images is not None and recording.naming is not None:
            images = find_images(recording.images, recording.naming, fps=recording.fps, rate=self.rate)
            length, file = max(images) + 1, recording.images
        else:
            return
        loose = LOOSE_END + 1 / self.rate
        for track in tracks.values():
            off = (length - 1 - int(track.frames[-1])) / recording.fps
            if abs(off) > loose:
                raise FormatError(
                    f"the {track.track} of {recording.id} end at frame {track.frames[-1]}, {abs(off):.0f} s "
                    f"{'before' if off > 0 else 'after'} {file}",
                    file=track.source,
                    fix="check that they belong together, naming, and fps (of the Frame column; 1 for seconds), "
                    "or say partial",
                )

    def _check_asked(self, recording: Recording, frames: list[int]) -> None:
        step = self.step(recording)
        for before, frame in zip([-1, *frames], frames, strict=False):
            if frame <= before:
                cause = f"frame {frame} is asked for after frame {before}" if before >= 0 else f"no frame is {frame}"
                raise FormatError(cause, fix="ask for ascending frames")
            if frame < self.offset or (frame - self.offset) % step:
                raise FormatError(
                    f"frame {frame} of {recording.id} is not used: at {self.rate:g} frames a second those are "
                    f"{self.offset}, {self.offset + step}, {self.offset + 2 * step} ...",
                    fix="ask for these, or open the collection with another rate",
                )

    def _own_frames(self, recording: Recording) -> Sequence[int]:
        if recording.images is not None:
            rule = self._naming(recording)
            frames = list(find_images(recording.images, rule, fps=recording.fps, rate=self.rate))
            check_spacing(frames, self.step(recording), recording.images, offset=self.offset)
            if recording.video is not None and frames[-1] >= (length := count_frames(recording.video)) + LOOSE_END:
                raise FormatError(
                    f"by the naming rule {rule!r} the last picture is frame {frames[-1]}, and {recording.video} has "
                    f"{length}",
                    file=recording.images,
                    fix="check naming",
                )
            return frames
        if recording.video is None:
            raise FormatError(
                f"nothing says how long {recording.id} is", fix="give a video, pictures or complete annotations"
            )
        _probe(recording)
        return range(count_frames(recording.video))

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


def _unused(track: Track, frames: np.ndarray, step: int) -> list[str]:
    """Notices about labels of a partial track that no used frame takes up."""
    known = track.frames[(track.values >= 0).reshape(len(track.frames), -1).any(1)]
    lost = np.setdiff1d(known, frames)
    late = lost[lost > frames[-1]] if len(frames) else lost
    between = np.setdiff1d(lost, late)
    return [
        f"{track.video}: {len(gone)} labeled row(s) of {track.track} not used, from frame {gone[0]} on: {why}"
        for gone, why in ((between, f"not on a used frame, one in {step}"), (late, "after the end of the video"))
        if len(gone)
    ]


def _probe(recording: Recording) -> VideoInfo:
    """The header of a recording's video, whose rate must be the declared one."""
    assert recording.video is not None
    info = probe(recording.video)
    if abs(info.fps - recording.fps) > 0.01 * recording.fps:
        raise FormatError(
            f"{info.fps:g} frames a second, but {recording.id} is declared to count {recording.fps:g}",
            file=recording.video,
            fix="declare fps, or re-encode the video",
        )
    return info
