"""Learn from some videos and apply to others: what reaches the model, what is scored, and what is refused."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from commands import NAMES, run
from files import track

from hmmjax import io
from hmmjax import stabilize as job
from hmmjax.io.manifest import read_manifest, read_names

PARTS = {"val": range(1, 5), "test": range(5, 9), "train": range(9, 11)}
PHASES, TOOLS = ("Alpha", "Beta", "Gamma"), ("Knife", "Fork")


def simulate(seed=3):
    """Ten videos of three phases and two tools: predictions that carry their part, and annotations."""
    rng = np.random.default_rng(seed)
    predictions, annotations = [], []
    for part, numbers in PARTS.items():
        for number in numbers:
            phases = np.repeat(np.arange(3), rng.integers(12, 25, 3))
            tools = np.stack([phases == 1, (np.arange(len(phases)) // 9) % 2], 1).astype(int)
            said = np.where(rng.random(len(phases)) < 0.15, rng.integers(0, 3, len(phases)), phases)
            scores = np.eye(3)[said] * 0.7 + 0.1
            shown = np.clip(tools * 0.8 + 0.1 + rng.normal(0, 0.25, tools.shape), 0.01, 0.99)
            name = f"video{number:02d}"
            own = [track("phases", scores, PHASES, video=name), track("tools", shown, TOOLS, video=name)]
            predictions += [dataclasses.replace(t, part=part) for t in own]
            annotations += [track("phases", phases, PHASES, video=name), track("tools", tools, TOOLS, video=name)]
    return predictions, annotations


@pytest.fixture(scope="module")
def data():
    return simulate()


def of(tracks, part):
    return [t for t in tracks if int(t.video[-2:]) in PARTS[part]]


def same(one, other):
    """Assert that two models are equal, bit for bit."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


@pytest.mark.parametrize("emissions", ["auto", "confusion"])
def test_labels_of_the_videos_that_are_scored_never_reach_the_model(data, emissions):
    """Other labels in the test videos, and other predictions of the rest: the same model and the same posteriors."""
    predictions, annotations = data if emissions != "auto" else ([t for t in x if t.track == "phases"] for x in data)
    options = {"emissions": emissions, "learn_from": "val", "apply_to": "test"}
    result = job.stabilize(predictions, annotations, transitions=annotations, **options)
    turned = [
        dataclasses.replace(t, values=t.values[::-1].copy()) if t in of(annotations, "test") else t for t in annotations
    ]
    other = job.stabilize(of(predictions, "val") + of(predictions, "test"), turned, transitions=turned, **options)
    same(result.model.params, other.model.params)
    assert (result.online_model is None) == (other.online_model is None) == (emissions != "auto")
    if emissions == "auto":
        same(result.online_model.params, other.online_model.params)
    for a, b in zip(result.smoothed.phases, other.smoothed.phases, strict=True):
        np.testing.assert_array_equal(a, b)
    assert [row.figure for row in result.table] == [row.figure for row in other.table]
    assert job.records(result.table) != job.records(other.table)  # the scores do know the labels


def test_the_model_is_that_which_cross_validation_learns_from_the_same_videos(data):
    """Two folds, videos 1-4 and 5-8: the model that infers the second was learned from the first."""
    predictions, annotations = (of(x, "val") + of(x, "test") for x in data)
    folds = job.stabilize(predictions, annotations, emissions="confusion", folds=2)
    split = job.stabilize(predictions, annotations, emissions="confusion", learn_from="1-4", apply_to="5-8")
    assert folds.folds[4:] == (1,) * 4 and folds.ids[4:] == split.ids
    for system in ("smoothed", "filtered"):
        one, other = getattr(folds, system), getattr(split, system)
        for name in ("phases", "tools"):
            for a, b in zip(getattr(one, name)[4:], getattr(other, name), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-6)


