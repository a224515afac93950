"""Pictures of what the model has learned: transitions of phases and tools, and errors of the recognizer."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hmmjax import plots
from hmmjax.emissions import (
    Emission,
    PhaseAutoregressive,
    PhaseConfusion,
    PhaseDirichlet,
    PhaseInflatedDirichlet,
    Tempered,
    ToolAutoregressive,
    ToolBeta,
    ToolConfusion,
    ToolInflatedBeta,
)
from hmmjax.ensembles import main_member
from hmmjax.report.picture import Picture, matrix_rows
from hmmjax.report.reasons import tool_matrix
from hmmjax.stabilize import Stabilized
from hmmjax.stabilize.gaps import without_gaps


def transition_pictures(result: Stabilized, phase_names: Sequence[str], tool_names: Sequence[str]) -> list[Picture]:
    """Draw the transitions of phases and of tools."""
    params = main_member(result.model.params, "phases")
    found = []
    if params.phases is not None:
        source, fraction, mean = _stays(result, len(phase_names))
        caption = (
            "The learned order of phases. Left: probability of the next phase once a phase ends; a point marks changes "
            "that were never seen but are possible. Right: mean duration of each phase in the model, step / (1 - "
            f"probability of staying). Black marks: mean duration in the {source} of the videos shown. Hatched: the "
            f"video usually ends during this phase in the {source}, so the model's duration is longer than the black "
            "mark."
        )
        figure = plots.plot_phase_transitions(
            params.phases.transition, names=phase_names, step_seconds=result.step_seconds, seen=mean,
            open_ended=fraction > 0.5,
        )  # fmt: skip
        rows = matrix_rows(params.phases.transition, phase_names, phase_names, "from", "to")
        found.append(Picture("transitions_phases", "model", caption, figure, rows))
    matrix = tool_matrix(main_member(result.model.params, "tools"))
    if matrix is not None:
        caption = (
            f"How tools appear and disappear, one block per tool{' and phase' if np.ndim(matrix) == 4 else ''}: upper "
            f"row, a tool that is absent; lower row, one that is present; columns, whether it is absent or present "
            f"{result.step_seconds:g} s later. Rows of one half (.50) never occur in the labels."
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
    """Measure the stays in each phase, in the annotations if some video is annotated throughout.

    Returns:
        The source ("annotation" or "stabilized labels"), the fraction of stays that the end of the video cuts off, and
        the mean duration in minutes; NaN for phases that never occur.
    """
    complete = [filled for t in result.truth_phases or [] if (filled := without_gaps(t)) is not None]
    stays, ends, frames = np.zeros(count), np.zeros(count), np.zeros(count)
    for labels in complete or result.smoothed.phase_labels():
        starts = np.r_[0, np.flatnonzero(np.diff(labels)) + 1]
        stays += np.bincount(labels[starts], minlength=count)
        frames += np.bincount(labels, minlength=count)
        ends[labels[-1]] += 1
    with np.errstate(invalid="ignore"):
        return (
            "annotation" if complete else "stabilized labels",
            ends / stays,
            frames / stays * result.step_seconds / 60,
        )


def emission_pictures(result: Stabilized, phase_names: Sequence[str], tool_names: Sequence[str]) -> list[Picture]:
    """Draw the error probabilities of the recognizer, or the distribution of its probabilities."""
    found = []
    for track, names in (("phases", phase_names), ("tools", tool_names)):
        chain = getattr(main_member(result.model.params, track), track)
        if chain is None or chain.emission is None:
            continue
        power = ""
        if isinstance(chain.emission, Tempered):
            weight = np.array2string(np.asarray(chain.emission.power), precision=3)
            power = f" Each frame is weighted by {weight} (1 = full weight)."
        found += _emission(chain.emission.unwrapped, names, power)
    return found


def _emission(family: Emission, names: Sequence[str], power: str) -> list[Picture]:
    """Draw one family; none if there is no picture for it."""
    for kinds, draw in _DRAW.items():
        if isinstance(family, kinds):
            return [draw(family, names, f"({type(family).__name__})", power)]
    return []


def _phase_errors(family: PhaseConfusion | PhaseAutoregressive, names: Sequence[str], kind: str, power: str) -> Picture:
    caption = f"Errors of the recognizer {kind}: in each phase (row), how often it predicts each phase (column).{power}"
    predicted = names if family.num_symbols == len(names) else [str(i) for i in range(family.num_symbols)]
    figure = plots.plot_matrices(
        {"predicted phase": family.matrix}, row_names=names, column_names=predicted, row_label="phase", counts=False
    )
    rows = matrix_rows(family.matrix, names, predicted, "phase", "said")
    return Picture("emission_phases", "recognizer", caption, figure, rows)


def _phase_probabilities(
    family: PhaseDirichlet | PhaseInflatedDirichlet, names: Sequence[str], kind: str, power: str
) -> Picture:
    table = np.asarray(family.concentration, float)
    caption = (
        f"Probabilities of the recognizer {kind}: in each phase (row), the mean predicted probability of each "
        f"phase (column). Right: concentration; small values mean probabilities near 0 and 1.{power}"
    )
    figure = plots.plot_matrices(
        {"mean probability": table}, row_names=names, row_label="phase", column_label="probability of"
    )
    rows = matrix_rows(table, names, names, "phase", "class", "concentration")
    return Picture("emission_phases", "recognizer", caption, figure, rows)


def _tool_errors(family: ToolConfusion | ToolAutoregressive, names: Sequence[str], kind: str, power: str) -> Picture:
    table = np.asarray(family.matrix, float)
    both = np.stack([table[:, 1, 1], table[:, 0, 1]], 1)
    caption = (
        f"Errors of the recognizer {kind}: how often it detects each tool if the tool is present, and if it is "
        f"absent.{power}"
    )
    figure = plots.plot_matrices(
        {"detected": both}, row_names=names, column_names=("present", "absent"), row_label="",
        column_label="if the tool is", counts=False,
    )  # fmt: skip
    rows = [
        {"tool": names[k], "present": i, "reported": j, "probability": float(table[k, i, j])}
        for k, i, j in np.ndindex(table.shape)
    ]
    return Picture("emission_tools", "recognizer", caption, figure, rows)


def _tool_probabilities(family: ToolBeta | ToolInflatedBeta, names: Sequence[str], kind: str, power: str) -> Picture:
    from scipy.stats import beta

    table = np.asarray(family.concentration, float)

    def density(k: int, d: int) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: np.asarray(beta.pdf(x, *table[k, d]))

    states = ("absent", "present")
    densities = {tool: {s: density(k, d) for d, s in enumerate(states)} for k, tool in enumerate(names)}
    caption = (
        f"Distribution of the recognizer's probability of each tool, in frames where it is absent and where it is "
        f"present.{power}"
    )
    rows = [
        {"tool": names[k], "present": d, "parameter": "ab"[j], "concentration": float(table[k, d, j])}
        for k, d, j in np.ndindex(table.shape)
    ]
    return Picture("emission_tools", "recognizer", caption, plots.plot_densities(densities), rows)


_DRAW: dict[Any, Callable[..., Picture]] = {
    (PhaseConfusion, PhaseAutoregressive): _phase_errors,
    (PhaseDirichlet, PhaseInflatedDirichlet): _phase_probabilities,
    (ToolConfusion, ToolAutoregressive): _tool_errors,
    (ToolBeta, ToolInflatedBeta): _tool_probabilities,
}
