"""Metrics of detected boxes: average precision (VOC) and the pointing game."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class BoxPrecision:
    """Average precision of boxes, by tool; NaN for a tool without true boxes.

    Attributes:
        all_points: (K,) area under the envelope of the precision (VOC from 2010 on).
        eleven_points: (K,) mean of this envelope at recalls 0, 0.1, ..., 1 (VOC 2007).
        recall: (K,) fraction of true boxes that are found at any score.
        boxes: (K,) int, number of true boxes.
    """

    all_points: np.ndarray
    eleven_points: np.ndarray
    recall: np.ndarray
    boxes: np.ndarray

    @property
    def mean(self) -> float:
        """The mean of `all_points` over tools that have true boxes; NaN if there are none."""
        return float(np.mean(self.all_points[self.boxes > 0])) if self.boxes.any() else float("nan")


def box_precision(
    true_boxes: np.ndarray,
    true_tools: np.ndarray,
    boxes: np.ndarray,
    scores: np.ndarray,
    tools: np.ndarray,
    num_tools: int,
    *,
    overlap: float = 0.5,
) -> BoxPrecision:
    """Compute average precision over frames, by the rules of the VOC development kit.

    Boxes are ranked by score. A box is correct if it overlaps the best-matching true box of its tool by at least
    `overlap` and no better box was matched to it; a second box on the same true box is wrong.

    Args:
        true_boxes: (n, M, 4).
        true_tools: (n, M), -1 for padding.
        boxes: (n, D, 4) detected boxes.
        scores: (n, D) of the detected boxes.
        tools: (n, D) of the detected boxes, -1 for padding.
        num_tools: number of tools K.
        overlap: minimum intersection over union.
    """
    by_tool = [_one_tool(true_boxes, true_tools == k, boxes, scores, tools == k, overlap) for k in range(num_tools)]
    columns = [np.array(column) for column in zip(*by_tool, strict=True)]
    return BoxPrecision(*columns)


def pointing(maps: np.ndarray, true_boxes: np.ndarray, true_tools: np.ndarray) -> np.ndarray:
    """Compute the fraction of frames with a tool in which its map peaks inside one of its boxes (Oquab et al. 2015).

    Args:
        maps: (n, h, w, K) localization maps.
        true_boxes: (n, M, 4).
        true_tools: (n, M), -1 for padding.

    Returns:
        (K,), NaN for a tool without true boxes.
    """
    n, height, width, num_tools = maps.shape
    y, x = np.divmod(maps.reshape(n, -1, num_tools).argmax(1), width)
    at = np.stack([(x + 0.5) / width, (y + 0.5) / height], -1)[:, :, None]
    inside = ((at >= true_boxes[:, None, :, :2]) & (at <= true_boxes[:, None, :, 2:])).all(-1)
    own = true_tools[:, None] == np.arange(num_tools)[:, None]
    frames = own.any(-1).sum(0)
    hit = (inside & own).any(-1).sum(0)
    return np.where(frames > 0, hit / np.maximum(frames, 1), np.nan)


def _one_tool(
    true_boxes: np.ndarray,
    true: np.ndarray,
    boxes: np.ndarray,
    scores: np.ndarray,
    detected: np.ndarray,
    overlap: float,
) -> tuple[float, float, float, int]:
    total = int(true.sum())
    if not total:
        return float("nan"), float("nan"), float("nan"), 0
    frames, places = np.nonzero(detected)
    order = np.argsort(-scores[frames, places], kind="stable")
    taken = np.zeros_like(true)
    correct = np.zeros(len(order), bool)
    for rank, (frame, place) in enumerate(zip(frames[order], places[order], strict=True)):
        overlaps = np.where(true[frame], _iou(boxes[frame, place], true_boxes[frame]), -1)
        best = int(overlaps.argmax())
        if overlaps[best] >= overlap and not taken[frame, best]:
            taken[frame, best] = correct[rank] = True
    hits = np.cumsum(correct)
    recall, precision = hits / total, hits / np.arange(1, len(hits) + 1)
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    steps = np.diff(recall, prepend=0.0)
    eleven = [envelope[recall >= level - 1e-12].max(initial=0) for level in np.linspace(0, 1, 11)]
    return float((steps * envelope).sum()), float(np.mean(eleven)), float(hits[-1] / total) if len(hits) else 0.0, total


def _iou(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.prod(np.maximum(high - low, 0), -1)
    union = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], -1) - common
    return common / np.maximum(union, np.finfo(np.float32).tiny)
