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
from hmmjax.plots import PHASE_COLORS, ROW_COLORS, words
from hmmjax.plots.style import literal
from hmmjax.report import ribbons
from hmmjax.report.delays import CLOSE, Delay
from hmmjax.report.figures import Picture
from hmmjax.report.frames import Frames
from hmmjax.report.minutes import Minutes
from hmmjax.report.reasons import Change, describe
from hmmjax.report.tables import TITLES, Pair, convention
from hmmjax.stabilize import Row, Stabilized, System
from hmmjax.stabilize.warnings import MIN_DROP, video_score

SHADE = "#CFC0E8"
"""Of probabilities behind a tool's stabilized row."""
DASH = "\N{EN DASH}"
"""Where there is no figure."""
_CONTENTS = (
    ("figures", "Figures"), ("videos", "Videos"), ("changes", "Changes"), ("errors", "Mistakes"),
    ("minutes", "Minutes"), ("calibration", "Calibration"), ("model", "Operations"), ("recognizer", "Recognizer"),
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
    with literal(figure):
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
    delays: Sequence[Delay],
    warnings: Sequence[str],
    changes: Sequence[Change],
    minutes: dict[str, Minutes | None],
    pictures: Sequence[Picture],
    frames: Frames | None,
) -> str:
    """The whole page as text."""
    systems = list(dict.fromkeys(n for row in table for n in row.metrics))
    more_systems = [n for n in systems if any(n in row.metrics for row in more)] or systems
    shown = {p.section for p in pictures}
    has = {name: name in shown for name in ("confusion", "curves", "calibration", "model", "recognizer", "costs")}
    with_phases = result.smoothed.phases is not None or result.raw.phases is not None
    with_tools = result.raw.tools is not None
    phases = [words(n) for n in phase_names] if with_phases else []
    tools = [words(n) for n in tool_names] if with_tools else []
    # The rows of any strip: videos without annotation lack the truth.
    strip_names = max((list(ribbons.rows(result, i, "phases")) for i in range(len(result.ids))), key=len)
    seconds = [float(f[-1] - f[0]) / result.fps + result.step_seconds for f in result.frames]
    table_minutes = [m for m in (_minutes(track, t, result.ids) for track, t in minutes.items()) if m]
    known = any(not math.isnan(c.right) for c in changes)
    sections = {
        "figures": bool(table), "videos": True, "changes": bool(changes), "errors": has["confusion"] or has["curves"],
        "minutes": bool(table_minutes), **{k: has[k] for k in ("calibration", "model", "recognizer", "costs")},
    }  # fmt: skip
    tool_rows = [(n, ROW_COLORS[n]) for n in ribbons.rows(result, 0, "tools")]
    return render(
        "report.html.j2",
        script=asset("viewer.js"),
        title=title,
        subtitle=_subtitle(result, seconds),
        headline=_headline(table, pairs),
        contents=[(key, name) for key, name in _CONTENTS if sections[key]],
        frames=f"{sum(map(len, result.frames)):,}",
        protocol=result.protocol,
        warnings=warnings,
        notices=[n for n in result.notices if n not in warnings],
        table=[_row(row, systems) for row in table],
        more=[_row(row, more_systems) for row in more],
        systems=systems,
        titles=TITLES,
        pairs=pairs,
        delays=delays,
        close=f"{CLOSE:g}",
        classes=[_class_group(row) for row in classes],
        videos=[
            {
                "id": video,
                "strip": ribbons.strip(result, i, max(seconds)),
                "rows": ribbons.row_names(result, i, tools),
                "numbers": _numbers(result, i),
            }
            for i, video in enumerate(result.ids)
        ],
        longest=f"{max(seconds) / 60:.0f}",
        axis=ribbons.axis(max(seconds)),
        strip_rows=", ".join(strip_names) if strip_names else "",
        phase_legend=[(n, PHASE_COLORS[p % len(PHASE_COLORS)]) for p, n in enumerate(phases)],
        tool_legend=[pair for pair in tool_rows if pair[0] != "online"] if with_tools else [],
        tool_legend_viewer=[*tool_rows, ("probability of presence", SHADE)],
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
                "colors": PHASE_COLORS,
                "rows": ROW_COLORS,
                "shade": SHADE,
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


#: The comparison by video that goes with a figure.
_PAIRED = {
    "phase accuracy, pooled": "phase accuracy",
    "phase Jaccard, strict": "phase Jaccard",
    "tool mAP": "tool AP",
    "tool F1, macro": "tool F1",
}


def _headline(table: Sequence[Row], pairs: Sequence[Pair]) -> list[dict[str, str]]:
    """Up to four figures to see first: raw, then stabilized, and what the comparison video by video says of them."""
    by_video = {p.figure: _paired(p) for p in pairs}
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
            "stabilized": _value(rows[name], "M_H"),
            "truth": "" if rows[name].truth is None else f"{rows[name].truth:,.0f}",
            "paired": by_video.get(_PAIRED.get(name, ""), "") if "M" in rows[name].metrics else "",
        }
        for name in chosen
    ]


