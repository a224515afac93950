"""Videos to frames and back, with PyAV.

A frame's number is its time stamp times the video's rate, never a count of decoded frames: a decoder that drops one
frame would otherwise shift every label after it. Needs the `vision` extra (av, pillow).
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from hmmjax.io.errors import FormatError
from models.data.picture import Box, common_content, resize
from models.data.video_packets import Plan, plan

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class VideoInfo:
    """What a video file's header says.

    Attributes:
        path: the file.
        width: pixels.
        height: pixels.
        fps: frames per second.
        num_frames: how many frames the header promises; 0 where it does not say.
    """

    path: str
    width: int
    height: int
    fps: float
    num_frames: int

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return self.num_frames / self.fps


#: Decoders else hide damage: they show an earlier picture in place of one that they cannot decode.
_STRICT = {"err_detect": "explode"}
#: Over a year at 60 frames a second; larger numbers would not fit time stamps.
_MOST_FRAMES = 2**31


def probe(path: Path) -> VideoInfo:
    """Read a video's header.

    Raises:
        FormatError: when the file is missing, is no video, or is cut off before its index.
    """
    with _open(path) as container:
        return _info(path, container.streams.video[0])


def count_frames(path: Path) -> int:
    """How many frames a video has: the header's number, or where it gives none (mkv) as the packets' times say.

    Args:
        path: the video.

    Returns:
        One more than the last frame's number.

    Raises:
        FormatError: when the file is missing, is no video, or is cut off before its index.
    """
    with _open(path) as container:
        stream = container.streams.video[0]
        info = _info(path, stream)
        if info.num_frames:
            return info.num_frames
        packets = plan(container, stream, lambda packet: _number(packet, stream, info), lambda n: n >= 0)
    return int(packets.numbers.max(initial=-1)) + 1


def read_frames(
    path: Path,
    *,
    rate: float | None = 1.0,
    offset: int = 0,
    size: tuple[int, int] | None = None,
    crop: Box | None = None,
    progress: bool = False,
) -> Iterator[tuple[int, np.ndarray]]:
    """Decode a video, keeping some of its frames.

    Args:
        path: the video.
        rate: frames per second to keep; must divide the video's own. None keeps all.
        offset: number of the first frame to keep; M2CAI16-workflow users start at 0 or at 24.
        size: (height, width) to scale to; the native size when left out.
        crop: (top, bottom, left, right) pixels to cut out before scaling, as `find_content` gives.
        progress: show a progress bar.

    Yields:
        (number, picture): the frame's number on the video's own counter, 0-based (frame 25 is one second in at
        25 fps), and (height, width, 3) uint8 RGB.

    Raises:
        FormatError: when the file is damaged or cut off, when a frame that should be kept is missing, or when `rate`
            does not divide the video's.
    """
    with _open(path) as container:
        stream = container.streams.video[0]
        info = _info(path, stream)
        step = _step(info, rate)
        packets = plan(
            container,
            stream,
            lambda packet: _number(packet, stream, info),
            lambda numbers: (numbers >= offset) & ((numbers - offset) % step == 0),
        )
        seconds = (container.duration or 0) / 1e6
    _check(packets, info, offset, step, seconds)
    wanted = offset
    for number, frame in _carry_out(packets, info, progress):
        if number < wanted:
            continue
        if number > wanted:
            raise FormatError(f"frame {wanted} cannot be decoded", file=info.path, fix="get the file again")
        wanted += step
        yield number, _picture(frame, size, crop)
    if wanted <= packets.numbers.max(initial=-1):
        raise FormatError(f"frame {wanted} cannot be decoded", file=info.path, fix="get the file again")


def read_frame(path: Path, number: int, *, size: tuple[int, int] | None = None) -> np.ndarray:
    """One frame by its number, by seeking: (height, width, 3) uint8 RGB.

    Raises:
        FormatError: when the video has no such frame.
    """
    with _open(path) as container:
        stream = container.streams.video[0]
        info = _info(path, stream)
        if not 0 <= number < _MOST_FRAMES:
            raise FormatError(f"no frame {number} among {info.num_frames}", file=info.path)
        stream.codec_context.options = _STRICT
        start = stream.start_time or 0
        # Files without an index (ts) may be left behind the frame that is sought: then from the beginning.
        for stamp in (round(number / info.fps / stream.time_base) + start, start):
            container.seek(stamp, stream=stream)
            for frame in _decode(path, container, stream):
                found = _number(frame, stream, info)
                if found == number:
                    return _picture(frame, size, None)
                if found > number:
                    break
    raise FormatError(f"no frame {number} among {info.num_frames}", file=info.path)


def write_video(path: Path, frames: Iterable[np.ndarray], *, fps: int = 25, quality: int = 23) -> int:
    """Encode pictures as H.264 in mp4.

    Args:
        path: where to.
        frames: (height, width, 3) uint8 RGB pictures of one size; height and width even. An array that comes several
            times in a row is converted once.
        fps: frames per second of the file.
        quality: x264's constant rate factor; lower is better and larger.

    Returns:
        The number of frames written.

    Raises:
        ValueError: for pictures of odd size, or none at all.
    """
    import av

    count, previous, converted = 0, None, None
    with av.open(os.fspath(path), "w", options={"movflags": "+faststart"}) as container:
        # Without the macroblock tree: with it, x264 writes other bytes for the same pictures about once in a hundred.
        options = {"crf": str(quality), "preset": "veryfast", "x264-params": "no-mbtree=1"}
        stream: Any = container.add_stream("libx264", rate=fps, options=options)
        stream.pix_fmt = "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, fps)
        for picture in frames:
            if count == 0:
                stream.height, stream.width = picture.shape[:2]
                if stream.height % 2 or stream.width % 2:
                    raise ValueError(f"pictures are {stream.width}x{stream.height}: H.264 needs even sizes.")
            if converted is None or picture is not previous:
                rgb = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
                previous, converted = picture, rgb.reformat(format="yuv420p")
            converted.pts, converted.time_base = count, Fraction(1, fps)
            container.mux(stream.encode(converted))
            count += 1
        if count == 0:
            raise ValueError(f"no pictures to write to {os.fspath(path)}.")
        container.mux(stream.encode(None))
    return count


def content_box(path: Path, samples: int = 5) -> Box:
    """`common_content` of frames spread over a video.

    Args:
        path: the video.
        samples: how many frames are looked at.

    Returns:
        (top, bottom, left, right).

    Raises:
        FormatError: when the video is damaged or lacks one of the frames.
    """
    numbers = np.linspace(0, max(count_frames(path) - 1, 0), samples + 2).astype(int)[1:-1]
    return common_content(read_frame(path, number) for number in dict.fromkeys(numbers.tolist()))


def _open(path: Path) -> Any:
    import av

    name = os.fspath(path)
    if not os.path.exists(name):
        raise FormatError("no such video", file=name)
    try:
        container = av.open(name)
    except av.error.FFmpegError as error:
        raise FormatError(
            f"not a readable video, or cut off before its index ({error.strerror})", file=name, fix="get the file again"
        ) from error
    if not container.streams.video:
        container.close()
        raise FormatError("no pictures in this file", file=name)
    return container


def _info(path: Path, stream: Any) -> VideoInfo:
    # The average rate is too low where frames are missing; the base rate is what time stamps are multiples of, and
    # means nothing (thousands) where they are irregular.
    base, average = (float(rate or 0) for rate in (stream.base_rate, stream.average_rate))
    fps = base if 0 < base <= 240 else average
    if fps <= 0:
        raise FormatError("the header gives no frame rate", file=os.fspath(path), fix="re-encode with a constant one")
    return VideoInfo(os.fspath(path), stream.width, stream.height, fps, stream.frames)


def _step(info: VideoInfo, rate: float | None) -> int:
    if rate is None:
        return 1
    step = round(info.fps / rate)
    if step < 1 or abs(step - info.fps / rate) > 0.01:
        raise FormatError(
            f"{rate:g} frames a second cannot be taken evenly from {info.fps:g}",
            file=info.path,
            fix=f"choose a rate that divides {info.fps:g}",
        )
    return step


def _check(packets: Plan, info: VideoInfo, offset: int, step: int, seconds: float) -> None:
    """Refuse videos in which frames are missing, before any is decoded.

    Args:
        packets: of the video.
        info: its header.
        offset: the first frame to keep.
        step: frames from one to keep to the next.
        seconds: length by the header, sound included, 0 where it does not say; for files that do not count frames.
    """
    numbers = np.sort(packets.numbers)
    if packets.hidden:
        raise FormatError(
            f"an edit list hides {packets.hidden} frames, as after cutting without re-encoding",
            file=info.path,
            fix="re-encode the video: ffmpeg -i VIDEO NEW.mp4",
        )
    if (numbers < 0).any():
        raise FormatError(
            "some frames have no time stamp, so that nobody can say which they are",
            file=info.path,
            fix="put the video into mp4: ffmpeg -i VIDEO -c copy NEW.mp4",
        )
    twice = np.flatnonzero(np.diff(numbers) == 0)
    if len(twice):
        raise FormatError(f"frame {numbers[twice[0]]} is there twice", file=info.path, fix="re-encode the video")
    last = int(numbers.max(initial=-1))
    asked = np.arange(offset, last + 1, step)
    missing = np.setdiff1d(asked, numbers)
    if len(missing):
        raise FormatError(
            f"frame {missing[0]} is missing: the next one is {numbers[numbers > missing[0]][0]}",
            file=info.path,
            fix="get the file again; its labels would no longer fit",
        )
    if packets.broken or last + 1 < info.num_frames:
        total = max(0, -(-(info.num_frames - offset) // step))
        raise FormatError(
            f"cut off or damaged: the header promises {info.num_frames} frames and only "
            f"{len(numbers) - packets.broken} are whole ({len(asked)} of {total} kept ones are there)",
            file=info.path,
            fix="get the file again",
        )
    if not info.num_frames and seconds and (last + 1) / info.fps < seconds - 1:
        raise FormatError(
            f"cut off: the header promises {seconds:.1f} s and the pictures end after {(last + 1) / info.fps:.1f} s",
            file=info.path,
            fix="get the file again",
        )


def _carry_out(packets: Plan, info: VideoInfo, progress: bool) -> Iterator[tuple[int, Any]]:
    """Decode as planned: (number, frame), in order of time."""
    import av

    with _open(info.path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        context = stream.codec_context
        context.options = _STRICT
        index = 0
        try:
            for packet in _track(container.demux(stream), info, progress):
                if packet.size:
                    decode, wanted = packets.decode[index], packets.wanted[index]
                    index += 1
                    if not decode:
                        continue
                    context.skip_frame = "DEFAULT" if wanted else "NONREF"
                for frame in packet.decode():
                    yield _number(frame, stream, info), frame
        except av.error.FFmpegError as error:
            raise FormatError(
                f"damaged near frame {packets.numbers[index - 1]} ({error.strerror})",
                file=info.path,
                fix="get the file again",
            ) from error


def _decode(path: Path, container: Any, stream: Any) -> Iterator[Any]:
    import av

    try:
        yield from container.decode(stream)
    except av.error.FFmpegError as error:
        raise FormatError(f"damaged ({error.strerror})", file=os.fspath(path), fix="get the file again") from error


def _number(stamped: Any, stream: Any, info: VideoInfo) -> int:
    """Of a frame or a packet, from its time stamp."""
    return round(float((stamped.pts - (stream.start_time or 0)) * stream.time_base) * info.fps)


def _picture(frame: Any, size: tuple[int, int] | None, crop: Box | None) -> np.ndarray:
    if crop is None:
        # Scaling and color conversion in one pass.
        height, width = size or (frame.height, frame.width)
        return frame.to_ndarray(format="rgb24", height=height, width=width)
    top, bottom, left, right = crop
    picture = frame.to_ndarray(format="rgb24")[top:bottom, left:right]
    return picture if size is None else resize(picture, size)


def _track(packets: Iterator[Any], info: VideoInfo, progress: bool) -> Iterator[Any]:
    if not progress:
        return packets
    from rich.progress import track

    # A packet is a frame.
    return iter(track(packets, os.path.basename(info.path), total=info.num_frames or None))
