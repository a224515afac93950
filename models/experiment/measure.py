"""The metrics of predictions on test videos: the columns of the paper's tables."""

import numpy as np

from hmmjax import metrics
from models.data.frames import FrameTable
from models.stabilize import Predictions, rows_of

#: The convention of each metric, for the table's footnote.
CONVENTIONS = {
    "mAP": "scikit-learn's steps, frames pooled, mean over tools",
    "tool F1": "at 0.5, frames pooled, mean over tools",
    "mF1": "strict, per video, mean over videos and then phases",
    "Jaccard": "strict, per video, mean over videos and then phases",
    "accuracy": "of phases, per video, mean over videos",
    "tool changes": "on and off, all test videos together",
    "phase changes": "all test videos together",
}


def measure(predicted: Predictions, table: FrameTable, tracks: list[str]) -> dict[str, float]:
    """Compute metrics by name, including "AP/<tool>" and "F1/<phase>"; NaN for a class that never occurs.

    Args:
        predicted: of the test videos.
        table: all labels of these videos.
        tracks: the tracks to measure.
    """
    rows = [rows_of(table, video) for video in predicted]
    found: dict[str, float] = {}
    if "tools" in tracks:
        truth = [table.tools[mine] for mine in rows]
        scores = [arrays["tools"].astype(np.float64) for arrays in predicted.values()]
        # Posteriors come with log-odds, which rank frames where probabilities near one are tied.
        ranking = [arrays.get("tool_log_odds", arrays["tools"]).astype(np.float64) for arrays in predicted.values()]
        ap = metrics.average_precision(truth, ranking, names=table.tool_names)
        found |= {"mAP": ap.value} | dict(zip([f"AP/{n}" for n in ap.class_names], ap.per_class, strict=True))
        found["tool F1"] = metrics.tool_f1(truth, scores, names=table.tool_names).value
        found["tool changes"] = metrics.tool_changes(scores, names=table.tool_names).value
    known = [table.phases[mine] for mine in rows]
    if "phases" in tracks and all((x >= 0).any() for x in known):
        labels = [arrays["phases"].argmax(1).astype(np.int32) for arrays in predicted.values()]
        f1 = metrics.f1(known, labels, names=table.phase_names)
        found |= {"mF1": f1.value} | dict(zip([f"F1/{n}" for n in f1.class_names], f1.per_class, strict=True))
        found["Jaccard"] = metrics.jaccard(known, labels, names=table.phase_names).value
        found["accuracy"] = metrics.accuracy(known, labels).value
        found["phase changes"] = metrics.phase_changes(labels).value
    return {name: float(value) for name, value in found.items()}


def truth_changes(table: FrameTable, videos: list[str]) -> dict[str, float]:
    """Count the changes of tools and phases in the labels of some videos."""
    rows = [rows_of(table, video) for video in videos]
    changes = {"tool changes": metrics.tool_changes([table.tools[mine] for mine in rows], names=table.tool_names).value}
    if all((table.phases[mine] >= 0).all() for mine in rows):
        changes["phase changes"] = metrics.phase_changes([table.phases[mine] for mine in rows]).value
    return {name: float(value) for name, value in changes.items()}
