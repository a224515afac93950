"""Reading and writing videos with PyAV.

A frame's number is its time stamp times the video's frame rate, never a count of decoded frames: a decoder that drops
one frame would shift every later label. Needs the `vision` extra (av, pillow).
"""

import os
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from hmmjax.io import FormatError
from models.data.picture import Box, common_content, resize
from models.data.video_header import Path, VideoInfo, frame_number, frame_step, open_video, read_info
from models.data.video_packets import Plan, check_packets, plan

#: Without this option decoders hide damage: they repeat an earlier frame in place of one that they cannot decode.
_STRICT = {"err_detect": "explode"}
#: More than a year at 60 frames per second; time stamps overflow beyond it.
_MOST_FRAMES = 2**31


def probe(path: Path) -> VideoInfo:
    """Read a video's header.

    Raises:
        FormatError: if the file is missing, not a video, or truncated before its index.
    """
    with open_video(path) as container:
        return read_info(path, container.streams.video[0])


def count_frames(path: Path) -> int:
    """Count the frames of a video: from the header, or from the packets' time stamps if it gives none (mkv).

    Args:
        path: of the video.

    Returns:
        The number of the last frame plus one.

    Raises:
        FormatError: if the file is missing, not a video, or truncated before its index.
    """
    with open_video(path) as container:
        stream = container.streams.video[0]
        info = read_info(path, stream)
        if info.num_frames:
            return info.num_frames
        packets = plan(container, stream, lambda packet: frame_number(packet, stream, info), lambda n: n >= 0)
    return int(packets.numbers.max(initial=-1)) + 1


def read_frames(
    path: Path,
    *,
    rate: float | None = 1.0,
    offset: int = 0,
    size: tuple[int, int] | None = None,
    crop: Box | None = None,
    progress: bool = False,
    threads: int = 0,
) -> Iterator[tuple[int, np.ndarray]]:
    """Decode some frames of a video.

    Args:
        path: of the video.
        rate: frames per second to keep; must divide the video's frame rate. None keeps all.
        offset: number of the first frame to keep; M2CAI16-workflow users start at 0 or at 24.
        size: (height, width) to scale to; None keeps the native size.
        crop: (top, bottom, left, right) in pixels to cut out before scaling, see `find_content`.
        progress: show a progress bar.
        threads: number of threads that decode; 0 for one per core.

    Yields:
        (number, image): the frame number in the video, from 0 (frame 25 is at one second in a video of 25 fps), and
        (height, width, 3) uint8 RGB.

    Raises:
        FormatError: if the file is damaged or truncated, if a frame to keep is missing, or if `rate` does not divide
            the video's frame rate.
    """
    with open_video(path) as container:
        stream = container.streams.video[0]
        info = read_info(path, stream)
        step = frame_step(info, rate)
        packets = plan(
            container,
            stream,
            lambda packet: frame_number(packet, stream, info),
            lambda numbers: (numbers >= offset) & ((numbers - offset) % step == 0),
        )
        seconds = (container.duration or 0) / 1e6
    check_packets(packets, info, offset, step, seconds)
    wanted = offset
    for number, frame in _execute(packets, info, progress, threads):
        if number < wanted:
            continue
        if number > wanted:
            raise FormatError(f"frame {wanted} cannot be decoded", file=info.path, fix="get the file again")
        wanted += step
        yield number, _picture(frame, size, crop)
    if wanted <= packets.numbers.max(initial=-1):
        raise FormatError(f"frame {wanted} cannot be decoded", file=info.path, fix="get the file again")


def read_frame(path: Path, number: int, *, size: tuple[int, int] | None = None) -> np.ndarray:
    """Decode one frame by seeking.

    Args:
        path: of the video.
        number: of the frame.
        size: (height, width) to scale to; None keeps the native size.

    Returns:
        (height, width, 3) uint8 RGB.

    Raises:
        FormatError: if the video has no such frame.
    """
    with open_video(path) as container:
        stream = container.streams.video[0]
        info = read_info(path, stream)
        if not 0 <= number < _MOST_FRAMES:
            raise _no_frame(info, number)
        stream.codec_context.options = _STRICT
        start = stream.start_time or 0
        # In files without an index (ts) seeking may end behind the frame: then decode from the start.
        for stamp in (round(number / info.fps / stream.time_base) + start, start):
            container.seek(stamp, stream=stream)
            for frame in _decode(path, container, stream):
                found = frame_number(frame, stream, info)
                if found == number:
                    return _picture(frame, size, None)
                if found > number:
                    break
    raise _no_frame(info, number)


