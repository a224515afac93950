"""Folders of images extracted from a video: the meaning of their numbers, and checks that they are complete.

The number in a file name is a frame of the video, a second, or ffmpeg's counter from 1. The folder does not tell which,
so the naming rule must be declared and is never guessed.
"""

import os
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from hmmjax.io import FormatError, natural
from models.data.picture import Box, common_content, find_content, open_image, resize

RULES = ("frame", "second", "counter")
#: Suffixes of the images that are read.
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


def find_images(folder: str | os.PathLike[str], rule: str, *, fps: float = 25.0, rate: float = 1.0) -> dict[int, str]:
    """Find the images of one video.

    Args:
        folder: of the images; the last number in each name is used. Mirrored copies (``_flip``) are ignored.
        rule: "frame" (25.jpg is frame 25 of the video), "second" (00001.png is at one second, the first is 0) or
            "counter" (video01_000001.png is the first image that ffmpeg wrote).
        fps: frames per second of the video.
        rate: images per second, for "counter".

    Returns:
        Paths by frame number in the video, ascending.

    Raises:
        FormatError: for an unknown rule, an empty folder, a name without a number, two images of one frame, a counter
            that starts at 0, and names that differ before their numbers, as those of several videos do.
    """
    if rule not in RULES:
        raise FormatError(f"unknown naming rule {rule!r}", fix=f"choose one of {', '.join(RULES)}")
    root = Path(folder)
    if not root.is_dir():
        raise FormatError("no such folder", file=root, fix="check the path")
    files = [p for p in root.iterdir() if _is_frame(p)]
    if not files:
        raise FormatError("no images in this folder", file=root, fix="give a folder of images")
    step = fps if rule == "second" else fps / rate if rule == "counter" else 1.0
    found: dict[int, str] = {}
    first: dict[str, str] = {}
    for path in sorted(files, key=lambda p: natural(p.name)):
        numbers = re.findall(r"\d+", path.stem)
        if not numbers:
            raise FormatError("no number in this name", file=path, fix="name images by frame, second or counter")
        first.setdefault(path.stem[: path.stem.rindex(numbers[-1])], path.name)
        number = int(numbers[-1]) - (rule == "counter")
        if number < 0:
            raise FormatError(
                "a counter starts at 1", file=path, fix="use the naming rule 'second' or 'frame' if it starts at 0"
            )
        frame = round(number * step)
        if len(first) > 1:
            raise FormatError(
                f"names differ before their numbers, as in {' and '.join(first.values())}: these look like images of "
                "several videos",
                file=root,
                fix="give each video its own folder, or name the images of one video consistently",
            )
        if frame in found:
            raise FormatError(
                f"frame {frame} is also {os.path.basename(found[frame])}", file=path, fix="keep one of them"
            )
        found[frame] = str(path)
    return dict(sorted(found.items()))


def _is_frame(path: Path) -> bool:
    # macOS and unfinished copies leave files that start with a dot.
    hidden = path.name.startswith(".")
    return path.suffix.lower() in SUFFIXES and not path.stem.endswith("_flip") and not hidden


def align_images(
    images: dict[int, str], frames: Sequence[int] | np.ndarray, *, tolerance: int = 2, complete: bool = True
) -> list[str]:
    """Return the image of each annotated frame.

    ffmpeg may write one or two extra images at the end, which are dropped with a warning.

    Args:
        images: from `find_images`.
        frames: (n,) annotated frames, ascending.
        tolerance: maximum number of images after the last annotated frame that are attributed to ffmpeg.
        complete: whether `frames` should cover all images.

    Returns:
        n paths.

    Raises:
        FormatError: if an annotated frame has no image, or if there are more extra images than `tolerance`.
    """
    wanted = {int(frame) for frame in frames}
    folder = os.path.dirname(next(iter(images.values())))
    missing = [frame for frame in sorted(wanted) if frame not in images]
    if missing:
        raise FormatError(
            f"{len(missing)} of {len(wanted)} annotated frames have no image, the first is frame {missing[0]}",
            file=folder,
            fix="check the naming rule, or extract the images again",
        )
    if complete:
        _check_surplus([frame for frame in images if frame not in wanted], max(wanted), folder, tolerance)
    return [images[int(frame)] for frame in frames]


