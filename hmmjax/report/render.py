"""The page itself: plain values in, one HTML file without any link to elsewhere out."""

import base64
import io
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

import hmmjax
from hmmjax.plots import PHASE_COLOURS, ROW_COLOURS, words
from hmmjax.report import ribbons
from hmmjax.report.figures import Picture
from hmmjax.report.frames import Frames
from hmmjax.report.reasons import Change, describe
from hmmjax.report.spent import Minutes
from hmmjax.report.tables import TITLES, Pair
from hmmjax.stabilize import Row, Stabilized

DASH = "\N{EN DASH}"
"""Where there is no figure."""
_CONTENTS = (
    ("figures", "Figures"), ("videos", "Videos"), ("changes", "Changes"), ("errors", "Mistakes"),
    ("minutes", "Minutes"), ("calibration", "Calibration"), ("model", "Operations"), ("recogniser", "Recogniser"),
    ("costs", "Costs"),
)  # fmt: skip


def render(template: str, **values: Any) -> str:
    """A template of this package filled in; what is not marked safe is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hmmjax.report", "template"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(template).render(style=asset("style.css"), **values)


def asset(name: str) -> str:
    """A text file of the template folder."""
    return (files("hmmjax.report") / "template" / name).read_text(encoding="utf-8")


def embed(figure: Any) -> str:
    """A matplotlib figure as an SVG data URI."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def page(
    result: Stabilized,
    *,
    title: str,
    phase_names: Sequence[str],
    tool_names: Sequence[str],
    table: Sequence[Row],
    more: Sequence[Row],
    classes: Sequence[Row],
    pairs: Sequence[Pair],
    changes: Sequence[Change],
    minutes: dict[str, Minutes | None],
    pictures: Sequence[Picture],
    frames: Frames | None,
) -> str:
    """The whole page as text."""
    systems = list(dict.fromkeys(n for row in table for n in row.metrics))
    more_systems = [n for n in systems if any(n in row.metrics for row in more)] or systems
    shown = {p.section for p in pictures}
    has = {name: name in shown for name in ("confusion", "curves", "calibration", "model", "recogniser", "costs")}
    with_phases = result.smoothed.phases is not None or result.raw.phases is not None
    with_tools = result.raw.tools is not None
    phases = [words(n) for n in phase_names] if with_phases else []
    tools = [words(n) for n in tool_names] if with_tools else []
    strip_names = [n for n in ribbons.rows(result, 0, "phases")]
    seconds = [float(f[-1] - f[0]) / result.fps + result.step_seconds for f in result.frames]
    table_minutes = [m for m in (_minutes(track, t, result.ids) for track, t in minutes.items()) if m]
    known = any(not math.isnan(c.right) for c in changes)
    sections = {
        "figures": bool(table), "videos": True, "changes": bool(changes), "errors": has["confusion"] or has["curves"],
        "minutes": bool(table_minutes), **{k: has[k] for k in ("calibration", "model", "recogniser", "costs")},
    }  # fmt: skip
    tool_rows = [(n, ROW_COLOURS[n]) for n in ribbons.rows(result, 0, "tools")]
    return render(
        "report.html.j2",
        script=asset("viewer.js"),
        title=title,
        subtitle=_subtitle(result, seconds),
        headline=_headline(table),
        contents=[(key, name) for key, name in _CONTENTS if sections[key]],
        frames=f"{sum(map(len, result.frames)):,}",
        protocol=result.protocol,
        notices=result.notices,
        table=[_row(row, systems) for row in table],
        more=[_row(row, more_systems) for row in more],
        systems=systems,
        titles=TITLES,
        pairs=pairs,
        classes=[_class_group(row) for row in classes],
        videos=[
            {"id": video, "strip": ribbons.strip(result, i, max(seconds)), "numbers": _numbers(result, i)}
            for i, video in enumerate(result.ids)
        ],
        longest=f"{max(seconds) / 60:.0f}",
        axis=ribbons.axis(max(seconds)),
        strip_rows=", ".join(strip_names) if strip_names else "",
        phase_legend=[(n, PHASE_COLOURS[p % len(PHASE_COLOURS)]) for p, n in enumerate(phases)],
        tool_legend=[pair for pair in tool_rows if pair[0] != "online"] if with_tools else [],
        tool_legend_viewer=[*tool_rows, ("probability of presence", "#B3D4E8")],
        tools=tools,
        changes=[_change(result, c, phase_names, tool_names, frames) for c in changes],
        truth_known=known,
        share_right=_share_right(changes) if known else "",
        minutes=table_minutes,
        pictures=[
            {
                "name": p.name,
                "section": p.section,
                "caption": p.caption,
                "source": embed(p.figure),
                "csv": f"tables/{p.name}.csv" if p.rows else "",
            }
            for p in pictures
        ],
        has=has,
        version=hmmjax.__version__,
        model=str(result.model.metadata.get("method", "")) or "given",
        data=_json(
            {
                "videos": [ribbons.video_data(result, i) for i in range(len(result.ids))],
                "phases": phases,
                "tools": tools,
                "colours": PHASE_COLOURS,
                "rows": ROW_COLOURS,
            }
        ),
    )


def _json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False).replace("<", "\\u003c")


def _subtitle(result: Stabilized, seconds: Sequence[float]) -> str:
    count = len(result.ids)
    named = ", ".join(result.ids) if count <= 3 else f"{result.ids[0]} to {result.ids[-1]}"
    return f"{count} video{'s' * (count != 1)} ({named}), {sum(seconds) / 3600:.1f} hours, a frame every " + (
        f"{result.step_seconds:g} s"
    )


