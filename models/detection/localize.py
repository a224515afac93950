"""Boxes from localization maps: each region of a map around a peak is one instrument."""

import numpy as np


def map_boxes(
    maps: np.ndarray, *, level: float = 0.5, count: int = 20, min_score: float = 0.01
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the boxes of one image.

    Args:
        maps: (h, w, K) logits of tools in every cell.
        level: a region is made of the cells whose probability is at least this fraction of the map's maximum.
        count: number of boxes D.
        min_score: minimum probability of a box.

    Returns:
        Best first: boxes (D, 4) as fractions of the image, their scores (D,), which are the maximum probability inside,
        and tools (D,). Padding has score 0 and tool -1.
    """
    from scipy.ndimage import find_objects, label, maximum
    from scipy.special import expit

    height, width, tools = maps.shape
    probabilities = expit(maps.astype(np.float64))
    found = []
    for tool in range(tools):
        one = probabilities[..., tool]
        # A pair, because `label` is given no array to fill; SciPy has no annotations that say so.
        regions, number = label(one >= level * one.max(), np.ones((3, 3)))  # pyright: ignore[reportGeneralTypeIssues]
        peaks = np.atleast_1d(maximum(one, regions, np.arange(1, number + 1)))
        for (rows, columns), peak in zip(find_objects(regions), peaks, strict=True):
            if peak >= min_score:
                box = (columns.start / width, rows.start / height, columns.stop / width, rows.stop / height)
                found.append((-peak, tool, box))
    boxes, scores, which = np.zeros((count, 4), np.float32), np.zeros(count, np.float32), np.full(count, -1, np.int32)
    for row, (peak, tool, box) in enumerate(sorted(found)[:count]):
        boxes[row], scores[row], which[row] = box, -peak, tool
    return boxes, scores, which