def check_spacing(frames: Sequence[int], step: int, folder: str | os.PathLike[str], *, offset: int = 0) -> None:
    """Raise FormatError unless images are one step apart, as they are not under a wrong naming rule.

    Args:
        frames: frame numbers of all images of a video, ascending.
        step: number of frames from one used frame to the next.
        folder: of the images, for the message.
        offset: number of the first used frame.

    Raises:
        FormatError: if the closest images are not one step apart, or if some lie between used frames.
    """
    numbers = np.asarray(frames, np.int64)
    spacing = int(np.diff(numbers).min()) if len(numbers) > 1 else step
    off = numbers[(numbers < offset) | ((numbers - offset) % step != 0)]
    if spacing != step or len(off):
        where = f"every {spacing} frames" if spacing != step else f"at frame {off[0]}"
        raise FormatError(
            f"by the declared naming rule there are images {where}, but used frames are {offset}, {offset + step}, "
            f"{offset + 2 * step} and so on",
            file=folder,
            fix="check naming (models.data.video_extract names by frame), rate and fps",
        )


def common_box(paths: Sequence[str], samples: int = 5) -> Box:
    """Find one box for all images of a video: the smallest that contains the content of a sample of them.

    Args:
        paths: of all images of one video, in one size.
        samples: number of images that are examined.

    Returns:
        (top, bottom, left, right) in pixels, see `models.data.picture.find_content`.

    Raises:
        FormatError: if one of them is not an image, or if the sizes differ.
    """
    numbers = dict.fromkeys(int(number) for number in np.linspace(0, len(paths) - 1, samples + 2)[1:-1])
    pictures = [load_image(paths[number]) for number in numbers]
    for number, picture in zip(numbers, pictures, strict=True):
        if picture.shape != pictures[0].shape:
            raise FormatError(
                "the image differs in size from the others", file=paths[number], fix="extract the images again"
            )
    return common_content(pictures)


def load_image(
    path: str | os.PathLike[str], *, size: tuple[int, int] | None = None, crop: Box | bool | None = False
) -> np.ndarray:
    """Read an image as (height, width, 3) uint8 RGB.

    Args:
        path: of the image.
        size: (height, width) to scale to; None keeps the size.
        crop: (top, bottom, left, right) to cut out first, see `common_box`; True finds the content of this image.

    Returns:
        The image.

    Raises:
        FormatError: if the file is not an image, is truncated, or does not have eight bits per channel.
    """
    with open_image(path, path) as image:
        picture = np.asarray(image.convert("RGB"))
    if crop is True:
        crop = find_content(picture)
    if crop:
        top, bottom, left, right = crop
        picture = picture[top:bottom, left:right]
    return picture if size is None else resize(picture, size)


def _check_surplus(surplus: Iterable[int], last: int, folder: str, tolerance: int) -> None:
    surplus = sorted(surplus)
    tail = [frame for frame in surplus if frame > last]
    if len(tail) < len(surplus):
        raise FormatError(
            f"{len(surplus) - len(tail)} images lie between annotated frames, the first is frame {surplus[0]}",
            file=folder,
            fix="check the naming rule and the rate: the images may be denser than the annotation",
        )
    if len(tail) > tolerance:
        raise FormatError(
            f"{len(tail)} images come after the last annotated frame {last}",
            file=folder,
            fix=f"check the naming rule and the video (ffmpeg writes at most {tolerance} extra images)",
        )
    if tail:
        warnings.warn(f"{folder}: dropped {len(tail)} image(s) after the last annotated frame {last}", stacklevel=3)
