"""The table of metrics: recognizer M and stabilized M_H, every metric with its convention."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hmmjax import metrics
from hmmjax.io.names import Names, resolve_names
from hmmjax.metrics import Metric
from hmmjax.stabilize.gaps import SPARED, annotated_span, closest
from hmmjax.stabilize.systems import System, is_complete, restrict_truth


@dataclasses.dataclass(frozen=True)
class Row:
    """One metric of several systems.

    Attributes:
        figure: the metric's name.
        metrics: the value of each system; a system that does not predict the track is absent.
        truth: the value of the ground truth itself, for counts of changes; None otherwise.
    """

    figure: str
    metrics: dict[str, Metric]
    truth: float | None = None

    @property
    def conventions(self) -> list[str]:
        """How the metric is measured; if that differs between systems, one entry per kind with the systems' names."""
        of: dict[str, list[str]] = {}
        for name, m in self.metrics.items():
            of.setdefault(f"{m.convention} ({describe_sample(m)})", []).append(name)
        return list(of) if len(of) == 1 else [f"{', '.join(names)}: {text}" for text, names in of.items()]

    def records(self) -> list[dict[str, Any]]:
        """Return plain rows for csv and JSON, one per system; None if the metric is undefined."""
        rows = [
            {
                "figure": self.figure,
                "system": system,
                "value": finite_or_none(m.value),
                "unit": m.unit,
                "spread": finite_or_none(m.spread),
                "spread_over": m.spread_over,
                "convention": m.convention,
                "videos": m.n_videos,
                "frames": m.n_frames,
                "classes": m.n_classes,
                "left_out": "; ".join(m.left_out),
                "split": m.split,
            }
            for system, m in self.metrics.items()
        ]
        if self.truth is not None and rows:
            rows.append({**rows[0], "system": "truth", "value": self.truth, "spread": None})
        return rows


def finite_or_none(value: float) -> float | None:
    """Return the number, or None for NaN and infinities, which JSON does not have.

    Args:
        value: any number.
    """
    return value if math.isfinite(value) else None


def describe_sample(metric: Metric) -> str:
    """Describe the videos, frames and classes that a metric was measured on."""
    parts = [f"{metric.n_videos} video{'s' * (metric.n_videos != 1)}", f"{metric.n_frames:,} frames"]
    if metric.n_classes:
        parts.append(f"{metric.n_classes} classes")
    if metric.left_out:
        parts.append("left out: " + ", ".join(metric.left_out))
    return ", ".join(parts)


def compare_systems(
    systems: Sequence[System],
    truth_phases: Sequence[np.ndarray] | None,
    truth_tools: Sequence[np.ndarray] | None,
    *,
    phase_names: Names | None = None,
    tool_names: Names | None = None,
    rows_per_second: float = 1.0,
    relaxed: bool = False,
    split: str = "",
) -> list[Row]:
    """Compute the metrics of each system on the videos that have truth.

    Args:
        systems: what is compared, on the same videos and frames.
        truth_phases: for each video (n,) int labels, -1 for unlabeled; None without annotated phases.
        truth_tools: for each video (n, K) int labels, -1 for unlabeled; None without annotated tools.
        phase_names: (L,) names of the phases, or "cholec80" and the like; None numbers them.
        tool_names: (K,) names of the tools, or "cholec80" and the like; None numbers them.
        rows_per_second: frame rate, for relaxed boundaries.
        relaxed: add metrics with relaxed boundaries, in the official version (with its bug) and a corrected one; they
            need Cholec80's phases in their standard order.
        split: name of the set of videos.

    Returns:
        Rows in a fixed order: tools first, then phases.

    Raises:
        ValueError: arrays do not fit together, or names are unknown or too few.
    """
    phase_names, tool_names = resolve_names(phase_names, "phases"), resolve_names(tool_names, "tools")
    rows = []
    tools = [s for s in systems if s.tools is not None]
    keep = _with_truth(truth_tools)
    if truth_tools is not None and keep and tools:
        truth = [truth_tools[i] for i in keep]
        values = {s.name: [s.tools[i] for i in keep] for s in tools if s.tools is not None}
        ranks = {s.name: [s.tool_ranking[i] for i in keep] for s in tools if s.tool_ranking is not None}
        ap = {n: metrics.average_precision(truth, x, names=tool_names) for n, x in ranks.items()}
        f1 = {n: metrics.tool_f1(truth, x, names=tool_names) for n, x in values.items()}
        count = functools.partial(metrics.tool_changes, names=tool_names)
        rows += [Row("tool mAP", ap), Row("tool F1, macro", f1)]
        rows.append(_changes("tool on/off changes", count, truth, values))
    phases = [s for s in systems if s.phases is not None]
    keep = _with_truth(truth_phases)
    if truth_phases is not None and keep and phases:
        truth = [truth_phases[i] for i in keep]
        labels = {s.name: [s.phase_labels()[i] for i in keep] for s in phases}
        rows += _phase_rows(truth, labels, phase_names, rows_per_second, relaxed)
    if split:
        rows = [
            dataclasses.replace(row, metrics={n: dataclasses.replace(m, split=split) for n, m in row.metrics.items()})
            for row in rows
        ]
    return rows


