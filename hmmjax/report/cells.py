"""Format metrics for the page: table rows, tables of classes, and the tiles at the top."""

import math
from collections.abc import Sequence
from typing import Any

from hmmjax.plots import words
from hmmjax.report.tables import Pair, convention
from hmmjax.stabilize import Row
from hmmjax.stabilize.warnings import MIN_DROP

DASH = "\N{EN DASH}"
"""Stands for an undefined value."""
#: The paired comparison over videos that belongs to a metric.
_PAIRED = {
    "phase accuracy, pooled": "phase accuracy",
    "phase Jaccard, strict": "phase Jaccard",
    "tool mAP": "tool AP",
    "tool F1, macro": "tool F1",
}


def tiles(table: Sequence[Row], pairs: Sequence[Pair]) -> list[dict[str, str]]:
    """Return up to four metrics to show first: raw, stabilized, and their paired comparison over videos."""
    by_video = {p.figure: _paired(p) for p in pairs}
    wanted = ("phase accuracy, pooled", "phase Jaccard, strict", "tool mAP", "tool F1, macro", "phase changes",
              "tool on/off changes")  # fmt: skip
    rows = {row.figure: row for row in table if "M_H" in row.metrics}
    with_raw = [n for n in wanted if n in rows and "M" in rows[n].metrics]
    chosen = (with_raw + [n for n in wanted if n in rows and n not in with_raw])[:4]
    chosen = [n for n in wanted if n in chosen]
    return [
        {
            "figure": name + ("" if "M" in rows[name].metrics else ", inferred from tools"),
            "raw": format_value(rows[name], "M") if "M" in rows[name].metrics else "",
            "stabilized": format_value(rows[name], "M_H"),
            "truth": "" if rows[name].truth is None else f"{rows[name].truth:,.0f}",
            "paired": by_video.get(_PAIRED.get(name, ""), "") if "M" in rows[name].metrics else "",
        }
        for name in chosen
    ]


def _paired(p: Pair) -> str:
    text = f"better in {p.better} of {p.videos} videos; mean difference per video {p.difference:+.3f}"
    if math.isnan(p.low):
        return text
    return f"{text}, 95 % interval [{p.low:+.3f}, {p.high:+.3f}]{', which includes 0' if p.low <= 0 <= p.high else ''}"


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
        spread = ""
        if metric is not None and math.isfinite(metric.spread):
            spread = f"{metric.spread:.3f}" if not metric.unit else f"{metric.spread:,.1f}"
        unit = f" {metric.unit}" if metric is not None and metric.unit == "seconds" else ""
        cells.append({"value": format_value(row, name) + unit, "spread": spread, "best": name == best})
    return {
        "figure": row.figure,
        "cells": cells,
        "truth": "" if row.truth is None else f"{row.truth:,.0f}",
        "convention": convention(row),
    }


def _best(row: Row) -> str | None:
    """Return the best system of a row; None if the metric has no better or worse."""
    values = {n: m.value for n, m in row.metrics.items() if not math.isnan(m.value)}
    if len(values) < 2:
        return None
    unit = next(iter(row.metrics.values())).unit
    goal: Any
    if row.truth is not None:
        goal = {n: -abs(v - row.truth) for n, v in values.items()}
    elif unit == "ratio":
        goal = {n: -abs(v - 1) for n, v in values.items()}
    elif unit == "seconds":
        goal = {n: -abs(v) for n, v in values.items()}
    elif unit:
        return None
    else:
        goal = {n: -v if "calibration" in row.figure else v for n, v in values.items()}
    return max(goal, key=lambda n: goal[n])


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