def write_video(path: Path, frames: Iterable[np.ndarray], *, fps: int = 25, quality: int = 23) -> int:
    """Encode images as H.264 in an mp4 file.

    Args:
        path: of the file.
        frames: (height, width, 3) uint8 RGB images of one size; height and width even. An array that is repeated in
            direct succession is converted once.
        fps: frames per second of the file.
        quality: x264's constant rate factor; lower is better and larger.

    Returns:
        The number of frames written.

    Raises:
        ValueError: for images of odd size, and if there are no images.
    """
    import av

    count, previous, converted = 0, None, None
    with av.open(os.fspath(path), "w", options={"movflags": "+faststart"}) as container:
        # Without the macroblock tree, because it makes x264 not deterministic about once in a hundred runs.
        options = {"crf": str(quality), "preset": "veryfast", "x264-params": "no-mbtree=1"}
        stream: Any = container.add_stream("libx264", rate=fps, options=options)
        stream.pix_fmt = "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, fps)
        for picture in frames:
            if count == 0:
                stream.height, stream.width = picture.shape[:2]
                if stream.height % 2 or stream.width % 2:
                    raise ValueError(
                        f"the images are {stream.width}x{stream.height}, but H.264 needs an even width and height."
                    )
            if converted is None or picture is not previous:
                rgb = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), format="rgb24")
                previous, converted = picture, rgb.reformat(format="yuv420p")
            converted.pts, converted.time_base = count, Fraction(1, fps)
            container.mux(stream.encode(converted))
            count += 1
        if count == 0:
            raise ValueError(f"there are no images to write to {os.fspath(path)}.")
        container.mux(stream.encode(None))
    return count


def content_box(path: Path, samples: int = 5) -> Box:
    """Find the box that contains the content of frames spread over a video, see `common_content`.

    Args:
        path: of the video.
        samples: number of frames that are examined.

    Returns:
        (top, bottom, left, right) in pixels.

    Raises:
        FormatError: if the video is damaged or lacks one of the frames.
    """
    numbers = np.linspace(0, max(count_frames(path) - 1, 0), samples + 2).astype(int)[1:-1]
    return common_content(read_frame(path, number) for number in dict.fromkeys(numbers.tolist()))


def _no_frame(info: VideoInfo, number: int) -> FormatError:
    last = f"from 0 to {info.num_frames - 1}" if info.num_frames else "that the video has"
    return FormatError(f"the video has no frame {number}", file=info.path, fix=f"request a frame {last}")


def _execute(packets: Plan, info: VideoInfo, progress: bool, threads: int) -> Iterator[tuple[int, Any]]:
    """Decode the planned packets: yield (number, frame) in order of time."""
    from av.error import FFmpegError

    with open_video(info.path) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        context = stream.codec_context
        context.thread_count = threads
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
                    yield frame_number(frame, stream, info), frame
        except FFmpegError as error:
            raise FormatError(
                f"damaged near frame {packets.numbers[index - 1]} ({error.strerror})",
                file=info.path,
                fix="get the file again",
            ) from error


def _decode(path: Path, container: Any, stream: Any) -> Iterator[Any]:
    from av.error import FFmpegError

    try:
        yield from container.decode(stream)
    except FFmpegError as error:
        raise FormatError(f"damaged ({error.strerror})", file=os.fspath(path), fix="get the file again") from error


def _picture(frame: Any, size: tuple[int, int] | None, crop: Box | None) -> np.ndarray:
    if crop is None:
        # This scales and converts colors in one pass.
        height, width = size or (frame.height, frame.width)
        return frame.to_ndarray(format="rgb24", height=height, width=width)
    top, bottom, left, right = crop
    picture = frame.to_ndarray(format="rgb24")[top:bottom, left:right]
    return picture if size is None else resize(picture, size)


def _track(packets: Iterator[Any], info: VideoInfo, progress: bool) -> Iterator[Any]:
    if not progress:
        return packets
    from rich.progress import track

    # There is one packet per frame.
    return iter(track(packets, os.path.basename(info.path), total=info.num_frames or None))
