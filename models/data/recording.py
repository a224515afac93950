"""One recording of a surgery: its files, and which of its frames are used."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from hmmjax.io import FormatError
from models.data.frames import part_name
from models.data.video import VideoInfo, count_frames, probe
from models.data.video_images import check_spacing, find_images

#: Maximum difference in seconds between the ends of a complete annotation and of its video.
END_TOLERANCE = 5.0


@dataclasses.dataclass(frozen=True)
class Recording:
    """One video and its files.

    Attributes:
        id: name of the video.
        video: path of the video, or None.
        images: folder of images extracted from it, or None. Images take precedence: they are faster to read at random.
        naming: meaning of the numbers in the images' names: "frame", "second" or "counter".
        phases: path of the phase annotation, or None.
        tools: path of the tool annotation, or None; may be the same file.
        partial: whether annotated rows may be missing or unknown. Otherwise a gap is an error.
        fps: frames per second that the Frame column and the video count.
        part: such as "train" or "test". The earlier spelling "unlabelled" is replaced by "unlabeled".
        first_index: number of the first phase, if the annotation states numbers instead of names.
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
    first_index: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "part", part_name(self.part))


@dataclasses.dataclass(frozen=True)
class Sampling:
    """The frames of each recording that are used.

    Attributes:
        rate: used frames per second; must divide each recording's `fps`.
        offset: number of the first used frame of each video.
    """

    rate: float = 1.0
    offset: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate < math.inf:
            raise FormatError(f"rate is {self.rate:g}", fix="give a positive number of frames per second")

    def step(self, recording: Recording) -> int:
        """Return the number of frames from one used frame to the next.

        Raises:
            FormatError: if the rate does not divide the recording's.
        """
        if not 0 < recording.fps < math.inf:
            raise FormatError(f"fps of {recording.id} is {recording.fps:g}", fix="give a positive number")
        step = round(recording.fps / self.rate)
        if step < 1 or abs(step * self.rate - recording.fps) > 1e-6:
            raise FormatError(
                f"{self.rate:g} frames per second cannot be taken from {recording.id} at {recording.fps:g} fps",
                fix="choose a rate that divides it",
            )
        return step

    def select(self, frames: np.ndarray | Sequence[int], step: int) -> np.ndarray:
        """Return those of `frames` that are used."""
        frames = np.asarray(frames, np.int64)
        return frames[(frames >= self.offset) & ((frames - self.offset) % step == 0)]

    def check(self, recording: Recording, frames: Sequence[int]) -> None:
        """Raise FormatError unless requested frames are ascending and used."""
        step = self.step(recording)
        for before, frame in zip([-1, *frames], frames, strict=False):
            if frame <= before:
                cause = f"frame {frame} is requested after frame {before}" if before >= 0 else f"no frame is {frame}"
                raise FormatError(cause, fix="request frames in ascending order, from 0")
            if frame < self.offset or (frame - self.offset) % step:
                raise FormatError(
                    f"frame {frame} of {recording.id} is not used: at {self.rate:g} frames per second, used frames are "
                    f"{self.offset}, {self.offset + step}, {self.offset + 2 * step} and so on",
                    fix="request these, or open the collection with another rate",
                )


def probe_recording(recording: Recording) -> VideoInfo:
    """Read the header of a recording's video, and raise FormatError unless it has the declared frame rate."""
    assert recording.video is not None
    info = probe(recording.video)
    if abs(info.fps - recording.fps) > 0.01 * recording.fps:
        raise FormatError(
            f"the video has {info.fps:g} frames per second, but {recording.id} is declared to have {recording.fps:g}",
            file=recording.video,
            fix="declare fps, or re-encode the video",
        )
    return info


def naming_of(recording: Recording) -> str:
    """Return the naming rule of a recording's images, or raise FormatError if none is declared."""
    if recording.naming is None:
        raise FormatError(
            f"the meaning of the numbers in the image names of {recording.id} is not declared",
            file=recording.images,
            fix="declare naming: frame, second or counter",
        )
    return recording.naming


def own_frames(recording: Recording, sampling: Sampling) -> Sequence[int]:
    """Return the frame numbers of a recording's images, or of its video if it has no images.

    Raises:
        FormatError: if the images are not one step apart or extend beyond the video, for a video of another frame rate,
            and if there are neither images nor a video.
    """
    if recording.images is not None:
        rule = naming_of(recording)
        frames = list(find_images(recording.images, rule, fps=recording.fps, rate=sampling.rate))
        check_spacing(frames, sampling.step(recording), recording.images, offset=sampling.offset)
        if recording.video is not None and frames[-1] >= (length := count_frames(recording.video)) + END_TOLERANCE:
            raise FormatError(
                f"by the naming rule {rule!r} the last image is frame {frames[-1]}, but {recording.video} has "
                f"{length} frames",
                file=recording.images,
                fix="check naming",
            )
        return frames
    if recording.video is None:
        raise FormatError(
            f"the length of {recording.id} is unknown", fix="give a video, images or complete annotations"
        )
    probe_recording(recording)
    return range(count_frames(recording.video))
