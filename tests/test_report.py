"""`hmmjax.report`: correct numbers, a page that needs no other file, and its behavior in a browser."""

import csv
import dataclasses
import json
import re
import shutil

import cases
import numpy as np
import oracles
import pages
import pytest

import hmmjax
from hmmjax import io, report
from hmmjax import stabilize as job
from hmmjax._core.occupancy import occupancy_variance
from hmmjax.report import sections, sentences, summary, tables, worse
from hmmjax.report.delays import Delay, delays, later
from hmmjax.report.figures import pictures
from hmmjax.report.latex import latex
from hmmjax.report.minutes import Minutes, estimate_minutes
from hmmjax.report.reasons import describe, reasons_in_words
from hmmjax.stabilize import warnings
from hmmjax.stabilize.systems import System
from hmmjax.stabilize.table import compare_systems

P, T = ("Alpha", "Beta<b>", "Gamma"), ("Knife", "Fork_1")


def runs(*parts):
    return np.concatenate([np.full(n, v, np.int32) for v, n in parts])


@pytest.fixture(scope="module")
def result():
    """Two videos made by hand, with a noisy raw result and a mostly correct stabilized one."""
    rng = np.random.default_rng(0)
    truth = [runs((0, 30), (1, 40), (2, 20)), runs((0, 20), (2, 40))]
    tools = [np.stack([t == 1, t != 2], 1).astype(np.int32) for t in truth]
    raw_phases = [np.where(rng.random(len(t)) < 0.2, rng.integers(0, 3, len(t)), t).astype(np.int32) for t in truth]
    raw_phases[0][40:46] = 2  # a run for "what changed": truth and stabilized say 1
    raw_tools = [np.clip(np.abs(t - (rng.random(t.shape) < 0.15)) * 0.9 + 0.05, 0, 1).astype(np.float32) for t in tools]
    tools[1][:, 1] = -1  # a track that is annotated in part

    def sure(labels, classes):
        return (0.9 * np.eye(classes)[labels] + 0.1 / classes).astype(np.float32)

    smooth = [sure(t, 3) for t in truth]
    filtered = [sure(t, 3) for t in raw_phases]
    present = [np.where(t == 0, 0.02, 0.97).astype(np.float32) for t in tools]
    emission = hmmjax.emissions.PhaseConfusion(np.full((3, 3), 0.1, np.float32) + 0.7 * np.eye(3, dtype=np.float32))
    params = hmmjax.Params(
        hmmjax.PhaseChain(
            np.full(3, 1 / 3, np.float32), np.full((3, 3), 0.01, np.float32) + 0.97 * np.eye(3, dtype=np.float32),
            emission,
        ),
        hmmjax.ToolChains(
            np.full((2, 3), 0.5, np.float32),
            hmmjax.transitions.PhaseConditioned(np.tile(np.array([[0.9, 0.1], [0.2, 0.8]], np.float32), (2, 3, 1, 1))),
            hmmjax.emissions.ToolConfusion(np.tile(np.array([[0.8, 0.2], [0.3, 0.7]], np.float32), (2, 1, 1))),
        ),
    )  # fmt: skip
    systems = [
        System("M", raw_phases, raw_tools),
        System("M_H", smooth, present),
        System("M_H online", filtered, present),
    ]
    return job.Stabilized(
        ("video01", "video02"),
        tuple(25 * np.arange(len(t)) for t in truth),
        25.0,
        1.0,
        P,
        T,
        truth,
        tools,
        *systems,
        log_likelihood=np.zeros(2),
        folds=(0, 1),
        protocol="2 annotated videos, held out one at a time",
        model=io.ModelFile(params, P, T, 1.0, {"method": "by hand </script>"}),
        table=compare_systems(
            systems, truth, tools, phase_names=P, tool_names=T, split="2 annotated videos, held out one at a time"
        ),
        notices=("a note with <markup>",),
    )


