"""What got worse: one list, in plain words for the summary and as metrics for the section below it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hmmjax.plots import words
from hmmjax.report.delays import CLOSE, Delay, later
from hmmjax.report.sentences import MIN_MINUTES, minutes, seconds_off
from hmmjax.report.summary import Balance, Difference, Segment
from hmmjax.report.tables import gain
from hmmjax.stabilize import Row, Stabilized, System
from hmmjax.stabilize.drift import vanished_phases
from hmmjax.stabilize.gaps import without_gaps
from hmmjax.stabilize.warnings import MIN_DROP, worse_classes, worse_videos

#: Delays that grow by more than this many seconds have become worse.
MIN_SECONDS = 1.0
_NAMED = 3
_COVERAGE = "if the annotations are not partial, check"


class Worse(NamedTuple):
    """One thing that got worse.

    Attributes:
        track: "phases" or "tools".
        plain: a sentence for the summary.
        metric: the same in metrics; "" if another entry has it or no metric shows it.
    """

    track: str
    plain: str
    metric: str = ""


def find_worse(
    result: Stabilized,
    rows: Sequence[Row],
    classes: Sequence[Row],
    differences: Sequence[Difference],
    balances: Sequence[Balance],
    delays: Sequence[Delay],
) -> list[Worse]:
    """List what raw predictions show better than stabilized ones, and what only they show.

    Args:
        result: from `hmmjax.stabilize.stabilize`.
        rows: the metrics to compare.
        classes: metrics of each class, see `hmmjax.report.tables.per_class`.
        differences: how raw and stabilized predictions differ, per track.
        balances: what both show of the annotations, per annotated track.
        delays: delays of phase changes.

    Returns:
        Entries ordered by track; empty with fused recognizers, because there is no single recognizer to compare with.
    """
    if result.fused:
        return []
    found = []
    for d in differences:
        own: list[Worse] = []
        b = next((x for x in balances if x.track == d.track), None)
        if b is not None:
            own += _worse_videos(b, result) + _worse_classes(b, result, classes) + _segments(b, result.ids)
        own += more_changes(d)
        if d.track == "phases":
            own += timing(delays) + vanished(result)
        found += own + _fallen(d.track, rows, bool(own))
    return found


def _worse_videos(b: Balance, result: Stabilized) -> list[Worse]:
    metrics = worse_videos(result.raw, result.smoothed, result.truth_phases, result.ids) if b.track == "phases" else []
    found = []
    if b.raw is not None:
        more = b.wrong[:, 1] - b.wrong[:, 0]
        worse = [k for k in np.argsort(-more, kind="stable") if more[k] > 0]
        if worse:
            named = [
                f"{result.ids[b.videos[k]]} {_arrow(b.wrong[k])} of {minutes(float(b.minutes[k]))} minutes"
                for k in worse
            ]
            what = "the phase is wrong for longer" if b.track == "phases" else "tools are wrong for longer"
            found.append(f"In {len(worse)} of {len(b.videos)} videos {what}: {'; '.join(named)}.")
    return _entries(b.track, found, metrics)


def _worse_classes(b: Balance, result: Stabilized, classes: Sequence[Row]) -> list[Worse]:
    """List classes that are wrong for longer, and others whose metric is lower."""
    phases, found, named = b.track == "phases", [], set()
    if b.raw is not None:
        wrong = np.stack([b.raw.missed + b.raw.wrong, b.stabilized.missed + b.stabilized.wrong], 1)
        more = wrong[:, 1] - wrong[:, 0]
        worse = [c for c in np.argsort(-more, kind="stable") if more[c] > max(MIN_MINUTES, MIN_DROP * b.annotated[c])]
        named = {b.names[c] for c in worse}
        if worse:
            verb = "is" if len(worse) == 1 else "are"
            shown = _first([f"{words(b.names[c])} {_arrow(wrong[c])} minutes" for c in worse])
            what = f"{len(worse)} of {len(b.names)} {b.track} {verb}"
            found.append(f"{what} missed or wrongly shown for longer: {shown}.")
    lower = [x for x in _lower(classes, "phase Jaccard" if phases else "tool AP") if x[0] not in named]
    if lower:
        shown = _first([f"{words(name)} {100 * x:.1f} → {100 * y:.1f} %" for name, x, y in lower])
        by = "overlap of prediction and annotation" if phases else "average precision"
        found.append(f"{'Phases' if phases else 'Tools'} recognized less well, by {by}: {shown}.")
    truth = System("truth", *((result.truth_phases, None) if phases else (None, result.truth_tools)))
    names = {"phases": result.phase_names, "tools": result.tool_names}
    return _entries(b.track, found, worse_classes(result.raw, result.smoothed, truth, names))


def _lower(classes: Sequence[Row], figure: str) -> list[tuple[str, float, float]]:
    """Return classes whose metric is lower than raw, the worst first."""
    row = next((r for r in classes if r.figure == figure and {"M", "M_H"} <= set(r.metrics)), None)
    if row is None:
        return []
    before, after = row.metrics["M"], row.metrics["M_H"]
    pairs = zip(before.class_names, before.per_class, after.per_class, strict=True)
    return sorted(((n, x, y) for n, x, y in pairs if y - x < -MIN_DROP), key=lambda p: p[2] - p[1])


def _segments(b: Balance, ids: Sequence[str]) -> list[Worse]:
    """List lost segments, and more false ones."""
    if b.raw is None:
        return []
    phases, found = b.track == "phases", []
    if b.lost:
        named = [_segment(s, b.names, ids) for s in b.lost]
        noun = "phase" if phases else "tool use"
        what = f"{len(b.lost)} annotated {noun}{'s' * (len(b.lost) != 1)} no longer recognized"
        found.append(Worse(b.track, f"{what} (shown for less than half of the time): {_first(named)}."))
    before, after = int(b.raw.extra.sum()), int(b.stabilized.extra.sum())
    if after > before:
        noun = "false phase segments" if phases else "false tool uses"
        found.append(Worse(b.track, f"More {noun}: {before:,} → {after:,}.", f"{noun} {before:,} to {after:,}"))
    return found


def more_changes(d: Difference) -> list[Worse]:
    """List more changes than raw, unless their number is closer to that of the annotations."""
    before, after = d.changes
    if before is None or after <= before:
        return []
    note = ""
    if d.true_changes is not None:
        if abs(after - d.true_changes) < abs(before - d.true_changes):
            return []
        note = f" (annotated: {d.true_changes:,})"
    figure, plain = "phase changes", "More phase changes"
    if d.track == "tools":
        figure, plain = "tool on/off changes", "Tools appear or disappear more often"
    return [Worse(d.track, f"{plain}: {before:,} → {after:,}{note}.", f"{figure} {before:,} to {after:,}{note}")]


def timing(delays: Sequence[Delay]) -> list[Worse]:
    """List phase changes that are shown less often, or farther from the annotated ones."""
    own = {x.system: x for x in delays}
    if not {"M", "M_H"} <= set(own):
        return []
    raw, stabilized, found = own["M"], own["M_H"], []
    if stabilized.close < raw.close:
        fall = f"{raw.close} → {stabilized.close} of {raw.transitions}"
        plain = f"Fewer annotated phase changes are shown within {CLOSE:g} s: {fall}."
        found.append(Worse("phases", plain, *later(delays)))
    means = raw.mean_absolute, stabilized.mean_absolute
    if max(abs(stabilized.median) - abs(raw.median), means[1] - means[0]) > MIN_SECONDS:
        # Name only what is worse in the digits printed; one of the two grew by more than a second.
        farther = abs(stabilized.median) > abs(raw.median)
        typical = (seconds_off(raw), seconds_off(stabilized))
        medians = (f"{raw.median:+.1f}", f"{stabilized.median:+.1f}")
        average = tuple(f"{mean:.1f}" for mean in means)
        plain = [f"typically {' → '.join(typical)}"] * (typical[0] != typical[1] and farther)
        plain += [f"on average {' → '.join(average)} s off"] * (average[0] != average[1] and means[1] > means[0])
        metric = [f"median {' to '.join(medians)} s"] * (medians[0] != medians[1] and farther)
        metric += [f"mean absolute {' to '.join(average)} s"] * (average[0] != average[1] and means[1] > means[0])
        text = f"Phase changes are shown farther from the annotated ones: {', '.join(plain)}."
        found.append(Worse("phases", text, f"delay of phase changes: {', '.join(metric)}"))
    if stabilized.missed > raw.missed:
        text = f"annotated phase changes that are never shown: {raw.missed} → {stabilized.missed}"
        found.append(Worse("phases", f"More {text}.", text.replace("→", "to")))
    return found


def vanished(result: Stabilized) -> list[Worse]:
    """List phases that vanish from a video, unless its annotations confirm that; and annotations that end early."""
    if result.raw.phases is None or result.smoothed.phases is None:
        return []
    labels = result.raw.phase_labels()
    if result.truth_phases is not None:
        pairs = zip(labels, result.truth_phases, strict=True)
        labels = [np.where(np.isin(x, t), x, -1) if without_gaps(t) is not None else x for x, t in pairs]
    names = None if result.phase_names is None else [words(n) for n in result.phase_names]
    raw = System("M", labels)
    found = vanished_phases(raw, result.smoothed, names, result.ids, result.step_seconds)
    if found:
        found += [n for n in result.notices if _COVERAGE in n]
    return [Worse("phases", _sentence(text)) for text in found]


def _fallen(track: str, rows: Sequence[Row], explained: bool) -> list[Worse]:
    """List metrics of a track that fell; the summary counts them if nothing else explains them."""
    fallen = [
        f"{row.figure} {row.metrics['M'].value:.3f} to {row.metrics['M_H'].value:.3f}"
        for row in rows
        if {"M", "M_H"} <= set(row.metrics) and row.figure.startswith("tool") == (track == "tools")
        if not row.metrics["M"].unit and gain(row) < -MIN_DROP
    ]
    if not fallen:
        return []
    metric = f"metrics that are worse than the recognizer's: {'; '.join(fallen)}"
    count = f"{len(fallen)} metric{'s are' if len(fallen) > 1 else ' is'}"
    plain = "" if explained else f"{count} worse by more than {MIN_DROP:g}: see Metrics that got worse, below."
    return [Worse(track, plain, metric)]


def _entries(track: str, plain: Sequence[str], metrics: Sequence[str]) -> list[Worse]:
    """Pair sentences with metrics; metrics without a sentence are one."""
    metric = "; ".join(metrics)
    texts = plain or [_sentence(m) for m in metrics]
    return [Worse(track, text, "" if i else metric) for i, text in enumerate(texts)]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _arrow(pair: Any) -> str:
    """Format minutes before and after with as many digits as show the difference."""
    texts = [minutes(x) for x in pair]
    digits = 1
    while texts[0] == texts[1] and digits < 4:
        texts = [f"{x:,.{digits}f}" for x in pair]
        digits += 1
    return " → ".join(texts)


def _first(texts: Sequence[str]) -> str:
    return "; ".join(texts[:_NAMED]) + (f"; and {len(texts) - _NAMED} more" if len(texts) > _NAMED else "")


def _segment(s: Segment, names: Sequence[str], ids: Sequence[str]) -> str:
    clock = f"{int(s.start // 60)}:{int(s.start % 60):02d}"
    length = f"{60 * s.minutes:.0f} s" if s.minutes < 2 else f"{s.minutes:.1f} minutes"
    return f"{words(names[s.kind])} in {ids[s.video]} at {clock} ({length})"
