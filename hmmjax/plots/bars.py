"""Amounts: minutes with intervals, shares of frames, and what a figure costs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

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
    """Dots for each class and system, with an interval about the last system's.

    Args:
        values: for each system ("truth", "raw", "stabilized") (C,) amounts, NaN where there is none.
        low: (C,) lower ends of the last system's intervals, or None.
        high: (C,) upper ends.
        names: (C,) class names.
        unit: of the amounts.
        label: what the intervals are.

    Returns:
        A matplotlib figure.
    """
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
    for system, amounts in values.items():
        marker, color, size = markers.get(system, ("s", "#009E73", 34))
        axis.scatter(np.asarray(amounts, float), rows, marker=marker, s=size, color=color, label=system, zorder=3)
    axis.set_yticks(rows, [words(name) for name in names], size=9)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xlim(left=0)
    axis.set_xlabel(unit, size=9, color=FAINT)
    clean(axis, grid="x")
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    figure.legend(loc="outside upper left", ncols=len(values) + 1, frameon=False, fontsize=9)
    return figure


def plot_shares(
    shares: Any, *, row_names: Sequence[str], part_names: Sequence[str], label: str = "share of frames"
) -> "Figure":
    """Stacked horizontal bars that each add up to one (phase proportions), a row each.

    Args:
        shares: (R, P), rows sum to one.
        row_names: (R,).
        part_names: (P,).
        label: of the horizontal axis.

    Returns:
        A matplotlib figure.
    """
    table = np.asarray(shares, float)
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


def plot_costs(points: Sequence[Mapping[str, Any]], *, cost_label: str = "cost", figure_label: str = "") -> "Figure":
    """What each way of labeling costs and what it gives; those that nothing cheaper beats are joined.

    Args:
        points: mappings with "name", "cost", "value", and optionally "low" and "high".
        cost_label: of the horizontal axis.
        figure_label: of the vertical axis.

    Returns:
        A matplotlib figure.

    Raises:
        ValueError: without any point.
    """
    if not points:
        raise ValueError("nothing to draw: give at least one point")
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
    axis.set_ylabel(figure_label, size=9, color=FAINT)
    clean(axis, grid="both")
    return figure


def plot_presence(shares: Any, *, names: Sequence[str], notes: Sequence[str] | None = None) -> "Figure":
    """One bar for each class, labeled with its share.

    Args:
        shares: (C,) between 0 and 1.
        names: (C,) class names.
        notes: (C,) written behind the shares.

    Returns:
        A matplotlib figure.
    """
    table = np.asarray(shares, float)
    figure = new_figure(8.4, 0.34 * len(table) + 0.9)
    axis = figure.subplots()
    axis.barh(np.arange(len(table)), table, color="#0072B2", height=0.66)
    for row, value in enumerate(table):
        note = f"   {notes[row]}" if notes is not None else ""
        axis.text(value, row, f" {value:.1%}{note}", va="center", size=8.5, color=TEXT)
    axis.set_yticks(np.arange(len(table)), [words(name) for name in names], size=9)
    axis.set_ylim(len(table) - 0.5, -0.5)
    axis.set_xlim(0, max(float(table.max(initial=0)) * 1.55, 1e-9))
    axis.set_xlabel("share of frames", size=9, color=FAINT)
    clean(axis)
    axis.tick_params(axis="y", length=0)
    return figure


def plot_boxes(values: Sequence[Any], *, names: Sequence[str], unit: str) -> "Figure":
    """A box for each class with its points beside it.

    Args:
        values: for each class (n,) amounts.
        names: (C,) class names.
        unit: of the amounts.

    Returns:
        A matplotlib figure; whiskers end at 5 and 95 %.
    """
    figure = new_figure(8.4, 0.48 * len(values) + 0.9)
    axis = figure.subplots()
    rows = np.arange(len(values))
    axis.boxplot(
        [np.asarray(v, float) for v in values], positions=rows, orientation="horizontal", whis=(5, 95),
        showfliers=False, widths=0.5, medianprops={"color": "#D55E00", "linewidth": 2},
        boxprops={"color": "#767676"}, whiskerprops={"color": "#767676"}, capprops={"color": "#767676"},
    )  # fmt: skip
    for row, own in enumerate(values):
        own = np.sort(np.asarray(own, float))
        # Spread over the row by rank: the same picture every time.
        offset = 0.18 * (((np.arange(own.size) * 7) % 11) / 5 - 1)
        axis.scatter(own, row + offset, s=7, color="#0072B2", alpha=0.55, linewidth=0, zorder=3)
    axis.set_yticks(rows, [words(name) for name in names], size=9)
    axis.set_ylim(len(values) - 0.5, -0.5)
    axis.set_xlim(left=0)
    axis.set_xlabel(unit, size=9, color=FAINT)
    clean(axis, grid="x")
    axis.tick_params(axis="y", length=0)
    return figure
