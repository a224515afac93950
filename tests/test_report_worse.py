"""What the report says of changes: delays, minutes, and all that got worse."""

import dataclasses
import re

import numpy as np
import pytest
from reports import P, T, handmade, runs

from hmmjax import report
from hmmjax.report import sections, sentences, summary, tables, worse
from hmmjax.report.delays import Delay, delays, later
from hmmjax.report.minutes import estimate_minutes
from hmmjax.stabilize import warnings
from hmmjax.stabilize.systems import System
from hmmjax.stabilize.table import compare_systems


@pytest.fixture(scope="module")
def result():
    return handmade()


def worsened(result):
    """Exchange raw and stabilized predictions, so that every metric gets worse."""
    raw = System("M", [x.argmax(1).astype(np.int32) for x in result.smoothed.phases], result.smoothed.tools)
    smooth = System("M_H", [np.eye(3, dtype=np.float32)[x] for x in result.raw.phases], result.raw.tools)
    table = compare_systems([raw, smooth], result.truth_phases, result.truth_tools, phase_names=P, tool_names=T)
    return dataclasses.replace(result, raw=raw, smoothed=smooth, table=table)


@pytest.mark.thorough
def test_what_got_worse_comes_first(result, tmp_path):
    bad = worsened(result)
    report.write_report(bad, tmp_path, intervals=False, videos=False)
    text = (tmp_path / "report.html").read_text()
    first = text[text.index('id="summary"') : text.index('id="what"')]
    assert re.search(r"In [12] of 2 videos the phase is wrong for longer: video0\d 0\.0 → 0\.\d of", first)
    assert re.search(r"Better in 0 of 2 videos; on average over videos \d+\.\d more wrong minutes per hour", first)
    assert "accuracy" not in first and "nats" not in text
    statistics = text[text.index('id="figures"') : text.index('id="videos"')]
    assert "phase accuracy, pooled 1.000 to" in statistics
    assert "3 of 3 phases are recognized less well" in statistics and "in 2 of 2 videos (frame accuracy: video" in text
    assert 'class="worse">accuracy 1.000 →' in text and re.search(r'class="worse">-0\.\d+ worse</td>', text)
    good = _page(result, tmp_path)
    assert "No video, no class by more than 1 %" in good and "Metrics that got worse" not in good
    assert "does not mean statistically significant" in good


def _page(result, folder):
    report.write_report(result, folder / "good", intervals=False, videos=False)
    return (folder / "good" / "report.html").read_text()


def test_delays_are_of_the_same_changes(result):
    """Computed by hand: a system that never predicts a phase must not look better for it."""
    truth = [runs((0, 20), (1, 20), (2, 20))]
    late, never = runs((0, 24), (1, 20), (2, 16)), runs((0, 50), (2, 10))
    few = dataclasses.replace(
        result, ids=("a",), frames=(25 * np.arange(60),), truth_phases=truth, truth_tools=None,
        raw=System("M", [late]), smoothed=System("M_H", [never]), filtered=System("M_H online", [late]),
    )  # fmt: skip
    raw, smooth, _ = delays(few)
    assert (raw.transitions, raw.compared, raw.missed, smooth.missed) == (2, 1, 0, 1)
    assert (raw.median, raw.mean_absolute, raw.close) == (4, 4, 2)
    assert (smooth.median, smooth.close) == (10, 1)
    assert later([raw, smooth]) == ["phase changes shown within 10 s of the annotated ones: 2 to 1 of 2"]
    assert later([smooth]) == [] == later([])
    truth[0][[30, 0]] = -1  # one frame inside, and one at the end
    assert delays(dataclasses.replace(few, truth_phases=truth))[:2] == [raw, smooth]
    truth[0][31:33] = -1
    assert delays(dataclasses.replace(few, truth_phases=truth)) == []