def _paired(p: Pair) -> str:
    text = f"better in {p.better} of {p.videos} videos; mean difference by video {p.difference:+.3f}"
    if math.isnan(p.low):
        return text
    return f"{text}, 95 % [{p.low:+.3f}, {p.high:+.3f}]{', which holds 0' if p.low <= 0 <= p.high else ''}"


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
    return {
        "figure": row.figure,
        "cells": cells,
        "truth": "" if row.truth is None else f"{row.truth:,.0f}",
        "convention": convention(row),
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


def _numbers(result: Stabilized, i: int) -> list[dict[str, Any]]:
    """What stands beside a strip: for each track how right it was and is, then how often it changed and changes."""
    lines: list[dict[str, Any]] = []
    for track, what, figure in (("phases", "changes", "accuracy"), ("tools", "on/off", "tool F1")):
        raw, smooth, truth = (getattr(x, track) for x in (result.raw, result.smoothed, _truth(result)))
        if raw is None or smooth is None:
            continue
        if truth is not None and not result.fused:
            before, after = (video_score(track, truth[i], values[i]) for values in (raw, smooth))
            if not math.isnan(before):
                worse = after < before - MIN_DROP
                mark = " worse" if worse else ""
                lines.append({"text": f"{figure} {_three(before)} → {_three(after)}{mark}", "worse": worse})
        counts = ribbons.count_changes(result, i, track)
        # Raw and stabilized are counted in every frame, so a truth with gaps is no count to set beside them.
        whole = truth is not None and bool((truth[i] >= 0).all())
        true = f" (truth {counts['truth']})" if whole and "truth" in counts else ""
        lines.append({"text": f"{what} {counts['raw']} → {counts['stabilized']}{true}", "worse": False})
    return lines


def _truth(result: Stabilized) -> System:
    return System("truth", result.truth_phases, result.truth_tools)


def _three(share: float) -> str:
    return f"{share:.3f}".removeprefix("0")


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
    ends = bands if bands is not None else None if table.deviation is None else table.interval()
    rows = []
    for i, video in enumerate(ids):
        cells = []
        for c in range(len(table.names)):
            raw, truth = table.raw[i, c], table.truth[i, c]
            said = [f"raw {raw:.1f}"] * bool(not np.isnan(raw)) + [f"truth {truth:.1f}"] * bool(not np.isnan(truth))
            cells.append(
                {
                    "value": f"{table.stabilized[i, c]:.1f}",
                    "spread": "" if ends is None else f"{ends[0][i, c]:.1f} to {ends[1][i, c]:.1f}",
                    "said": "; ".join(said),
                }
            )
        rows.append({"id": video, "cells": cells})
    parts = []
    if bands is not None:
        known = ~np.isnan(table.truth)
        inside = (table.truth >= bands[0] - 1e-9) & (table.truth <= bands[1] + 1e-9) & known
        parts.append(
            "In each cell: stabilized minutes, an 80 % interval from the errors on the other annotated videos, and "
            f"what was read and is true. The intervals hold {int(inside.sum())} of {int(known.sum())} true values."
        )
    if table.deviation is not None:
        said, total = table.coverage()
        if bands is None:
            parts.append("In each cell: stabilized minutes and the model's own 95 % interval.")
        if total:
            parts.append(
                f"The model's own 95 % intervals, which know nothing of errors that it cannot see, hold {said} of "
                f"{total}{': do not rely on them' if said < 0.85 * total else ''}."
            )
    what = "Minutes of phases" if track == "phases" else "Minutes of tool use"
    return {
        "title": what,
        "names": [words(n) for n in table.names],
        "rows": rows,
        "note": " ".join(parts),
        "errors": _errors(table),
    }


def _errors(table: Minutes) -> dict[str, Any]:
    """Median and 90 % quantile of each class's errors, for the systems that have minutes; empty without truth."""
    known = int((~np.isnan(table.truth).any(1)).sum())
    shown = [s for s in ("raw", "stabilized") if known and not np.isnan(getattr(table, s)).all()]
    figures = {s: table.errors(s) for s in shown}
    rows = [
        {
            "name": words(name),
            "truth": f"{np.nanmean(table.truth[:, c]):.1f}",
            "cells": [f"{figures[s][k][c]:.1f}" for s in shown for k in (0, 1)],
        }
        for c, name in enumerate(table.names)
        if shown
    ]
    # Of ten videos nine tenths are all.
    return {"systems": shown, "rows": rows, "videos": known, "most": "nine in ten" if known > 10 else "all"}
