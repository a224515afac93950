"""The tables of the report: metrics of all systems, paired comparisons over videos, and metrics per class."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hmmjax import metrics
from hmmjax.io import CHOLEC80_PHASES
from hmmjax.metrics import Metric
from hmmjax.stabilize import Row, Stabilized, System
from hmmjax.stabilize.gaps import annotated_span
from hmmjax.stabilize.table import compare_recognizers

#: Names of the systems on the page.
TITLES = {"M": "raw (M)", "M_H": "stabilized (M_H)", "M_H online": "online (M_H, past only)"}


@dataclasses.dataclass(frozen=True)
class Pair:
    """Comparison of raw and stabilized predictions, paired over videos.

    Attributes:
        figure: name of the metric.
        convention: how it is measured.
        difference: mean over videos of stabilized minus raw.
        low: lower end of the 95 % interval of the difference; NaN with fewer than two videos.
        high: upper end of the interval.
        better: number of videos in which stabilized is better.
        equal: number of videos in which both are equal.
        videos: number of videos compared.
        level: level of the interval.
        interval: method of the interval.
        split: how the videos relate to the videos learned from.
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
    """Return raw, stabilized and online; without raw if it lacks frames, as one of several recognizers may."""
    outputs = [*(result.raw.phases or []), *(result.raw.tools or [])]
    complete = all((x >= 0).all() for x in outputs)
    return [*([result.raw] if complete else []), result.smoothed, result.filtered]


def main_table(result: Stabilized) -> list[Row]:
    """Return the table of `hmmjax stabilize`, with relaxed boundaries added if the phases are Cholec80's."""
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


def more_metrics(result: Stabilized) -> list[Row]:
    """Compute further metrics: segments, calibration, and other definitions of average precision."""
    rows: list[Row] = []
    phases = phases_without_gaps(result)
    if phases:
        truth, predicted = phases
        wanted: list[tuple[str, Callable[..., Metric]]] = [
            ("edit score", metrics.edit_score),
            *((f"segmental F1@{100 * o:g}", _partial(metrics.segmental_f1, overlap=o)) for o in (0.1, 0.25, 0.5)),
            ("over-segmentation", metrics.over_segmentation),
        ]
        rows += [Row(name, {n: measure(truth, x) for n, x in predicted.items()}) for name, measure in wanted]
    phases = annotated(result, "phases", lambda s: s.phases, floats=True)
    if phases:
        truth, predicted = phases
        rows.append(
            Row(
                "phase calibration error",
                {n: metrics.phase_calibration(truth, x, bins=10) for n, x in predicted.items()},
            )
        )
    tools, ranking = annotated(result, "tools", lambda s: s.tools), annotated(result, "tools", lambda s: s.tool_ranking)
    if tools and ranking:
        (truth, predicted), (_, ranked) = tools, ranking
        for definition in ("voc-all-points", "voc-11-point", "m2cai16"):
            # The official script's thresholds are evenly spaced, so that it measures probabilities, not their order.
            found = {
                n: metrics.average_precision(truth, x, definition=definition, names=result.tool_names)
                for n, x in (predicted if definition == "m2cai16" else ranked).items()
            }
            rows.append(Row(f"tool mAP, {definition}", found))
        found = {
            n: metrics.average_precision(truth, x, mean="videos-then-classes", names=result.tool_names)
            for n, x in ranked.items()
        }
        rows.append(Row("tool mAP, per video", found))
    tools = annotated(result, "tools", lambda s: s.tools, floats=True)
    if tools:
        truth, predicted = tools
        rows.append(
            Row(
                "tool calibration error", {n: metrics.tool_calibration(truth, x, bins=10) for n, x in predicted.items()}
            )
        )
    return _with_protocol(result, rows)


def _with_protocol(result: Stabilized, rows: Sequence[Row]) -> list[Row]:
    """Add the protocol under which the rows were measured."""
    return [
        dataclasses.replace(
            row, metrics={n: dataclasses.replace(m, split=result.protocol) for n, m in row.metrics.items()}
        )
        for row in rows
    ]


def gain(row: Row) -> float:
    """Return by how much stabilized is better than raw; NaN if either is undefined."""
    difference = row.metrics["M_H"].value - row.metrics["M"].value
    return -difference if "calibration" in row.figure else difference


