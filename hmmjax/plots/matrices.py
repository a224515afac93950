"""Plot matrices: confusions, emissions, and transitions of phases and tools."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hmmjax._core.arrays import as_floats
from hmmjax.io.names import Names, names_for
from hmmjax.plots.checks import require_count, require_names
from hmmjax.plots.style import FAINT, SHADES, TEXT, new_figure, readable_on, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Probabilities below this come from the prior rather than from data, and are drawn as a point.
NEVER = 1e-6
POINT = "\N{MIDDLE DOT}"


def plot_matrices(
    matrices: Mapping[str, Any],
    *,
    row_names: Sequence[str],
    column_names: Sequence[str] | None = None,
    row_label: str = "truth",
    column_label: str = "predicted",
    counts: bool = True,
) -> "Figure":
    """Plot matrices next to each other, each cell shaded by and labeled with its fraction of the row.

    Args:
        matrices: by title, (R, C) matrices of counts or fractions.
        row_names: (R,) names of the rows.
        column_names: (C,) names of the columns; None takes `row_names`.
        row_label: label of the vertical axis.
        column_label: label of the horizontal axis.
        counts: the matrices hold counts: divide rows by their sums, and print the sums next to them.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: if there are no matrices, or there is not one name per row and column of each.
    """
    if not matrices:
        raise ValueError("there are no matrices to plot: pass at least one")
    for title, given in matrices.items():
        shape = as_floats(f"matrices[{title!r}]", given).shape
        require_names("row_names", row_names, shape[0], f"rows in matrices[{title!r}]")
        argument = "row_names (column_names=None)" if column_names is None else "column_names"
        require_names(
            argument, row_names if column_names is None else column_names, shape[1], f"columns in matrices[{title!r}]"
        )
    columns = list(row_names if column_names is None else column_names)
    side = max(0.52 * len(columns), 2.6)
    figure = new_figure(len(matrices) * (side + 0.9) + 2.0, 0.42 * len(row_names) + 2.1)
    axes = figure.subplots(1, len(matrices), squeeze=False)[0]
    for position, (axis, (title, given)) in enumerate(zip(axes, matrices.items(), strict=True)):
        matrix = as_floats("matrix", given)
        totals = matrix.sum(1, keepdims=True)
        share = np.divide(matrix, totals, out=np.full_like(matrix, np.nan), where=totals > 0) if counts else matrix
        rows = [words(name) for name in row_names]
        if position:
            rows = [""] * len(rows)
        _heat(axis, share, rows, [words(name) for name in columns], top=1.0)
        axis.set_title(title, size=11, weight="bold", color=TEXT, loc="left")
        axis.set_xlabel(column_label, size=9, color=FAINT)
        if not position:
            axis.set_ylabel(row_label, size=9, color=FAINT)
        if counts:
            for row, total in enumerate(totals[:, 0]):
                axis.text(len(columns) - 0.35, row, f"{total:,.0f}", size=8, color=FAINT, va="center")
    return figure


def plot_phase_transitions(
    transition: Any, *, names: Names, step_seconds: float, seen: Any = None, open_ended: Any = None
) -> "Figure":
    """Plot the transitions of a phase chain: the next phase given a change, and the mean duration of each phase.

    Args:
        transition: (L, L) probabilities per time step, rows sum to one.
        names: (L,) phase names, or "cholec80" and the like.
        step_seconds: seconds per time step.
        seen: (L,) observed mean durations in minutes of phases that ended with a change or with the operation, marked
            on the bars; NaN if not observed. None omits the marks.
        open_ended: (L,) bool, phases that mostly end with the operation, which the chain does not model; their bars
            are hatched. None hatches none.

    Returns:
        A matplotlib figure. Left: P(next phase | change), with a point for values below `NEVER`. Right:
        step / (1 - P(stay)) in minutes.

    Raises:
        ValueError: if names are unknown, or there is not one name and value per phase.
    """
    matrix = as_floats("transition", transition)
    names = names_for(names, "phases", len(matrix)) or ()
    require_count("seen", seen, len(matrix), "phases")
    require_count("open_ended", open_ended, len(matrix), "phases")
    stay = np.diag(matrix)
    moves = matrix * (1 - np.eye(len(matrix)))
    leave = moves.sum(1, keepdims=True)
    following = np.divide(moves, leave, out=np.full_like(moves, np.nan), where=leave > 0)
    np.fill_diagonal(following, np.nan)
    labels = [words(name) for name in names]
    figure = new_figure(11, 0.42 * len(names) + 2.3)
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
    _heat(left, following, labels, labels, top=1.0, never=NEVER)
    left.set_title("When the phase changes, to which?", size=11, weight="bold", color=TEXT, loc="left")
    left.set_xlabel("next phase", size=9, color=FAINT)
    with np.errstate(divide="ignore"):
        minutes = step_seconds / np.where(stay < 1, 1 - stay, np.nan) / 60
    hatched = np.zeros(len(names), bool) if open_ended is None else np.asarray(open_ended, bool)
    notes = [
        f"stays {s:.4f} per step{'; ends with the operation' if h else ''}" for s, h in zip(stay, hatched, strict=True)
    ]
    _lengths(right, minutes, notes, hatched, seen)
    right.set_xlabel(f"minutes; a step is {step_seconds:g} s", size=9, color=FAINT)
    right.set_title("Mean stay of the chain, step / (1 - stay)", size=11, weight="bold", color=TEXT, loc="left")
    return figure


def plot_phase_moves(moves: Any, *, ends: Any, frames: Any, names: Names, step_seconds: float) -> "Figure":
    """Plot how annotated phases end: the next phase or the end of the operation, and the mean duration.

    Args:
        moves: (L, L) number of steps from one phase (row) to another (column); the diagonal is not used.
        ends: (L,) number of times that the operation ends in each phase.
        frames: (L,) number of frames in each phase.
        names: (L,) phase names, or "cholec80" and the like.
        step_seconds: seconds per frame.

    Returns:
        A matplotlib figure. Left: the fraction of each way to end, and the number of all. Right: minutes in the phase
        divided by this number, which is the mean duration if no annotation is missing.

    Raises:
        ValueError: if names are unknown, or there is not one name and value per phase.
    """
    table = as_floats("moves", moves)
    names = names_for(names, "phases", len(table)) or ()
    require_count("ends", ends, len(table), "phases")
    require_count("frames", frames, len(table), "phases")
    table = table * (1 - np.eye(len(table)))
    table = np.concatenate([table, as_floats("ends", ends)[:, None]], 1)
    exits = table.sum(1)
    share = np.divide(table, exits[:, None], out=np.full_like(table, np.nan), where=exits[:, None] > 0)
    np.fill_diagonal(share, np.nan)
    labels = [words(name) for name in names]
    figure = new_figure(11.4, 0.42 * len(names) + 2.3)
    left, right = figure.subplots(1, 2, width_ratios=[1.4, 1])
    _heat(left, share, labels, [*labels, "(operation ends)"], top=1.0, never=0.0)
    for row, total in enumerate(exits):
        left.text(len(names) + 0.65, row, f"{total:,.0f}", size=8, color=FAINT, va="center")
    left.set_title("How does a stay end?", size=11, weight="bold", color=TEXT, loc="left")
    left.set_xlabel("next phase; at the right the number of stays", size=9, color=FAINT)
    minutes = np.divide(as_floats("frames", frames), exits, out=np.full(len(exits), np.nan), where=exits > 0)
    minutes *= step_seconds / 60
    _lengths(right, minutes, [f"{n:,.0f} stays" for n in exits], np.zeros(len(names), bool), None)
    right.set_xlabel("minutes; the end of the operation ends a stay", size=9, color=FAINT)
    right.set_title("How long does a stay last on average?", size=11, weight="bold", color=TEXT, loc="left")
    return figure


def _lengths(axis: "Axes", minutes: np.ndarray, notes: Sequence[str], hatched: np.ndarray, seen: Any) -> None:
    """Draw bars of minutes with notes after them, and marks of observed durations."""
    bars = np.nan_to_num(minutes)
    rows = np.arange(len(bars))
    axis.barh(rows[~hatched], bars[~hatched], color="#0072B2", height=0.62)
    axis.barh(rows[hatched], bars[hatched], facecolor="white", edgecolor="#7FB8DB", hatch="////", height=0.62)
    marks = np.full(len(bars), np.nan) if seen is None else as_floats("seen", seen)
    reach = np.fmax(bars, marks)
    for row, (value, note) in enumerate(zip(minutes, notes, strict=True)):
        text = "never left" if np.isnan(value) else f"{value:.1f} min ({note})"
        axis.text(reach[row], row, "  " + text, va="center", size=8, color=TEXT)
    known = np.isfinite(marks)
    if known.any():
        axis.scatter(marks[known], rows[known], marker="|", s=230, linewidth=2.2, color=TEXT, zorder=3)
    axis.set_xlim(0, max(reach.max(initial=0) * 2.2, 1e-9))
    axis.set_ylim(len(bars) - 0.5, -0.5)
    axis.set_yticks([])
    for edge in ("top", "right"):
        axis.spines[edge].set_visible(False)


def plot_tool_transitions(transition: Any, *, tool_names: Names, phase_names: Names | None = None) -> "Figure":
    """Plot the two-by-two transition matrix of each tool in each phase.

    Args:
        transition: (K, L, 2, 2) probabilities per time step, or (K, 2, 2) without phases.
        tool_names: (K,) tool names, or "cholec80" and the like.
        phase_names: (L,) phase names, or "cholec80" and the like; None without phases.

    Returns:
        A matplotlib figure; in each block, rows are the tool at one step and columns at the next.

    Raises:
        ValueError: if names are unknown, or not one per tool and phase.
    """
    matrix = as_floats("transition", transition)
    if matrix.ndim == 3:
        matrix = matrix[:, None]
    tools, phases = matrix.shape[:2]
    tool_names, phase_names = names_for(tool_names, "tools", tools) or (), names_for(phase_names, "phases", phases)
    gap = 0.35
    figure = new_figure(max(1.18 * phases + 2.2, 5.0), 0.92 * tools + 1.3)
    axis = figure.subplots()
    axis.set_aspect("auto")
    from matplotlib import colormaps

    shade = colormaps[SHADES]
    for k in range(tools):
        for q in range(phases):
            for i in range(2):
                for j in range(2):
                    value = matrix[k, q, i, j]
                    color = shade(0.92 * value) if np.isfinite(value) else (0.93, 0.93, 0.93, 1.0)
                    x, y = q * (2 + gap) + j, k * (2 + gap) + i
                    axis.fill_between([x, x + 1], y, y + 1, facecolor=color, edgecolor="white", linewidth=0.6)
                    label = "" if not np.isfinite(value) else POINT if value < NEVER else _short(value)
                    axis.text(x + 0.5, y + 0.52, label, ha="center", va="center", size=7.5,
                              color=readable_on(color))  # fmt: skip
            if k == tools - 1:
                for j, name in enumerate(("off", "on")):
                    axis.text(q * (2 + gap) + j + 0.5, tools * (2 + gap) - gap + 0.12, name, size=7, ha="center",
                              va="top", color=FAINT)  # fmt: skip
        for i, name in enumerate(("off", "on")):
            axis.text(-0.12, k * (2 + gap) + i + 0.5, name, size=7, ha="right", va="center", color=FAINT)
    axis.set_xlim(-0.7, phases * (2 + gap) - gap + 0.05)
    axis.set_ylim(tools * (2 + gap) - gap + 0.55, 0)
    heads = [""] if phase_names is None else [words(name).replace(" ", "\n", 1) for name in phase_names]
    axis.set_xticks(np.arange(phases) * (2 + gap) + 1, heads, size=8.5)
    axis.xaxis.tick_top()
    axis.set_yticks(np.arange(tools) * (2 + gap) + 1, [words(name) for name in tool_names], size=9)
    axis.tick_params(length=0, labelcolor=TEXT, pad=8)
    for edge in axis.spines.values():
        edge.set_visible(False)
    axis.set_xlabel("rows: the tool at one step; columns: at the next, given the phase then", size=9, color=FAINT)
    return figure


def _heat(
    axis: "Axes", values: np.ndarray, rows: Sequence[str], columns: Sequence[str], *, top: float, never: float = -1.0
) -> None:
    """Draw a shaded, labeled matrix; values up to `never` are points."""
    from matplotlib import colormaps

    shade = colormaps[SHADES].with_extremes(bad="#F4F4F4")
    image = axis.imshow(np.ma.masked_invalid(values), cmap=shade, vmin=0, vmax=top * 1.08, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            label = POINT if value <= never else _short(1.0 if value > 1 - never else value)
            axis.text(column, row, label, ha="center", va="center", size=8,
                      color=readable_on(image.cmap(image.norm(value))))  # fmt: skip
    axis.set_xticks(np.arange(len(columns)), columns, size=8.5, rotation=38, ha="right", rotation_mode="anchor")
    axis.set_yticks(np.arange(len(rows)), rows, size=8.5)
    axis.tick_params(length=0, labelcolor=TEXT)
    for edge in axis.spines.values():
        edge.set_visible(False)
    axis.set_xticks(np.arange(1, len(columns)) - 0.5, minor=True)
    axis.set_yticks(np.arange(1, len(rows)) - 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=1.2)
    axis.tick_params(which="minor", length=0)


def _short(value: float) -> str:
    """Format a probability with few characters: .97, .003, 2e-8, 0, 1."""
    if value == 0:
        return "0"
    if value < 0.0005:
        return f"{value:.0e}".replace("e-0", "e-")
    if value < 0.01:
        return f"{value:.3f}"[1:]
    if 0.995 <= value < 1:
        return f"{min(value, 0.9999):.4f}"[1:].rstrip("0")
    return f"{value:.2f}".removeprefix("0")
