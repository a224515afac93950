"""Pictures for the contact sheet, from folders."""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.io import FormatError
from hmmjax.suggest.sheet import Picture

PathLike = str | os.PathLike[str]


def find_pictures(folder: PathLike) -> Picture:
    """Pictures of many videos: a folder each, files named by frame number, as `models.data.video_extract` writes them.

    Args:
        folder: with a folder of jpg or png files for each video; the last number in a file's name is the frame's.

    Returns:
        A function of a video's name and a frame number that reads the picture, or answers None.

    Raises:
        FormatError: when no subfolder holds a picture.
    """
    found: dict[tuple[str, int], Path] = {}
    for path in sorted(Path(folder).glob("*/*")):
        numbers = re.findall(r"\d+", path.stem)
        if numbers and path.suffix.lower() in (".jpg", ".jpeg", ".png"):
            found[path.parent.name, int(numbers[-1])] = path
    if not found:
        raise FormatError("no pictures in subfolders", file=folder, fix="give a folder with one folder per video")

    def picture(video: str, frame: int) -> Any:
        from PIL import Image

        path = found.get((video, frame))
        if path is None:
            return None
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB"))

    return picture