def compare_recognizers(
    recognizers: Sequence[System],
    others: Sequence[System],
    truth_phases: Sequence[np.ndarray] | None,
    truth_tools: Sequence[np.ndarray] | None,
    **options: Any,
) -> list[Row]:
    """Compute the metrics of recognizers that may lack outputs, each where it predicts.

    Args:
        recognizers: systems with -1 or NaN where they do not predict.
        others: systems that predict every frame.
        truth_phases: for each video (n,) int labels, -1 for unlabeled; None without annotated phases.
        truth_tools: for each video (n, K) int labels, -1 for unlabeled; None without annotated tools.
        options: further arguments of `compare_systems`.
    """
    if len(recognizers) == 1 and is_complete(recognizers[0]):
        return compare_systems([*recognizers, *others], truth_phases, truth_tools, **options)
    rows = compare_systems(others, truth_phases, truth_tools, **options)
    own = []
    for r in recognizers:
        truth = restrict_truth(r, System("truth", truth_phases, truth_tools))
        own.append({row.figure: row.metrics for row in compare_systems([r], truth.phases, truth.tools, **options)})

    def all_of(row: Row) -> dict[str, Metric]:
        found = [by_name.get(row.figure, {}) for by_name in own]
        return {name: m for metrics in (*found, row.metrics) for name, m in metrics.items()}

    return [dataclasses.replace(row, metrics=all_of(row)) for row in rows]


def _with_truth(truth: Sequence[np.ndarray] | None) -> list[int]:
    return [i for i, labels in enumerate(truth or []) if (labels >= 0).any()]


