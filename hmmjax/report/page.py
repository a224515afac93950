"""Assemble the page from results, tables and pictures."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import hmmjax
from hmmjax.io.notices import merge_alike
from hmmjax.plots import PHASE_COLORS, ROW_COLORS, words
from hmmjax.report import cells, ribbons, sections, sentences
from hmmjax.report.delays import CLOSE, Delay
from hmmjax.report.frames import Frames
from hmmjax.report.minutes import Minutes
from hmmjax.report.picture import Picture
from hmmjax.report.reasons import Change
from hmmjax.report.render import asset, css_width, embed, render, script_json
from hmmjax.report.summary import Balance, Difference
from hmmjax.report.tables import TITLES, Pair
from hmmjax.report.worse import Worse
from hmmjax.stabilize import Row, Stabilized

SHADE = "#CFC0E8"
"""Color of probabilities behind a tool's stabilized row."""
_CONTENTS = (
    ("summary", "In short"), ("figures", "Metrics"), ("videos", "Videos"), ("changes", "Changes"), ("errors", "Errors"),
    ("minutes", "Minutes"), ("calibration", "Calibration"), ("model", "Operations"), ("recognizer", "Recognizer"),
    ("costs", "Costs"),
)  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class Content:
    """Everything on the page.

    Attributes:
        result: the results.
        title: title of the page.
        phase_names: (L,) names of the phases.
        tool_names: (K,) names of the tools.
        table: the main metrics.
        more: further metrics.
        classes: metrics of each class.
        pairs: paired comparisons over videos.
        delays: delays of phase changes.
        worse: what got worse, for the summary and for the metrics.
        differences: how raw and stabilized predictions differ, per inferred track.
        balances: what both show of the annotations, per inferred and annotated track.
        changes: the longest runs that the model changed.
        minutes: minutes of "phases" and "tools"; None if a track was not inferred.
        pictures: the pictures.
        frames: thumbnails of frames; None without pictures of frames.
    """

    result: Stabilized
    title: str
    phase_names: Sequence[str]
    tool_names: Sequence[str]
    table: Sequence[Row]
    more: Sequence[Row]
    classes: Sequence[Row]
    pairs: Sequence[Pair]
    delays: Sequence[Delay]
    worse: Sequence[Worse]
    differences: Sequence[Difference]
    balances: Sequence[Balance]
    changes: Sequence[Change]
    minutes: dict[str, Minutes | None]
    pictures: Sequence[Picture]
    frames: Frames | None

    @property
    def phases(self) -> list[str]:
        """Readable names of the phases; empty if no system predicts phases."""
        found = self.result.smoothed.phases is not None or self.result.raw.phases is not None
        return [words(n) for n in self.phase_names] if found else []

    @property
    def tools(self) -> list[str]:
        """Readable names of the tools; empty if the recognizer does not predict tools."""
        return [words(n) for n in self.tool_names] if self.result.raw.tools is not None else []


def page(content: Content) -> str:
    """Return the page as HTML."""
    values = {
        **_summary(content),
        **_metrics(content),
        **_videos(content),
        **_changes(content),
        **_pictures(content),
        "minutes": [
            sections.minutes_table(track, table, content.result.ids)
            for track, table in content.minutes.items()
            if table is not None
        ],
    }
    shown = {
        "summary": True, "figures": bool(content.table), "videos": True, "changes": bool(content.changes),
        "errors": values["has"]["confusion"] or values["has"]["curves"], "minutes": bool(values["minutes"]),
        **{key: values["has"][key] for key in ("calibration", "model", "recognizer", "costs")},
    }  # fmt: skip
    contents = [(key, name) for key, name in _CONTENTS if shown[key]]
    return render("report.html.j2", script=asset("page.js") + asset("viewer.js"), contents=contents, **values)


def _summary(content: Content) -> dict[str, Any]:
    result = content.result
    warnings = [w.metric for w in content.worse if w.metric]
    return {
        "title": content.title,
        "subtitle": _subtitle(result),
        "tiles": sentences.tiles(content.differences, content.balances),
        "tracks": [_track(content, d) for d in content.differences],
        "frames": f"{sum(map(len, result.frames)):,}",
        "protocol": result.protocol,
        "warnings": warnings,
        "notices": merge_alike(n for n in result.notices if n not in warnings),
        "version": hmmjax.__version__,
        "model": str(result.model.metadata.get("method", "")) or "given",
    }


