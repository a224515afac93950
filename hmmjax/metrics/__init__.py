"""Metrics of phases and tools, each answering with a record that names its convention.

Every function takes one array per video (or a single array), truth first, and leaves the choice between conventions to
named options: the same predictions span fifteen points of Jaccard and thirteen of average precision between them.
Needs the ``data`` extra (scikit-learn) for scikit-learn's average precision only.
"""

from hmmjax.metrics.calibration import Reliability, phase_calibration, reliability, tool_calibration
from hmmjax.metrics.confusion import confusion_matrix
from hmmjax.metrics.phases import accuracy, f1, jaccard, phase_metrics, precision, recall
from hmmjax.metrics.records import Metric
from hmmjax.metrics.relaxed import M2CAI16, SVRCNET, TMRNET, Rules
from hmmjax.metrics.segments import (
    edit_score,
    over_segmentation,
    phase_changes,
    segmental_f1,
    transition_delay,
)
from hmmjax.metrics.tools import Curve, average_precision, precision_recall_curves, tool_changes, tool_f1
from hmmjax.metrics.videos import PHASES, TOOLS, unpad

__all__ = [
    "M2CAI16",
    "PHASES",
    "SVRCNET",
    "TMRNET",
    "TOOLS",
    "Curve",
    "Metric",
    "Reliability",
    "Rules",
    "accuracy",
    "average_precision",
    "confusion_matrix",
    "edit_score",
    "f1",
    "jaccard",
    "over_segmentation",
    "phase_calibration",
    "phase_changes",
    "phase_metrics",
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
