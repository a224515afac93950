"""Plot curves: precision-recall, reliability, and densities of emission families."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hmmjax.plots.style import FAINT, ROW_COLORS, TEXT, clean, new_figure, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Systems also differ in line style, not only in color.
_DASHES = {"raw": (0, (4, 1.6)), "online": (0, (1, 1)), "stabilized": "solid"}
_PER_ROW = 4
#: Bins with fewer frames are too noisy and not drawn.
MIN_FRAMES = 20


def plot_precision_recall(curves: Mapping[str, Sequence[Any]]) -> "Figure":
    """Plot precision-recall curves, one panel per tool and one line per system.

    Args:
        curves: by system ("raw", "online", "stabilized"), one `hmmjax.metrics.Curve` per tool.

    Returns:
        A matplotlib figure; panels of tools that are absent from the truth are empty and labeled as such.

    Raises:
        ValueError: if there are no curves, or systems differ in their tools.
    """
    first = next(iter(curves.values()), ())
    if not first:
        raise ValueError("there are no curves to plot: pass those of at least one system")
    tools = [curve.name for curve in first]
    for system, own in curves.items():
        if (found := [curve.name for curve in own]) != tools:
            raise ValueError(
                f"curves[{system!r}] are of {', '.join(found)}, but those of {next(iter(curves))!r} are of "
                f"{', '.join(tools)}: pass curves of the same tools in the same order"
            )
    figure, axes = _panels(len(first))
    for k, axis in enumerate(axes):
        for system, own in curves.items():
            curve = own[k]
            if curve.n_positives:
                axis.step(np.r_[0, curve.recall], np.r_[curve.precision[:1], curve.precision], where="pre",
                          color=_color(system), linestyle=_DASHES.get(system, "solid"), linewidth=1.6,
                          label=system)  # fmt: skip
        prevalence = first[k].n_positives / max(first[k].n_frames, 1)
        axis.axhline(prevalence, color="#BBBBBB", linewidth=0.8, linestyle=(0, (2, 3)))
        axis.set_title(words(first[k].name), size=10, weight="bold", color=TEXT, loc="left")
        axis.set_title(f"in {prevalence:.1%} of frames" if first[k].n_positives else "absent from the truth", size=8,
                       color=FAINT, loc="right")  # fmt: skip
        _square(axis, k, len(first), "recall", "precision")
    _shared_legend(figure, axes)
    return figure


def plot_reliability(curves: Mapping[str, Sequence[Any]]) -> "Figure":
    """Plot reliability curves, one panel per event (phase or tool) and one line per system.

    Args:
        curves: by system, a sequence of `hmmjax.metrics.Reliability`; all systems have the same events.

    Returns:
        A matplotlib figure. The size of a point shows its number of frames; the ECE is printed in the panel.

    Raises:
        ValueError: if there are no curves.
    """
    names = list(dict.fromkeys(curve.name for own in curves.values() for curve in own))
    if not names:
        raise ValueError("there are no curves to plot: pass those of at least one system")
    figure, axes = _panels(len(names))
    for k, (axis, name) in enumerate(zip(axes, names, strict=True)):
        axis.plot([0, 1], [0, 1], color="#BBBBBB", linewidth=1)
        errors = []
        for system, own in curves.items():
            for curve in own:
                if curve.name == name and curve.count.sum():
                    full = curve.count >= min(MIN_FRAMES, curve.count.max())
                    axis.plot(curve.confidence[full], curve.frequency[full], color=_color(system), linewidth=1.3,
                              linestyle=_DASHES.get(system, "solid"), label=system)  # fmt: skip
                    size = 70 * np.sqrt(curve.count[full] / curve.count.max()) + 3
                    axis.scatter(curve.confidence[full], curve.frequency[full], s=size, color=_color(system),
                                 linewidth=0, alpha=0.75)  # fmt: skip
                    errors.append(f"{system} {curve.error:.3f}")
        axis.text(0.04, 0.97, "\n".join(errors), transform=axis.transAxes, size=7.5, color=FAINT, va="top")
        axis.set_title(words(name), size=10, weight="bold", color=TEXT, loc="left")
        _square(axis, k, len(names), "predicted probability", "observed frequency")
    _shared_legend(figure, axes)
    return figure


def plot_densities(
    densities: Mapping[str, Mapping[str, Callable[[np.ndarray], np.ndarray]]], *, label: str = "predicted probability"
) -> "Figure":
    """Plot densities over (0, 1), for instance of the predicted probability if a tool is present or absent.

    Args:
        densities: by panel and curve ("absent", "present"), functions from (n,) points to (n,) densities.
        label: label of the horizontal axis.

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
