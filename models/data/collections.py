"""Collections of surgical videos, fully, partially or not labeled.

A `Collection` is a list of `Recording`s, each with a video or a folder of images and optional annotation files. The
known datasets are collections too (`cholec80`, `m2cai`); describe your own by a manifest (`read_manifest`).
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hmmjax.io import FormatError
from models.data.annotation import Annotation, annotate
from models.data.frames import part_name
from models.data.recording import Recording, Sampling, naming_of, probe_recording
from models.data.video import content_box, count_frames, read_frames
from models.data.video_images import RULES, align_images, common_box, find_images, load_image

__all__ = ["Annotation", "Collection", "Recording"]


@dataclasses.dataclass(frozen=True)
class Collection:
    """Videos with one set of phases and tools.

    Attributes:
        name: of the collection.
        recordings: the videos, in natural order.
        phase_names: L names; may be empty.
        tool_names: K names; may be empty.
        rate: used frames per second; must divide each recording's `fps`.
        offset: number of the first used frame of each video.
    """

    name: str
    recordings: tuple[Recording, ...]
    phase_names: tuple[str, ...]
    tool_names: tuple[str, ...]
    rate: float = 1.0
    offset: int = 0

    def __post_init__(self) -> None:
        sampling = self.sampling
        for recording in self.recordings:
            if recording.naming not in (None, *RULES):
                raise FormatError(
                    f"{recording.id}: unknown naming rule {recording.naming!r}", fix=f"choose one of {', '.join(RULES)}"
                )
            sampling.step(recording)

    @property
    def ids(self) -> tuple[str, ...]:
        """The names of the videos."""
        return tuple(recording.id for recording in self.recordings)

    @property
    def sampling(self) -> Sampling:
        """The frames that are used, by `rate` and `offset`."""
        return Sampling(self.rate, self.offset)

    def __getitem__(self, video: str) -> Recording:
        for recording in self.recordings:
            if recording.id == video:
                return recording
        raise FormatError(
            f"{self.name} has no video {video!r}",
            fix=f"choose one of its {len(self.ids)} videos, such as {self.ids[0]}" if self.ids else "add videos",
        )

    def part(self, name: str) -> tuple[str, ...]:
        """Return the names of the videos of one part.

        Raises:
            FormatError: if the collection has no such part.
        """
        found = tuple(recording.id for recording in self.recordings if recording.part == part_name(name))
        if not found:
            parts = ", ".join(filter(None, dict.fromkeys(recording.part for recording in self.recordings)))
            raise FormatError(
                f"{self.name} has no part {name!r}", fix=f"choose one of {parts}" if parts else "open it with a split"
            )
        return found

    def annotation(self, video: str, available: np.ndarray | None = None) -> Annotation:
        """Return the phases and tools of one video at the used frames, joined on frame numbers.

        Used are the frames that all complete tracks have. At frames that a partial track lacks, its labels are -1.
        Without complete tracks, all frames of the images or the video on the rate are used.

        Args:
            video: its name.
            available: numbers of the frames that a video without complete tracks has; None looks at its images or
                video.

        Raises:
            FormatError: for damaged files; for gaps in a track that is not declared partial, or if it ends seconds
                before or after its video; for rows or images that are not spaced as `rate` requires; for a video with
                another frame rate than the recording's.
        """
        return annotate(self[video], self.sampling, self.phase_names, self.tool_names, available)

    def pictures(
        self,
        video: str,
        frames: Sequence[int] | np.ndarray | None = None,
        *,
        size: tuple[int, int] | None = None,
        crop: bool = False,
        progress: bool = False,
        threads: int = 0,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield used frames of one video in order, as (frame number, image).

        Args:
            video: its name.
            frames: ascending numbers of used frames; None takes those of `annotation`.
            size: (height, width) to scale to; None keeps the size.
            crop: cut off black borders first.
            progress: show a progress bar.
            threads: number of threads that decode a video; 0 for one per core.

        Yields:
            Frame number and (height, width, 3) uint8 RGB.

        Raises:
            FormatError: if `frames` are not ascending or not used, if a frame has no image, or if the video is damaged.
        """
        recording = self[video]
        if frames is None:
            wanted = self.annotation(video).frames.tolist()
        else:
            wanted = [int(frame) for frame in frames]
            self.sampling.check(recording, wanted)
        if recording.images is not None:
            images = find_images(recording.images, naming_of(recording), fps=recording.fps, rate=self.rate)
            paths = align_images(images, wanted, complete=frames is None)
            box = common_box(list(images.values())) if crop else None
            for number, path in zip(wanted, paths, strict=True):
                yield number, load_image(path, size=size, crop=box)
        else:
            options = {"size": size, "progress": progress, "threads": threads}
            yield from self._decode(recording, wanted, crop, options)

    def _decode(
        self, recording: Recording, wanted: list[int], crop: bool, options: dict[str, Any]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yield the wanted frames from a recording's video."""
        if recording.video is None:
            raise FormatError(f"{recording.id} has neither a video nor images", fix="give one of them in the manifest")
        probe_recording(recording)
        if wanted and wanted[-1] >= (length := count_frames(recording.video)):
            raise FormatError(
                f"frame {wanted[-1]} is annotated, but the video has only {length} frames",
                file=recording.video,
                fix="check that video and annotation belong together",
            )
        box = content_box(recording.video) if crop else None
        remaining = iter(wanted)
        due = next(remaining, None)
        decoded = read_frames(recording.video, rate=self.rate, offset=self.offset, crop=box, **options)
        for number, picture in decoded:
            if number == due:
                yield number, picture
                due = next(remaining, None)
        if due is not None:
            raise FormatError(
                f"frame {due} is annotated, but missing from the video", file=recording.video, fix="get the video again"
            )
