"""Thumbnails of frames from folders of pictures."""

import base64
import io
import os
import re
import warnings
from pathlib import Path

from hmmjax.io import FormatError, video_id

_SUFFIXES = (".jpg", ".jpeg", ".png")


class Frames:
    """Pictures of many videos: a folder each, files named by frame number (``video41/000025.jpg``).

    Args:
        folder: holds one folder per video.

    Raises:
        FormatError: no folder holds a picture.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._paths: dict[str, dict[int, Path]] = {}
        for path in sorted(Path(folder).glob("*/*")):
            numbers = re.findall(r"\d+", path.stem)
            if numbers and path.suffix.lower() in _SUFFIXES:
                self._paths.setdefault(video_id(path.parent.name), {})[int(numbers[-1])] = path
        if not self._paths:
            raise FormatError(
                "there are no pictures in subfolders", file=folder, fix="give a folder with one folder per video"
            )

    def thumbnail(self, video: str, frame: int, height: int = 84) -> str | None:
        """Return the frame as a data URI of twice `height` pixels, for sharp screens; None if it has no picture."""
        path = self._paths.get(video, {}).get(frame)
        if path is None:
            return None
        from PIL import Image

        try:
            with Image.open(path) as image:
                small = image.convert("RGB")
        except OSError as error:
            warnings.warn(f"{path}: no thumbnail, because the picture cannot be read ({error})", stacklevel=2)
            return None
        small.thumbnail((height * 8, height * 2))
        buffer = io.BytesIO()
        small.save(buffer, "JPEG", quality=78)
        return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