def _phase_rows(
    truth: list[np.ndarray],
    labels: dict[str, list[np.ndarray]],
    names: Sequence[str] | None,
    rows_per_second: float,
    relaxed: bool,
) -> list[Row]:
    def each(measure: Any, **options: Any) -> dict[str, Any]:
        return {name: measure(truth, x, **options) for name, x in labels.items()}

    # A macro average must not depend on whether names are given: absent phases are left out either way.
    rows = [
        Row("phase accuracy, pooled", each(metrics.accuracy, mean="pooled")),
        Row("phase accuracy, per video", each(metrics.accuracy)),
        Row("phase Jaccard, strict", each(metrics.jaccard, names=names)),
        Row("phase F1, strict", each(metrics.f1, names=names)),
    ]
    if relaxed:
        modes = ("relaxed-official", "relaxed-fixed")
        table = each(metrics.phase_metrics, modes=modes, names=names, fps=rows_per_second)
        for i, first in enumerate(next(iter(table.values()))):
            if first.name in ("accuracy", "Jaccard"):
                mode = modes[i // (len(next(iter(table.values()))) // 2)]
                rows.append(Row(f"phase {first.name}, {mode}", {n: found[i] for n, found in table.items()}))
    rows.append(_changes("phase changes", metrics.phase_changes, truth, labels))
    rows += [Row("phases lost", each(metrics.phases_lost, names=names))]
    rows += [Row("phases gained", each(metrics.phases_gained, names=names))]
    return rows + _timing_rows(truth, labels, rows_per_second)


def timing_left_out(truth: Sequence[np.ndarray] | None) -> list[str]:
    """Say why the table lacks rows on when phase changes are shown, if it does.

    Args:
        truth: for each video (n,) int labels, -1 for unlabeled; None without annotated phases.

    Returns:
        At most one sentence.
    """
    if not (keep := _with_truth(truth)) or any(annotated_span((truth or ())[i]) for i in keep):
        return []
    return [
        "the table does not say which phase changes are found and how late: in every annotated video more than "
        f"{SPARED:.0%} of the frames between the first and the last annotated one lack a phase, so that it is unknown "
        "when phases change"
    ]


def _timing_rows(
    truth: list[np.ndarray], labels: Mapping[str, Sequence[np.ndarray]], rows_per_second: float
) -> list[Row]:
    """Return rows on when phase changes are shown, between the first and the last label of videos without wide gaps."""
    spans = [annotated_span(t) for t in truth]
    keep = [(i, *span) for i, span in enumerate(spans) if span is not None]
    if not keep:
        return []
    gaps = any((truth[i][span] < 0).any() for i, span, _ in keep)
    note = "; frames without a label take the closest" if gaps else ""
    truth = [filled for _, _, filled in keep]
    unlike = len(spans) - len(keep)
    left_out = (f"{unlike} of {len(spans)} videos: too many frames without a label",) if unlike else ()

    def each(measure: Any, **options: Any) -> dict[str, Metric]:
        found = {}
        for name, x in labels.items():
            metric = measure(truth, [closest(x[i][span]) for i, span, _ in keep], fps=rows_per_second, **options)
            convention, missed = metric.convention + note, (*metric.left_out, *left_out)
            found[name] = dataclasses.replace(metric, convention=convention, left_out=missed)
        return found

    total = sum(int(np.count_nonzero(np.diff(t))) for t in truth)
    return [
        Row(f"phase changes found in {metrics.WITHIN:g} s", each(metrics.changes_found), float(total)),
        Row(f"phase change F1 at {metrics.WITHIN:g} s", each(metrics.change_f1)),
        Row("phase delay, median", each(metrics.transition_delay, average="median")),
        Row("phase delay, mean absolute", each(metrics.transition_delay, absolute=True)),
    ]


def _changes(
    figure: str,
    count: Callable[[list[np.ndarray]], Metric],
    truth: list[np.ndarray],
    systems: Mapping[str, Sequence[np.ndarray]],
) -> Row:
    """Count changes of the systems and of the truth: between labeled frames only, if some frames are unlabeled.

    If no two consecutive frames are labeled, the truth has no count, and those of the systems are over all frames.
    """
    known = [np.asarray((t >= 0).all(-1) if t.ndim == 2 else t >= 0) for t in truth]
    if all(k.all() for k in known):
        return Row(figure, {name: count(list(x)) for name, x in systems.items()}, count(truth).value)

    def pieces(videos: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [
            video[run]
            for video, k in zip(videos, known, strict=True)
            for run in np.split(np.arange(len(k)), np.flatnonzero(np.diff(k)) + 1)
            if k[run].all() and len(run) > 1
        ]

    if not pieces(truth):
        return Row(figure, {name: count(list(x)) for name, x in systems.items()})
    found = {
        name: dataclasses.replace(
            measured := count(pieces(x)),
            convention=f"{measured.convention}, between consecutive frames that are both labeled",
            n_videos=len(truth),
            spread=math.nan,
            per_video=(),
        )
        for name, x in systems.items()
    }
    return Row(figure, found, count(pieces(truth)).value)
