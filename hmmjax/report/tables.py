"""The report's tables: figures of all systems, videos in pairs, classes; as rows, csv and LaTeX."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hmmjax import metrics
from hmmjax.io import CHOLEC80_PHASES
from hmmjax.metrics import Metric
from hmmjax.stabilize import Row, Stabilized, System
from hmmjax.stabilize.table import compare_recognizers
from hmmjax.stabilize.warnings import MIN_DROP, worse_classes, worse_videos

#: The names of the systems on the page, for those of the table.
TITLES = {"M": "raw (M)", "M_H": "stabilized (M_H)", "M_H online": "online (M_H, past only)"}


@dataclasses.dataclass(frozen=True)
class Pair:
    """Raw and stabilized, video by video.

    Attributes:
        figure: what is measured.
        convention: how.
        difference: mean of stabilized minus raw over videos.
        low: lower end of its 95 % interval (Student's t over videos); NaN with fewer than two.
        high: upper end.
        better: videos in which stabilized is better.
        equal: videos in which they are equal.
        videos: videos that entered.
        level: of the interval.
        interval: how it is made.
        split: how the videos relate to those learned from.
    """

    figure: str
    convention: str
    difference: float
    low: float
    high: float
    better: int
    equal: int
    videos: int
    level: float = 0.95
    interval: str = "Student's t over videos"
    split: str = ""


def systems(result: Stabilized) -> list[System]:
    """Raw, stabilized, online; raw only where it speaks of every frame, as one of several recognizers may not."""
    spoken = [*(result.raw.phases or []), *(result.raw.tools or [])]
    whole = all((x >= 0).all() for x in spoken)
    return [*([result.raw] if whole else []), result.smoothed, result.filtered]


def main_table(result: Stabilized) -> list[Row]:
    """The figures of `hmmjax stabilize`, with the relaxed ones where phases are Cholec80's."""
    relaxed = result.phase_names == CHOLEC80_PHASES and result.truth_phases is not None
    if not relaxed:
        return result.table
    return compare_recognizers(
        result.recognizers,
        [result.smoothed, result.filtered],
        result.truth_phases,
        result.truth_tools,
        phase_names=result.phase_names,
        tool_names=result.tool_names,
        rows_per_second=1 / result.step_seconds,
        relaxed=True,
        split=result.protocol,
    )


def more_figures(result: Stabilized) -> list[Row]:
    """What people also ask for: segments, calibration, and average precision in its other definitions."""
    rows: list[Row] = []
    phases = annotated(result, "phases", lambda s: s.phase_labels())
    if phases:
        truth, said = phases
        wanted: list[tuple[str, Callable[..., Metric]]] = [
            ("edit score", metrics.edit_score),
            *((f"segmental F1@{100 * o:g}", _partial(metrics.segmental_f1, overlap=o)) for o in (0.1, 0.25, 0.5)),
            ("over-segmentation", metrics.over_segmentation),
        ]
        rows += [Row(name, {n: measure(truth, x) for n, x in said.items()}) for name, measure in wanted]
    phases = annotated(result, "phases", lambda s: s.phases, floats=True)
    if phases:
        truth, said = phases
        rows.append(
            Row("phase calibration error", {n: metrics.phase_calibration(truth, x, bins=10) for n, x in said.items()})
        )
    tools = annotated(result, "tools", lambda s: s.tools)
    if tools:
        truth, said = tools
        for definition in ("voc-all-points", "voc-11-point", "m2cai16"):
            found = {
                n: metrics.average_precision(truth, x, definition=definition, names=result.tool_names)
                for n, x in said.items()
            }
            rows.append(Row(f"tool mAP, {definition}", found))
        found = {
            n: metrics.average_precision(truth, x, mean="videos-then-classes", names=result.tool_names)
            for n, x in said.items()
        }
        rows.append(Row("tool mAP, per video", found))
    tools = annotated(result, "tools", lambda s: s.tools, floats=True)
    if tools:
        truth, said = tools
        rows.append(
            Row("tool calibration error", {n: metrics.tool_calibration(truth, x, bins=10) for n, x in said.items()})
        )
    return _of(result, rows)


def _of(result: Stabilized, rows: Sequence[Row]) -> list[Row]:
    """The rows, with the protocol under which they were measured."""
    return [
        dataclasses.replace(
            row, metrics={n: dataclasses.replace(m, split=result.protocol) for n, m in row.metrics.items()}
        )
        for row in rows
    ]


def harm(result: Stabilized, rows: Sequence[Row]) -> list[str]:
    """What came out worse than it was read: figures, classes and videos, in that order.

    Args:
        result: from `hmmjax.stabilize.stabilize`.
        rows: figures to look through.

    Returns:
        Sentences; none where several recognizers were fused, of which none is the one before.
    """
    if result.fused:
        return []
    fallen = [
        f"{row.figure} {row.metrics['M'].value:.3f} to {row.metrics['M_H'].value:.3f}"
        for row in rows
        if {"M", "M_H"} <= set(row.metrics) and not row.metrics["M"].unit and gain(row) < -MIN_DROP
    ]
    worse = [f"figures that fell below the recognizer's: {'; '.join(fallen)}"] if fallen else []
    truth = System("truth", result.truth_phases, result.truth_tools)
    names = {"phases": result.phase_names, "tools": result.tool_names}
    worse += worse_classes(result.raw, result.smoothed, truth, names)
    return worse + worse_videos(result.raw, result.smoothed, result.truth_phases, result.ids)


def gain(row: Row) -> float:
    """How much better stabilized is than raw, in a figure that is a share; NaN where one of them is."""
    difference = row.metrics["M_H"].value - row.metrics["M"].value
    return -difference if "calibration" in row.figure else difference


def per_class(result: Stabilized) -> list[Row]:
    """Figures of each class: strict Jaccard, precision and recall of phases, AP and F1 of tools."""
    rows: list[Row] = []
    phases = annotated(result, "phases", lambda s: s.phase_labels(), whole=False)
    if phases:
        truth, said = phases
        table = {n: metrics.phase_metrics(truth, x, names=result.phase_names) for n, x in said.items()}
        for k, name in ((1, "precision"), (2, "recall"), (4, "Jaccard")):
            rows.append(Row(f"phase {name}", {n: found[k] for n, found in table.items()}))
    tools = annotated(result, "tools", lambda s: s.tools, whole=False)
    if tools:
        truth, said = tools
        rows.append(
            Row(
                "tool AP",
                {n: metrics.average_precision(truth, x, names=result.tool_names) for n, x in said.items()},
            )
        )
        rows.append(Row("tool F1", {n: metrics.tool_f1(truth, x, names=result.tool_names) for n, x in said.items()}))
    return _of(result, rows)


def pairs(result: Stabilized) -> list[Pair]:
    """Stabilized against raw in each video: what a paired comparison over videos says."""
    measured: list[tuple[str, dict[str, Metric]]] = []
    phases = annotated(result, "phases", lambda s: s.phase_labels(), whole=False)
    if phases and {"M", "M_H"} <= set(phases[1]):
        truth, said = phases
        measured.append(("phase accuracy", {n: metrics.accuracy(truth, x) for n, x in said.items()}))
        options = {"names": result.phase_names, "mean": "classes-then-videos"}
        measured.append(("phase Jaccard", {n: metrics.jaccard(truth, x, **options) for n, x in said.items()}))
    tools = annotated(result, "tools", lambda s: s.tools, whole=False)
    if tools and {"M", "M_H"} <= set(tools[1]):
        truth, said = tools
        options = {"names": result.tool_names, "mean": "classes-then-videos"}
        measured.append(("tool AP", {n: metrics.average_precision(truth, x, **options) for n, x in said.items()}))
        measured.append(("tool F1", {n: metrics.tool_f1(truth, x, **options) for n, x in said.items()}))
    return [_pair(figure, found["M"], found["M_H"], result.protocol) for figure, found in measured]


def _pair(figure: str, raw: Metric, stabilized: Metric, split: str) -> Pair:
    from scipy.stats import t

    difference = np.array(stabilized.per_video) - np.array(raw.per_video)
    difference = difference[~np.isnan(difference)]
    n, mean = difference.size, float(difference.mean()) if difference.size else math.nan
    reach = float(t.ppf(0.975, n - 1) * difference.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
    better, equal = int((difference > 1e-12).sum()), int((np.abs(difference) <= 1e-12).sum())
    return Pair(figure, stabilized.convention, mean, mean - reach, mean + reach, better, equal, n, split=split)


def annotated(
    result: Stabilized, track: str, values: Callable[[System], Any], *, floats: bool = False, whole: bool = True
) -> tuple[list[np.ndarray], dict[str, list[np.ndarray]]] | None:
    """Truth and what each system says, in videos that are annotated.

    With `whole` only videos annotated throughout, but for frames at their ends, which are cut off; with `floats` only
    systems that give probabilities.
    """
    truth = getattr(result, f"truth_{track}")
    if truth is None:
        return None
    keep: list[tuple[int, slice]] = []
    for i, labels in enumerate(truth):
        known = np.flatnonzero((labels >= 0).all(-1) if labels.ndim == 2 else labels >= 0)
        if known.size and (not whole or known.size == known[-1] - known[0] + 1):
            keep.append((i, slice(known[0], known[-1] + 1) if whole else slice(None)))
    said: dict[str, list[np.ndarray]] = {}
    for system in systems(result):
        given = getattr(system, track)
        if given is None or (floats and given[0].dtype.kind != "f"):
            continue
        array = values(system)
        said[system.name] = [array[i][cut] for i, cut in keep]
    if not keep or not said:
        return None
    return [truth[i][cut] for i, cut in keep], said


def _partial(function: Callable[..., Metric], **fixed: Any) -> Callable[..., Metric]:
    return lambda *args: function(*args, **fixed)


def class_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One plain row per figure, class and system."""
    return [
        {
            "figure": row.figure,
            "class": name,
            "system": system,
            "value": None if math.isnan(value) else value,
            "convention": metric.convention,
            "videos": metric.n_videos,
            "frames": metric.n_frames,
            "split": metric.split,
        }
        for row in rows
        for system, metric in row.metrics.items()
        for name, value in zip(metric.class_names, metric.per_class, strict=True)
    ]


def latex(rows: Sequence[Row], caption: str) -> str:
    """A booktabs table: the protocol in its caption, conventions and what ± is over as notes beneath, each once."""
    names = list(dict.fromkeys(n for row in rows for n in row.metrics))
    protocol = next((m.split for row in rows for m in row.metrics.values() if m.split), "")
    body: list[str] = []
    notes: dict[str, int] = {}
    for row in rows:
        cells = [_tex_cell(row.metrics.get(name)) for name in names]
        truth = "--" if row.truth is None else f"{row.truth:,.0f}"
        number = notes.setdefault(convention(row), len(notes) + 1)
        body.append(f"{_tex(row.figure)}$^{{{number}}}$ & {' & '.join(cells)} & {truth} \\\\")
    head = " & ".join(["", *(_tex(TITLES.get(n, n)) for n in names), "truth"])
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{_tex(caption)}{f' ({_tex(protocol)})' if protocol else ''}.}}",
            "\\label{tab:hmmjax}",
            f"\\begin{{tabular}}{{l{'r' * (len(names) + 1)}}}",
            "\\toprule",
            f"{head} \\\\",
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            "",
            "\\smallskip",
            "\\raggedright\\footnotesize",
            " ".join(f"$^{{{number}}}${_tex(note)}." for note, number in notes.items()),
            "\\end{table}",
            "",
        ]
    )


def convention(row: Row) -> str:
    """How a row is measured, and what ± is over."""
    over = next((m.spread_over for m in row.metrics.values() if m.spread_over and math.isfinite(m.spread)), "")
    return "; ".join(row.conventions) + (f"; ± over {over}" if over else "")


def _tex_cell(metric: Metric | None) -> str:
    if metric is None or math.isnan(metric.value):
        return "--"
    places = 4 if not metric.unit else 1 if metric.unit in ("seconds", "ratio") else 0
    spread = f" $\\pm$ {metric.spread:,.{1 if metric.unit else 3}f}" if math.isfinite(metric.spread) else ""
    return f"{metric.value:,.{places}f}{spread}"


def _tex(text: str) -> str:
    marks = {"\\": "\\textbackslash{}", "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "±": "$\\pm$"}
    marks |= {mark: "\\" + mark for mark in "&%$#_{}"}
    return "".join(marks.get(letter, letter) for letter in text)
