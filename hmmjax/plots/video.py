"""Plot a video: phase ribbons and tool timelines of truth, predictions and stabilized predictions."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hmmjax._core.arrays import as_floats, native
from hmmjax.io.names import Names, names_for
from hmmjax.plots.checks import require_frames, require_rows, require_tools
from hmmjax.plots.style import FAINT, PHASE_COLORS, ROW_COLORS, TEXT, UNLABELED, words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 16.0  # inches; 1600 pixels at 100 dots per inch
_LEFT, _RIGHT = 2.05, 2.25  # inches for names and numbers
_ROW, _BAND = 0.42, 0.58  # inches per phase row and per tool


def plot_video(
    seconds: Any = None,
    *,
    phases: Mapping[str, Any] | None = None,
    tools: Mapping[str, Any] | None = None,
    tool_posterior: Any = None,
    phase_names: Names | None = None,
    tool_names: Names | None = None,
    title: str = "",
    note: str = "",
    step: float | None = None,
) -> "Figure":
    """Plot phase ribbons above tool timelines, with the number of changes of each row in the margin.

    Args:
        seconds: (n,) times of the frames in seconds, increasing; gaps are left empty. None starts at 0 and takes one
            row per `step`.
        phases: rows from top to bottom, for instance ``{"truth": ..., "raw": ..., "stabilized": ...}``, each (n,) int
            labels, or (n, L) scores, of which the largest is shown; -1 and NaN are unlabeled and hatched. None omits
            the ribbon.
        tools: rows of each tool from top to bottom, each (n, K) presence 0, 1 or -1 (unlabeled), or probabilities,
            shown as present from 0.5. None omits them.
        tool_posterior: (n, K) probabilities, drawn as an area behind the last row of each tool.
        phase_names: (L,) phase names, or "cholec80" and the like; None numbers them.
        tool_names: (K,) tool names, or "cholec80" and the like; None numbers them.
        title: the title, for instance the name of the video.
        note: text after the title, for instance metrics.
        step: seconds per frame; None takes the smallest distance between frames, or 1 s if there is none.

    Returns:
        A matplotlib figure, 1600 pixels wide at 100 dots per inch.

    Raises:
        ValueError: if there is nothing to plot, shapes disagree, or names are unknown or too few.
        TypeError: if `phases` or `tools` is not a mapping of rows.
    """
    from matplotlib.figure import Figure

    require_rows(phases=phases, tools=tools)
    rows = {name: _phase_labels(native(f"phases[{name!r}]", values)) for name, values in (phases or {}).items()}
    bands = {name: _presence(native(f"tools[{name!r}]", values)) for name, values in (tools or {}).items()}
    posterior = None if tool_posterior is None else as_floats("tool_posterior", tool_posterior)
    given = {f"phases[{name!r}]": x for name, x in rows.items()} | {f"tools[{name!r}]": x for name, x in bands.items()}
    if seconds is None:
        count = len(next(iter(given.values()), ()))
        seconds = np.arange(count) * (1.0 if step is None else step)
    else:
        given["seconds"] = as_floats("seconds", seconds)
    seconds = as_floats("seconds", seconds)
    if seconds.ndim != 1 or seconds.size == 0 or not (rows or bands):
        raise ValueError(
            f"there is nothing to plot: seconds has shape {seconds.shape}; pass seconds (n,), and phases or tools"
        )
    require_frames(given if posterior is None else given | {"tool_posterior": posterior})
    count = require_tools(bands, posterior)
    phase_names = names_for(
        phase_names, "phases", 1 + max((int(x.max()) for x in rows.values()), default=-1), more=True
    )
    tool_names = names_for(tool_names, "tools", count) if bands else None
    if step is None:
        step = float(np.diff(seconds).min()) if seconds.size > 1 else 1.0
    heights = [_ROW * len(rows)] * bool(rows) + [_BAND * count] * bool(bands)
    top, between, bottom = 1.0 if rows else 0.8, 0.68, 0.62
    height = top + sum(heights) + between * (len(heights) - 1) + bottom
    figure = Figure(figsize=(_WIDTH, height), facecolor="white")
    edge = height - top
    axes = []
    for size in heights:
        box = (_LEFT / _WIDTH, (edge - size) / height, (_WIDTH - _LEFT - _RIGHT) / _WIDTH, size / height)
        axes.append(figure.add_axes(box, sharex=axes[0] if axes else None))
        edge -= size + between
    figure.text(0.25 / _WIDTH, 1 - 0.2 / height, title, size=15, weight="bold", va="top", color=TEXT)
    figure.text(_LEFT / _WIDTH, 1 - 0.22 / height, note, size=12, va="top", color=TEXT)
    if rows:
        _draw_phases(axes[0], seconds, rows, step, phase_names)
    if bands:
        _draw_tools(axes[-1], seconds, bands, posterior, step, tool_names)
    for axis in axes:
        _finish(axis, seconds, step, last=axis is axes[-1])
    return figure


def _phase_labels(values: Any) -> np.ndarray:
    """Return labels (n,), of scores (n, L) the positions of the largest; -1 where missing."""
    values = np.asarray(values)
    if values.ndim == 2:
        missing = np.isnan(values).any(-1)
        return np.where(missing, -1, np.where(missing[:, None], 0, values).argmax(-1))
    return _whole(values)


def _presence(values: Any) -> np.ndarray:
    """Return presence (n, K) 0, 1 or -1, of probabilities those at or above 0.5."""
    values = np.asarray(values)
    if values.dtype.kind == "f":
        return np.where(np.isnan(values) | (values < 0), -1, (values >= 0.5).astype(int))
    return _whole(values)


def _whole(values: np.ndarray) -> np.ndarray:
    """Return labels as integers; NaN becomes -1."""
    return np.where(np.isnan(values), -1, values).astype(int) if values.dtype.kind == "f" else values.astype(int)


def changes(labels: Any) -> int:
    """Count changes between consecutive labels, except to or from unlabeled (-1) frames.

    Args:
        labels: (n,) int labels.

    Returns:
        The number of changes.
    """
    labels = np.asarray(labels)
    known = (labels[1:] >= 0) & (labels[:-1] >= 0)
    return int(((labels[1:] != labels[:-1]) & known).sum())


def spans(seconds: np.ndarray, values: np.ndarray, step: float) -> list[tuple[float, float, int]]:
    """Return runs of equal values; a gap in time ends a run.

    Args:
        seconds: (n,) increasing times in seconds, at least one.
        values: (n,) int values.
        step: seconds per frame; frames that are more than 1.5 steps apart are separated by a gap.

    Returns:
        Start and width of each run in minutes, and its value.
    """
    breaks = np.flatnonzero((np.diff(values) != 0) | (np.diff(seconds) > 1.5 * step)) + 1
    starts, ends = np.r_[0, breaks], np.r_[breaks, values.size] - 1
    return [
        (float(seconds[a]) / 60, float(seconds[b] - seconds[a] + step) / 60, int(values[a]))
        for a, b in zip(starts, ends, strict=True)
    ]


def _bars(axis: "Axes", spans: Sequence[tuple[float, float]], y: float, height: float, **style: Any) -> None:
    """Draw all bars of a row as one artist, without the limits and units that `Axes.broken_barh` works out."""
    from matplotlib.collections import PolyCollection

    if spans:
        start, width = np.asarray(spans).T[:, :, None]
        across = start + width * [0, 0, 1, 1]
        down = np.broadcast_to(y + height * np.array([0, 1, 1, 0]), across.shape)
        corners = list(np.stack([across, down], -1))
        axis.add_collection(PolyCollection(corners, linewidth=0, **style), autolim=False)


def _draw_phases(
    axis: "Axes", seconds: np.ndarray, rows: Mapping[str, np.ndarray], step: float, names: Sequence[str] | None
) -> None:
    from matplotlib.patches import Patch

    present = {int(p) for values in rows.values() for p in np.unique(values) if p >= 0}
    total = max([*(p + 1 for p in present), len(names or ()), 1])
    labels = [words(names[p]) if names is not None else f"phase {p}" for p in range(total)]
    for position, (name, values) in enumerate(rows.items()):
        runs = spans(seconds, values, step)
        known = [r for r in runs if r[2] >= 0]
        colors = [PHASE_COLORS[r[2] % len(PHASE_COLORS)] for r in known]
        _bars(axis, [r[:2] for r in known], position + 0.06, 0.88, facecolor=colors)
        _unlabeled(axis, [r[:2] for r in runs if r[2] < 0], position + 0.06, 0.88)
        axis.text(-0.008, position + 0.5, name, transform=axis.get_yaxis_transform(), ha="right", va="center",
                  size=11, color=TEXT)  # fmt: skip
        axis.text(1.012, position + 0.5, f"{changes(values)}", transform=axis.get_yaxis_transform(), ha="left",
                  va="center", size=11, color=TEXT)  # fmt: skip
    _above(axis, 1.012, "phase changes", "left")
    axis.set_ylim(len(rows), 0)
    handles = [Patch(facecolor=PHASE_COLORS[p % len(PHASE_COLORS)], label=labels[p]) for p in range(total)]
    if any((values < 0).any() for values in rows.values()):
        handles.append(Patch(facecolor=UNLABELED, hatch="////", edgecolor="#BBBBBB", linewidth=0, label="unlabeled"))
    _legend(axis, handles, raised=0.2)


def _draw_tools(
    axis: "Axes",
    seconds: np.ndarray,
    bands: Mapping[str, np.ndarray],
    posterior: np.ndarray | None,
    step: float,
    names: Sequence[str] | None,
) -> None:
    from matplotlib.patches import Patch

    count = next(iter(bands.values())).shape[1]
    # The last row is taller, since its probability is drawn behind it.
    unit = 0.86 / (len(bands) + (0.7 if posterior is not None else 0))
    spare = iter(PHASE_COLORS[3:])
    colors = {name: ROW_COLORS.get(name) or next(spare) for name in bands}
    last = list(bands)[-1]
    for tool in range(count):
        if tool % 2 == 0:
            axis.axhspan(tool, tool + 1, facecolor="#F5F5F5", linewidth=0, zorder=0)
        for row, (name, values) in enumerate(bands.items()):
            y, height = tool + 0.08 + row * unit, 0.82 * unit
            if name == last and posterior is not None:
                _shade(axis, seconds, posterior[:, tool], step, y, 1.62 * unit, colors[name])
                y += 0.8 * unit
            runs = spans(seconds, values[:, tool], step)
            _bars(axis, [r[:2] for r in runs if r[2] == 1], y, height, facecolor=colors[name], zorder=3)
            _unlabeled(axis, [r[:2] for r in runs if r[2] < 0], y, height)
            axis.text(1.042 + 0.042 * row, tool + 0.5, f"{changes(values[:, tool])}",
                      transform=axis.get_yaxis_transform(), ha="right", va="center", size=11,
                      color=colors[name])  # fmt: skip
        label = words(names[tool]) if names is not None else f"tool {tool + 1}"
        axis.text(-0.008, tool + 0.5, label, transform=axis.get_yaxis_transform(), ha="right", va="center", size=11,
                  color=TEXT)  # fmt: skip
    _above(axis, 1.012, "on/off changes", "left")
    axis.set_ylim(count, 0)
    handles = [Patch(facecolor=colors[name], label=name) for name in bands]
    if posterior is not None:
        handles.append(Patch(facecolor=colors[last], alpha=0.32, label="probability of presence"))
    if any((values < 0).any() for values in bands.values()):
        handles.append(Patch(facecolor=UNLABELED, hatch="////", edgecolor="#BBBBBB", linewidth=0, label="unlabeled"))
    _legend(axis, handles)


def _shade(axis: "Axes", seconds: np.ndarray, p: np.ndarray, step: float, y: float, height: float, color: str) -> None:
    """Draw the posterior as an area above the bottom of its row, interrupted at gaps in time."""
    for a, b in _runs_of_time(seconds, step):
        edges = np.r_[seconds[a : b + 1], seconds[b] + step] / 60
        top = y + height * (1 - np.r_[p[a : b + 1], p[b]])
        axis.fill_between(edges, top, y + height, step="post", facecolor=color, alpha=0.32, linewidth=0, zorder=2)


def _runs_of_time(seconds: np.ndarray, step: float) -> list[tuple[int, int]]:
    breaks = np.flatnonzero(np.diff(seconds) > 1.5 * step) + 1
    return list(zip([0, *breaks.tolist()], [*(breaks - 1).tolist(), seconds.size - 1], strict=True))


def _unlabeled(axis: "Axes", spans: Sequence[tuple[float, float]], y: float, height: float) -> None:
    _bars(axis, spans, y, height, facecolor=UNLABELED, hatch="////", edgecolor="#BBBBBB", zorder=1)


def _above(axis: "Axes", x: float, text: str, align: Any) -> None:
    axis.annotate(text, (x, 1), xycoords="axes fraction", xytext=(0, 7), textcoords="offset points", ha=align,
                  size=10, color=FAINT)  # fmt: skip


def _legend(axis: "Axes", handles: Sequence[Any], raised: float = 0.0) -> None:
    """Draw the legend above the axis, `raised` inches higher to clear the heading of the margin."""
    axis.legend(
        handles=list(handles),
        loc="lower left",
        bbox_to_anchor=(-0.005, 1.0 + raised / axis.bbox.height * axis.figure.dpi),
        ncols=min(len(handles), 8),
        frameon=False,
        fontsize=10,
        handlelength=1.1,
        handleheight=1.0,
        columnspacing=1.4,
        handletextpad=0.5,
        borderaxespad=0.2,
    )


def _finish(axis: "Axes", seconds: np.ndarray, step: float, *, last: bool) -> None:
    axis.set_xlim(seconds[0] / 60, (seconds[-1] + step) / 60)
    axis.set_yticks([])
    for side in ("top", "left", "right"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color("#999999")
    axis.tick_params(axis="x", length=4, color="#999999", labelsize=10, labelcolor=TEXT, labelbottom=last)
    if last:
        axis.set_xlabel("minutes", size=11, color=TEXT)