@pytest.fixture(scope="module")
def written(result, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    (folder / "frames" / "video01").mkdir(parents=True)
    from PIL import Image

    for frame in range(0, 90 * 25, 25):
        Image.new("RGB", (64, 36), (frame % 255, 80, 40)).save(folder / "frames" / "video01" / f"{frame:06d}.png")
    (folder / "costs.csv").write_text(
        "name,cost,value,low,high,cost_unit,figure\nS_C,10,0.7,0.65,0.75,hours,tool mAP\nS_D,2,0.6,,,hours,tool mAP\n"
    )
    files = report.write_report(
        result,
        folder / "out",
        title="A <title> & more",
        frames=folder / "frames",
        costs=report.read_costs(folder / "costs.csv"),
    )
    return folder / "out", files


@pytest.mark.thorough
def test_everything_promised_is_there(written):
    folder, files = written
    assert all(f.is_file() and f.stat().st_size for f in files) and files[0] == folder / "report.html"
    assert {f for f in folder.rglob("*") if f.is_file()} == set(files)
    names = {f.name for f in files}
    assert {"main.csv", "main.tex", "summary.csv", "changes.csv", "minutes_phases.csv", "confusion_phases.svg",
            "calibration.png", "transitions_tools.svg", "emission_tools.png", "costs.svg",
            "precision_recall.csv"} <= names  # fmt: skip


def test_the_page_needs_nothing_else_and_escapes_what_it_is_given(written):
    text = (written[0] / "report.html").read_text()
    assert not re.search(r"""(?:src|href)=["'](?!data:|#)""", text) and "@import" not in text and "http" not in text
    assert "A &lt;title&gt; &amp; more" in text and "a note with &lt;markup&gt;" in text
    assert text.count("</script>") == 2 and "Beta<b>" not in text
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)[1])
    assert [v["id"] for v in data["videos"]] == ["video01", "video02"]
    assert data["videos"][0]["phases"]["truth"] == [[0, 30, 0], [30, 70, 1], [70, 90, 2]]
    for section in ("figures", "videos", "changes", "minutes", "calibration", "model", "recognizer", "costs"):
        assert f'id="{section}"' in text
    assert "data:image/jpeg;base64" in text  # thumbnails


