"""The header of a video: opening it, its frame rate, and the numbers of its frames."""

import dataclasses
import os
from typing import Any

from hmmjax.io.errors import FormatError

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class VideoInfo:
    """The header of a video file.

    Attributes:
        path: of the file.
        width: in pixels.
        height: in pixels.
        fps: frames per second.
        num_frames: number of frames; 0 if the header does not give it.
    """

    path: str
    width: int
    height: int
    fps: float
    num_frames: int

    @property
    def seconds(self) -> float:
        """The length in seconds."""
        return self.num_frames / self.fps


def open_video(path: Path) -> Any:
    """Open a video with PyAV; raise FormatError if it is missing, not a video, or has no images."""
    import av
    from av.error import FFmpegError

    name = os.fspath(path)
    if not os.path.exists(name):
        raise FormatError("no such video", file=name, fix="check the path")
    try:
        container = av.open(name)
    except FFmpegError as error:
        raise FormatError(
            f"not a readable video, or truncated before its index ({error.strerror})",
            file=name,
            fix="get the file again",
        ) from error
    if not container.streams.video:
        container.close()
        raise FormatError("no video stream in this file", file=name, fix="give a video")
    return container


def read_info(path: Path, stream: Any) -> VideoInfo:
    """Read the header of an open video's stream; raise FormatError if it gives no frame rate."""
    # Missing frames lower the average rate. Time stamps are multiples of the base rate's period, unless they are
    # irregular: then the base rate is in the thousands and meaningless.
    base, average = (float(rate or 0) for rate in (stream.base_rate, stream.average_rate))
    fps = base if 0 < base <= 240 else average
    if fps <= 0:
        raise FormatError(
            "the header gives no frame rate", file=os.fspath(path), fix="re-encode the video with a constant frame rate"
        )
    return VideoInfo(os.fspath(path), stream.width, stream.height, fps, stream.frames)


def frame_number(stamped: Any, stream: Any, info: VideoInfo) -> int:
    """Return the number of a frame or packet from its time stamp."""
    unit = stream.time_base
    # Integers, because arithmetic with fractions is as slow as decoding a small frame.
    return round((stamped.pts - (stream.start_time or 0)) * unit.numerator / unit.denominator * info.fps)


def frame_step(info: VideoInfo, rate: float | None) -> int:
    """Return the number of frames from one to the next at a rate; raise FormatError unless it divides the video's."""
    if rate is None:
        return 1
    step = round(info.fps / rate)
    if step < 1 or abs(step - info.fps / rate) > 0.01:
        raise FormatError(
            f"{rate:g} frames per second cannot be taken evenly from a video of {info.fps:g} fps",
            file=info.path,
            fix=f"choose a rate that divides {info.fps:g}",
        )
    return step
