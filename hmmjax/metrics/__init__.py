"""Metrics of phases and tools. Every metric returns a `Metric`, which names the convention of its value.

All functions take one array per video (or a single array), truth first. Options select among the conventions in use:
for the same predictions, they differ by up to fifteen points of Jaccard and thirteen of average precision.
Scikit-learn's average precision needs scikit-learn (the ``data`` extra).
"""

from hmmjax.metrics.calibration import Reliability, phase_calibration, reliability, tool_calibration
from hmmjax.metrics.changes import phase_changes, tool_changes
from hmmjax.metrics.metric import Metric
from hmmjax.metrics.phases import accuracy, confusion_matrix, f1, jaccard, phase_metrics, precision, recall
from hmmjax.metrics.relaxed import M2CAI16, SVRCNET, TMRNET, Rules
from hmmjax.metrics.segments import edit_score, over_segmentation, segmental_f1, transition_delay
from hmmjax.metrics.tools import Curve, average_precision, precision_recall_curves, tool_f1
from hmmjax.metrics.transitions import WITHIN, change_f1, changes_found, phases_gained, phases_lost
from hmmjax.metrics.videos import PHASES, TOOLS, unpad

__all__ = [
    "M2CAI16",
    "PHASES",
    "SVRCNET",
    "TMRNET",
    "TOOLS",
    "WITHIN",
    "Curve",
    "Metric",
    "Reliability",
    "Rules",
    "accuracy",
    "average_precision",
    "change_f1",
    "changes_found",
    "confusion_matrix",
    "edit_score",
    "f1",
    "jaccard",
    "over_segmentation",
    "phase_calibration",
    "phase_changes",
    "phase_metrics",
    "phases_gained",
    "phases_lost",
    "precision",
    "precision_recall_curves",
    "recall",
    "reliability",
    "segmental_f1",
    "tool_calibration",
    "tool_changes",
    "tool_f1",
    "transition_delay",
    "unpad",
]