def test_no_figure_without_its_convention(written, result):
    with open(written[0] / "tables" / "main.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows and all(r["convention"] and r["videos"] and r["frames"] for r in rows)
    text = (written[0] / "report.html").read_text()
    for row in result.table:
        assert row.figure in text


def test_the_longest_change_is_explained(result):
    change = report.longest_changes(result)[0]
    assert (change.video, change.track, change.raw, change.stabilized) == (0, "phases", 2, 1)
    assert change.start <= 40 and change.end >= 46 and change.right == 1 and change.raw_right == 0
    # Six frames called 2 in phase 1: by hand, from the matrices above.
    n = round(change.seconds)
    assert change.frames_say == pytest.approx(n * np.log(0.1 / 0.8), rel=1e-4)  # against the change
    path = np.log([0.98, 0.98]).sum() - np.log([0.01, 0.01]).sum()
    assert change.moves_say == pytest.approx(path, rel=1e-4) and abs(change.tools_say) < 1e-6
    sentence, weights = describe(change, P, T)
    assert "predicted Gamma; the model infers Beta<b>" in sentence and "+9.2" in weights
    assert f"the recognizer's outputs {change.frames_say:+.1f}" in weights  # the csv has the page's sign


@pytest.mark.parametrize("track", ["phases", "tools"])
def test_variances_of_minutes_are_exact(track):
    case = cases.make(3, 2, 2, num_frames=4, batch=2)
    found = occupancy_variance(case.params, case.obs, case.mask, track)
    for i, table in enumerate(case.emission_tables):
        phases, tools, log_prob = oracles._enumerate(case.model, table)
        weight = np.exp(log_prob - log_prob.max())
        weight /= weight.sum()
        counts = np.eye(2)[phases].sum(1) if track == "phases" else tools.sum(1)
        mean = weight @ counts
        np.testing.assert_allclose(found[i], weight @ (counts - mean) ** 2, rtol=2e-2, atol=2e-3)


def test_bands_hold_what_they_promise():
    rng = np.random.default_rng(1)
    truth = rng.uniform(5, 20, (400, 2))
    table = Minutes(P[:2], truth, truth, truth + rng.normal(0, (1, 3), truth.shape), None)
    low, high = table.bands()
    inside = (low <= truth) & (truth <= high)
    assert 0.78 < inside.mean() < 0.82 and low.min() >= 0
    # Errors to one side: the band reaches to that side only, and never below nothing.
    late = Minutes(P[:2], truth, truth, truth + rng.exponential(8, truth.shape), None)
    low, high = late.bands()
    assert (low >= 0).all() and (late.stabilized - low).mean() > 5 * (high - late.stabilized).mean()
    median, most = late.errors("stabilized")
    assert (median < most).all() and (late.errors("raw")[1] == 0).all()
    few = Minutes(P[:2], truth[:9], truth[:9], truth[:9], None)
    assert few.bands() is None
    with pytest.raises(ValueError, match="no deviations"):
        few.coverage()


def test_what_is_missing_is_left_out(result, tmp_path):
    phases_only = dataclasses.replace(
        result,
        raw=System("M", result.raw.phases),
        smoothed=System("M_H", result.smoothed.phases),
        filtered=System("M_H online", result.filtered.phases),
        truth_phases=None,
        truth_tools=None,
        table=[],
        model=io.ModelFile(hmmjax.Params(result.model.params.phases), None, None, 1.0),
        phase_names=None,
        tool_names=None,
    )
    report.write_report(phases_only, tmp_path, intervals=False, videos=False)
    text = (tmp_path / "report.html").read_text()
    assert "Main metrics" not in text and "phase 0" in text.lower() and 'id="changes"' in text
    with pytest.raises(FileExistsError):
        report.write_report(phases_only, tmp_path)


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


def test_every_csv_names_its_protocol(written):
    def header(name):
        with open(written[0] / "tables" / f"{name}.csv", newline="") as file:
            return list(csv.DictReader(file))

    splits = {r["split"] for name in ("main", "more", "classes", "pairs", "delays") for r in header(name)}
    assert splits == {"2 annotated videos, held out one at a time"}
    assert {(r["level"], r["interval"]) for r in header("pairs")} == {("0.95", "Student's t over videos")}
    assert all(int(r["videos"]) and int(r["frames"]) for r in header("classes"))
    assert {r["classes"] for r in header("more") if r["figure"] == "edit score"} == {""}
    for name in ("confusion_phases", "precision_recall", "calibration"):
        assert {r["system"] for r in header(name)} <= {"M", "M_H", "M_H online"}


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


def test_reasons_are_words(result):
    change = report.longest_changes(result)[0]
    assert reasons_in_words(change) == (
        "For: the order and the usual length of phases (clearly). Against: the recognizer's outputs (strongly)."
    )


def test_equal_systems_are_bold_together_or_not_at_all():
    from hmmjax.metrics import Metric
    from hmmjax.report.cells import table_row
    from hmmjax.stabilize import Row

    def bold(unit, *values, truth=None):
        systems = ("M", "M_H", "M_H online")
        row = Row("a", {n: Metric("a", "", x, unit) for n, x in zip(systems, values, strict=True)}, truth)
        return [cell["best"] for cell in table_row(row, systems)["cells"]]

    assert bold("", 0.5, 0.7, 0.7) == [False, True, True]
    assert bold("phases", 0.0, 0.0, 0.0) == [False] * 3 and bold("phases", 2.0, 0.0, 1.0) == [False, True, False]
    assert bold("changes", 9.0, 4.0, 2.0, truth=3.0) == [False, True, True]
    assert bold("changes", 9.0, 4.0, 2.0) == [False] * 3


def test_texts_of_pictures_do_not_overlap():
    full = pages.full_result()
    minutes = {
        track: report.estimate_minutes(full, track, names, intervals=False)
        for track, names in (("phases", full.phase_names), ("tools", full.tool_names))
    }
    costs = [{"name": "all frames", "cost": 10, "value": 0.7}, {"name": "one in ten", "cost": 2, "value": 0.6}]
    drawn = pictures(full, full.phase_names, full.tool_names, minutes, costs)
    assert len(drawn) > 8
    found = {p.name: pages.overlapping_texts(p.figure) for p in drawn}
    found |= {video: pages.overlapping_texts(job.plot_result(full, video, online=True)) for video in full.ids}
    assert not {name: pairs for name, pairs in found.items() if pairs}
    # The measurement finds what overlaps.
    bad = drawn[0].figure
    bad.text(0.5, 0.5, "over"), bad.text(0.5, 0.5, "under")
    assert ("over", "under") in pages.overlapping_texts(bad)


def test_latex_is_balanced_and_escaped(result):
    text = latex(result.table, "100 % of M_H & more")
    assert text.count("{") == text.count("}") and "M\\_H" in text and "100 \\% of" in text
    assert text.count("\\\\") == len(result.table) + 1
    assert "$\\pm$ over phases" in text and "(2 annotated videos, held out one at a time)" in text
    assert all(f"\\{word}" in text for word in ("centering", "label{tab:hmmjax}"))
    notes = text.split("footnotesize")[1].split("$^{")[1:]
    assert len(notes) == len({n.split("}$")[1].strip() for n in notes}) < len(result.table)  # the same note once


@pytest.mark.parametrize(
    ("text", "message"),
    [("name,cost\na,1\n", "has no column value"), ("name,cost,value\na,x,1\n", "cost is 'x'"),
     ("name,cost,value\na,1,nan\n", "value is 'nan'"), ("name,cost,value\na,,1\n", "cost is")],
)  # fmt: skip
def test_invalid_costs_are_refused(tmp_path, text, message):
    (tmp_path / "c.csv").write_text(text)
    with pytest.raises(io.FormatError, match=message):
        report.read_costs(tmp_path / "c.csv")


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium, if it is installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright")
    path = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium on the path")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


def test_in_a_browser(browser, written):
    page = browser.new_page(viewport={"width": 1300, "height": 800})
    complaints, requests = [], []
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.on("request", lambda r: requests.append(r.url) if not r.url.startswith(("file:", "data:")) else None)
    page.goto((written[0] / "report.html").as_uri())
    broken = "Array.from(document.images).filter(i => !i.complete || i.naturalWidth === 0).length"
    assert page.evaluate(broken) == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth + 1")
    page.click("[data-video=video02] >> nth=0")
    canvas = page.locator("#canvas")
    assert page.inner_text("#viewer-title") == "video02" and canvas.get_attribute("data-to") == "60.00"
    colors = page.evaluate(
        "() => { const c = document.getElementById('canvas'), d = c.getContext('2d').getImageData(0, 0, c.width,"
        " c.height).data, s = new Set(); for (let i = 0; i < d.length; i += 4) s.add(d[i] + ',' + d[i + 1] + ',' +"
        " d[i + 2]); return [...s]; }"
    )
    assert {"204,121,167", "240,228,66", "94,44,165"} <= set(colors)  # phases 0 and 2, a stabilized tool
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    assert "truth" in page.inner_text("#readout") and re.search(
        r"\(truth [\w ]+, raw \w+\)", page.inner_text("#readout")
    )
    page.mouse.wheel(0, -300)
    page.wait_for_function("Number(document.getElementById('canvas').dataset.to) < 60")
    page.keyboard.press("n")
    page.keyboard.press("0")
    page.click("[data-do=previous]")
    assert page.inner_text("#viewer-title") == "video01"
    page.keyboard.press("Escape")
    page.click(".change-link >> nth=0")
    assert page.inner_text("#viewer-title") == "video01" and float(canvas.get_attribute("data-from")) <= 40
    assert not complaints and not requests


def test_a_laptop_shows_picture_and_readout_together(browser, written):
    page = browser.new_page(viewport={"width": 1366, "height": 640})
    page.goto((written[0] / "report.html").as_uri())
    page.click("[data-video=video01] >> nth=0")
    readout, canvas = (page.locator(f"#{name}").bounding_box() for name in ("readout", "canvas"))
    assert readout["y"] >= 0 and readout["y"] + readout["height"] <= canvas["y"] + 1
    assert canvas["y"] + canvas["height"] <= 640


def test_paper_keeps_the_key(browser, written):
    page = browser.new_page(viewport={"width": 720, "height": 1000})
    page.goto((written[0] / "report.html").as_uri())
    page.emulate_media(media="print")
    assert "from the top: truth, raw, online, stabilized" in page.inner_text("#videos")
    assert "Click on a video" not in page.inner_text("#videos")
    cut = "[...document.querySelectorAll('.video .id')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
    assert page.evaluate(cut) == 0
    unit = "(() => { const u = document.querySelector('.unit'); return u.scrollWidth <= u.clientWidth + 1; })()"
    assert page.evaluate(unit)
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.tHead)")


