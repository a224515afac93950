"""Timecodes: hh:mm:ss.ms and mm:ss, and hh:mm:ss:ff of SMPTE 12M with and without dropped frame numbers."""

import re
from typing import NamedTuple

NTSC = 30000 / 1001
"""Frames per second at which frame numbers are dropped; also twice as many."""

CLOCK = r"(?:\d+:)?\d{1,2}:\d{2}(?:[.,]\d+)?"
"""A regular expression of hh:mm:ss.ms and mm:ss."""
WITH_FRAMES = r"\d{1,2}:\d{2}:\d{2}[:;]\d{2}"
"""A regular expression of hh:mm:ss:ff, of which a semicolon tells that frame numbers are dropped."""

_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:[.,]\d+)?)")
_WITH_FRAMES = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})([:;])(\d{2})")


class Reading(NamedTuple):
    """How the timecodes of a file were read.

    Attributes:
        fps: frames per second of the timecodes.
        drops: whether frame numbers are dropped.
    """

    fps: float
    drops: bool

    def note(self, file: str) -> str:
        """Return a notice of what was assumed."""
        if self.drops:
            return f"{file}: hh:mm:ss;ff is read as drop-frame timecode at {self.fps:.2f} frames per second"
        text = f"{file}: hh:mm:ss:ff is read as timecode at {self.fps:.6g} frames per second"
        if round(self.fps) == self.fps:
            return text
        # Whole numbers of frames are counted as seconds.
        slow = 3600 * (round(self.fps) / self.fps - 1)
        return (
            f"{text}, of which no frame numbers are dropped: 01:00:00:00 is {3600 + slow:,.1f} s into the video. "
            "If it is an hour, write hh:mm:ss;ff (drop-frame) or hh:mm:ss.ms"
        )


def has_frames(text: str) -> bool:
    """Whether a cell is a timecode that ends in a frame number."""
    return _WITH_FRAMES.fullmatch(text.strip()) is not None


def clock(text: str, fps: float | None = None) -> tuple[float, Reading | None]:
    """Return the seconds of a timecode, and how it was read if it ends in a frame number.

    Args:
        text: hh:mm:ss.ms, mm:ss, hh:mm:ss:ff or hh:mm:ss;ff.
        fps: declared frames per second; None means 25, or the rate at which frame numbers are dropped.

    Returns:
        Seconds since the first frame; of hh:mm:ss:ff the time of the frame itself, which is not what the digits say if
        the rate is not a whole number.

    Raises:
        ValueError: the text is not a timecode, or not one at that rate.

    Source: SMPTE ST 12-1: at 29.97 frames per second the numbers 0 and 1 are left out at the start of every minute but
    every tenth, at 59.94 the numbers 0 to 3.
    """
    text = text.strip()
    if match := _WITH_FRAMES.fullmatch(text):
        return _seconds(text, match, fps)
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a timecode; write hh:mm:ss")
    return 3600 * int(match[1] or 0) + 60 * int(match[2]) + float(match[3].replace(",", ".")), None


def _seconds(text: str, match: re.Match, fps: float | None) -> tuple[float, Reading]:
    hours, minutes, seconds, frame = (int(match[i]) for i in (1, 2, 3, 5))
    drops = match[4] == ";"
    if fps is None:
        fps = 25.0 if not drops else NTSC if frame < 30 else 2 * NTSC
    per_second = round(fps)
    if drops and not any(abs(fps / (n * NTSC) - 1) < 1e-4 for n in (1, 2)):
        raise ValueError(
            f"{text!r} is a drop-frame timecode (;), which exists at 29.97 and 59.94 frames per second, not at "
            f"{fps:g}; write hh:mm:ss:ff or correct fps"
        )
    if minutes > 59 or seconds > 59 or frame >= per_second:
        raise ValueError(
            f"{text!r} is not a timecode at {fps:.6g} frames per second, whose last number is 0 to {per_second - 1}; "
            "pass the fps of the timecodes"
        )
    number = (3600 * hours + 60 * minutes + seconds) * per_second + frame
    if drops:
        left_out, total = per_second // 15, 60 * hours + minutes
        if minutes % 10 and seconds == 0 and frame < left_out:
            raise ValueError(f"{text!r} does not exist: drop-frame timecode leaves it out; write the next frame")
        number -= left_out * (total - total // 10)
    return number / fps, Reading(fps, drops)
