"""Plot phase ribbons and tool timelines of videos, matrices, curves and bars.

All functions return matplotlib figures. They are created without pyplot, so they need no display and leave no global
state. Needs matplotlib (the ``data`` extra), which is imported by the first plot.
"""

from typing import TYPE_CHECKING

from hmmjax._core.deprecation import renamed
from hmmjax.plots.bars import plot_boxes, plot_costs, plot_intervals, plot_presence, plot_proportions
from hmmjax.plots.curves import plot_densities, plot_precision_recall, plot_reliability
from hmmjax.plots.matrices import plot_matrices, plot_phase_moves, plot_phase_transitions, plot_tool_transitions
from hmmjax.plots.style import PHASE_COLORS, ROW_COLORS, save_figure, words
from hmmjax.plots.video import changes, plot_video, spans

__all__ = [
    "PHASE_COLORS",
    "ROW_COLORS",
    "changes",
    "plot_boxes",
    "plot_costs",
    "plot_densities",
    "plot_intervals",
    "plot_matrices",
    "plot_phase_moves",
    "plot_phase_transitions",
    "plot_precision_recall",
    "plot_presence",
    "plot_proportions",
    "plot_reliability",
    "plot_tool_transitions",
    "plot_video",
    "save_figure",
    "spans",
    "words",
]

if not TYPE_CHECKING:
    _RENAMED = {"PHASE_COLOURS": "PHASE_COLORS", "ROW_COLOURS": "ROW_COLORS", "plot_shares": "plot_proportions"}
    __getattr__ = renamed(__name__, _RENAMED)
