"""Pictures for the contact sheet, from folders."""

import dataclasses
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from hmmjax.io import FormatError, natural, video_id

PathLike = str | os.PathLike[str]

#: What the numbers in pictures' names may count.
NAMINGS = ("frame", "second", "counter")


@dataclasses.dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures of many videos in files.

    Attributes:
        files: by video and frame number.
    """

    files: Mapping[tuple[str, int], Path]

    def __call__(self, video: str, frame: int) -> np.ndarray | None:
        """A picture, or None where there is none.

        Args:
            video: its name.
            frame: number on the video's counter.

        Returns:
            (H, W, 3) uint8 RGB.

        Raises:
            FormatError: when the file is no picture or is cut off.
        """
        from PIL import Image

        path = self.files.get((video_id(video), frame))
        if path is None:
            return None
        try:
            with Image.open(path) as image:
                return np.asarray(image.convert("RGB"))
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise FormatError(f"not a readable picture ({error})", file=path, fix="get or dump it again") from error

    def missing(self, frames: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those of some frames that have no picture.

        Args:
            frames: video and frame number of each.

        Returns:
            Likewise, each once, in their order.
        """
        return [(v, f) for v, f in dict.fromkeys(frames) if (video_id(v), f) not in self.files]


def find_pictures(
    folder: PathLike, *, naming: str | None = None, fps: float | Mapping[str, float] = 25.0, rate: float = 1.0
) -> Pictures:
    """Pictures of many videos: a folder each, called like the video.

    Args:
        folder: with a folder of jpg or png files for each video; the last number in a file's name counts. Mirrored
            copies (``_flip``) are passed over.
        naming: what the numbers count: "frame" (000025.jpg is frame 25, as `models.data.video_extract` writes them),
            "second" (the first is 0) or "counter" (ffmpeg's, from 1). Without it they are frames, unless they follow
            one another, which may be any of the three.
        fps: frames per second of the videos, for "second" and "counter"; of all, or by video.
        rate: pictures per second, for "counter".

    Returns:
        A function of a video's name and a frame number that reads the picture, or answers None.

    Raises:
        FormatError: when no subfolder holds a picture; when the naming is unknown, or not given and not plain; and for
            two folders of one video or two pictures of one frame.
    """
    if naming not in (None, *NAMINGS):
        raise FormatError(f"unknown naming rule {naming!r}", fix=f"say one of {', '.join(NAMINGS)}")
    if not Path(folder).is_dir():
        raise FormatError("no such folder", file=folder, fix="give a folder with one folder per video")
    found: dict[tuple[str, int], Path] = {}
    folders: dict[str, Path] = {}
    for inside in sorted((p for p in Path(folder).iterdir() if p.is_dir()), key=lambda p: natural(p.name)):
        files = [p for p in sorted(inside.iterdir()) if _is_frame(p)]
        if not files:
            continue
        video = video_id(inside.name)
        twin = folders.setdefault(video, inside)
        if twin != inside:
            raise FormatError(f"the same video as {twin.name}", file=inside, fix="keep one of them")
        counts = fps if isinstance(fps, int | float) else fps.get(video, 25.0)
        numbers = _numbers(files, naming, counts, rate)
        if naming is None and len(numbers) > 1 and np.diff(sorted(numbers)).min() == 1:
            raise FormatError(
                "what do the numbers in the pictures' names count? They follow one another",
                file=inside,
                fix=f"say naming (--naming): one of {', '.join(NAMINGS)}",
            )
        found |= {(video, number): path for number, path in numbers.items()}
    if not found:
        raise FormatError("no pictures in subfolders", file=folder, fix="give a folder with one folder per video")
    return Pictures(found)


def _is_frame(path: Path) -> bool:
    hidden = path.name.startswith(".")
    picture = path.suffix.lower() in (".jpg", ".jpeg", ".png") and re.search(r"\d", path.stem) is not None
    return picture and not hidden and not path.stem.endswith("_flip")


def _numbers(files: list[Path], naming: str | None, fps: float, rate: float) -> dict[int, Path]:
    """Pictures of one video by frame number."""
    step = {"second": fps, "counter": fps / rate}.get(naming or "", 1.0)
    numbers: dict[int, Path] = {}
    for path in files:
        number = int(re.findall(r"\d+", path.stem)[-1]) - (naming == "counter")
        if number < 0:
            raise FormatError("a counter starts at 1", file=path, fix="say 'second' or 'frame' if it starts at 0")
        twin = numbers.setdefault(round(number * step), path)
        if twin != path:
            raise FormatError(f"the same frame as {twin.name}", file=path, fix="keep one of them")
    return numbers
