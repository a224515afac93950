"""Write the summary that a reader sees first: what changed, how sure it is and what got worse, without jargon."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax.plots import words
from hmmjax.report.delays import CLOSE, Delay
from hmmjax.report.summary import SURE, Balance, Difference, Segment
from hmmjax.report.tables import Pair

#: Minutes by which a class or a video must be worse to be named; less is rounding or a segment's edge.
MIN_MINUTES = 0.1
_NAMED = 3


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
    if not math.isnan(d.changed):
        share = d.changed / d.minutes
        text = f"Another {label} than the recognizer's in {minutes(d.changed)} of {minutes(d.minutes)} minutes"
        found.append(f"{text}{'' if phases else ' (each tool counted)'}, {_percent(share)} of the time.")
    if b is None:
        return found
    if b.raw is not None:
        before, after = b.wrong.sum(0)
        found.append(
            f"In annotated time, {minutes(b.corrected)} wrong minutes became right and {minutes(b.spoiled)} right ones "
            f"became wrong: {minutes(before)} → {minutes(after)} wrong minutes of {minutes(float(b.minutes.sum()))}."
        )
    segments = "phases" if phases else "tool uses"
    total, shown = len(b.segments), int(b.stabilized.found.sum())
    if b.raw is None:
        found.append(f"{shown:,} of {total:,} annotated {segments} are recognized, each for at least half of its time.")
    else:
        found.append(
            f"Of {total:,} annotated {segments}, {int(b.raw.found.sum()):,} → {shown:,} are recognized for at least "
            f"half of their time: {len(b.gained):,} gained, {len(b.lost):,} lost."
        )
        false = f"{int(b.raw.extra.sum()):,} → {int(b.stabilized.extra.sum()):,}"
        found.append(f"{'Phases' if phases else 'Tool uses'} shown that are mostly not there: {false}.")
    own = {x.system: x for x in delays} if phases else {}
    if "M_H" in own:
        found.append(_delay(own))
    return found


def _delay(own: dict[str, Delay]) -> str:
    shown = [own[s] for s in ("M", "M_H") if s in own]
    medians = " → ".join(f"{abs(x.median):.0f} s {'early' if x.median < 0 else 'late'}" for x in shown)
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
    found = []
    what = "phase" if d.track == "phases" else "answer about a tool"
    text = f"The model gives its {what} a probability of at least {_percent(SURE)} in {_percent(d.sure)} of the time"
    if b is not None and not math.isnan(b.right_if_sure):
        text += f"; there it is right in {_percent(b.right_if_sure)}"
        if not math.isnan(b.right_if_unsure):
            text += f", elsewhere in {_percent(b.right_if_unsure)}"
    found.append(text + ".")
    if b is not None and pair is not None and pair.videos:
        found.append(_paired(pair))
    if b is not None and "IN SAMPLE" in protocol:
        found.append("These videos were also learned from: expect less on new videos.")
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


def got_worse(b: Balance, ids: Sequence[str], delays: Sequence[Delay]) -> list[str]:
    """Describe which videos, classes, segments and changes are shown less well after stabilizing.

    Args:
        b: both against the annotations.
        ids: names of the videos.
        delays: delays of phase changes; ignored for tools.

    Returns:
        Sentences; empty if nothing got worse, or without raw predictions.
    """
    if b.raw is None:
        return []
    phases, found = b.track == "phases", []
    more = b.wrong[:, 1] - b.wrong[:, 0]
    worse = [k for k in np.argsort(-more, kind="stable") if more[k] > max(MIN_MINUTES, 0.01 * b.minutes[k])]
    if worse:
        named = [f"{ids[b.videos[k]]} {_arrow(b.wrong[k])} of {minutes(float(b.minutes[k]))} minutes" for k in worse]
        what = "the phase is wrong for longer" if phases else "tools are wrong for longer"
        found.append(f"In {len(worse)} of {len(b.videos)} videos {what}: {_first(named)}.")
    wrong = np.stack([b.raw.missed + b.raw.wrong, b.stabilized.missed + b.stabilized.wrong], 1)
    more = wrong[:, 1] - wrong[:, 0]
    worse = [c for c in np.argsort(-more, kind="stable") if more[c] > max(MIN_MINUTES, 0.01 * b.annotated[c])]
    if worse:
        named = [f"{words(b.names[c])} {_arrow(wrong[c])} minutes" for c in worse]
        verb = "is" if len(worse) == 1 else "are"
        what = f"{len(worse)} of {len(b.names)} {b.track} {verb}"
        found.append(f"{what} missed or wrongly shown for longer: {_first(named)}.")
    if b.lost:
        named = [_segment(s, b.names, ids) for s in b.lost]
        noun = "phase" if phases else "tool use"
        found.append(f"{len(b.lost)} annotated {noun}{'s' * (len(b.lost) != 1)} lost: {_first(named)}.")
    own = {x.system: x for x in delays} if phases else {}
    if {"M", "M_H"} <= set(own) and own["M_H"].close < own["M"].close:
        fall = f"{own['M'].close} → {own['M_H'].close} of {own['M'].transitions}"
        found.append(f"Fewer annotated phase changes are shown within {CLOSE:g} s: {fall}.")
    return found


def _arrow(pair: Any) -> str:
    return f"{minutes(pair[0])} → {minutes(pair[1])}"


def _first(texts: Sequence[str]) -> str:
    return "; ".join(texts[:_NAMED]) + (f"; and {len(texts) - _NAMED} more" if len(texts) > _NAMED else "")


def _segment(s: Segment, names: Sequence[str], ids: Sequence[str]) -> str:
    clock = f"{int(s.start // 60)}:{int(s.start % 60):02d}"
    length = f"{60 * s.minutes:.0f} s" if s.minutes < 2 else f"{s.minutes:.1f} minutes"
    return f"{words(names[s.kind])} in {ids[s.video]} at {clock} ({length})"


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