def test_metrics_are_of_the_videos_that_the_model_is_applied_to(data):
    predictions, annotations = data
    result = job.stabilize(predictions, annotations, emissions="confusion", learn_from="val", apply_to="test")
    alone = job.evaluate_predictions(of(predictions, "test"), of(annotations, "test"))[0]
    raw = {row.figure: row.metrics["M"].value for row in result.table}
    assert raw == {row.figure: row.metrics["predictions"].value for row in alone}
    assert result.ids == tuple(f"video{n:02d}" for n in PARTS["test"]) and set(result.folds) == {-1}
    protocol = "learned from 4 videos (val), applied to 4 others (test)"
    assert result.protocol == protocol and all(r["split"] == protocol for r in job.records(result.table))
    assert result.model.metadata["videos"] == [f"video{n:02d}" for n in PARTS["val"]]
    notice = "the model was learned from video01 to video04 and applied to video05 to video08"
    assert result.notices[0].startswith(notice) and any("counted in labeled frames" in n for n in result.notices)


def test_absent_videos_of_a_range_are_named(data):
    """Ranges select what there is; header and notice say what there is not."""
    split = job.find_split([of(data[0], "val") + of(data[0], "test")], job.Settings(learn_from="1-4", apply_to="5-12"))
    assert split.apply_to == tuple(f"video{n:02d}" for n in PARTS["test"])
    assert split.protocol == "learned from 4 videos (1-4), applied to 4 others (5-12 without 9-12)"
    assert split.doubts == ("no predictions: 5-12 without 9-12",)
    split = job.find_split([of(data[0], "test")], job.Settings(apply_to="5,7-9"), learns=False)
    assert split.words[1] == "5,7-9 without 9"


@pytest.mark.parametrize(
    ("options", "doubts"),
    [
        (
            {"learn_from": "5,6", "apply_to": ["video01", "video02"]},
            [
                "video05, video06 are test in the predictions' file, but the model is learned from them",
                "video01, video02 are val in the predictions' file, but the model is applied to them",
            ],
        ),
        (
            {"learn_from": "1-3"},
            [
                "video09, video10 are train in the predictions' file, but the model is applied to them",
                "video04 is val in the predictions' file, but the model is applied to them",
            ],
        ),
        ({"learn_from": "1-3", "apply_to": "5-8", "training_videos": True}, []),
        ({"learn_from": "test", "apply_to": "val"}, []),
    ],
)
def test_lists_that_contradict_the_recorded_parts_are_named(data, options, doubts):
    """A part by its name is what the user asked for; a list of videos may be a mistake."""
    assert list(job.find_split([data[0]], job.Settings(**options)).doubts) == doubts


def test_videos_that_a_given_model_is_not_applied_to_are_named(data):
    predictions, annotations = data
    model = job.stabilize(predictions, annotations, emissions="confusion", learn_from="val", apply_to="test").model
    found = job.stabilize(of(predictions, "test"), (), emissions="confusion", apply_to="5-12", model=model)
    assert found.notices[0] == "no predictions: 5-12 without 9-12"


def test_transitions_are_not_counted_in_videos_that_are_scored(data):
    predictions, annotations = data
    options = {"emissions": "confusion", "learn_from": "val", "apply_to": "test"}
    every = job.stabilize(predictions, annotations, transitions=annotations, **options)
    rest = job.stabilize(
        predictions, annotations, transitions=of(annotations, "val") + of(annotations, "train"), **options
    )
    same(every.model.params, rest.model.params)
    with pytest.raises(io.FormatError, match="counted in the videos that are scored, and in no others"):
        job.stabilize(predictions, annotations, transitions=of(annotations, "test"), **options)


