"""Write the summary that a reader sees first: what changed and how sure it is, without jargon."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.plots import words
from hmmjax.report.delays import CLOSE, Delay
from hmmjax.report.summary import SURE, Balance, Difference
from hmmjax.report.tables import Pair

#: Minutes by which a class or a video must be worse to be named; less is rounding or a segment's edge.
MIN_MINUTES = 0.1


def minutes(value: float) -> str:
    """Format minutes: two digits below ten, none from a hundred on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def tiles(differences: Sequence[Difference], balances: Sequence[Balance]) -> list[dict[str, str]]:
    """Return the numbers to show first, raw and stabilized: changes, wrong minutes per hour, segments shown."""
    found = []
    for d in differences:
        raw, stabilized = d.changes
        what = "phase changes" if d.track == "phases" else "times that a tool appears or disappears"
        note = "" if d.true_changes is None else f"annotated: {d.true_changes:,}"
        found.append(_tile(what, "" if raw is None else f"{raw:,}", f"{stabilized:,}", note))
    for b in balances:
        pooled = 60 * b.wrong.sum(0) / b.minutes.sum()
        what = "minutes per hour with a wrong phase" if b.track == "phases" else "wrong minutes per hour, per tool"
        raw = "" if math.isnan(pooled[0]) else f"{pooled[0]:.1f}"
        found.append(_tile(what, raw, f"{pooled[1]:.1f}", ""))
        what = "phase segments recognized" if b.track == "phases" else "tool uses recognized"
        raw = "" if b.raw is None else f"{b.raw.found.sum():,}"
        note = f"annotated: {len(b.segments):,}"
        found.append(_tile(what, raw, f"{b.stabilized.found.sum():,}", note))
    return found


def _tile(what: str, raw: str, stabilized: str, note: str) -> dict[str, str]:
    return {"what": what, "raw": raw, "stabilized": stabilized, "note": note}


def what_changed(d: Difference, b: Balance | None, delays: Sequence[Delay]) -> list[str]:
    """Describe in sentences what stabilizing changed in a track.

    Args:
        d: raw against stabilized labels.
        b: both against the annotations; None without annotations.
        delays: delays of phase changes; ignored for tools.
    """
    phases, found = d.track == "phases", []
    label = "phase" if phases else "answer about a tool"
    if d.changed == 0:
        found.append("hmmjax found nothing that helps here: the files are the recognizer's predictions.")
    elif not math.isnan(d.changed):
        share = d.changed / d.minutes
        text = f"Another {label} than the recognizer's in {minutes(d.changed)} of {minutes(d.minutes)} minutes"
        found.append(f"{text}{'' if phases else ' (each tool counted)'}, {_percent(share)} of the time.")
    if b is None:
        return found
    if b.raw is not None and d.changed != 0:
        before, after = b.wrong.sum(0)
        found.append(
            f"In annotated time, {minutes(b.corrected)} wrong minutes became right and {minutes(b.spoiled)} right ones "
            f"became wrong: {minutes(before)} → {minutes(after)} wrong minutes of {minutes(float(b.minutes.sum()))}."
        )
    segments = "phases" if phases else "tool uses"
    total, shown = len(b.segments), int(b.stabilized.found.sum())
    if b.raw is None or d.changed == 0:
        found.append(f"{shown:,} of {total:,} annotated {segments} are recognized, each for at least half of its time.")
    else:
        found.append(
            f"Of {total:,} annotated {segments}, {int(b.raw.found.sum()):,} → {shown:,} are recognized for at least "
            f"half of their time: {len(b.gained):,} newly, {len(b.lost):,} no longer."
        )
        false = f"{int(b.raw.extra.sum()):,} → {int(b.stabilized.extra.sum()):,}"
        found.append(f"False {'phase segments' if phases else 'tool uses'}: {false}.")
    found += _never_shown(b)
    own = {x.system: x for x in delays} if phases else {}
    if "M_H" in own:
        found.append(_delay({"M_H": own["M_H"]} if d.changed == 0 else own))
    return found


def _never_shown(b: Balance) -> list[str]:
    """Name annotated classes that the recognizer shows in no annotated frame, and whether the result shows them."""
    if b.raw is None:
        return []
    found, kinds = [], np.array([s.kind for s in b.segments], int)
    for c in np.flatnonzero((b.annotated > 0) & (b.raw.missed == b.annotated) & (b.raw.wrong == 0)):
        own, what = kinds == c, "segments" if b.track == "phases" else "uses"
        text = f"The recognizer never shows {words(b.names[c])} (0 of {own.sum()} {what})"
        shown = int(b.stabilized.found[own].sum())
        note = f"; stabilized, {shown} {'is' if shown == 1 else 'are'} recognized" if shown else ""
        found.append(f"{text}{note}.")
    return found