def per_class(result: Stabilized) -> list[Row]:
    """Compute metrics per class: precision, recall and strict Jaccard of phases, AP and F1 of tools."""
    rows: list[Row] = []
    phases = annotated(result, "phases", lambda s: s.phase_labels())
    if phases:
        truth, predicted = phases
        table = {n: metrics.phase_metrics(truth, x, names=result.phase_names) for n, x in predicted.items()}
        for k, name in ((1, "precision"), (2, "recall"), (4, "Jaccard")):
            rows.append(Row(f"phase {name}", {n: found[k] for n, found in table.items()}))
    tools = annotated(result, "tools", lambda s: s.tools)
    ranking = annotated(result, "tools", lambda s: s.tool_ranking)
    if tools and ranking:
        (truth, predicted), (_, ranked) = tools, ranking
        rows.append(
            Row(
                "tool AP",
                {n: metrics.average_precision(truth, x, names=result.tool_names) for n, x in ranked.items()},
            )
        )
        rows.append(
            Row("tool F1", {n: metrics.tool_f1(truth, x, names=result.tool_names) for n, x in predicted.items()})
        )
    return _with_protocol(result, rows)


def pairs(result: Stabilized) -> list[Pair]:
    """Compare stabilized with raw in each video."""
    measured: list[tuple[str, dict[str, Metric]]] = []
    phases = annotated(result, "phases", lambda s: s.phase_labels())
    if phases and {"M", "M_H"} <= set(phases[1]):
        truth, predicted = phases
        measured.append(("phase accuracy", {n: metrics.accuracy(truth, x) for n, x in predicted.items()}))
        options = {"names": result.phase_names, "mean": "classes-then-videos"}
        measured.append(("phase Jaccard", {n: metrics.jaccard(truth, x, **options) for n, x in predicted.items()}))
    tools = annotated(result, "tools", lambda s: s.tools)
    ranking = annotated(result, "tools", lambda s: s.tool_ranking)
    if tools and ranking and {"M", "M_H"} <= set(tools[1]):
        (truth, predicted), (_, ranked) = tools, ranking
        options = {"names": result.tool_names, "mean": "classes-then-videos"}
        measured.append(("tool AP", {n: metrics.average_precision(truth, x, **options) for n, x in ranked.items()}))
        measured.append(("tool F1", {n: metrics.tool_f1(truth, x, **options) for n, x in predicted.items()}))
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
    result: Stabilized, track: str, values: Callable[[System], Any], *, floats: bool = False
) -> tuple[list[np.ndarray], dict[str, list[np.ndarray]]] | None:
    """Return the truth and each system's predictions in annotated videos; None if there are none.

    Args:
        result: from `hmmjax.stabilize.stabilize`.
        track: "phases" or "tools".
        values: returns a system's predictions, one array per video.
        floats: use only systems that predict probabilities.
    """
    truth = getattr(result, f"truth_{track}") or []
    keep = [i for i, labels in enumerate(truth) if ((labels >= 0).all(-1) if labels.ndim == 2 else labels >= 0).any()]
    predicted: dict[str, list[np.ndarray]] = {}
    for system in systems(result):
        given = getattr(system, track)
        if given is None or (floats and given[0].dtype.kind != "f"):
            continue
        array = values(system)
        predicted[system.name] = [array[i] for i in keep]
    return ([truth[i] for i in keep], predicted) if keep and predicted else None


def phases_without_gaps(result: Stabilized) -> tuple[list[np.ndarray], dict[str, list[np.ndarray]]] | None:
    """Return true and predicted phases from the first to the last label; None if no video shows when phases change.

    Args:
        result: from `hmmjax.stabilize.stabilize`. Videos of which too many frames lack a label are left out, see
            `hmmjax.stabilize.gaps.annotated_span`.
    """
    found = annotated(result, "phases", lambda s: s.phase_labels())
    if found is None:
        return None
    spans = [(i, *span) for i, t in enumerate(found[0]) if (span := annotated_span(t)) is not None]
    predicted = {name: [x[i][span] for i, span, _ in spans] for name, x in found[1].items()}
    return ([filled for _, _, filled in spans], predicted) if spans else None


def _partial(function: Callable[..., Metric], **fixed: Any) -> Callable[..., Metric]:
    return lambda *args: function(*args, **fixed)


def class_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one plain row per metric, class and system."""
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


def convention(row: Row) -> str:
    """Describe how a row is measured, and what ± is over."""
    over = next((m.spread_over for m in row.metrics.values() if m.spread_over and math.isfinite(m.spread)), "")
    return "; ".join(row.conventions) + (f"; ± over {over}" if over else "")