@pytest.mark.parametrize(
    ("learn_from", "apply_to", "learned", "applied"),
    [
        ("Validation set", "TEST", range(1, 5), range(5, 9)),
        ("1-3,video04", "5, 8", range(1, 5), (5, 8)),
        (["video01", "2"], None, (1, 2), range(3, 11)),
        (None, "test", (*range(1, 5), 9, 10), range(5, 9)),
    ],
)
def test_videos_are_chosen_by_part_number_or_name(data, learn_from, apply_to, learned, applied):
    split = job.find_split([data[0]], job.Settings(learn_from=learn_from, apply_to=apply_to))
    assert split.learn_from == tuple(f"video{n:02d}" for n in learned)
    assert split.apply_to == tuple(f"video{n:02d}" for n in applied)
    assert job.find_split([data[0]], job.Settings()) is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "# mine\nvideo01\n\nVID02  # the second\n"),
        ("a.csv", "path,Video\nx.npz,video01\ny.npz,02\n"),
        ("b.csv", "video01\n2\n"),
        ("a.tsv", "id\tpath\nvideo01\tx\nvideo02\ty\n"),
        ("a.json", '["video01", 2]'),
        ("a.jsonl", '{"video": "video01", "path": "x"}\n{"video": 2}\n'),
    ],
)
def test_videos_are_chosen_by_a_file_of_names(data, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    split = job.find_split([data[0]], job.Settings(learn_from=tmp_path / name, apply_to="test"))
    assert split.learn_from == ("video01", "video02") and f"({name})" in split.protocol
    assert len(read_manifest(tmp_path / name)) == 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "# nothing\n", "holds no names"),
        ("a.csv", "path,part\nx,val\n", "no column of video, video_id, name, id tells the video"),
        ("a.json", "[1, ", "not valid JSON"),
        ("a.jsonl", '{"video": null}\n', "None is not|no column"),
        ("a.json", "[true]", "True is not the name of a video"),
    ],
)
def test_files_without_names_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(io.FormatError, match=message):
        read_names(tmp_path / name)
    with pytest.raises(io.FormatError, match="cannot be read"):
        read_names(tmp_path / "missing.txt")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learn_from": "val", "apply_to": "4-8"}, r"1 recording\(s\) are both in apply_to and in learn_from: video04"),
        ({"learn_from": "dev", "apply_to": "test"}, None),
        ({"learn_from": "unlabeled"}, r"no video matches 'unlabeled'.*their parts are test \(4 videos\), train \(2"),
        ({"learn_from": ["video77"]}, r"names 1 video without predictions: video77. Fix: choose among video01 to"),
        ({"learn_from": ["vidio07"]}, r"vidio07 \(did you mean video07\?\)"),
        ({"learn_from": "nowhere.txt"}, "nowhere.txt: the file cannot be read"),
        ({"learn_from": "1-10"}, "no video is left to apply the model to"),
        ({"learn_from": "train", "apply_to": "test"}, r"trained on 2 of .*learned from them.*--learn-from val"),
        ({"learn_from": "val", "apply_to": "train"}, r"trained on 2 of .*scores of these videos say little of others"),
    ],
)
def test_choices_that_do_not_fit_are_refused_with_a_fix(data, options, message):
    def learn():
        split = job.find_split([data[0]], job.Settings(**options))
        inputs = dict(zip(("predictions", "annotations"), data, strict=True), fuse=())
        job.prepare_inputs(**split.learning(**inputs, transitions=()))
        job.prepare_inputs(**split.applying(**inputs))

    if message is None:
        return learn()
    with pytest.raises(io.FormatError, match=message):
        learn()