def test_the_summary_counts_minutes_and_segments(result):
    """Computed by hand, at one minute per frame."""
    truth = runs((0, 20), (1, 20), (2, 20))
    raw = runs((0, 10), (2, 3), (0, 7), (1, 8), (2, 32))  # a false segment, and phase 1 for 8 of 20 minutes
    smooth = runs((0, 21), (1, 39))  # phase 2 is lost, phase 1 is gained
    sure = np.where(np.arange(60) < 30, 0.95, 0.8)[:, None]
    posterior = np.where(np.eye(3)[smooth] == 1, sure, (1 - sure) / 2).astype(np.float32)
    own = dataclasses.replace(
        result, ids=("a",), frames=(1500 * np.arange(60),), step_seconds=60.0, truth_phases=[truth], truth_tools=None,
        raw=System("M", [raw]), smoothed=System("M_H", [posterior]), filtered=System("M_H online", [posterior]),
    )  # fmt: skip
    b, d = summary.balance(own, "phases", P), summary.difference(own, "phases")
    np.testing.assert_allclose(b.annotated, [20, 20, 20])
    np.testing.assert_allclose([b.raw.missed, b.raw.wrong], [[3, 12, 0], [0, 0, 15]])
    np.testing.assert_allclose([b.stabilized.missed, b.stabilized.wrong], [[0, 1, 20], [1, 20, 0]])
    np.testing.assert_allclose(b.wrong, [[15, 21]])
    assert (b.corrected, b.spoiled) == (3 + 12, 1 + 20)
    assert list(b.raw.found) == [True, False, True] and list(b.stabilized.found) == [True, True, False]
    assert list(b.raw.extra) == [0, 0, 1]
    assert list(b.stabilized.extra) == [0, 1, 0]  # of the 39 minutes of phase 1, 19 are right
    assert [(s.kind, s.start, s.minutes) for s in b.lost] == [(2, 2400, 20)] and [s.kind for s in b.gained] == [1]
    assert b.right_if_sure == pytest.approx(29 / 30) and b.right_if_unsure == pytest.approx(10 / 30)
    assert (d.minutes, d.changed, d.changes, d.true_changes, d.sure) == (60, int((raw != smooth).sum()), (4, 1), 2, 0.5)
    found = worse.find_worse(own, [], tables.per_class(own), [d], [b], [])
    gone = "1 annotated phase no longer recognized (shown for less than half of the time): "
    assert f"{gone}Gamma in a at 40:00 (20.0 minutes)." in [w.plain for w in found]
    assert summary.balance(dataclasses.replace(own, truth_phases=None), "phases", P) is None
    # A video of which half the frames are annotated counts these frames only.
    half = dataclasses.replace(own, truth_phases=[np.where(np.arange(60) < 30, truth, -1)])
    assert summary.balance(half, "phases", P).minutes == [30]
    assert summary.difference(half, "phases").true_changes is None
    assert np.isnan(estimate_minutes(half, "phases", P, intervals=False).truth).all()
    # A single frame without a label, at a change, hides nothing.
    one = dataclasses.replace(own, truth_phases=[np.where(np.arange(60) == 19, -1, truth)])
    assert summary.difference(one, "phases").true_changes == 2
    np.testing.assert_allclose(estimate_minutes(one, "phases", P, intervals=False).truth, [[20, 20, 20]])


def one_video(result, truth, raw, smooth):
    """A video of one frame per second with labels of phases alone, sure throughout."""
    posteriors = [np.eye(3, dtype=np.float32)[smooth]]
    return dataclasses.replace(
        result, ids=("a",), frames=(25 * np.arange(len(raw)),), truth_phases=[truth], truth_tools=None, table=[],
        raw=System("M", [raw]), smoothed=System("M_H", posteriors), filtered=System("M_H online", posteriors),
    )  # fmt: skip


def judge(result):
    """Return everything that got worse in phases, their difference and balance."""
    d, b, late = summary.difference(result, "phases"), summary.balance(result, "phases", P), delays(result)
    table = [*result.table, *tables.more_metrics(result)]
    balances = [] if b is None else [b]
    return worse.find_worse(result, table, tables.per_class(result), [d], balances, late), d, b


TRUTH = runs((0, 500), (1, 500), (2, 500))


def test_more_flicker_got_worse(result):
    """The errors are fewer than 1 % of each phase, so that nothing else tells."""
    flicker = runs((0, 200), (1, 2), (0, 298), (1, 500), (2, 500))
    found, _, _ = judge(one_video(result, TRUTH, TRUTH, flicker))
    assert {w.plain for w in found} >= {
        "More phase changes: 2 → 4 (annotated: 2).", "More false phase segments: 0 → 1.",
    }  # fmt: skip
    assert {"phase changes 2 to 4 (annotated: 2)", "false phase segments 0 to 1"} <= {w.metric for w in found}
    # More changes that come closer to the annotations are none.
    found, _, _ = judge(one_video(result, TRUTH, runs((0, 1000), (2, 500)), TRUTH))
    assert not found
    # Without annotations flicker is named too.
    bare = dataclasses.replace(one_video(result, TRUTH, TRUTH, flicker), truth_phases=None)
    assert [w.plain for w in judge(bare)[0]] == ["More phase changes: 2 → 4."]


def test_every_video_that_is_worse_is_listed(result):
    """A second of 1,500 counts: less than 1 % and less than a digit of the minutes shown."""
    bad, worst = runs((0, 501), (1, 499), (2, 500)), runs((0, 510), (1, 490), (2, 500))
    own = one_video(result, TRUTH, TRUTH, bad)
    one = np.eye(3, dtype=np.float32)
    own = dataclasses.replace(
        own, ids=tuple("abcde"), frames=own.frames * 5, truth_phases=[TRUTH] * 5, raw=System("M", [TRUTH] * 5),
        smoothed=System("M_H", [one[x] for x in (bad, worst, bad, TRUTH, bad)]),
    )  # fmt: skip
    (entry,) = worse._worse_videos(summary.balance(own, "phases", P), own)
    assert entry.plain == (
        "In 4 of 5 videos the phase is wrong for longer: b 0.0 → 0.2 of 25.0 minutes; a 0.00 → 0.02 of 25.0 minutes; "
        "c 0.00 → 0.02 of 25.0 minutes; e 0.00 → 0.02 of 25.0 minutes."
    )
    assert "4 of 5 videos (frame accuracy: b 1.000 to 0.993, a 1.000 to 0.999" in entry.metric
    (line, _) = sections.video_scores(own, 0)
    assert line == {"text": "accuracy 1.000 → .999 worse", "worse": True}
    close = warnings.score_texts(0.4821, 0.48208), warnings.score_texts(0.5, 0.5)
    assert close == (("0.48210", "0.48208"), ("0.500", "0.500"))


