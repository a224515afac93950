"""The report's figures, each with a caption that says how to read it."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hmmjax import metrics, plots
from hmmjax.report.minutes import Minutes
from hmmjax.report.tables import annotated, systems
from hmmjax.stabilize import Stabilized

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Names of systems in figures.
ROWS = {"M": "raw", "M_H online": "online", "M_H": "stabilized"}
#: Names of systems in tables, for those of figures.
TABLE = {shown: name for name, shown in ROWS.items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Picture:
    """A figure of the report.

    Attributes:
        name: of its files.
        section: where it belongs: "confusion", "curves", "model", "recognizer", "minutes", "calibration", "costs".
        caption: what it shows and how to read it.
        figure: the matplotlib figure.
        rows: the numbers in it, for a csv; None where another csv has them.
    """

    name: str
    section: str
    caption: str
    figure: "Figure"
    rows: list[dict[str, Any]] | None = None


def pictures(
    result: Stabilized,
    phase_names: Sequence[str],
    tool_names: Sequence[str],
    minutes: dict[str, Minutes | None],
    costs: Sequence[dict[str, Any]] | None,
) -> list[Picture]:
    """Every figure that the result has the data for, in the order of the page."""
    makers: list[Callable[[], list[Picture]]] = [
        lambda: _confusions(result, phase_names),
        lambda: _precision_recall(result),
        lambda: _calibration(result),
        lambda: _minutes(minutes),
        lambda: _transitions(result, phase_names, tool_names),
        lambda: _emissions(result, phase_names, tool_names),
        lambda: _costs(costs),
    ]
    return [picture for maker in makers for picture in maker()]


def _confusions(result: Stabilized, names: Sequence[str]) -> list[Picture]:
    found = annotated(result, "phases", lambda s: s.phase_labels(), whole=False)
    if found is None:
        return []
    truth, said = found
    matrices = {ROWS[n]: metrics.confusion_matrix(truth, said[n], len(names)) for n in ROWS if n in said}
    rows = [
        {"system": TABLE[system], "truth": names[p], "said": names[q], "frames": int(matrix[p, q])}
        for system, matrix in matrices.items()
        for p in range(len(names))
        for q in range(len(names))
    ]
    frames = sum(map(len, truth))
    caption = (
        f"Of the frames of each true phase (row), the share called each phase (column). Numbers at the right: frames. "
        f"{len(truth)} video{'s' * (len(truth) != 1)}, {frames:,} frames pooled; a good system is dark on the diagonal."
    )
    # Before and after; the online matrix, close to these, is in the csv.
    before = "raw" if "raw" in matrices else "online"
    figure = plots.plot_matrices({name: matrices[name] for name in (before, "stabilized")}, row_names=names)
    return [Picture("confusion_phases", "confusion", caption, figure, rows)]


def _precision_recall(result: Stabilized) -> list[Picture]:
    found = annotated(result, "tools", lambda s: s.tools, whole=False)
    if found is None:
        return []
    truth, said = found
    curves = {
        ROWS[n]: metrics.precision_recall_curves(truth, said[n], names=result.tool_names) for n in ROWS if n in said
    }
    rows = [
        {"system": TABLE[system], "tool": c.name, "threshold": float(t), "precision": float(p), "recall": float(r)}
        for system, own in curves.items()
        for c in own
        for t, p, r in zip(*(_thin(x) for x in (c.thresholds, c.precision, c.recall)), strict=True)
    ]
    caption = (
        "Precision against recall of each tool as the threshold falls; frames of all videos pooled. Higher and further "
        "right is better. The dotted line is the share of frames that show the tool, which a blind guess reaches."
    )
    return [Picture("precision_recall", "curves", caption, plots.plot_precision_recall(curves), rows)]


def _thin(values: np.ndarray, most: int = 500) -> np.ndarray:
    return values[np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).round().astype(int))]


def _calibration(result: Stabilized) -> list[Picture]:
    curves: dict[str, list[Any]] = {}
    # A recognizer that is silent in some frames says nothing there that could be checked.
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
        "Of the frames given some probability, the share where it came true: on the gray line probabilities mean what "
        "they say; below it they promise too much. Ten bins of equal width; larger dots hold more frames, bins of "
        "fewer than 20 frames are not drawn. Small print: expected calibration error. Frames of all videos pooled."
    )
    return [Picture("calibration", "calibration", caption, plots.plot_reliability(curves), rows)]


def _minutes(minutes: dict[str, Minutes | None]) -> list[Picture]:
    found = []
    for track, table in minutes.items():
        if table is None:
            continue
        # Of the same videos: those annotated throughout, or all where none is.
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
            f"Minutes of {what}, mean over {count} video{'s' * (count != 1)}. Means may agree where single videos do "
            "not: how far one video may be off is in the table below."
        )
        figure = plots.plot_intervals(values, names=table.names)
        found.append(Picture(f"minutes_{track}", "minutes", caption, figure))
    return found


def _mean(table: np.ndarray) -> np.ndarray:
    known = ~np.isnan(table).all(1)
    return table[known].mean(0)


def _transitions(result: Stabilized, phase_names: Sequence[str], tool_names: Sequence[str]) -> list[Picture]:
    params = result.model.params
    found = []
    if params.phases is not None:
        said, share, mean = _stays(result, len(phase_names))
        caption = (
            "The fitted chain of phases. Left: where a phase goes once it ends; a point: never seen, but not thought "
            "impossible. Right: the chain's mean stay, step / (1 - stay), in which the end of an operation is "
            f"no exit: hatched where most stays in the {said} end so. Black marks: the mean stay in the {said} of "
            "the videos shown, which the end of the operation does end."
        )
        figure = plots.plot_phase_transitions(
            params.phases.transition, names=phase_names, step_seconds=result.step_seconds, seen=mean,
            open_ended=share > 0.5,
        )  # fmt: skip
        rows = matrix_rows(params.phases.transition, phase_names, phase_names, "from", "to")
        found.append(Picture("transitions_phases", "model", caption, figure, rows))
    matrix = getattr(getattr(params.tools, "transition", None), "matrix", None)
    if matrix is not None:
        caption = (
            f"The fitted chains of tools, a block for each tool{' in each phase' if np.ndim(matrix) == 4 else ''}: "
            f"upper row, a tool that is off; lower row, one that is on; columns, what it does in the next "
            f"{result.step_seconds:g} s. Rows of one half (.50) were never seen in the labels."
        )
        figure = plots.plot_tool_transitions(
            matrix, tool_names=tool_names, phase_names=phase_names if np.ndim(matrix) == 4 else None
        )
        table = np.asarray(matrix, float)
        table = table[:, None] if table.ndim == 3 else table
        rows = [
            {"tool": tool_names[k], "phase": phase_names[q] if np.ndim(matrix) == 4 else "", "before": i, "after": j,
             "probability": float(table[k, q, i, j])}
            for k, q, i, j in np.ndindex(table.shape)
        ]  # fmt: skip
        found.append(Picture("transitions_tools", "model", caption, figure, rows))
    return found


def _stays(result: Stabilized, count: int) -> tuple[str, np.ndarray, np.ndarray]:
    """Of whom, for each phase the share of its stays that a video's end ended, and the mean length in minutes.

    The annotation's where some video is annotated throughout, else the stabilized ones; NaN without any stay.
    """
    whole = [t for t in result.truth_phases or [] if (t >= 0).all()]
    stays, ends, frames = np.zeros(count), np.zeros(count), np.zeros(count)
    for labels in whole or result.smoothed.phase_labels():
        starts = np.r_[0, np.flatnonzero(np.diff(labels)) + 1]
        stays += np.bincount(labels[starts], minlength=count)
        frames += np.bincount(labels, minlength=count)
        ends[labels[-1]] += 1
    with np.errstate(invalid="ignore"):
        return "annotation" if whole else "stabilized labels", ends / stays, frames / stays * result.step_seconds / 60


def matrix_rows(
    matrix: Any, rows: Sequence[str], columns: Sequence[str], row: str, column: str, value: str = "probability"
) -> list[dict[str, Any]]:
    """A matrix as plain rows."""
    return [
        {row: rows[i], column: columns[j], value: float(x)} for (i, j), x in np.ndenumerate(np.asarray(matrix, float))
    ]


def _emissions(result: Stabilized, phase_names: Sequence[str], tool_names: Sequence[str]) -> list[Picture]:
    params = result.model.params
    found = []
    for track, names in (("phases", phase_names), ("tools", tool_names)):
        family = getattr(getattr(params, track), "emission", None)
        power = ""
        while family is not None and hasattr(family, "family"):  # a family around another, e.g. Tempered
            if hasattr(family, "power"):
                power = f" Every frame counts as {np.array2string(np.asarray(family.power), precision=3)} of one."
            family = family.family
        if family is not None:
            found += _emission(track, family, names, power)
    return found


def _emission(track: str, family: Any, names: Sequence[str], power: str) -> list[Picture]:
    name = type(family).__name__
    matrix, concentration = getattr(family, "matrix", None), getattr(family, "concentration", None)
    if track == "phases" and matrix is not None:
        caption = (
            f"How the recognizer errs ({name}): in each phase (row), how often it says each phase (column).{power}"
        )
        figure = plots.plot_matrices(
            {"what the recognizer says": matrix}, row_names=names, row_label="phase", counts=False
        )
        rows = matrix_rows(matrix, names, names, "phase", "said")
        return [Picture("emission_phases", "recognizer", caption, figure, rows)]
    if track == "phases" and concentration is not None:
        table = np.asarray(concentration, float)
        caption = (
            f"What the recognizer's probabilities look like ({name}): in each phase (row), the mean probability it "
            f"gives each phase (column); at the right, the concentration (small: probabilities near 0 and 1).{power}"
        )
        figure = plots.plot_matrices(
            {"mean probability": table}, row_names=names, row_label="phase", column_label="probability of"
        )
        rows = matrix_rows(table, names, names, "phase", "class", "concentration")
        return [Picture("emission_phases", "recognizer", caption, figure, rows)]
    if track == "tools" and matrix is not None:
        table = np.asarray(matrix, float)
        both = np.stack([table[:, 1, 1], table[:, 0, 1]], 1)
        caption = (
            f"How the recognizer errs ({name}): how often it reports each tool when it is there, and when it is not."
            f"{power}"
        )
        figure = plots.plot_matrices(
            {"reported": both}, row_names=names, column_names=("is there", "is not there"), row_label="",
            column_label="when the tool", counts=False,
        )  # fmt: skip
        rows = [
            {"tool": names[k], "present": i, "reported": j, "probability": float(table[k, i, j])}
            for k, i, j in np.ndindex(table.shape)
        ]
        return [Picture("emission_tools", "recognizer", caption, figure, rows)]
    if track == "tools" and concentration is not None:
        from scipy.stats import beta

        table = np.asarray(concentration, float)

        def density(k: int, d: int) -> Callable[[np.ndarray], np.ndarray]:
            return lambda x: np.asarray(beta.pdf(x, *table[k, d]))

        states = ("absent", "present")
        densities = {tool: {s: density(k, d) for d, s in enumerate(states)} for k, tool in enumerate(names)}
        caption = (
            f"Densities of the probability that the recognizer gives a tool, where it is absent and present.{power}"
        )
        rows = [
            {"tool": names[k], "present": d, "parameter": "ab"[j], "concentration": float(table[k, d, j])}
            for k, d, j in np.ndindex(table.shape)
        ]
        return [Picture("emission_tools", "recognizer", caption, plots.plot_densities(densities), rows)]
    return []


def _costs(costs: Sequence[dict[str, Any]] | None) -> list[Picture]:
    if not costs:
        return []
    unit, what = str(costs[0].get("cost_unit") or "cost"), str(costs[0].get("figure") or "figure")
    caption = (
        f"What labeling costs ({unit}) and what it gives ({what}). Blue: nothing that costs no more is better; the "
        "line joins these."
    )
    return [
        Picture("costs", "costs", caption, plots.plot_costs(costs, cost_label=unit, figure_label=what), list(costs))
    ]
