"""Format metrics for the page: table rows and tables of classes."""

import math
from collections.abc import Sequence
from typing import Any

from hmmjax.metrics import Metric
from hmmjax.metrics.metric import nan_mean, nan_std
from hmmjax.plots import words
from hmmjax.report.tables import convention
from hmmjax.stabilize import Row
from hmmjax.stabilize.warnings import MIN_DROP

DASH = "\N{EN DASH}"
"""Stands for an undefined value."""


def format_value(row: Row, system: str) -> str:
    """Format the metric of one system."""
    metric = row.metrics.get(system)
    if metric is None or math.isnan(metric.value):
        return DASH
    if metric.unit:
        return f"{metric.value:,.1f}" if metric.unit in ("seconds", "ratio") else f"{metric.value:,.0f}"
    return f"{metric.value:.4f}"


def table_row(row: Row, systems: Sequence[str]) -> dict[str, Any]:
    """Format one row of a table of metrics."""
    best = _best(row)
    cells = []
    for name in systems:
        metric = row.metrics.get(name)
        unit = f" {metric.unit}" if metric is not None and metric.unit == "seconds" else ""
        cells.append({"value": format_value(row, name) + unit, "spread": _spread(metric), "best": name in best})
    return {
        "figure": row.figure,
        "cells": cells,
        "truth": "" if row.truth is None else f"{row.truth:,.0f}",
        "convention": convention(row),
    }


def _spread(metric: Metric | None) -> str:
    """Format what follows the value: ± of a mean; of a total, the mean per video and its ±."""
    if metric is not None and metric.unit in ("changes", "phases") and metric.n_videos > 1:
        return f"{nan_mean(metric.per_video):,.1f} ± {nan_std(metric.per_video):,.1f} per video"
    if metric is None or not math.isfinite(metric.spread):
        return ""
    return f"± {metric.spread:.3f}" if not metric.unit else f"± {metric.spread:,.1f}"


def _best(row: Row) -> set[str]:
    """Return the best systems of a row; none if the metric has no better or worse, or all are equal."""
    values = {n: m.value for n, m in row.metrics.items() if not math.isnan(m.value)}
    if len(set(values.values())) < 2:
        return set()
    unit = next(iter(row.metrics.values())).unit
    goal: Any
    if row.truth is not None:
        goal = {n: -abs(v - row.truth) for n, v in values.items()}
    elif unit == "ratio":
        goal = {n: -abs(v - 1) for n, v in values.items()}
    elif unit in ("seconds", "phases"):
        goal = {n: -abs(v) for n, v in values.items()}
    elif unit:
        return set()
    else:
        goal = {n: -v if "calibration" in row.figure else v for n, v in values.items()}
    return {n for n, x in goal.items() if x == max(goal.values())}


def class_table(row: Row) -> dict[str, Any]:
    """Format a metric of each class."""
    systems = list(row.metrics)
    first = row.metrics[systems[0]]
    compared = {"M", "M_H"} <= set(systems)
    lines = []
    for k, name in enumerate(first.class_names):
        values = {s: row.metrics[s].per_class[k] for s in systems}
        change = values["M_H"] - values["M"] if compared else math.nan
        lines.append(
            {
                "name": words(name),
                "cells": [DASH if math.isnan(x) else f"{x:.4f}" for x in values.values()],
                "change": DASH if math.isnan(change) else f"{change:+.4f}",
                "worse": change < -MIN_DROP,
            }
        )
    return {"figure": row.figure, "systems": systems, "rows": lines, "compared": compared,
            "convention": "; ".join(row.conventions)}  # fmt: skip
