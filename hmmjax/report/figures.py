"""The pictures of the report, each with a caption that explains how to read it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hmmjax import metrics, plots
from hmmjax.report.learned import emission_pictures, transition_pictures
from hmmjax.report.minutes import Minutes
from hmmjax.report.picture import Picture
from hmmjax.report.tables import annotated, systems
from hmmjax.stabilize import Stabilized

#: Names of systems in pictures.
ROWS = {"M": "raw", "M_H online": "online", "M_H": "stabilized"}
#: Names of systems in tables, by their names in pictures.
TABLE = {shown: name for name, shown in ROWS.items()}


def pictures(
    result: Stabilized,
    phase_names: Sequence[str],
    tool_names: Sequence[str],
    minutes: dict[str, Minutes | None],
    costs: Sequence[dict[str, Any]] | None,
) -> list[Picture]:
    """Draw every picture that the result has data for, in the order of the page."""
    makers: list[Callable[[], list[Picture]]] = [
        lambda: _confusions(result, phase_names),
        lambda: _precision_recall(result),
        lambda: _calibration(result),
        lambda: _minutes(minutes),
        lambda: transition_pictures(result, phase_names, tool_names),
        lambda: emission_pictures(result, phase_names, tool_names),
        lambda: _costs(costs),
    ]
    return [picture for maker in makers for picture in maker()]


def _confusions(result: Stabilized, names: Sequence[str]) -> list[Picture]:
    found = annotated(result, "phases", lambda s: s.phase_labels())
    if found is None:
        return []
    truth, predicted = found
    matrices = {ROWS[n]: metrics.confusion_matrix(truth, predicted[n], len(names)) for n in ROWS if n in predicted}
    rows = [
        {"system": TABLE[system], "truth": names[p], "said": names[q], "frames": int(matrix[p, q])}
        for system, matrix in matrices.items()
        for p in range(len(names))
        for q in range(len(names))
    ]
    frames = sum(map(len, truth))
    caption = (
        f"For each true phase (row), the fraction of its frames predicted as each phase (column). Right: frames. "
        f"{len(truth)} video{'s' * (len(truth) != 1)}, {frames:,} frames pooled. A good system is dark on the diagonal."
    )
    # The online matrix, which is similar, is in the csv.
    before = "raw" if "raw" in matrices else "online"
    figure = plots.plot_matrices({name: matrices[name] for name in (before, "stabilized")}, row_names=names)
    return [Picture("confusion_phases", "confusion", caption, figure, rows)]


def _precision_recall(result: Stabilized) -> list[Picture]:
    found = annotated(result, "tools", lambda s: s.tool_ranking)
    if found is None:
        return []
    truth, predicted = found
    ranked_by_odds = {s.name for s in systems(result) if s.tool_log_odds is not None}
    curves = {
        ROWS[n]: metrics.precision_recall_curves(truth, predicted[n], names=result.tool_names)
        for n in ROWS
        if n in predicted
    }
    rows = [
        {
            "system": TABLE[system],
            "tool": c.name,
            "threshold": float(1 / (1 + np.exp(-t)) if TABLE[system] in ranked_by_odds else t),
            "precision": float(p),
            "recall": float(r),
        }
        for system, own in curves.items()
        for c in own
        for t, p, r in zip(*(_thin(x) for x in (c.thresholds, c.precision, c.recall)), strict=True)
    ]
    caption = (
        "Precision against recall of each tool at every threshold; frames of all videos pooled. Higher and further "
        "right is better. Dotted line: the fraction of frames that show the tool, which is the precision of guessing."
    )
    return [Picture("precision_recall", "curves", caption, plots.plot_precision_recall(curves), rows)]


def _thin(values: np.ndarray, most: int = 500) -> np.ndarray:
    return values[np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).round().astype(int))]


def _calibration(result: Stabilized) -> list[Picture]:
    curves: dict[str, list[Any]] = {}
    # A recognizer that lacks frames is left out.
    for system in (s for s in (result.raw, result.filtered, result.smoothed) if s in systems(result)):
        row = ROWS[system.name]
        for track in ("phases", "tools"):
            truth, values = getattr(result, f"truth_{track}"), getattr(system, track)
            if truth is not None and values is not None and values[0].dtype.kind == "f":
                names = result.tool_names if track == "tools" else None
                given: dict[str, Any] = {track: (truth, values)}
                curves.setdefault(row, []).extend(metrics.reliability(**given, bins=10, names=names))
    if not curves:
        return []
    rows = [
        {"system": TABLE[s], "class": c.name, "confidence": float(a), "frequency": float(b), "frames": int(n)}
        for s, own in curves.items()
        for c in own
        for a, b, n in zip(c.confidence, c.frequency, c.count, strict=True)
        if n
    ]
    caption = (
        "Among frames with a given predicted probability (horizontal), the fraction in which the prediction is true "
        "(vertical). On the gray line probabilities are correct; below it they are too high. Ten bins of equal width; "
        "larger dots hold more frames, bins of fewer than 20 frames are not drawn. Small print: expected calibration "
        "error. Frames of all videos pooled."
    )
    return [Picture("calibration", "calibration", caption, plots.plot_reliability(curves), rows)]


def _minutes(minutes: dict[str, Minutes | None]) -> list[Picture]:
    found = []
    for track, table in minutes.items():
        if table is None:
            continue
        # All systems over the same videos: those annotated throughout, or all videos if there are none.
        annotated_videos = ~np.isnan(table.truth).any(1)
        shown = annotated_videos if annotated_videos.any() else np.ones(len(table.truth), bool)
        values = {
            name: _mean(x[shown])
            for name, x in (("truth", table.truth), ("raw", table.raw), ("stabilized", table.stabilized))
            if not np.isnan(x[shown]).all()
        }
        count = int(shown.sum())
        what = "each phase" if track == "phases" else "use of each tool"
        caption = (
            f"Minutes of {what}, mean over {count} video{'s' * (count != 1)}. Means can agree even if single videos do "
            "not; the table below shows the errors of single videos."
        )
        figure = plots.plot_intervals(values, names=table.names)
        found.append(Picture(f"minutes_{track}", "minutes", caption, figure))
    return found


def _mean(table: np.ndarray) -> np.ndarray:
    known = ~np.isnan(table).all(1)
    return table[known].mean(0)


def _costs(costs: Sequence[dict[str, Any]] | None) -> list[Picture]:
    if not costs:
        return []
    unit, what = str(costs[0].get("cost_unit") or "cost"), str(costs[0].get("figure") or "value")
    caption = (
        f"Cost of labeling ({unit}) against benefit ({what}). Blue points, joined by the line: no cheaper or equally "
        "expensive choice is better."
    )
    return [Picture("costs", "costs", caption, plots.plot_costs(costs, cost_label=unit, value_label=what), list(costs))]
