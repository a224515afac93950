"""Which packets of a video must be decoded to see some of its frames.

Reading packets costs about a hundredth of decoding them, so a video is read twice: once for the plan, which also finds
what is missing before anything is decoded, and once to carry it out. What is left out never changes a picture:

- frames that no other frame refers to and nobody asked for (decoders call them non-reference frames);
- in H.264, what follows the last frame asked for, up to the next instantaneous refresh (IDR), behind which nothing
  refers to anything before it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to do with each packet, in the file's order.

    Attributes:
        numbers: (n,) int64 frame number that the packet shows; -1 where the file does not say.
        wanted: (n,) bool, its frame is asked for.
        decode: (n,) bool, it goes to the decoder.
        broken: how many packets the container calls damaged or cut off.
        hidden: how many frames an edit list hides.
    """

    numbers: np.ndarray
    wanted: np.ndarray
    decode: np.ndarray
    broken: int
    hidden: int = 0


def plan(container: Any, stream: Any, number: Callable[[Any], int], wanted: Callable[[np.ndarray], np.ndarray]) -> Plan:
    """Read a stream's packets and decide.

    Args:
        container: of PyAV, at its beginning; at its end afterwards.
        stream: the one to decode.
        number: the frame number of a packet's time stamp.
        wanted: (n,) numbers to (n,) bool.
    """
    refresh = refreshes(stream)
    numbers, restarts, broken, hidden = [], [], 0, 0
    for packet in container.demux(stream):
        if not packet.size:
            continue  # PyAV's last one tells the decoder that there are no more
        broken += packet.is_corrupt
        hidden += packet.is_discard
        # Edit lists hide frames that others may still refer to.
        numbers.append(-1 if packet.pts is None or packet.is_discard else number(packet))
        restarts.append(packet.is_keyframe and refresh(packet))
    found = np.array(numbers, np.int64)
    ask = (found >= 0) & wanted(found)
    # Time stamps that are missing leave no choice.
    decode = needed(ask, restarts) if (found >= 0).all() else np.ones(len(found), bool)
    return Plan(found, ask, decode, broken, hidden)


def needed(wanted: np.ndarray, restarts: Sequence[bool]) -> np.ndarray:
    """(n,) bool: from each restart up to the last wanted packet before the next one."""
    decode = np.zeros(len(wanted), bool)
    starts = np.flatnonzero(np.asarray(restarts, bool))
    for start, end in zip([0, *starts.tolist()], [*starts.tolist(), len(wanted)], strict=True):
        last = np.flatnonzero(wanted[start:end])
        if len(last):
            decode[start : start + int(last[-1]) + 1] = True
    return decode


def refreshes(stream: Any) -> Callable[[Any], bool]:
    """Says of a key frame's packet whether decoding can begin anew there; for other codecs than H.264, never."""
    extra = stream.codec_context.extradata
    if stream.codec_context.name != "h264" or not extra or len(extra) < 5 or extra[0] != 1:
        return lambda packet: False
    # ISO/IEC 14496-15: units (NAL) with their length before them, in as many bytes as the header says.
    width = (extra[4] & 3) + 1

    def refresh(packet: Any) -> bool:
        data, at = memoryview(packet), 0
        while at + width < len(data):
            kind = data[at + width] & 31
            if 1 <= kind <= 5:  # the first slice: 5 is an instantaneous refresh
                return kind == 5
            at += width + int.from_bytes(data[at : at + width], "big")
        return False

    return refresh
