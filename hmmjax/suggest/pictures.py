"""Find the pictures of frames in folders."""

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from hmmjax.io import FormatError, natural, video_id

PathLike = str | os.PathLike[str]

#: What the numbers in the names of pictures may count.
NAMINGS = ("frame", "second", "counter")


@dataclasses.dataclass(frozen=True, eq=False)
class Pictures:
    """Picture files of many videos.

    Attributes:
        files: paths by video and frame number.
    """

    files: Mapping[tuple[str, int], Path]

    def __call__(self, video: str, frame: int) -> np.ndarray | None:
        """Read one picture.

        Args:
            video: name of the video.
            frame: frame number.

        Returns:
            (H, W, 3) uint8 RGB; None if there is no picture of this frame.

        Raises:
            FormatError: the file is damaged or not a picture.
        """
        from PIL import Image

        path = self.files.get((video_id(video), frame))
        if path is None:
            return None
        try:
            with Image.open(path) as image:
                return np.asarray(image.convert("RGB"))
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise FormatError(f"the picture cannot be read ({error})", file=path, fix="extract it again") from error

    def missing(self, frames: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the frames that have no picture.

        Args:
            frames: pairs of video and frame number.

        Returns:
            Pairs of video and frame number without duplicates, in the given order.
        """
        return [(v, f) for v, f in dict.fromkeys(frames) if (video_id(v), f) not in self.files]


def find_pictures(
    folder: PathLike, *, naming: str | None = None, fps: float | Mapping[str, float] = 25.0, rate: float = 1.0
) -> Pictures:
    """Find the pictures of many videos, in one folder per video that is named like the video.

    Args:
        folder: holds one folder of jpg or png files per video. The last number in a file's name identifies the frame.
            Mirrored copies (``_flip``) are skipped.
        naming: what the numbers count: "frame" (000025.jpg is frame 25, as `models.data.video_extract` writes them),
            "second" (from 0) or "counter" (ffmpeg's, from 1). None means "frame", but is an error if the numbers are
            consecutive, because they could then count any of the three.
        fps: frames per second, for "second" and "counter": one number, or a number per video.
        rate: pictures per second, for "counter".

    Returns:
        The pictures, by video and frame number.

    Raises:
        FormatError: no subfolder holds a picture, the naming is unknown or ambiguous, two folders are of one video, or
            two pictures are of one frame.
    """
    if naming not in (None, *NAMINGS):
        raise FormatError(f"unknown naming rule {naming!r}", fix=f"choose among {', '.join(NAMINGS)}")
    if not Path(folder).is_dir():
        raise FormatError("there is no such folder", file=folder, fix="give a folder with one folder per video")
    found: dict[tuple[str, int], Path] = {}
    folders: dict[str, Path] = {}
    for inside in sorted((p for p in Path(folder).iterdir() if p.is_dir()), key=lambda p: natural(p.name)):
        files = [p for p in sorted(inside.iterdir()) if _is_frame(p)]
        if not files:
            continue
        video = video_id(inside.name)
        twin = folders.setdefault(video, inside)
        if twin != inside:
            raise FormatError(f"this is the same video as {twin.name}", file=inside, fix="keep one of the two folders")
        counts = fps if isinstance(fps, int | float) else fps.get(video, 25.0)
        numbers = _numbers(files, naming, counts, rate)
        if naming is None and len(numbers) > 1 and np.diff(sorted(numbers)).min() == 1:
            raise FormatError(
                "the numbers in the names of the pictures are consecutive, so that they may count frames or seconds",
                file=inside,
                fix=f"give naming (--naming): {', '.join(NAMINGS)}",
            )
        found |= {(video, number): path for number, path in numbers.items()}
    if not found:
        raise FormatError(
            "there are no pictures in subfolders", file=folder, fix="give a folder with one folder per video"
        )
    return Pictures(found)


def _is_frame(path: Path) -> bool:
    hidden = path.name.startswith(".")
    picture = path.suffix.lower() in (".jpg", ".jpeg", ".png") and re.search(r"\d", path.stem) is not None
    return picture and not hidden and not path.stem.endswith("_flip")


def _numbers(files: list[Path], naming: str | None, fps: float, rate: float) -> dict[int, Path]:
    """Return the pictures of one video by frame number."""
    step = {"second": fps, "counter": fps / rate}.get(naming or "", 1.0)
    numbers: dict[int, Path] = {}
    for path in files:
        number = int(re.findall(r"\d+", path.stem)[-1]) - (naming == "counter")
        if number < 0:
            raise FormatError(
                "this picture has number 0, but a counter starts at 1", file=path, fix="use 'second' or 'frame'"
            )
        twin = numbers.setdefault(round(number * step), path)
        if twin != path:
            raise FormatError(f"this is the same frame as {twin.name}", file=path, fix="keep one of the two pictures")
    return numbers
