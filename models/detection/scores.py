"""What boxes are judged by: average precision where a box counts that overlaps a true one enough (VOC)."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class BoxPrecision:
    """Average precision of boxes.

    Attributes:
        all_points: (K,) area under the precision's envelope (VOC from 2010 on); NaN for a tool without true boxes.
        eleven_points: (K,) mean of the envelope at recalls 0, 0.1 to 1 (VOC 2007); likewise.
        recall: (K,) share of true boxes that are found at all; likewise.
        boxes: (K,) int, number of true boxes.
    """

    all_points: np.ndarray
    eleven_points: np.ndarray
    recall: np.ndarray
    boxes: np.ndarray

    @property
    def mean(self) -> float:
        """Mean of `all_points` over tools that have true boxes; NaN when none has."""
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
    """Average precision over frames, by the rules of the VOC development kit.

    Best scores first, a box counts as right if the true box of its tool that it overlaps most is overlapped by at least
    `overlap` and was not found before; a second box on it is wrong.

    Args:
        true_boxes: (n, M, 4).
        true_tools: (n, M), -1 for padding.
        boxes: (n, D, 4).
        scores: (n, D).
        tools: (n, D), -1 for padding.
        num_tools: K.
        overlap: intersection over union.
    """
    figures = [_one_tool(true_boxes, true_tools == k, boxes, scores, tools == k, overlap) for k in range(num_tools)]
    columns = [np.array(column) for column in zip(*figures, strict=True)]
    return BoxPrecision(*columns)


def pointing(maps: np.ndarray, true_boxes: np.ndarray, true_tools: np.ndarray) -> np.ndarray:
    """Share of frames with a tool in which its map peaks inside one of its boxes (Oquab et al. 2015).

    Args:
        maps: (n, h, w, K).
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
    there = own.any(-1).sum(0)
    hit = (inside & own).any(-1).sum(0)
    return np.where(there > 0, hit / np.maximum(there, 1), np.nan)


def _one_tool(
    true_boxes: np.ndarray,
    true: np.ndarray,
    boxes: np.ndarray,
    scores: np.ndarray,
    shown: np.ndarray,
    overlap: float,
) -> tuple[float, float, float, int]:
    total = int(true.sum())
    if not total:
        return float("nan"), float("nan"), float("nan"), 0
    frames, places = np.nonzero(shown)
    order = np.argsort(-scores[frames, places], kind="stable")
    taken = np.zeros_like(true)
    right = np.zeros(len(order), bool)
    for rank, (frame, place) in enumerate(zip(frames[order], places[order], strict=True)):
        share = np.where(true[frame], _iou(boxes[frame, place], true_boxes[frame]), -1)
        best = int(share.argmax())
        if share[best] >= overlap and not taken[frame, best]:
            taken[frame, best] = right[rank] = True
    hits = np.cumsum(right)
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