def test_a_recording_under_two_names_is_not_in_both():
    """M2CAI16's tool_video_11 is Cholec80's video61."""
    tracks = [track("phases", np.arange(9) // 3, video=name) for name in ("tool11", "video61", "video62")]
    with pytest.raises(io.FormatError, match="both in apply_to and in learn_from"):
        job.find_split([tracks], job.Settings(learn_from=["tool11"], apply_to=["video61"]))


def test_settings_and_inputs_that_contradict_a_split(data, unchecked):
    predictions, annotations = data
    with pytest.raises(ValueError, match=r"folds=None \(--leave-one-out\)"):
        job.Settings(folds=None, learn_from="val")
    with pytest.raises(ValueError, match=r"apply_to=\(\) is empty"):
        job.Settings(apply_to=[])
    with pytest.raises(TypeError, match="learn_from=3 names no videos"):
        job.Settings(learn_from=3)
    with pytest.raises(ValueError, match="Leave out learn_from and apply_to"):
        job.rank_families(predictions, annotations, learn_from="val")
    split = job.find_split([predictions], job.Settings(learn_from="val", apply_to="test"))
    with pytest.raises(io.FormatError, match="none of the videos to learn from is annotated: video01 to video04"):
        split.learning(predictions, of(annotations, "test"), (), ())
    with pytest.raises(io.FormatError, match="predicts none of the videos to learn from"):
        split.learning(predictions, annotations, [of(predictions, "test")], ())
    with pytest.raises(io.FormatError, match="predicts none of the videos to stabilize"):
        split.applying(predictions, annotations, [of(predictions, "val")])


def test_a_given_model_is_applied_to_the_chosen_videos(data):
    predictions, annotations = data
    learned = job.stabilize(predictions, annotations, emissions="confusion", learn_from="val", apply_to="test")
    with pytest.raises(ValueError, match="a given model learns nothing"):
        job.stabilize(predictions, annotations, model=learned.model, learn_from="val")
    again = job.stabilize(predictions, annotations, model=learned.model, apply_to="test")
    assert again.ids == learned.ids
    for a, b in zip(again.smoothed.phases, learned.smoothed.phases, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_command_learns_from_one_part_and_writes_the_other(world, tmp_path):
    """The parts are in an NPZ that holds both; a dry run tells the same."""
    predictions = io.read(world / "said", phase_names=NAMES[1], tool_names=NAMES[3])
    arrays = {"fps": 25.0, "phase_names": np.array(predictions[0].names)}
    for t in (t for t in predictions if t.track == "phases"):
        key = io.array_suffix(t.video)
        arrays |= {
            f"phases_{key}": t.values,
            f"frames_{key}": t.frames,
            f"part_{key}": np.array("val" if int(key) < 4 else "test"),
        }
    io.save_npz(tmp_path / "predicted.npz", arrays)
    words = [
        "stabilize",
        tmp_path / "predicted.npz",
        "--annotations",
        world / "truth",
        *NAMES,
        "--no-pictures",
        "--no-hidden-phases",
    ]
    words += ["--learn-from", "val", "--apply-to", "test", "--emissions", "confusion", "--out", tmp_path / "out"]
    plan = json.loads(run(*words, "--dry-run", "--json").stdout)
    assert plan["would_stabilize"] == ["video04", "video05"] and plan["models"] == 1
    assert plan["annotated"] == plan["learn_from"] == ["video01", "video02", "video03"]
    shown = run(*words)
    assert "learned from 3 videos (val), applied to 2 others (test)" in shown.stdout
    assert "the model was learned from video01 to video03" in shown.stderr
    with np.load(tmp_path / "out" / "stabilized.npz") as written:
        assert {name for name in written if name.startswith("phases_")} == {"phases_04", "phases_05"}
    again = job.read_results(tmp_path / "out")
    assert again.protocol == plan["protocol"] and "learned from video01 to video03" in again.notices[0]
    assert json.loads((tmp_path / "out" / "table.json").read_text())["notices"][0] == again.notices[0]
    assert "cannot apply" in run(*words, "--model", tmp_path / "out" / "model.npz", code=2).stderr


@pytest.mark.parametrize("dry_run", [True, False])
def test_videos_that_do_not_fit_those_learned_from_are_refused(tmp_path, dry_run):
    """Phases without names that were never learned, and another rate: also by a dry run."""
    labels = [np.repeat([0, 1], 20), np.repeat([0, 1], 25), np.repeat([0, 1, 2], 20)]
    for folder, step in (("classes", (25, 25, 25)), ("rates", (25, 25, 50))):
        for number, (values, gap) in enumerate(zip(labels, step, strict=True), 1):
            values = values if folder == "classes" else np.minimum(values, 1)
            rows = [f"{gap * i}\t{x}" for i, x in enumerate(values)]
            path = tmp_path / folder / f"video0{number}-phase.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(rows) + "\n")
    for folder, message in (
        ("classes", "phase 2 is predicted in video03"),
        ("rates", "transitions are for 1 per second"),
    ):
        words = ["stabilize", tmp_path / folder, "--annotations", tmp_path / folder, "--out", tmp_path / "out"]
        words += ["--learn-from", "1-2", "--emissions", "confusion", *(["--dry-run"] if dry_run else [])]
        assert message in run(*words, code=2).stderr.replace("\n", " ")