def test_later_changes_and_lower_classes_got_worse(result):
    """Both lists have one source: what one names, the other names."""
    late = runs((0, 503), (1, 505), (2, 492))
    found, _, _ = judge(one_video(result, TRUTH, runs((0, 501), (1, 500), (2, 499)), late))
    assert any("typically 1 s late → 6 s late, on average 1.0 → 5.5 s off" in w.plain for w in found)
    assert "delay of phase changes: median +1.0 to +5.5 s, mean absolute 1.0 to 5.5 s" in [w.metric for w in found]
    # What prints the same before and after is not listed.
    raw, stabilized = (
        Delay(system, 3, 0, 3, 3.0, 1.0, 5.0, mean, 3, "") for system, mean in (("M", 3.0), ("M_H", 9.0))
    )
    (entry,) = worse.timing([raw, stabilized])
    assert entry.plain == "Phase changes are shown farther from the annotated ones: on average 3.0 → 9.0 s off."
    assert entry.metric == "delay of phase changes: mean absolute 3.0 to 9.0 s"
    # Five of 100 seconds: fewer than the minutes that count, but a lower overlap.
    truth = runs((0, 100), (1, 500), (2, 500))
    found, _, _ = judge(one_video(result, truth, truth, runs((0, 95), (1, 505), (2, 500))))
    assert "Phases recognized less well, by overlap of prediction and annotation: Alpha 100.0 → 95.0 %." in [
        w.plain for w in found
    ]
    assert any("(Jaccard: Alpha 1.000 to 0.950" in w.metric for w in found)
    assert not judge(one_video(result, truth, truth, truth))[0]


def test_every_metric_that_got_worse_has_a_sentence(result):
    found, _, _ = judge(worsened(result))
    assert len([w for w in found if w.metric]) > 2 and all(w.plain for w in found if not w.metric.startswith("metrics"))
    # A metric that fell alone is counted in the summary.
    only = one_video(result, TRUTH, TRUTH, TRUTH)
    row = next(r for r in result.table if r.figure == "phase accuracy, pooled")
    values = row.metrics["M"], dataclasses.replace(row.metrics["M"], value=row.metrics["M"].value - 0.02)
    row = dataclasses.replace(row, metrics=dict(zip(("M", "M_H"), values, strict=True)))
    found, _, _ = judge(dataclasses.replace(only, table=[row]))
    (alone,) = found
    assert alone.plain == "1 metric is worse by more than 0.01: see Metrics that got worse, below."


def test_unchanged_predictions_are_the_recognizers(result, tmp_path):
    raw = runs((0, 500), (2, 1000))
    own = one_video(result, TRUTH, raw, raw)
    found, d, b = judge(own)
    assert not found and sentences.how_sure(d, b, tables.pairs(own)[0], own.protocol) == []
    text = " ".join(sentences.what_changed(d, b, []))
    assert "hmmjax found nothing that helps here: the files are the recognizer's predictions." in text
    assert "The recognizer never shows Beta<b> (0 of 1 segments)." in text and "→" not in text
    assert "Nothing: no prediction changed." in _page(own, tmp_path)
    # A class that the model alone shows.
    _, d, b = judge(one_video(result, TRUTH, raw, TRUTH))
    assert "never shows Beta<b> (0 of 1 segments); stabilized, 1 is" in " ".join(sentences.what_changed(d, b, []))


def test_without_annotations_certainty_is_unchecked_and_vanished_phases_got_worse(result):
    raw, smooth = runs((0, 500), (1, 60), (2, 940)), runs((0, 560), (2, 940))
    own = one_video(result, TRUTH, raw, smooth)
    bare = dataclasses.replace(own, truth_phases=None, notices=("a: something", f"b: {ENDS}"))
    found, d, b = judge(bare)
    assert "Nothing is annotated, so this certainty could not be checked." in sentences.how_sure(d, b, None, "")[0]
    assert "Beta<b> in a (60 s" in found[0].plain and found[0].plain.startswith("Phases that the recognizer predicts")
    assert [w.plain for w in found[1:]] == [f"B: {ENDS}."]
    assert sentences.unknown(d, None, 1, True).startswith("What else got worse is unknown: the phases")
    # Annotations say whether the phase is real.
    assert any("missing from a video" in w.plain for w in judge(own)[0])
    absent = dataclasses.replace(own, truth_phases=[runs((0, 560), (2, 940))])
    assert not any("missing from a video" in w.plain for w in judge(absent)[0])
    # Few annotated videos are named.
    assert sentences.unknown(d, judge(own)[2], 5, True).endswith("only 1 video has annotated phases, of 5.")


ENDS = "the annotations end early: if the annotations are not partial, check the time between their rows"
