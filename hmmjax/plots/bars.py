"""Plot amounts: durations with intervals, fractions of frames, and costs against benefits."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hmmjax._core.arrays import as_floats
from hmmjax._core.deprecation import renamed_arguments
from hmmjax.plots.checks import require_count, require_names
from hmmjax.plots.style import FAINT, PHASE_COLORS, ROW_COLORS, TEXT, clean, new_figure, readable_on, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_intervals(
    values: Mapping[str, Any],
    *,
    low: Any = None,
    high: Any = None,
    names: Sequence[str],
    unit: str = "minutes",
    label: str = "95 % interval",
) -> "Figure":
    """Plot one dot per class and system, with intervals of the last system.

    Args:
        values: by system ("truth", "raw", "stabilized"), (C,) amounts, NaN if missing.
        low: (C,) lower ends of the intervals of the last system, or None.
        high: (C,) upper ends of the intervals, or None.
        names: (C,) class names.
        unit: the unit of the amounts.
        label: legend entry of the intervals.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: if names, amounts and intervals are not of the same number of classes.
    """
    amounts = {system: as_floats(f"values[{system!r}]", given) for system, given in values.items()}
    if amounts:
        require_names("names", names, len(next(iter(amounts.values()))), "classes")
    for argument, given in {
        **{f"values[{system!r}]": x for system, x in amounts.items()},
        "low": low,
        "high": high,
    }.items():
        require_count(argument, given, len(names), "names")
    markers = {
        "truth": ("|", ROW_COLORS["truth"], 220),
        "raw": ("D", ROW_COLORS["raw"], 34),
        "stabilized": ("o", ROW_COLORS["stabilized"], 46),
    }
    figure = new_figure(8.4, 0.36 * len(names) + 1.2)
    axis = figure.subplots()
    rows = np.arange(len(names))
    axis.hlines(rows, 0, 1, transform=axis.get_yaxis_transform(), color="#EEEEEE", linewidth=0.8, zorder=0)
    if low is not None and high is not None:
        axis.hlines(rows, low, high, color=ROW_COLORS["online"], linewidth=5, zorder=1, label=label)
    for system, own in amounts.items():
        marker, color, size = markers.get(system, ("s", "#009E73", 34))
        axis.scatter(own, rows, marker=marker, s=size, color=color, label=system, zorder=3)
    axis.set_yticks(rows, [words(name) for name in names], size=9)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xlim(left=0)
    axis.set_xlabel(unit, size=9, color=FAINT)
    clean(axis, grid="x")
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper left", ncols=len(values) + 1, frameon=False, fontsize=9)
    return figure


@renamed_arguments(shares="fractions")
def plot_proportions(
    fractions: Any, *, row_names: Sequence[str], part_names: Sequence[str], label: str = "fraction of frames"
) -> "Figure":
    """Plot proportions as stacked horizontal bars, one bar per row.

    Args:
        fractions: (R, P) fractions, rows sum to one.
        row_names: (R,) names of the bars.
        part_names: (P,) names of the parts of a bar.
        label: label of the horizontal axis.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: if there is not one name per row and part.
    """
    table = as_floats("fractions", fractions)
    require_names("row_names", row_names, table.shape[0], "rows")
    require_names("part_names", part_names, table.shape[1], "parts")
    figure = new_figure(11, max(0.2 * len(table), 0.5) + 1.3)
    axis = figure.subplots()
    left = np.zeros(len(table))
    for p, name in enumerate(part_names):
        color = PHASE_COLORS[p % len(PHASE_COLORS)]
        axis.barh(np.arange(len(table)), table[:, p], left=left, color=color, height=0.86, label=words(name))
        if len(table) <= 12:
            from matplotlib.colors import to_rgb

            for row, value in enumerate(table[:, p]):
                if value >= 0.04:
                    axis.text(left[row] + value / 2, row, f"{value:.0%}", ha="center", va="center", size=8,
                              color=readable_on(to_rgb(color)))  # fmt: skip
        left += table[:, p]
    axis.set_yticks(np.arange(len(table)), [words(name) for name in row_names], size=9 if len(table) <= 30 else 6)
    axis.set_ylim(len(table) - 0.5, -0.5)
    axis.set_xlim(0, 1)
    axis.set_xlabel(label, size=9, color=FAINT)
    clean(axis)
    axis.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper left", ncols=min(len(part_names), 4), frameon=False, fontsize=8.5)
    return figure


@renamed_arguments(figure_label="value_label")
def plot_costs(points: Sequence[Mapping[str, Any]], *, cost_label: str = "cost", value_label: str = "") -> "Figure":
    """Plot value against cost, for instance of labeling strategies, and connect the points on the Pareto front.

    Args:
        points: mappings with "name", "cost", "value", and optionally "low" and "high" (an interval of the value).
        cost_label: label of the horizontal axis.
        value_label: label of the vertical axis.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: if there are no points.
    """
    if not points:
        raise ValueError("there are no points to plot: pass at least one")
    figure = new_figure(7.6, 4.2)
    axis = figure.subplots()
    cost = np.array([float(p["cost"]) for p in points])
    value = np.array([float(p["value"]) for p in points])
    best = [i for i in range(len(points)) if not np.any((cost <= cost[i]) & (value > value[i]))]
    best.sort(key=lambda i: (cost[i], value[i]))
    axis.step(cost[best], value[best], where="post", color="#7FB8DB", linewidth=2, zorder=1)
    for i, point in enumerate(points):
        if point.get("low") is not None and point.get("high") is not None:
            axis.vlines(cost[i], float(point["low"]), float(point["high"]), color="#767676", linewidth=1.2)
        axis.scatter(cost[i], value[i], s=44, color="#0072B2" if i in best else "#999999", zorder=3)
        axis.annotate(str(point["name"]), (cost[i], value[i]), xytext=(6, 5), textcoords="offset points", size=9,
                      color=TEXT)  # fmt: skip
    axis.margins(x=0.15, y=0.15)
    axis.set_xlabel(cost_label, size=9, color=FAINT)
    axis.set_ylabel(value_label, size=9, color=FAINT)
    clean(axis, grid="both")
    return figure


@renamed_arguments(shares="fractions")
def plot_presence(fractions: Any, *, names: Sequence[str], notes: Sequence[str] | None = None) -> "Figure":
    """Plot one bar per class, labeled with its fraction.

    Args:
        fractions: (C,) fractions of frames.
        names: (C,) class names.
        notes: (C,) texts after the fractions.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: if there is not one name, or note, per class.
    """
    table = as_floats("fractions", fractions)
    require_names("names", names, len(table), "classes")
    require_count("notes", notes, len(table), "classes", "texts")
    figure = new_figure(8.4, 0.34 * len(table) + 0.9)
    axis = figure.subplots()
    axis.barh(np.arange(len(table)), table, color="#0072B2", height=0.66)
    for row, value in enumerate(table):
        note = f"   {notes[row]}" if notes is not None else ""
        axis.text(value, row, f" {value:.1%}{note}", va="center", size=8.5, color=TEXT)
    axis.set_yticks(np.arange(len(table)), [words(name) for name in names], size=9)
    axis.set_ylim(len(table) - 0.5, -0.5)
    axis.set_xlim(0, max(float(table.max(initial=0)) * 1.55, 1e-9))
    axis.set_xlabel("fraction of frames", size=9, color=FAINT)
    clean(axis)
    axis.tick_params(axis="y", length=0)
    return figure


def plot_boxes(values: Sequence[Any], *, names: Sequence[str], unit: str) -> "Figure":
    """Plot one box per class, with its points.

    Args:
        values: for each class, (n,) amounts.
        names: (C,) class names.
        unit: the unit of the amounts.

    Returns:
        A matplotlib figure; whiskers end at 5 and 95 %.

    Raises:
        ValueError: if there is not one name per class.
    """
    require_names("names", names, len(values), "classes")
    figure = new_figure(8.4, 0.48 * len(values) + 0.9)
    axis = figure.subplots()
    rows = np.arange(len(values))
    axis.boxplot(
        [as_floats("values", v) for v in values], positions=rows, orientation="horizontal", whis=(5, 95),
        showfliers=False, widths=0.5, medianprops={"color": "#D55E00", "linewidth": 2},
        boxprops={"color": "#767676"}, whiskerprops={"color": "#767676"}, capprops={"color": "#767676"},
    )  # fmt: skip
    for row, own in enumerate(values):
        own = np.sort(as_floats("values", own))
        # Offset points by their rank, not at random: the figure is reproducible.
        offset = 0.18 * (((np.arange(own.size) * 7) % 11) / 5 - 1)
        axis.scatter(own, row + offset, s=7, color="#0072B2", alpha=0.55, linewidth=0, zorder=3)
    axis.set_yticks(rows, [words(name) for name in names], size=9)
    axis.set_ylim(len(values) - 0.5, -0.5)
    axis.set_xlim(left=0)
    axis.set_xlabel(unit, size=9, color=FAINT)
    clean(axis, grid="x")
    axis.tick_params(axis="y", length=0)
    return figure