def seconds_off(delay: Delay) -> str:
    """Format the median delay of phase changes."""
    return f"{abs(delay.median):.0f} s {'early' if delay.median < 0 else 'late'}"


def _delay(own: dict[str, Delay]) -> str:
    shown = [own[s] for s in ("M", "M_H") if s in own]
    medians = " → ".join(seconds_off(x) for x in shown)
    close = " → ".join(f"{x.close}" for x in shown)
    return (
        f"The typical phase change is shown {medians}; {close} of {shown[0].transitions} annotated changes are shown "
        f"within {CLOSE:g} s."
    )


def how_sure(d: Difference, b: Balance | None, pair: Pair | None, protocol: str) -> list[str]:
    """Describe how far the results can be trusted.

    Args:
        d: raw against stabilized labels.
        b: both against the annotations; None without annotations.
        pair: the paired comparison of phase accuracies over videos, or None.
        protocol: how the annotated videos relate to those learned from.
    """
    if d.changed == 0:  # The probabilities are the recognizer's own, and there is no gain to judge.
        return []
    what = "phase" if d.track == "phases" else "answer about a tool"
    text = f"The model gives its {what} a probability of at least {_percent(SURE)} in {_percent(d.sure)} of the time"
    if b is None:
        return [f"{text}. Nothing is annotated, so this certainty could not be checked."]
    if not math.isnan(b.right_if_sure):
        text += f"; there it is right in {_percent(b.right_if_sure)}"
        if not math.isnan(b.right_if_unsure):
            text += f", elsewhere in {_percent(b.right_if_unsure)}"
    found = [text + "."]
    if pair is not None and pair.videos:
        found.append(_paired(pair))
    if "IN SAMPLE" in protocol:
        found.append("The model was trained on these videos; expect smaller gains on new ones.")
    return found


def _paired(pair: Pair) -> str:
    """Describe a comparison of accuracies over videos in minutes per hour."""
    text = f"Better in {pair.better} of {pair.videos} videos"
    fewer = 60 * pair.difference
    text += f"; on average over videos {abs(fewer):.1f} {'fewer' if fewer >= 0 else 'more'} wrong minutes per hour"
    if math.isnan(pair.low):
        return f"{text}. One video says nothing about others."
    low, high = (60 * x for x in (pair.low, pair.high))
    ends = f"95 % interval: {_fewer(low)} to {_fewer(high)}"
    if pair.low <= 0 <= pair.high:
        return f"{text} ({ends}). The interval includes no difference: whether it helps on other videos is open."
    verdict = "fewer" if pair.low > 0 else "more"
    return f"{text} ({ends}). On videos like these, expect {verdict} wrong minutes."


def _fewer(value: float) -> str:
    return f"{abs(value):.1f} {'fewer' if value >= 0 else 'more'}"


def unknown(d: Difference, b: Balance | None, videos: int, known: bool) -> str:
    """Say for how many videos it is unknown what (else) got worse; "" if all are annotated."""
    if b is None:
        start = "What else got worse is unknown" if known else "Unknown"
        return f"{start}: the {d.track} of these videos are not annotated."
    count = len(b.videos)
    if count == videos:
        return ""
    have = "video has" if count == 1 else "videos have"
    return f"This is unknown for the other videos: only {count} {have} annotated {d.track}, of {videos}."


def class_rows(b: Balance) -> list[dict[str, Any]]:
    """Format the balance of each class: annotated, missed and wrongly shown minutes, and segments recognized."""
    kinds = np.array([s.kind for s in b.segments], int)
    rows = []
    for c, name in enumerate(b.names):
        own = kinds == c
        systems = [x for x in (b.raw, b.stabilized) if x is not None]
        cells = [[float(x.missed[c]) for x in systems], [float(x.wrong[c]) for x in systems]]
        shown = [int(x.found[own].sum()) for x in systems]
        rows.append(
            {
                "name": words(name),
                "annotated": minutes(float(b.annotated[c])),
                "cells": [
                    {"text": " → ".join(map(minutes, pair)), "worse": pair[-1] > pair[0] + MIN_MINUTES}
                    for pair in cells
                ],
                "segments": {"text": " → ".join(map(str, shown)), "worse": shown[-1] < shown[0]},
                "total": int(own.sum()),
            }
        )
    return rows


def _percent(fraction: float) -> str:
    # 99.96 % is not all.
    text = f"{100 * fraction:.0f}"
    return f"{100 * fraction:.1f} %" if text == "100" and fraction < 1 else f"{text} %"
