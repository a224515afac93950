"""One picture: where its content is within a black border, and another size. Needs the `vision` extra (pillow)."""

from collections.abc import Iterable

import numpy as np

#: (top, bottom, left, right) pixels, so that ``picture[top:bottom, left:right]`` is inside.
Box = tuple[int, int, int, int]
#: Gray level, 0 to 255, up to which a picture counts as black.
DARK = 15


def find_content(picture: np.ndarray, threshold: int = DARK) -> Box:
    """Where the picture is, without its black border.

    A median filter first removes noise and text in the border; whatever is then brighter than `threshold` counts.

    Args:
        picture: (height, width, 3) uint8 RGB.
        threshold: gray level, 0 to 255.

    Returns:
        (top, bottom, left, right), so that ``picture[top:bottom, left:right]`` has no border, up to a hundredth of
        the height that the search on a smaller picture may leave. The whole picture when all of it is dark.
    """
    return _content(picture, threshold) or (0, picture.shape[0], 0, picture.shape[1])


def _content(picture: np.ndarray, threshold: int) -> Box | None:
    """As `find_content`; None when all is dark."""
    from PIL import Image, ImageFilter

    height, width = picture.shape[:2]
    # A 19-pixel median at 480 lines, done on a quarter of the size: the border's edge is all that matters.
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
    """`find_content` of several pictures of one size: the smallest box that holds the content of each.

    Dark pictures, such as the start of many videos, say nothing of the border and do not count.

    Args:
        pictures: (height, width, 3) uint8 RGB.

    Returns:
        (top, bottom, left, right); the whole picture when all are dark.
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
    """(height, width, 3) uint8 picture at another (height, width), antialiased."""
    from PIL import Image

    return np.asarray(Image.fromarray(picture).resize((size[1], size[0]), Image.Resampling.BILINEAR))
