"""Pictures: a video's ribbons and timelines, matrices, curves, bars. One file per kind; all return matplotlib figures.

Needs matplotlib (the ``data`` extra). Figures are built without pyplot: no global state, no display needed.
"""

from hmmjax.plots.bars import plot_boxes, plot_costs, plot_intervals, plot_presence, plot_shares
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
    "plot_reliability",
    "plot_shares",
    "plot_tool_transitions",
    "plot_video",
    "save_figure",
    "spans",
    "words",
]