def test_minutes_of_all_systems_are_of_the_same_videos():
    from hmmjax.report.figures import _minutes

    truth = np.array([[10.0, 2.0], [np.nan, np.nan]])
    predicted = np.array([[10.0, 2.0], [1.0, 0.0]])
    (picture,) = _minutes({"phases": Minutes(("a", "b"), truth, predicted, predicted, None)})
    assert "mean over 1 video." in picture.caption
    drawn = {round(float(x), 6) for line in picture.figure.axes[0].lines for x in np.ravel(line.get_xdata())}
    drawn |= {round(float(p[0]), 6) for c in picture.figure.axes[0].collections for p in np.asarray(c.get_offsets())}
    assert 10.0 in drawn and 5.5 not in drawn


def test_pictures_that_cannot_be_read_are_left_out_by_name(tmp_path):
    from hmmjax.report.frames import Frames

    (tmp_path / "video01").mkdir()
    (tmp_path / "video01" / "000025.jpg").write_bytes(b"\xff\xd8\xff")
    with pytest.warns(UserWarning, match=r"000025.jpg: no thumbnail"):
        assert Frames(tmp_path).thumbnail("video01", 25) is None


def test_carets_and_tildes_are_text_in_latex():
    from hmmjax.report.latex import _tex

    assert _tex("A^B ~ 5 %") == r"A\textasciicircum{}B \textasciitilde{} 5 \%"


def test_overwriting_removes_only_an_earlier_runs_pictures(tmp_path):
    from hmmjax.stabilize.write import _clear

    for name in ("table.csv", "pictures/video01.png", "pictures/mine.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    _clear(tmp_path)
    assert (tmp_path / "table.csv").exists()  # of no run that is known of
    np.savez(tmp_path / "stabilized.npz", fold_01=0)
    _clear(tmp_path)
    assert [p.name for p in (tmp_path / "pictures").iterdir()] == ["mine.png"] and not (tmp_path / "table.csv").exists()
