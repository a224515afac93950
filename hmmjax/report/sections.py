"""Format the sections of the page about single videos: scores, changes, and minutes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.plots import changes, words
from hmmjax.report import ribbons
from hmmjax.report.cells import DASH
from hmmjax.report.frames import Frames
from hmmjax.report.minutes import Minutes
from hmmjax.report.reasons import Change, describe, reasons_in_words
from hmmjax.stabilize import Stabilized, System
from hmmjax.stabilize.gaps import without_gaps
from hmmjax.stabilize.warnings import score_texts, video_score


def video_scores(result: Stabilized, i: int) -> list[dict[str, Any]]:
    """Format the numbers next to a strip: scores and numbers of changes, raw and stabilized."""
    lines: list[dict[str, Any]] = []
    labels = System("truth", result.truth_phases, result.truth_tools)
    for track, what, figure in (("phases", "changes", "accuracy"), ("tools", "on/off", "tool F1")):
        raw, smooth, truth = (getattr(x, track) for x in (result.raw, result.smoothed, labels))
        if raw is None or smooth is None:
            continue
        if truth is not None and not result.fused:
            before, after = (video_score(track, truth[i], values[i]) for values in (raw, smooth))
            if not math.isnan(before):
                worse = after < before
                mark = " worse" if worse else ""
                shown = " → ".join(text.removeprefix("0") for text in score_texts(before, after))
                lines.append({"text": f"{figure} {shown}{mark}", "worse": worse})
        counts = ribbons.count_changes(result, i, track)
        # Raw and stabilized changes are counted in every frame, so a truth with wide gaps is not comparable.
        filled = None if truth is None else without_gaps(truth[i])
        true = "" if filled is None else f" (truth {sum(changes(x) for x in filled.reshape(len(filled), -1).T)})"
        lines.append({"text": f"{what} {counts['raw']} → {counts['stabilized']}{true}", "worse": False})
    return lines


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


def change_row(
    result: Stabilized, c: Change, phase_names: Sequence[str], tool_names: Sequence[str], frames: Frames | None
) -> dict[str, Any]:
    """Format one change of the model."""
    text, _ = describe(c, phase_names, tool_names)
    thumbs = []
    if frames is not None:
        numbers = result.frames[c.video]
        wanted = sorted({c.first, (c.first + c.last) // 2, c.last})
        found = (frames.thumbnail(result.ids[c.video], int(numbers[k])) for k in wanted)
        thumbs = [uri for uri in found if uri]
    right = DASH
    if not math.isnan(c.right):
        right = "stabilized" if c.right > 0.5 else "raw" if c.raw_right > 0.5 else "neither"
    return {
        "id": result.ids[c.video],
        "at": f"{_clock(c.start)} to {_clock(c.end)}",
        "start": c.start,
        "end": c.end,
        "text": text,
        "reasons": reasons_in_words(c),
        "right": right,
        "thumbs": thumbs,
    }


def count_right(changes: Sequence[Change]) -> str:
    """Describe in how many changes the annotation agrees with the stabilized label."""
    known = [c for c in changes if not math.isnan(c.right)]
    right = sum(c.right > 0.5 for c in known)
    return f"In {right} of these {len(known)} runs the annotation agrees with the stabilized label."


def minutes_table(track: str, table: Minutes, ids: Sequence[str]) -> dict[str, Any]:
    """Format the minutes of one track: one row per video, one column per class."""
    bands = table.bands()
    ends = bands if bands is not None else None if table.deviation is None else table.interval()
    rows = []
    for i, video in enumerate(ids):
        cells = []
        for c in range(len(table.names)):
            raw, truth = table.raw[i, c], table.truth[i, c]
            others = [f"raw {raw:.1f}"] * bool(not np.isnan(raw)) + [f"truth {truth:.1f}"] * bool(not np.isnan(truth))
            cells.append(
                {
                    "value": f"{table.stabilized[i, c]:.1f}",
                    "spread": "" if ends is None else f"{ends[0][i, c]:.1f} to {ends[1][i, c]:.1f}",
                    "others": "; ".join(others),
                }
            )
        rows.append({"id": video, "cells": cells})
    what = "Minutes of phases" if track == "phases" else "Minutes of tool use"
    return {
        "title": what,
        "names": [words(n) for n in table.names],
        "rows": rows,
        "note": _note(table, bands),
        "errors": _errors(table),
    }


def _note(table: Minutes, bands: tuple[np.ndarray, np.ndarray] | None) -> str:
    """Explain the intervals, and how many true values they contain."""
    parts = []
    if bands is not None:
        known = ~np.isnan(table.truth)
        inside = (table.truth >= bands[0] - 1e-9) & (table.truth <= bands[1] + 1e-9) & known
        parts.append(
            "Each cell: stabilized minutes, an 80 % interval from the errors in the other annotated videos, and the "
            f"raw and true minutes. The intervals contain {int(inside.sum())} of {int(known.sum())} true values."
        )
    if table.deviation is not None:
        inside, total = table.coverage()
        if bands is None:
            parts.append("Each cell: stabilized minutes and the model's own 95 % interval.")
        if total:
            parts.append(
                f"The model's own 95 % intervals, which assume that the model is correct, contain {inside} of {total} "
                f"true values{': do not rely on them' if inside < 0.85 * total else ''}."
            )
    return " ".join(parts)


def _errors(table: Minutes) -> dict[str, Any]:
    """Format the median and 90 % quantile of each class's errors; empty without truth."""
    known = int((~np.isnan(table.truth).any(1)).sum())
    shown = [s for s in ("raw", "stabilized") if known and not np.isnan(getattr(table, s)).all()]
    errors = {s: table.errors(s) for s in shown}
    rows = [
        {
            "name": words(name),
            "truth": f"{np.nanmean(table.truth[:, c]):.1f}",
            "cells": [f"{errors[s][k][c]:.1f}" for s in shown for k in (0, 1)],
        }
        for c, name in enumerate(table.names)
        if shown
    ]
    # The 90 % quantile of at most ten videos is their maximum.
    return {"systems": shown, "rows": rows, "videos": known, "most": "nine in ten" if known > 10 else "all"}
