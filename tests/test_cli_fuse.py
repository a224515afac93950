"""`hmmjax stabilize --fuse`: recognizers joined by frame, with their own error rates, some frames missing."""

import dataclasses
import json

import numpy as np
import pytest
from commands import NAMES, PHASES, read_both, run

import hmmjax
from hmmjax import io
from hmmjax import stabilize as job
from hmmjax.stabilize.fuse import union
from hmmjax.stabilize.learn import _family_names

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def second(world, tmp_path_factory):
    """Phase probabilities of another recognizer for videos 1-4, and only the first 30 rows of video 1."""
    folder, rng = tmp_path_factory.mktemp("second"), np.random.default_rng(1)
    for v in range(1, 5):
        truth = io.read_annotations(world / "truth" / f"video{v:02d}-phase.txt", phase_names=PHASES)[0].values
        scores = rng.dirichlet(np.ones(3), len(truth)) + 0.3 * np.eye(3)[truth]
        scores = (scores / scores.sum(1, keepdims=True))[: 30 if v == 1 else None]
        rows = [f"{25 * i},{','.join(f'{x:.6f}' for x in row)}" for i, row in enumerate(scores)]
        (folder / f"video{v:02d}.csv").write_text("\n".join(["Frame,Gamma,Alpha,Beta", *_turned(rows)]) + "\n")
    return folder


def _turned(rows):
    """Permute the columns: classes are matched by name."""
    return [",".join(np.array(row.split(","))[[0, 3, 1, 2]]) for row in rows]


@pytest.fixture(scope="module")
def fused(world, second, tmp_path_factory):
    out = tmp_path_factory.mktemp("fused") / "o"
    phases = sorted((world / "said").glob("*-phase.txt"))
    options = ("--fuse", second, "--annotations", world / "truth", *NAMES, "--out", out, "--folds", 2)
    return out, run("stabilize", *phases, *options)


def test_each_recognizer_and_what_is_fused_stand_in_the_table(world, fused, second):
    out, result = fused
    table = json.loads((out / "table.json").read_text())["table"]
    accuracy = {r["system"]: r for r in table if r["figure"] == "phase accuracy, pooled"}
    assert list(accuracy) == ["M", "M 2", "M_H", "M_H online"]
    assert accuracy["M_H"]["value"] > max(accuracy["M"]["value"], accuracy["M 2"]["value"])
    # Each is measured on the frames of which it speaks.
    frames = [len(t.frames) for t in io.read(second, phase_names=PHASES)]
    assert accuracy["M 2"]["frames"] == sum(frames) and accuracy["M"]["frames"] == sum(40 + 5 * v for v in range(1, 6))
    assert "M 2" in result.stdout and str(second) in result.stdout
    told = result.stderr.replace("\n", " ")
    assert "recognizer 2 has no prediction of phases in 1 video(s): video05" in told
    assert "video01: recognizer 2 has no prediction of phases in 15 of 45 frames" in told


def test_results_equal_the_posterior_of_fused_observations(world, fused, second):
    out, _ = fused
    model = io.load_params(out / "model.npz")
    assert [type(f).__name__ for f in model.params.phases.emission.families] == ["PhaseConfusion"] * 2
    first = [t for t in read_both(world)[0] if t.track == "phases"]
    other = {t.video: t.reorder(PHASES) for t in io.read(second, phase_names=PHASES)}
    result = job.stabilize(first, fuse=[list(other.values())], model=model)
    for i, track in enumerate(first):
        outputs = np.full(len(track.frames), -1, np.int32)
        if track.video in other:
            outputs[: len(other[track.video].frames)] = other[track.video].labels()
        want = hmmjax.posterior(model.params, hmmjax.Observations((track.values, outputs)))
        np.testing.assert_allclose(result.smoothed.phases[i], want.phases, atol=1e-5)


def test_results_read_back_and_files_come_back(world, fused):
    out, _ = fused
    found = job.read_results(out)
    assert [s.name for s in found.recognizers] == ["M", "M 2"] and np.isnan(found.fused[0].phases[4]).all()
    assert job.records(found.table) == json.loads((out / "table.json").read_text())["table"]
    assert sorted(p.name for p in (out / "phases").iterdir()) == [f"video{v:02d}-phase.txt" for v in range(1, 6)]


def test_the_report_takes_several_recognizers(fused, tmp_path):
    run("report", fused[0], "--out", tmp_path / "r", "--no-intervals", "--no-pictures")