def _headline(table: Sequence[Row]) -> list[dict[str, str]]:
    """Up to four figures to see first: raw, then stabilised."""
    wanted = ("phase accuracy, pooled", "phase Jaccard, strict", "tool mAP", "tool F1, macro", "phase changes",
              "tool on/off changes")  # fmt: skip
    rows = {row.figure: row for row in table if "M_H" in row.metrics}
    with_raw = [n for n in wanted if n in rows and "M" in rows[n].metrics]
    chosen = (with_raw + [n for n in wanted if n in rows and n not in with_raw])[:4]
    chosen = [n for n in wanted if n in chosen]
    return [
        {
            "figure": name + ("" if "M" in rows[name].metrics else ", from the tools alone"),
            "raw": _value(rows[name], "M") if "M" in rows[name].metrics else "",
            "stabilised": _value(rows[name], "M_H"),
            "truth": "" if rows[name].truth is None else f"{rows[name].truth:,.0f}",
        }
        for name in chosen
    ]


def _value(row: Row, system: str) -> str:
    metric = row.metrics.get(system)
    if metric is None or math.isnan(metric.value):
        return DASH
    if metric.unit:
        return f"{metric.value:,.1f}" if metric.unit in ("seconds", "ratio") else f"{metric.value:,.0f}"
    return f"{metric.value:.4f}"


def _row(row: Row, systems: Sequence[str]) -> dict[str, Any]:
    best = _best(row)
    cells = []
    for name in systems:
        metric = row.metrics.get(name)
        spread = ""
        if metric is not None and math.isfinite(metric.spread):
            spread = f"{metric.spread:.3f}" if not metric.unit else f"{metric.spread:,.1f}"
        unit = f" {metric.unit}" if metric is not None and metric.unit == "seconds" else ""
        cells.append({"value": _value(row, name) + unit, "spread": spread, "best": name == best})
    over = next((m.spread_over for m in row.metrics.values() if m.spread_over and math.isfinite(m.spread)), "")
    return {
        "figure": row.figure,
        "cells": cells,
        "truth": "" if row.truth is None else f"{row.truth:,.0f}",
        "convention": "; ".join(row.conventions) + (f"; ± over {over}" if over else ""),
    }


def _best(row: Row) -> str | None:
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


def _class_group(row: Row) -> dict[str, Any]:
    systems = list(row.metrics)
    first = row.metrics[systems[0]]
    lines = [
        {
            "name": words(name),
            "cells": [DASH if math.isnan(x) else f"{x:.4f}" for x in (row.metrics[s].per_class[k] for s in systems)],
        }
        for k, name in enumerate(first.class_names)
    ]
    return {"figure": row.figure, "systems": systems, "rows": lines, "convention": "; ".join(row.conventions)}


def _numbers(result: Stabilized, i: int) -> list[str]:
    lines = []
    for track, what in (("phases", "phase changes"), ("tools", "on/off")):
        counts = ribbons.count_changes(result, i, track)
        if "raw" in counts and "stabilised" in counts:
            lines.append(f"{counts['raw']} → {counts['stabilised']} {what}")
            if "truth" in counts:
                lines.append(f"truth {counts['truth']}")
    return lines


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


def _change(
    result: Stabilized, c: Change, phase_names: Sequence[str], tool_names: Sequence[str], frames: Frames | None
) -> dict[str, Any]:
    text, weights = describe(c, phase_names, tool_names)
    thumbs = []
    if frames is not None:
        numbers = result.frames[c.video]
        wanted = sorted({c.first, (c.first + c.last) // 2, c.last})
        found = (frames.thumbnail(result.ids[c.video], int(numbers[k])) for k in wanted)
        thumbs = [uri for uri in found if uri]
    right = DASH
    if not math.isnan(c.right):
        right = "with the change" if c.right > 0.5 else "with what was read" if c.raw_right > 0.5 else "with neither"
    return {
        "id": result.ids[c.video],
        "at": f"{_clock(c.start)} to {_clock(c.end)}",
        "start": c.start,
        "end": c.end,
        "text": text,
        "weights": weights,
        "right": right,
        "thumbs": thumbs,
    }


def _share_right(changes: Sequence[Change]) -> str:
    known = [c for c in changes if not math.isnan(c.right)]
    right = sum(c.right > 0.5 for c in known)
    return f"Of these {len(known)} runs the annotation agrees with the change in {right}."


def _minutes(track: str, table: Minutes | None, ids: Sequence[str]) -> dict[str, Any] | None:
    if table is None:
        return None
    bands = table.bands()
    half = bands if bands is not None else None if table.deviation is None else 1.96 * table.deviation
    rows = []
    for i, video in enumerate(ids):
        cells = []
        for c in range(len(table.names)):
            truth = table.truth[i, c]
            cells.append(
                {
                    "value": f"{table.stabilised[i, c]:.1f}",
                    "spread": "" if half is None else f"{half[i, c]:.1f}",
                    "truth": "" if np.isnan(truth) else f"{truth:.1f}",
                }
            )
        rows.append({"id": video, "cells": cells})
    parts = []
    if bands is not None:
        inside = np.abs(table.stabilised - table.truth) <= bands + 1e-9
        known = ~np.isnan(table.truth)
        parts.append(
            "± is a 90 % band from the errors on the other annotated videos; it holds "
            f"{int((inside & known).sum())} of {int(known.sum())} true values."
        )
    if table.deviation is not None:
        said, total = table.coverage()
        if bands is None:
            parts.append("± is 1.96 standard deviations of the posterior.")
        if total:
            parts.append(
                f"The model's own 95 % intervals, which know nothing of errors that it cannot see, hold {said} of "
                f"{total}{': do not rely on them' if said < 0.85 * total else ''}."
            )
    what = "Minutes of phases" if track == "phases" else "Minutes of tool use"
    return {"title": what, "names": [words(n) for n in table.names], "rows": rows, "note": " ".join(parts)}
