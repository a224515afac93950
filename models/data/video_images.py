"""Folders of pictures dumped from a video: what their numbers mean, and whether there are as many as there should be.

A number in a file name can be a frame of the video, a second, or ffmpeg's 1-based counter; nothing in the folder says
which, so the rule is declared, never guessed.
"""

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from hmmjax.io import FormatError, natural
from models.data.video import find_content, resize

RULES = ("frame", "second", "counter")
_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


def find_images(folder: str | os.PathLike[str], rule: str, *, fps: float = 25.0, rate: float = 1.0) -> dict[int, str]:
    """Pictures of one video by frame number.

    Args:
        folder: holds the pictures; the last number in each name counts. Mirrored copies (``_flip``) are passed over.
        rule: "frame" (25.jpg is frame 25 of the video), "second" (00001.png is one second in, the first is 0) or
            "counter" (video01_000001.png is ffmpeg's first picture).
        fps: the video's frames per second.
        rate: pictures per second, for "counter".

    Returns:
        Paths by frame number on the video's own counter, ascending.

    Raises:
        FormatError: for an unknown rule, a name without a number, two pictures of one frame, an empty folder, or a
            counter that starts at 0.
    """
    if rule not in RULES:
        raise FormatError(f"unknown naming rule {rule!r}", fix=f"say one of {', '.join(RULES)}")
    root = Path(folder)
    if not root.is_dir():
        raise FormatError("no such folder", file=root)
    files = [p for p in root.iterdir() if p.suffix.lower() in _SUFFIXES and not p.stem.endswith("_flip")]
    if not files:
        raise FormatError("no pictures in this folder", file=root)
    step = fps if rule == "second" else fps / rate if rule == "counter" else 1.0
    found: dict[int, str] = {}
    for path in sorted(files, key=lambda p: natural(p.name)):
        numbers = re.findall(r"\d+", path.stem)
        if not numbers:
            raise FormatError("no number in this name", file=path, fix="name pictures by frame, second or counter")
        number = int(numbers[-1]) - (rule == "counter")
        if number < 0:
            raise FormatError("a counter starts at 1", file=path, fix="say 'second' or 'frame' if it starts at 0")
        frame = round(number * step)
        if frame in found:
            raise FormatError(f"frame {frame} is also {os.path.basename(found[frame])}", file=path, fix="keep one")
        found[frame] = str(path)
    return dict(sorted(found.items()))


def align_images(
    images: dict[int, str], frames: Sequence[int] | np.ndarray, *, tolerance: int = 2, complete: bool = True
) -> list[str]:
    """The picture of each annotated frame.

    ffmpeg may write one or two pictures too many at the end; those are dropped with a warning.

    Args:
        images: from `find_images`.
        frames: (n,) annotated frames, ascending.
        tolerance: how many pictures after the last annotated frame are put down to ffmpeg.
        complete: whether the pictures should be those of the annotated frames only.

    Returns:
        n paths.

    Raises:
        FormatError: when an annotated frame has no picture, or when more pictures are left over than ffmpeg explains.
    """
    wanted = {int(frame) for frame in frames}
    folder = os.path.dirname(next(iter(images.values())))
    missing = [frame for frame in sorted(wanted) if frame not in images]
    if missing:
        raise FormatError(
            f"{len(missing)} of {len(wanted)} annotated frames have no picture, the first is frame {missing[0]}",
            file=folder,
            fix="check the naming rule, or dump the video again",
        )
    if complete:
        _check_surplus([frame for frame in images if frame not in wanted], max(wanted), folder, tolerance)
    return [images[int(frame)] for frame in frames]


def load_image(path: str | os.PathLike[str], *, size: tuple[int, int] | None = None, crop: bool = False) -> np.ndarray:
    """A picture as (height, width, 3) uint8 RGB, without its black border if asked, scaled to (height, width).

    Raises:
        FormatError: when the file is no picture or is cut off.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            picture = np.asarray(image.convert("RGB"))
    except OSError as error:
        raise FormatError(f"not a readable picture ({error})", file=path, fix="get the file again") from error
    if crop:
        top, bottom, left, right = find_content(picture)
        picture = picture[top:bottom, left:right]
    return picture if size is None else resize(picture, size)


def _check_surplus(surplus: Iterable[int], last: int, folder: str, tolerance: int) -> None:
    surplus = sorted(surplus)
    tail = [frame for frame in surplus if frame > last]
    if len(tail) < len(surplus):
        raise FormatError(
            f"{len(surplus) - len(tail)} pictures lie between annotated frames, the first is frame {surplus[0]}",
            file=folder,
            fix="check the naming rule and the rate: the pictures may be denser than the annotation",
        )
    if len(tail) > tolerance:
        raise FormatError(
            f"{len(tail)} pictures come after the last annotated frame {last}",
            file=folder,
            fix=f"up to {tolerance} are put down to ffmpeg; check the naming rule, or that the video is the same",
        )
    if tail:
        warnings.warn(f"{folder}: {len(tail)} picture(s) after the last annotated frame {last} dropped", stacklevel=3)