def test_a_recognizer_of_its_own_for_each_track_and_other_rates(world):
    """One recognizer predicts phases, another tools in files that count seconds."""
    predictions, annotations = read_both(world)
    phases = [t for t in predictions if t.track == "phases"]
    tools = [t for t in predictions if t.track == "tools"]
    seconds = [dataclasses.replace(t, frames=t.frames // 25, fps=1.0) for t in tools]
    apart = job.stabilize(phases, annotations, fuse=[seconds], folds=2, emissions="confusion")
    together = job.stabilize(predictions, annotations, folds=2, emissions="confusion")
    # The first files that name tools are others: so is their order.
    order = [apart.tool_names.index(name) for name in together.tool_names]
    for a, b in zip(apart.smoothed.tools, together.smoothed.tools, strict=True):
        np.testing.assert_allclose(a[:, order], b, atol=1e-5)
    files = job.originals([phases, seconds])
    assert {t.track for t in files} == {"phases", "tools"} and len(files) == 10


def test_frames_that_never_meet_and_models_of_other_numbers_are_refused(world, fused, second, tmp_path):
    predictions, _ = read_both(world)
    phases = [t for t in predictions if t.track == "phases"]
    off = [dataclasses.replace(t, frames=t.frames + 7) for t in phases]
    with pytest.raises(io.FormatError, match="coincides with a frame of"):
        job.stabilize(phases, fuse=[off])
    with pytest.raises(io.FormatError, match=r"fuses 2 recognizer\(s\) of phases, but 1 were given"):
        job.stabilize(phases, model=io.load_params(fused[0] / "model.npz"))
    options = ("--out", tmp_path / "o", *NAMES, "--dry-run")
    assert "for each" in run(
        "stabilize", world / "said", "--fuse", second, "--fuse-kind", "labels", "--fuse-kind", "labels", *options,
        code=2,
    ).stderr  # fmt: skip
    assert "2 recognizers" in run("stabilize", world / "said", "--fuse", second, *options).stdout


def test_frames_that_one_lacks_do_not_thin_out_the_other(world):
    """The step is the most common one: the median of 25, 50, 25, 50 ... is not a step of the file."""
    phases = [t for t in read_both(world)[0] if t.track == "phases"]
    holes = [t.take(np.arange(t.frames.size) % 3 > 0) for t in phases]
    everything, sampled, notices = union([phases, holes])
    assert [t.frames.size for t in everything] == [t.frames.size for t in phases]
    assert [t.frames.size for t in sampled[1]] == [t.frames.size for t in holes]
    assert any("video01: recognizer 2 has no prediction of phases in 15 of 45 frames" in n for n in notices)
    sparse = [t.take(np.arange(t.frames.size) % 2 == 0) for t in phases]
    everything, _, notices = union([phases, sparse])
    assert everything[0].frames.size == sparse[0].frames.size
    assert notices[0] == "recognizer 1 predicts phases between the steps of another (50): not used"


def test_recognizers_of_other_videos_are_refused_and_copies_named(world):
    phases = [t for t in read_both(world)[0] if t.track == "phases"]
    with pytest.raises(io.FormatError, match=r"recognizer 1 shares no video of phases .*video01.*video91"):
        union([phases, [dataclasses.replace(t, video=t.video.replace("0", "9")) for t in phases]])
    assert "recognizers 1 and 2 have identical predictions of phases" in union([phases, phases])[2][0]


def test_chosen_videos_that_one_lacks(world, second, tmp_path):
    options = (*NAMES, "--dry-run", "--out", tmp_path / "o", "--videos")
    assert "2 recognizers" in run("stabilize", world / "said", "--fuse", second, *options, "4,5").stdout
    alone = run("stabilize", world / "said", "--fuse", second, *options, "5", code=2).stderr.replace("\n", " ")
    assert "recognizer 2 has none of the videos 5" in alone
    # A video that only the second has is one of the chosen as well.
    outputs = [world / "said" / f"video{v:02d}-phase.txt" for v in (1, 2)]
    plan = json.loads(run("stabilize", *outputs, "--fuse", second, *options, "1-3", "--json").stdout)
    assert plan["would_stabilize"] == ["video01", "video02", "video03"] and plan["recognizers"] == 2
    assert any("recognizer 1 has no prediction of phases in 1 video(s): video03" in n for n in plan["notices"])


def test_labels_take_the_family_that_was_asked_for():
    outputs = (np.zeros((1, 2, 2), np.int32), np.zeros((1, 2, 2), np.float32))
    assert _family_names(outputs, "logistic") == ("logistic", "logistic")
    assert _family_names(outputs, "inflated") == ("confusion", "inflated")


def test_missing_stays_missing_when_scores_become_labels():
    obs = hmmjax.Observations((np.array([[0.2, 0.8], [np.nan, np.nan]]), np.array([1, -1])), None)
    np.testing.assert_array_equal(obs.discretize().phases[0], [1, -1])
    tools = hmmjax.Observations(None, (np.array([[0.7, np.nan]]), np.array([[1, 0]]))).discretize().tools
    np.testing.assert_array_equal(tools[0], [[1, -1]])
