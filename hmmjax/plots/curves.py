"""Curves: precision against recall, calibration, and densities of probability emissions."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hmmjax.plots.style import FAINT, ROW_COLORS, TEXT, clean, new_figure, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Lines differ in dashes too, not in color alone.
_DASHES = {"raw": (0, (4, 1.6)), "online": (0, (1, 1)), "stabilized": "solid"}
_PER_ROW = 4
#: A calibration bin of fewer frames is noise and not drawn.
FEWEST = 20


def plot_precision_recall(curves: Mapping[str, Sequence[Any]]) -> "Figure":
    """One panel per tool, one line per system.

    Args:
        curves: for each system ("raw", "online", "stabilized") a `hmmjax.metrics.Curve` for each tool.

    Returns:
        A matplotlib figure; a tool absent from the truth has an empty panel that says so.

    Raises:
        ValueError: without any curve.
    """
    first = next(iter(curves.values()), ())
    if not first:
        raise ValueError("nothing to draw: give the curves of at least one system")
    figure, axes = _panels(len(first))
    for k, axis in enumerate(axes):
        for system, own in curves.items():
            curve = own[k]
            if curve.n_positives:
                axis.step(np.r_[0, curve.recall], np.r_[curve.precision[:1], curve.precision], where="pre",
                          color=_color(system), linestyle=_DASHES.get(system, "solid"), linewidth=1.6,
                          label=system)  # fmt: skip
        share = first[k].n_positives / max(first[k].n_frames, 1)
        axis.axhline(share, color="#BBBBBB", linewidth=0.8, linestyle=(0, (2, 3)))
        axis.set_title(words(first[k].name), size=10, weight="bold", color=TEXT, loc="left")
        axis.set_title(f"in {share:.1%} of frames" if first[k].n_positives else "absent from the truth", size=8,
                       color=FAINT, loc="right")  # fmt: skip
        _square(axis, k, len(first), "recall", "precision")
    _shared_legend(figure, axes)
    return figure


def plot_reliability(curves: Mapping[str, Sequence[Any]]) -> "Figure":
    """How often probabilities come true: one panel per track or tool, one line per system.

    Args:
        curves: for each system a sequence of `hmmjax.metrics.Reliability`, the same ones in the same order.

    Returns:
        A matplotlib figure; points grow with the frames behind them, and the error (ECE) is written in the panel.

    Raises:
        ValueError: without any curve.
    """
    names = list(dict.fromkeys(curve.name for own in curves.values() for curve in own))
    if not names:
        raise ValueError("nothing to draw: give the curves of at least one system")
    figure, axes = _panels(len(names))
    for k, (axis, name) in enumerate(zip(axes, names, strict=True)):
        axis.plot([0, 1], [0, 1], color="#BBBBBB", linewidth=1)
        said = []
        for system, own in curves.items():
            for curve in own:
                if curve.name == name and curve.count.sum():
                    full = curve.count >= min(FEWEST, curve.count.max())
                    axis.plot(curve.confidence[full], curve.frequency[full], color=_color(system), linewidth=1.3,
                              linestyle=_DASHES.get(system, "solid"), label=system)  # fmt: skip
                    size = 70 * np.sqrt(curve.count[full] / curve.count.max()) + 3
                    axis.scatter(curve.confidence[full], curve.frequency[full], s=size, color=_color(system),
                                 linewidth=0, alpha=0.75)  # fmt: skip
                    said.append(f"{system} {curve.error:.3f}")
        axis.text(0.04, 0.97, "\n".join(said), transform=axis.transAxes, size=7.5, color=FAINT, va="top")
        axis.set_title(words(name), size=10, weight="bold", color=TEXT, loc="left")
        _square(axis, k, len(names), "probability given", "share that came true")
    _shared_legend(figure, axes)
    return figure


def plot_densities(
    densities: Mapping[str, Mapping[str, Callable[[np.ndarray], np.ndarray]]], *, label: str = "probability said"
) -> "Figure":
    """Densities over (0, 1): what a recognizer says where a tool is present, and where it is absent.

    Args:
        densities: for each panel, for each curve ("absent", "present") a function from (n,) points to (n,) densities.
        label: of the horizontal axis.

    Returns:
        A matplotlib figure with a logarithmic vertical axis.
    """
    figure, axes = _panels(len(densities))
    at = np.linspace(0.002, 0.998, 400)
    colors = {"absent": "#767676", "present": "#0072B2"}
    for k, (axis, (name, curves)) in enumerate(zip(axes, densities.items(), strict=True)):
        for position, (state, density) in enumerate(curves.items()):
            color = colors.get(state, ("#0072B2", "#D55E00", "#009E73")[position % 3])
            axis.plot(at, density(at), color=color, linewidth=1.6, label=state,
                      linestyle="solid" if position else (0, (4, 1.6)))  # fmt: skip
        axis.set_yscale("log")
        axis.set_ylim(0.02, 60)
        axis.set_title(words(name), size=10, weight="bold", color=TEXT, loc="left")
        clean(axis, grid="both")
        if k >= len(densities) - _PER_ROW:
            axis.set_xlabel(label, size=9, color=FAINT)
        if k % _PER_ROW == 0:
            axis.set_ylabel("density", size=9, color=FAINT)
    _shared_legend(figure, axes)
    return figure


def _panels(count: int) -> "tuple[Figure, list[Axes]]":
    columns = min(count, _PER_ROW)
    rows = math.ceil(count / _PER_ROW)
    figure = new_figure(max(2.75 * columns, 4.2), 2.6 * rows + 0.35)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for spare in grid[count:]:
        spare.set_visible(False)
    return figure, grid[:count]


def _color(system: str) -> str:
    return ROW_COLORS.get(system, "#009E73")


def _square(axis: "Axes", k: int, count: int, across: str, up: str) -> None:
    axis.set_xlim(-0.02, 1.02)
    axis.set_ylim(-0.02, 1.04)
    clean(axis, grid="both")
    if k >= count - _PER_ROW:
        axis.set_xlabel(across, size=9, color=FAINT)
    if k % _PER_ROW == 0:
        axis.set_ylabel(up, size=9, color=FAINT)


def _shared_legend(figure: "Figure", axes: Sequence["Axes"]) -> None:
    found: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if found:
        figure.legend(list(found.values()), list(found), loc="outside upper left", ncols=len(found), frameon=False,
                      fontsize=9)  # fmt: skip