def _track(content: Content, d: Difference) -> dict[str, Any]:
    """Return the summary of one track."""
    result = content.result
    b = next((b for b in content.balances if b.track == d.track), None)
    pair = next((p for p in content.pairs if p.figure == "phase accuracy"), None) if d.track == "phases" else None
    worse = [w.plain for w in content.worse if w.track == d.track and w.plain]
    return {
        "title": d.track.capitalize(),
        "changed": sentences.what_changed(d, b, content.delays),
        "sure": sentences.how_sure(d, b, pair, result.protocol),
        "compared": b is not None and b.raw is not None,
        "worse": worse,
        "unchanged": d.changed == 0,
        "unknown": "" if d.changed == 0 else sentences.unknown(d, b, len(result.ids), bool(worse)),
        "annotated": b is not None,
        "rows": [] if b is None else sentences.class_rows(b),
    }


def _seconds(result: Stabilized) -> list[float]:
    """Return the duration of each video."""
    return [float(f[-1] - f[0]) / result.fps + result.step_seconds for f in result.frames]


def _subtitle(result: Stabilized) -> str:
    count = len(result.ids)
    named = ", ".join(result.ids) if count <= 3 else f"{result.ids[0]} to {result.ids[-1]}"
    hours = sum(_seconds(result)) / 3600
    return f"{count} video{'s' * (count != 1)} ({named}), {hours:.1f} hours, one frame every {result.step_seconds:g} s"


def _metrics(content: Content) -> dict[str, Any]:
    systems = list(dict.fromkeys(n for row in content.table for n in row.metrics))
    more_systems = [n for n in systems if any(n in row.metrics for row in content.more)] or systems
    return {
        "table": [cells.table_row(row, systems) for row in content.table],
        "more": [cells.table_row(row, more_systems) for row in content.more],
        "systems": systems,
        "titles": TITLES,
        "pairs": content.pairs,
        "delays": content.delays,
        "close": f"{CLOSE:g}",
        "classes": [cells.class_table(row) for row in content.classes],
    }


def _videos(content: Content) -> dict[str, Any]:
    result, phases, tools = content.result, content.phases, content.tools
    longest = max(_seconds(result))
    # Videos without annotation lack the truth: list the rows of the most complete strip.
    strip_rows = max((list(ribbons.rows(result, i, "phases")) for i in range(len(result.ids))), key=len)
    tool_rows = [(n, ROW_COLORS[n]) for n in ribbons.rows(result, 0, "tools")]
    viewer = {
        "videos": [ribbons.video_data(result, i) for i in range(len(result.ids))],
        "phases": phases,
        "tools": tools,
        "colors": PHASE_COLORS,
        "rows": ROW_COLORS,
        "shade": SHADE,
    }
    return {
        "videos": [
            {
                "id": video,
                "strip": ribbons.strip(result, i, longest),
                "rows": ribbons.row_names(result, i, tools),
                "numbers": sections.video_scores(result, i),
            }
            for i, video in enumerate(result.ids)
        ],
        "longest": f"{longest / 60:.0f}",
        "axis": ribbons.axis(longest),
        "strip_rows": ", ".join(strip_rows),
        "phase_legend": [(n, PHASE_COLORS[p % len(PHASE_COLORS)]) for p, n in enumerate(phases)],
        "tool_legend": [pair for pair in tool_rows if pair[0] != "online"] if tools else [],
        "tool_legend_viewer": [*tool_rows, ("probability of presence", SHADE)],
        "tools": tools,
        "data": script_json(viewer),
    }


def _changes(content: Content) -> dict[str, Any]:
    known = any(not math.isnan(c.right) for c in content.changes)
    options = content.phase_names, content.tool_names, content.frames
    return {
        "changes": [sections.change_row(content.result, c, *options) for c in content.changes],
        "truth_known": known,
        "count_right": sections.count_right(content.changes) if known else "",
    }


def _pictures(content: Content) -> dict[str, Any]:
    shown = {p.section for p in content.pictures}
    return {
        "pictures": [
            {
                "name": p.name,
                "section": p.section,
                "caption": p.caption,
                "source": embed(p.figure),
                "width": css_width(p.figure),
                "csv": f"tables/{p.name}.csv" if p.rows else "",
            }
            for p in content.pictures
        ],
        "has": {name: name in shown for name in ("confusion", "curves", "calibration", "model", "recognizer", "costs")},
    }
