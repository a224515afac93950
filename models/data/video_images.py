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
from models.data.picture import Box, common_content, find_content, resize

RULES = ("frame", "second", "counter")
#: Of the pictures that are read.
SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")


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
        FormatError: for an unknown rule, a name without a number, two pictures of one frame, an empty folder,
            names that differ before their numbers, as those of several videos do, or a counter that starts at 0.
    """
    if rule not in RULES:
        raise FormatError(f"unknown naming rule {rule!r}", fix=f"say one of {', '.join(RULES)}")
    root = Path(folder)
    if not root.is_dir():
        raise FormatError("no such folder", file=root)
    files = [p for p in root.iterdir() if _is_frame(p)]
    if not files:
        raise FormatError("no pictures in this folder", file=root)
    step = fps if rule == "second" else fps / rate if rule == "counter" else 1.0
    found: dict[int, str] = {}
    first: dict[str, str] = {}
    for path in sorted(files, key=lambda p: natural(p.name)):
        numbers = re.findall(r"\d+", path.stem)
        if not numbers:
            raise FormatError("no number in this name", file=path, fix="name pictures by frame, second or counter")
        first.setdefault(path.stem[: path.stem.rindex(numbers[-1])], path.name)
        number = int(numbers[-1]) - (rule == "counter")
        if number < 0:
            raise FormatError("a counter starts at 1", file=path, fix="say 'second' or 'frame' if it starts at 0")
        frame = round(number * step)
        if len(first) > 1:
            raise FormatError(
                f"what stands before the numbers differs, as in {' and '.join(first.values())}: these look like "
                "pictures of several videos",
                file=root,
                fix="give each video a folder of its own, or call one video's pictures alike",
            )
        if frame in found:
            raise FormatError(f"frame {frame} is also {os.path.basename(found[frame])}", file=path, fix="keep one")
        found[frame] = str(path)
    return dict(sorted(found.items()))


def _is_frame(path: Path) -> bool:
    # A leading dot marks what macOS and unfinished copies leave beside files.
    hidden = path.name.startswith(".")
    return path.suffix.lower() in SUFFIXES and not path.stem.endswith("_flip") and not hidden


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


def check_spacing(frames: Sequence[int], step: int, folder: str | os.PathLike[str], *, offset: int = 0) -> None:
    """Pictures must be one step apart: by a wrong naming rule they seem to be many steps apart, or parts of one.

    Args:
        frames: of all pictures of a video, ascending.
        step: frames from one used frame to the next.
        folder: of the pictures, for the message.
        offset: the first used frame.

    Raises:
        FormatError: when the closest pictures are not one step apart, or when some lie between used frames.
    """
    numbers = np.asarray(frames, np.int64)
    spacing = int(np.diff(numbers).min()) if len(numbers) > 1 else step
    off = numbers[(numbers < offset) | ((numbers - offset) % step != 0)]
    if spacing != step or len(off):
        where = f"every {spacing} frames" if spacing != step else f"at frame {off[0]}"
        raise FormatError(
            f"by the declared naming rule there are pictures {where}; used are {offset}, {offset + step}, "
            f"{offset + 2 * step} ...",
            file=folder,
            fix="check naming (models.data.video_extract names by frame), rate and fps",
        )


def common_box(paths: Sequence[str], samples: int = 5) -> Box:
    """The smallest box that holds the content of pictures spread over a folder, so that all are cut alike.

    Args:
        paths: of all pictures of one video, in one size.
        samples: how many are looked at.

    Returns:
        (top, bottom, left, right), as `find_content`.

    Raises:
        FormatError: when one of them is no picture, or the sizes differ.
    """
    numbers = dict.fromkeys(np.linspace(0, len(paths) - 1, samples + 2).astype(int)[1:-1].tolist())
    pictures = [load_image(paths[number]) for number in numbers]
    for number, picture in zip(numbers, pictures, strict=True):
        if picture.shape != pictures[0].shape:
            raise FormatError("not of the size of other pictures", file=paths[number], fix="dump the video again")
    return common_content(pictures)


def load_image(
    path: str | os.PathLike[str], *, size: tuple[int, int] | None = None, crop: Box | bool | None = False
) -> np.ndarray:
    """A picture as (height, width, 3) uint8 RGB, scaled to (height, width).

    Args:
        path: the file.
        size: (height, width) to scale to.
        crop: (top, bottom, left, right) to cut out first, as `common_box` gives for a folder; True finds this picture's
            own content.

    Returns:
        The picture.

    Raises:
        FormatError: when the file is no picture, is cut off, or has another depth than eight bits.
    """
    from PIL import Image

    try:
        with Image.open(path) as image:
            if image.mode.startswith(("I", "F")):
                raise FormatError(
                    f"its values are of kind {image.mode!r}, not eight bits", file=path, fix="convert it to 8-bit RGB"
                )
            picture = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise FormatError(f"not a readable picture ({error})", file=path, fix="get the file again") from error
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
