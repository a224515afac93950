"""Sizes and thresholds of Faster R-CNN."""

import dataclasses

from models.settings import check_bounds


@dataclasses.dataclass(frozen=True)
class Detection:
    """Sizes and thresholds of Faster R-CNN; see `models.detection.faster_rcnn`.

    Attributes:
        sizes: square roots of the anchors' areas, as fractions of the image's height.
        ratios: width over height of the anchors.
        width: number of channels of the proposal layer.
        candidates: maximum number of anchors per image that are decoded, those with the greatest objectness.
        proposals: maximum number of boxes per image that reach the second stage.
        proposal_overlap: intersection over union above which one proposal suppresses another.
        anchors: number of anchors per image in the first stage's loss.
        regions: number of regions per image in the second stage's loss.
        positives: maximum fraction of these regions that contain a tool.
        bins: side of a region's feature map; None takes the backbone's own.
        overlap: intersection over union above which one box suppresses another of the same tool.
        detections: maximum number of boxes per image in the output.
        min_score: minimum probability of a box in the output; the score of a frame has no such threshold.
    """

    sizes: tuple[float, ...] = (0.2, 0.35, 0.55, 0.85)
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    width: int = 512
    candidates: int = 512
    proposals: int = 128
    proposal_overlap: float = 0.7
    anchors: int = 256
    regions: int = 64
    positives: float = 0.25
    bins: int | None = None
    overlap: float = 0.3
    detections: int = 20
    min_score: float = 0.01

    def __post_init__(self) -> None:
        counts = ("candidates", "proposals", "anchors", "regions", "detections", "width", "bins")
        fractions = ("proposal_overlap", "positives", "overlap")
        bounds = dict.fromkeys(counts, "[1, inf)") | dict.fromkeys(fractions, "(0, 1]")
        check_bounds(self, {"sizes": "(0, inf)", "ratios": "(0, inf)", "min_score": "[0, 1]", **bounds}, "detection.")
