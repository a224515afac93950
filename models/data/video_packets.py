"""Selection of the packets of a video that must be decoded for some of its frames, and checks for missing frames.

Reading packets costs about a hundredth of decoding them, so a video is read twice: first to plan, which finds missing
frames before any is decoded, and then to decode. Skipping these frames does not change the decoded images:

- frames that are not wanted and that no other frame refers to (non-reference frames);
- in H.264, frames after the last wanted one, up to the next instantaneous refresh (IDR): no later frame refers to a
  frame before it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hmmjax.io import FormatError
from models.data.video_header import VideoInfo


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do with each of n packets, in the file's order.

    Attributes:
        numbers: (n,) int64 frame number of each packet; -1 if unknown.
        wanted: (n,) bool, whether its frame is wanted.
        decode: (n,) bool, whether it must be decoded.
        broken: number of packets that the container marks as damaged or truncated.
        hidden: number of frames that an edit list hides.
    """

    numbers: np.ndarray
    wanted: np.ndarray
    decode: np.ndarray
    broken: int
    hidden: int = 0


def plan(container: Any, stream: Any, number: Callable[[Any], int], wanted: Callable[[np.ndarray], np.ndarray]) -> Plan:
    """Read a stream's packets and plan which to decode.

    Args:
        container: of PyAV, at its start; left at its end.
        stream: to decode.
        number: returns the frame number of a packet.
        wanted: returns (n,) bool for (n,) frame numbers.
    """
    refresh = refreshes(stream)
    numbers, restarts, broken, hidden = [], [], 0, 0
    for packet in container.demux(stream):
        if not packet.size:
            continue  # PyAV ends with an empty packet that flushes the decoder
        broken += packet.is_corrupt
        hidden += packet.is_discard
        # Other frames may refer to frames that an edit list hides.
        numbers.append(-1 if packet.pts is None or packet.is_discard else number(packet))
        restarts.append(packet.is_keyframe and refresh(packet))
    found = np.array(numbers, np.int64)
    ask = (found >= 0) & wanted(found)
    # Without time stamps, everything must be decoded.
    decode = needed(ask, restarts) if (found >= 0).all() else np.ones(len(found), bool)
    return Plan(found, ask, decode, broken, hidden)


def needed(wanted: np.ndarray, restarts: Sequence[bool]) -> np.ndarray:
    """Return (n,) bool: the packets from each restart up to the last wanted one before the next restart."""
    decode = np.zeros(len(wanted), bool)
    starts = np.flatnonzero(np.asarray(restarts, bool))
    for start, end in zip([0, *starts.tolist()], [*starts.tolist(), len(wanted)], strict=True):
        last = np.flatnonzero(wanted[start:end])
        if len(last):
            decode[start : start + int(last[-1]) + 1] = True
    return decode


def refreshes(stream: Any) -> Callable[[Any], bool]:
    """Return a function: whether decoding can restart at a key frame's packet; always False unless H.264."""
    extra = stream.codec_context.extradata
    if stream.codec_context.name != "h264" or not extra or len(extra) < 5 or extra[0] != 1:
        return lambda packet: False
    # ISO/IEC 14496-15: each unit (NAL) follows its length, whose number of bytes is in the header.
    width = (extra[4] & 3) + 1

    def refresh(packet: Any) -> bool:
        data, at = memoryview(packet), 0
        while at + width < len(data):
            kind = data[at + width] & 31
            if 1 <= kind <= 5:  # the first slice; 5 is an instantaneous refresh
                return kind == 5
            at += width + int.from_bytes(data[at : at + width], "big")
        return False

    return refresh


def check_packets(packets: Plan, info: VideoInfo, offset: int, step: int, seconds: float) -> None:
    """Raise FormatError if frames are missing from a video, before any frame is decoded.

    Args:
        packets: of the video.
        info: header of the video.
        offset: number of the first frame to keep.
        step: number of frames from one kept frame to the next.
        seconds: length in the header, with sound; 0 if unknown. For files that do not give the number of frames.
    """
    numbers = np.sort(packets.numbers)
    if packets.hidden:
        raise FormatError(
            f"an edit list hides {packets.hidden} frames, as after cutting a video without re-encoding",
            file=info.path,
            fix="re-encode the video: ffmpeg -i VIDEO NEW.mp4",
        )
    if (numbers < 0).any():
        raise FormatError(
            "some frames have no time stamp, so their numbers are unknown",
            file=info.path,
            fix="convert the container to mp4: ffmpeg -i VIDEO -c copy NEW.mp4",
        )
    twice = np.flatnonzero(np.diff(numbers) == 0)
    if len(twice):
        raise FormatError(f"frame {numbers[twice[0]]} occurs twice", file=info.path, fix="re-encode the video")
    last = int(numbers.max(initial=-1))
    kept = np.arange(offset, last + 1, step)
    missing = np.setdiff1d(kept, numbers)
    if len(missing):
        raise FormatError(
            f"frame {missing[0]} is missing: the next one is {numbers[numbers > missing[0]][0]}",
            file=info.path,
            fix="get the file again: labels would not match its frames",
        )
    if packets.broken or last + 1 < info.num_frames:
        total = max(0, -(-(info.num_frames - offset) // step))
        raise FormatError(
            f"truncated or damaged: the header gives {info.num_frames} frames, but only "
            f"{len(numbers) - packets.broken} are intact ({len(kept)} of the {total} frames to keep)",
            file=info.path,
            fix="get the file again",
        )
    if not info.num_frames and seconds and (last + 1) / info.fps < seconds - 1:
        raise FormatError(
            f"truncated: the header gives {seconds:.1f} s, but the frames end after {(last + 1) / info.fps:.1f} s",
            file=info.path,
            fix="get the file again",
        )
