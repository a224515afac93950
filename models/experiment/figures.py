"""What is measured of predictions: the paper's columns."""

from collections.abc import Sequence

import numpy as np

from hmmjax import metrics
from models.data.frames import FrameTable
from models.experiment.stabilize import Predictions, rows_of

#: What each figure is, for the foot of the table.
CONVENTIONS = {
    "mAP": "scikit-learn's steps, frames pooled, mean over tools",
    "tool F1": "at 0.5, frames pooled, mean over tools",
    "mF1": "strict, per video, mean over videos and then phases",
    "Jaccard": "likewise",
    "accuracy": "of phases, per video, mean over videos",
    "tool changes": "on and off, all test videos together",
    "phase changes": "likewise",
}


def measure(predicted: Predictions, table: FrameTable, tracks: Sequence[str]) -> dict[str, float]:
    """Figures by name, and "AP/<tool>" and "F1/<phase>"; NaN for a class that never occurs.

    Args:
        predicted: of the test videos.
        table: with all labels of theirs.
        tracks: that are measured.
    """
    rows = [rows_of(table, video) for video in predicted]
    figures: dict[str, float] = {}
    if "tools" in tracks:
        truth = [table.tools[mine] for mine in rows]
        said = [answer["tools"].astype(np.float64) for answer in predicted.values()]
        ap = metrics.average_precision(truth, said, names=table.tool_names)
        figures |= {"mAP": ap.value} | dict(zip([f"AP/{n}" for n in ap.class_names], ap.per_class, strict=True))
        figures["tool F1"] = metrics.tool_f1(truth, said, names=table.tool_names).value
        figures["tool changes"] = metrics.tool_changes(said, names=table.tool_names).value
    known = [table.phases[mine] for mine in rows]
    if "phases" in tracks and all((x >= 0).any() for x in known):
        labels = [answer["phases"].argmax(1).astype(np.int32) for answer in predicted.values()]
        f1 = metrics.f1(known, labels, names=table.phase_names)
        figures |= {"mF1": f1.value} | dict(zip([f"F1/{n}" for n in f1.class_names], f1.per_class, strict=True))
        figures["Jaccard"] = metrics.jaccard(known, labels, names=table.phase_names).value
        figures["accuracy"] = metrics.accuracy(known, labels).value
        figures["phase changes"] = metrics.phase_changes(labels).value
    return {name: float(value) for name, value in figures.items()}


def truth_changes(table: FrameTable, videos: Sequence[str]) -> dict[str, float]:
    """How often tools and phases really change in some videos."""
    rows = [rows_of(table, video) for video in videos]
    changes = {"tool changes": metrics.tool_changes([table.tools[mine] for mine in rows], names=table.tool_names).value}
    if all((table.phases[mine] >= 0).all() for mine in rows):
        changes["phase changes"] = metrics.phase_changes([table.phases[mine] for mine in rows]).value
    return {name: float(value) for name, value in changes.items()}
