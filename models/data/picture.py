"""Single images: decoding, encoding, resizing, and cutting off black borders. Needs the `vision` extra (pillow)."""

import contextlib
import io
import os
from collections.abc import Iterable, Iterator
from typing import IO, Any

import numpy as np

from hmmjax.io import FormatError

#: (top, bottom, left, right) in pixels, so that ``picture[top:bottom, left:right]`` is the content.
Box = tuple[int, int, int, int]
#: Maximum gray level, 0 to 255, of a black border.
DARK = 15


@contextlib.contextmanager
def open_image(source: str | os.PathLike[str] | IO[bytes], file: str | os.PathLike[str] | None = None) -> Iterator[Any]:
    """Open an image with Pillow; errors that occur while it is decoded name the file.

    Args:
        source: a path, or a file object with the encoded image.
        file: path for messages; None if there is none.

    Yields:
        Pillow's image.

    Raises:
        FormatError: if this is not an image, is truncated, or does not have eight bits per channel.
    """
    from PIL import Image

    try:
        with Image.open(source) as image:
            if image.mode.startswith(("I", "F")):
                raise FormatError(
                    f"the image has mode {image.mode!r}, expected eight bits per channel",
                    file=file,
                    fix="convert it to 8-bit RGB",
                )
            yield image
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise FormatError(f"not a readable image ({error})", file=file, fix="get the file again") from error


def decode(
    data: bytes, size: tuple[int, int] | None = None, *, file: str | os.PathLike[str] | None = None
) -> np.ndarray:
    """Decode an image to (H, W, 3) uint8 RGB.

    Args:
        data: the encoded image.
        size: (height, width) to scale to; None keeps the size.
        file: path for messages; None if there is none.

    Returns:
        The image.

    Raises:
        FormatError: if this is not an image, is truncated, or does not have eight bits per channel.
    """
    from PIL import Image

    with open_image(io.BytesIO(data), file) as image:
        if size is not None:
            # A JPEG can be decoded at a half or a quarter of its size in a fraction of the time.
            image.draft("RGB", (2 * size[1], 2 * size[0]))
        picture = image.convert("RGB")
        if size is not None and picture.size != (size[1], size[0]):
            picture = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
        return np.asarray(picture)


def encode_jpeg(picture: np.ndarray, quality: int) -> bytes:
    """Encode an image (height, width, 3) uint8 as a JPEG file in memory; `quality` is at most 95."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def find_content(picture: np.ndarray, threshold: int = DARK) -> Box:
    """Find the content of an image inside its black border.

    A median filter first removes noise and text in the border; pixels that are then brighter than `threshold` are
    content.

    Args:
        picture: (height, width, 3) uint8 RGB.
        threshold: maximum gray level of the border, 0 to 255.

    Returns:
        (top, bottom, left, right), so that ``picture[top:bottom, left:right]`` has no border. The search runs on a
        smaller image, so up to a hundredth of the height may remain. The whole image if all of it is dark.
    """
    return _content(picture, threshold) or (0, picture.shape[0], 0, picture.shape[1])


def _content(picture: np.ndarray, threshold: int) -> Box | None:
    """Find the content as `find_content` does; return None if the whole image is dark."""
    from PIL import Image, ImageFilter

    height, width = picture.shape[:2]
    # Equivalent to a 19-pixel median at 480 lines, on a quarter of the size: only the border's edge matters.
    shrink = max(1, height // 120)
    gray = Image.fromarray(picture).convert("L").reduce(shrink).filter(ImageFilter.MedianFilter(5))
    bright = np.asarray(gray) > threshold
    rows, columns = np.flatnonzero(bright.any(1)), np.flatnonzero(bright.any(0))
    if not len(rows):
        return None
    return (
        int(rows[0]) * shrink,
        min((int(rows[-1]) + 1) * shrink, height),
        int(columns[0]) * shrink,
        min((int(columns[-1]) + 1) * shrink, width),
    )


def common_content(pictures: Iterable[np.ndarray]) -> Box:
    """Find the smallest box that contains the content of several images of one size, see `find_content`.

    Dark images, such as the start of many videos, are ignored.

    Args:
        pictures: (height, width, 3) uint8 RGB.

    Returns:
        (top, bottom, left, right); the whole image if all are dark.
    """
    boxes = []
    whole = (0, 0, 0, 0)
    for picture in pictures:
        whole = (0, picture.shape[0], 0, picture.shape[1])
        if (found := _content(picture, DARK)) is not None:
            boxes.append(found)
    if not boxes:
        return whole
    tops, bottoms, lefts, rights = zip(*boxes, strict=True)
    return min(tops), max(bottoms), min(lefts), max(rights)


def resize(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Resize an image (height, width, 3) uint8 to another (height, width), with antialiasing."""
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize((size[1], size[0]), Image.Resampling.BILINEAR))
