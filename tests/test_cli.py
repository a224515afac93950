"""`hmmjax stabilize` and `evaluate` on small files: what is written, and that no video is scored in sample."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from commands import NAMES, PHASES, TOOLS, read_both, run

import hmmjax
from hmmjax import io
from hmmjax import stabilize as job
from hmmjax.stabilize.systems import System
from hmmjax.stabilize.warnings import worse_classes, worse_videos

# --- what is written ---------------------------------------------------------------------------------------------


def test_one_command_writes_everything(world, both):
    out, result = both
    for track, suffix in (("phases", "-phase.txt"), ("tools", "-tool.csv")):
        assert sorted(p.name for p in (out / track).iterdir()) == [f"video{v:02d}{suffix}" for v in range(1, 6)]
    assert sorted(p.name for p in (out / "pictures").iterdir()) == [f"video{v:02d}.png" for v in range(1, 6)]
    assert "5 annotated videos, held out one at a time" in result.stdout
    assert "scikit-learn step AP" in result.stdout and "M_H online" in result.stdout and "2 classes" in result.stdout
    assert "recognizer errors counted" in result.stderr and "\x1b" not in result.stdout


def test_predictions_come_back_in_the_files_own_layout(world, both):
    out, _ = both
    for v in range(1, 6):
        before = (world / "said" / f"video{v:02d}-phase.txt").read_text().splitlines()
        after = (out / "phases" / f"video{v:02d}-phase.txt").read_text().splitlines()
        assert [line.split("\t")[0] for line in after] == [line.split("\t")[0] for line in before]
        header = (out / "tools" / f"video{v:02d}-tool.csv").read_text().splitlines()[0]
        assert header == "Frame,Fork,Knife"
    posteriors = {(t.video, t.track): t for t in io.read(out / "stabilized.npz")}
    written = io.read([out / "phases", out / "tools"], phase_names=PHASES, tool_names=TOOLS)
    for track in written:
        best = posteriors[track.video, track.track]
        if track.track == "phases":
            np.testing.assert_array_equal(track.values, best.values.argmax(1))
        else:
            np.testing.assert_allclose(track.reorder(TOOLS).values, best.reorder(TOOLS).values, rtol=1e-6)


def test_python_gives_the_same_to_the_last_digit(world, both):
    out, _ = both
    predictions, annotations = read_both(world)
    result = job.stabilize(predictions, annotations)
    with open(out / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = job.records(result.table)
    assert [r["figure"] for r in rows] == [r["figure"] for r in expected]
    for row, want in zip(rows, expected, strict=True):
        assert float(row["value"]) == want["value"] and row["system"] == want["system"]
        assert row["convention"] and row["videos"] == "5" and row["split"] == result.protocol
    assert json.loads((out / "table.json").read_text())["table"] == json.loads(job.as_json(result.table, []))["table"]
    with np.load(out / "stabilized.npz") as data:
        np.testing.assert_array_equal(data["phases_01"], result.smoothed.phases[0])
        np.testing.assert_array_equal(data["filtered_tools_05"], result.filtered.tools[4])
        np.testing.assert_array_equal(data["filtered_tool_log_odds_05"], result.filtered.tool_log_odds[4])
        np.testing.assert_array_equal(data["phase_log_probs_02"], result.smoothed.phase_log_probs[1])
        odds = data["tool_log_odds_01"].astype(np.float64)
        np.testing.assert_allclose(1 / (1 + np.exp(-odds)), data["tools_01"], atol=1e-6)
        assert data["log_likelihood_03"] == result.log_likelihood[2] and data["fold_03"] == 2


def test_it_helps(both):
    table = {(r["figure"], r["system"]): r["value"] for r in json.loads((both[0] / "table.json").read_text())["table"]}
    for figure in ("phase accuracy, pooled", "phase Jaccard, strict", "tool mAP", "tool F1, macro"):
        assert table[figure, "M_H"] > table[figure, "M"] + 0.03
    # With few videos tools keep half of the recognizer, and some of its flicker.
    for figure, least in (("phase changes", 2), ("tool on/off changes", 1.5)):
        assert table[figure, "truth"] <= table[figure, "M_H"] < table[figure, "M"] / least


def test_the_model_file_infers_again(world, both, tmp_path):
    model = io.load_params(both[0] / "model.npz")
    assert (model.phase_names, model.fps) == (PHASES, 1.0)
    assert set(model.tool_names) == set(TOOLS) and model.metadata["videos"] == [f"video{v:02d}" for v in range(1, 6)]
    result = run(
        "stabilize", world / "said", *NAMES, "--model", both[0] / "model.npz", "--out", tmp_path / "o", "--no-pictures"
    )
    assert "no annotations" in result.stdout and "--online-model model_online.npz" in result.stderr
    predictions, _ = read_both(world)
    videos = io.join([t.reorder(model.tool_names if t.track == "tools" else PHASES) for t in predictions])
    obs, _, mask, index = io.to_batch(videos)
    expected = index.split(hmmjax.posterior(model.params, obs, mask).phases)
    with np.load(tmp_path / "o" / "stabilized.npz") as data:
        np.testing.assert_allclose(data["phases_02"], expected[1], atol=1e-5)
    again = job.stabilize(*read_both(world), model=model)
    assert again.protocol.startswith("IN SAMPLE for 5 of 5 videos")


def test_online_writes_the_filter(world, both, tmp_path):
    run(
        *("stabilize", world / "said", "--annotations", world / "truth", *NAMES),
        *("--out", tmp_path / "o", "--online", "--videos", "1-5"),
    )
    with np.load(both[0] / "stabilized.npz") as data:
        for v in range(1, 6):
            (track,) = io.read(tmp_path / "o" / "phases" / f"video{v:02d}-phase.txt")
            np.testing.assert_array_equal(track.values, data[f"filtered_phases_{v:02d}"].argmax(1))


# --- honesty -----------------------------------------------------------------------------------------------------


def spoil(tracks, video):
    """Return the annotations with those of one video made wrong."""
    return [
        dataclasses.replace(t, values=((t.values + 1) % (3 if t.track == "phases" else 2)).astype(np.int32))
        if t.video == video
        else t
        for t in tracks
    ]


@pytest.mark.parametrize("transitions", [False, True])
def test_a_videos_own_labels_never_touch_its_result(world, transitions):
    """Neither as annotations nor as videos in which transitions are counted."""
    predictions, annotations = read_both(world)
    bad = spoil(annotations, "video02")
    a = job.stabilize(predictions, annotations, transitions=annotations if transitions else ())
    b = job.stabilize(predictions, bad, transitions=bad if transitions else ())
    np.testing.assert_array_equal(a.smoothed.phases[1], b.smoothed.phases[1])
    np.testing.assert_array_equal(a.smoothed.tools[1], b.smoothed.tools[1])
    assert np.abs(a.smoothed.phases[0] - b.smoothed.phases[0]).max() > 1e-6


def test_a_single_annotated_video_is_called_in_sample(world):
    predictions, annotations = read_both(world)
    result = job.stabilize(predictions, [t for t in annotations if t.video == "video03"])
    assert "IN SAMPLE" in result.protocol and set(result.folds) == {-1}
    assert all(m.n_videos == 1 for row in result.table for m in row.metrics.values())


def test_videos_without_annotations_are_stabilized_but_not_scored(world):
    predictions, annotations = read_both(world)
    result = job.stabilize(predictions, [t for t in annotations if t.video != "video04"], folds=2)
    assert result.folds == (0, 0, 1, -1, 1)
    assert result.smoothed.phases[3].shape == (60, 3)
    assert all(m.n_videos == 4 for row in result.table for m in row.metrics.values())
    assert any("have no annotations: video04" in n for n in result.notices)


# --- ways of learning --------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_partly_labeled_videos_are_learned_by_em(world):
    predictions, annotations = read_both(world)
    predictions, annotations = (io.select(tracks, "1-4") for tracks in (predictions, annotations))
    sparse = [dataclasses.replace(t, values=t.values.copy()) for t in annotations]
    for track in sparse:
        track.values[np.arange(len(track.frames)) % 4 > 0] = -1
    result = job.stabilize(predictions, sparse, folds=2, max_iterations=5)
    assert any("EM, 5 iterations" in n for n in result.notices)
    table = {row.figure: row.metrics for row in result.table}
    accuracy = table["phase accuracy, pooled"]
    assert accuracy["M"].n_frames == sum(-(-len(f) // 4) for f in result.frames)
    assert accuracy["M_H"].value > accuracy["M"].value


def test_no_annotations_at_all(world):
    predictions, annotations = read_both(world)
    alone = job.stabilize(predictions, max_iterations=3)
    assert alone.table == [] and alone.protocol == "no annotations"
    given = job.stabilize(predictions, transitions=annotations, max_iterations=3)
    counted = hmmjax.estimate(
        hmmjax.Labels(*(getattr(io.to_batch(io.join(annotations))[0], t) for t in ("phases", "tools"))),
        None,
        io.to_batch(io.join(annotations))[2],
        priors=job.PRIORS,
    )
    # Classes of the result are in the predictions' order: phases are the same in both.
    np.testing.assert_allclose(given.model.params.phases.transition, counted.phases.transition, rtol=1e-6)


@pytest.mark.thorough
def test_phases_from_tools_alone(world, tmp_path):
    result = run(
        *("stabilize", world / "said" / "video01-tool.csv", "--tools", world / "said" / "video02-tool.csv"),
        *("--annotations", world / "labels.npz", *NAMES, "--out", tmp_path / "o", "--leave-one-out", "--json"),
    )
    table = {(r["figure"], r["system"]): r["value"] for r in json.loads(result.stdout)["table"]}
    assert ("phase accuracy, pooled", "M") not in table and table["phase accuracy, pooled", "M_H"] > 0.5
    text = (tmp_path / "o" / "inferred-phases" / "video01-phase.txt").read_text().splitlines()
    assert text[0] == "Frame\tPhase" and text[1].split("\t") == ["0", "Alpha"] and len(text) == 46
    plain = job.stabilize(
        io.read(world / "said" / "video01-tool.csv", tool_names=TOOLS),
        io.read_annotations(world / "labels.npz", phase_names=PHASES, tool_names=TOOLS),
        hidden_phases=False,
    )
    assert plain.smoothed.phases is None and plain.model.params.num_phases == 0


def test_unobserved_tools_are_left_out(world):
    predictions, annotations = read_both(world)
    only = [t for t in predictions if t.track == "phases"]
    result = job.stabilize(only, [t for t in annotations if t.track == "phases"], transitions=annotations)
    assert result.model.params.tools is None and result.smoothed.tools is None


@pytest.mark.thorough
def test_probability_emissions_and_logits(world, tmp_path):
    predictions, _ = read_both(world)
    tools = [t for t in predictions if t.track == "tools"][:4]
    arrays = {f"logits_{t.video[5:]}": np.log(t.values + 1e-3) - np.log(1 - t.values + 1e-3) for t in tools}
    np.savez(tmp_path / "logits.npz", tool_names=np.array(["Fork", "Knife"]), **arrays)
    out = tmp_path / "o"
    run(
        *("stabilize", tmp_path / "logits.npz", "--kind", "logits", "--annotations", world / "labels.npz", *NAMES),
        *("--out", out, "--emissions", "probability", "--folds", 2, "--no-hidden-phases", "--no-pictures"),
    )
    assert type(io.load_params(out / "model.npz").params.tools.emission).__name__ == "ToolBeta"
    again = io.read(out / "tools" / "logits.npz", kind="logits", tool_names=TOOLS)
    posteriors = {t.video: t for t in io.read(out / "stabilized.npz")}
    for track in again:
        want = posteriors[track.video].reorder(track.names).values
        np.testing.assert_allclose(track.values, want, atol=1e-6)


# --- evaluate ----------------------------------------------------------------------------------------------------


def test_evaluate_equals_m_of_stabilize(world, both, tmp_path):
    result = run(
        *("evaluate", world / "said", "--truth", world / "labels.npz", *NAMES, "--json", "--csv", tmp_path / "t.csv")
    )
    found = {r["figure"]: r["value"] for r in json.loads(result.stdout)["table"] if r["system"] == "predictions"}
    table = json.loads((both[0] / "table.json").read_text())["table"]
    assert found == {r["figure"]: r["value"] for r in table if r["system"] == "M"}
    assert (tmp_path / "t.csv").read_text().startswith("figure,system,value")


def test_evaluate_the_written_result(world, both):
    out = both[0]
    result = run("evaluate", out / "phases", "--truth", world / "truth", *NAMES, "--json")
    found = {r["figure"]: r["value"] for r in json.loads(result.stdout)["table"] if r["system"] == "predictions"}
    table = json.loads((out / "table.json").read_text())["table"]
    want = {r["figure"]: r["value"] for r in table if r["system"] == "M_H" and r["figure"].startswith("phase")}
    assert found == want


def test_seconds_meet_25_fps_annotations(world, tmp_path):
    for v in (1, 2):
        lines = (world / "said" / f"video{v:02d}-phase.txt").read_text().splitlines()
        text = "".join(f"{int(x.split()[0]) // 25}\t{x.split()[1]}\n" for x in lines)
        (tmp_path / f"video-{v}.txt").write_text("Frame\tPhase\n" + text)
    seconds = ("evaluate", tmp_path, "--truth", world / "truth", *NAMES, "--fps", 1)
    # --fps applies to annotations too, which then are 25 times as long as the predictions.
    error = run(*seconds, code=2).stderr
    assert "--annotations-fps" in error and "the annotations at" in error
    ours = run(*seconds, "--annotations-fps", 25, "--json").stdout
    theirs = run("evaluate", world / "said", "--videos", "1-2", "--truth", world / "truth", *NAMES, "--json").stdout
    pick = [
        {r["figure"]: r["value"] for r in json.loads(x)["table"] if r["figure"].startswith("phase")}
        for x in (ours, theirs)
    ]
    assert pick[0] == pick[1] and pick[0]
    # Forgetting --fps is caught: one row per frame number is 25 predictions a second.
    error = run("evaluate", tmp_path, "--truth", world / "truth", *NAMES, "--json", code=2).stderr
    assert "(--fps)" in error and "the predictions end at" in error


# --- errors ------------------------------------------------------------------------------------------------------


def figures(stdout):
    return {(r["figure"], r["system"]): r["value"] for r in json.loads(stdout)["table"]}


@pytest.mark.thorough
def test_real_tmrnet(data_dir, tmp_path):
    labels = data_dir / "cholec80" / "labels_1fps.npz"
    result = run(
        *("stabilize", data_dir / "tmrnet" / "pred-phase", "--annotations", data_dir / "tmrnet" / "gt-phase"),
        *("--phase-names", "cholec80", "--transitions-from", labels, "--transition-videos", "1-40"),
        *("--out", tmp_path / "o", "--no-pictures", "--no-calibrate", "--json"),
    )
    found = figures(result.stdout)
    assert round(found["phase accuracy, pooled", "M"], 4) == 0.8422 and found["phase changes", "M"] == 1368
    assert round(found["phase Jaccard, strict", "M"], 3) == 0.710
    assert found["phase accuracy, pooled", "M_H"] >= 0.848
    assert found["phase Jaccard, strict", "M_H"] >= 0.725
    assert found["phase changes", "M_H"] < 480


@pytest.mark.thorough
def test_real_detections(data_dir, tmp_path):
    labels = data_dir / "cholec80" / "labels_1fps.npz"
    result = run(
        *("stabilize", data_dir / "frcnn" / "scores_1fps.npz", "--annotations", labels, "--leave-one-out"),
        *("--transitions-from", labels, "--transition-videos", "1-40"),
        *("--out", tmp_path / "o", "--no-pictures", "--json"),
    )
    found = figures(result.stdout)
    assert round(found["tool mAP", "M"], 3) == 0.773 and found["tool on/off changes", "M"] == 2036
    assert found["tool mAP", "M_H"] >= 0.87 and found["tool F1, macro", "M_H"] >= 0.81
    assert found["tool on/off changes", "M_H"] < 650 and found["phase accuracy, pooled", "M_H"] >= 0.76


# --- a folder of results is complete in itself -------------------------------------------------------------------


@pytest.mark.thorough
def test_calibrates_where_enough_videos_are_left_to_learn_from(world, monkeypatch):
    monkeypatch.setattr("hmmjax.stabilize.folds.ENOUGH_VIDEOS", 4)
    predictions, annotations = read_both(world)
    for folds, asked, powers in ((None, None, True), (2, None, False), (None, False, False)):
        found = job.stabilize(predictions, annotations, folds=folds, calibrated=asked, emissions="confusion")
        chains = (found.model.params.phases, found.model.params.tools)
        assert [isinstance(c.emission, hmmjax.emissions.Tempered) for c in chains] == [powers] * 2
        assert any("on held-out videos, calibration changes" in n for n in found.notices) == powers
        assert any("each model needs 4 annotated videos" in n for n in found.notices) == (folds == 2)


def test_videos_that_come_out_worse_are_named():
    truth = [np.array([0, 0, 1, 1]), np.array([0, 1, -1]), np.array([-1, -1])]
    good, bad = System("M", truth), System("M_H", [np.array([0, 0, 0, 1]), np.array([0, 1, 0]), np.array([0, 0])])
    (notice,) = worse_videos(good, bad, truth, ("a", "b", "c"))
    assert "1 of 2 videos (frame accuracy: a 1.000 to 0.750)" in notice
    assert worse_videos(bad, good, truth, ("a", "b", "c")) == [] == worse_videos(good, bad, None, ("a", "b", "c"))


def test_classes_that_come_out_worse_are_named():
    truth = [np.array([0, 0, 1, 1]), np.array([-1, -1, -1, -1])]
    good, bad = System("M", truth), System("M_H", [np.array([0, 0, 0, 1]), np.array([0, 0, 0, 0])])
    names = {"phases": ("Alpha", "Beta"), "tools": ("Knife", "Fork")}
    (notice,) = worse_classes(good, bad, System("truth", truth), names)
    assert notice.startswith("2 of 2 phases are recognized less well")
    assert "(Jaccard: Beta 1.000 to 0.500, Alpha 1.000 to 0.667" in notice
    unnamed = {"phases": None, "tools": None}
    assert worse_classes(bad, good, System("truth", truth), unnamed) == []
    assert worse_classes(good, bad, System("truth"), unnamed) == []
    presence = [np.array([[1, 1], [0, 0], [0, 1]])]
    outputs = System("M", None, [presence[0].astype(np.float32)])
    worse = System("M_H", None, [np.array([[0.1, 0.9], [0.2, 0.1], [0.3, 0.8]], np.float32)])
    (notice,) = worse_classes(outputs, worse, System("truth", None, presence), names)
    assert "1 of 2 tools" in notice and "average precision: Knife 1.000 to 0.333; mean over tools" in notice


def test_labels_are_no_probabilities(world):
    predictions, annotations = read_both(world)
    phases = [t for t in predictions if t.track == "phases"]
    with pytest.raises(io.FormatError, match="the predicted phases are labels"):
        job.stabilize(phases, annotations, emissions="probability")
