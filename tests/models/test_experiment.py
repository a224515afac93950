"""Test experiment grids: labels of each scenario, resuming, no leakage of test labels, self-training."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn", "matplotlib"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

import tiny  # noqa: F401 (registers a small backbone)

import hmmjax
from hmmjax.calibration import without_powers
from hmmjax.simulate import Departures, simulate_surgeries
from hmmjax.types import Observations
from models import stabilize as bridge
from models.data.cache import ArrayImages, read_cache
from models.data.frames import FrameTable
from models.experiment.__main__ import main
from models.experiment.cell import read_result, stabilize
from models.experiment.plan import read_plan
from models.experiment.report import draw_cost, summary, table
from models.experiment.videos import departures_of, label, write_view
from models.pseudo_labels import pseudo_label
from models.selftrain import _open
from models.selftrain import main as selftrain_main
from models.settings import read_config
from models.training.setup import one_fold

pytestmark = pytest.mark.thorough
SURGERIES = simulate_surgeries(8, 0, minutes=2.0)
PARTS = ("whole", "whole", "single", "single", "val", "val", "test", "test")
PLAN = {
    "seeds": [0],
    "data": {"simsurg": {"whole": 1, "single": 1, "val": 1, "test": 1}, "minutes": 1, "size": [16, 16]},
    "emissions": ["confusion"],
    "train": {
        "dtype": "float32",
        "size": [16, 16],
        "batch": 16,
        "eval_batch": 64,
        "epochs": 1,
        "backbone": "micro",
        "optimizer": {"learning_rate": 0.003},
    },
    "temporal": {"batch": 1, "epochs": 1},
    "systems": {
        "PhaseNet": {"system": "phasenet"},
        "PhaseNet_L": {"system": "phasenet_l", "frozen": "PhaseNet", "temporal_options": {"width": 4}},
        "Both": {"system": "phasenet", "mean": ["PhaseNet", "PhaseNet_L"]},
    },
}


@pytest.fixture(scope="module")
def everything():
    """A table with all labels of eight videos, and the output of an imperfect recognizer."""
    lengths = [len(s) for s in SURGERIES]
    known = FrameTable(
        videos=np.repeat([s.name for s in SURGERIES], lengths),
        frames=np.concatenate([25 * np.arange(n) for n in lengths]),
        phases=np.concatenate([s.phases for s in SURGERIES]),
        tools=np.concatenate([s.tools for s in SURGERIES]),
        parts=np.repeat(PARTS, lengths),
    )
    predicted = {
        s.name: {"frames": 25 * np.arange(len(s)), "phases": s.phase_probabilities, "tools": s.tool_probabilities}
        for s in SURGERIES
    }
    return known, predicted


def test_scenarios_label_the_right_frames(everything):
    known, _ = everything
    whole, cost = label(known, "S_C")
    learned = np.isin(known.parts, ["whole", "val"])
    frames = int(learned.sum())
    assert cost.cost == {"phases": frames, "tools": 7 * frames, "frames": frames}
    assert set(whole.parts[known.parts == "single"]) == {"unlabeled"}
    assert (whole.phases[known.parts == "single"] == -1).all()
    single, cost = label(known, "S_D", positives=4, negatives=5, val_positives=1, val_negatives=2, apart=0)
    assert (single.phases[known.parts != "test"] == -1).all() and cost.cost["phases"] == 0
    for tool in range(7):
        present = int((known.tools[known.parts == "single", tool] == 1).sum())
        given = single.tools[known.parts == "single", tool]
        assert ((given == 1).sum(), (given == 0).sum()) == (min(4, present), 5)
    assert set(single.parts[(single.tools >= 0).any(1) & (known.parts == "single")]) == {"train"}
    # As in the paper, S_D may draw from the videos that S_C labels throughout.
    drawn, _ = label(known, "S_D", positives=4, negatives=5, val_positives=1, val_negatives=2, apart=0, draw="whole")
    assert set(known.parts[drawn.parts == "train"]) == {"whole"}
    both, _ = label(known, "S_C+D", positives=4, negatives=5, apart=0)
    np.testing.assert_array_equal(both.tools[known.parts == "single"], single.tools[known.parts == "single"])
    np.testing.assert_array_equal(both.phases[learned], known.phases[learned])
    for labeled in (whole, single, both):
        # The labels are correct, and the test set is complete.
        given = labeled.tools >= 0
        np.testing.assert_array_equal(labeled.tools[given], known.tools[given])
        assert (labeled.parts == "test").sum() == (known.parts == "test").sum()


def test_the_law_of_simulated_tools():
    assert departures_of({}) == Departures() and departures_of({"law": "markov"}) is None
    with pytest.raises(ValueError, match="choose episodes, or markov"):
        departures_of({"law": "real"})


def test_a_fold_trains_on_some_videos(everything, tmp_path):
    """A backbone on one fold and a temporal model on the other have no training video in common."""
    table = label(everything[0], "S_C")[0]
    source = ArrayImages(table, np.zeros((len(table), 1, 1, 3), np.uint8))
    trained = []
    for fold in ("[0, 2]", "[1, 2]"):
        config = read_config(None, [f"data.fold={fold}"])
        found = one_fold(source, config).table
        trained.append(set(found.videos[found.parts == "train"]))
        np.testing.assert_array_equal(found.parts == "val", table.parts == "val")
    assert not trained[0] & trained[1] and trained[0] | trained[1] == set(table.videos[table.parts == "train"])
    with pytest.raises(ValueError, match="leaves no video"):
        one_fold(source, read_config(None, ["data.fold=[4, 5]"]))
    with pytest.raises(ValueError, match="i from 0 to n - 1"):
        read_config(None, ["data.fold=[2, 2]"])


def test_gaps_are_missing_seconds(everything):
    known, predicted = everything
    keep = np.ones(len(known), bool)
    keep[3:40] = False
    shorter = dataclasses.replace(
        known, **{n: getattr(known, n)[keep] for n in ("videos", "frames", "phases", "tools", "parts")}
    )
    name = SURGERIES[0].name
    kept = {name: {key: x[keep[: len(x)]] for key, x in predicted[name].items()}}
    examples = bridge.pad(shorter, [name], kept, ["phases", "tools"])
    length = len(SURGERIES[0])
    np.testing.assert_array_equal(examples.mask[0, :length], keep[:length])
    assert (examples.labels.phases[0, 3:40] == -1).all()
    at = np.flatnonzero(keep[:length])
    np.testing.assert_array_equal(examples.obs.tools[0, at], kept[name]["tools"])
    np.testing.assert_array_equal(examples.labels.tools[0, at], SURGERIES[0].tools[at])


def test_no_test_label_reaches_the_model(everything):
    known, predicted = everything
    labeled, _ = label(known, "S_C")
    spoilt = dataclasses.replace(labeled, phases=labeled.phases.copy(), tools=labeled.tools.copy())
    test = labeled.parts == "test"
    spoilt.phases[test] = 0
    spoilt.tools[test] = 1
    a, b = (bridge.gather_lessons(t, predicted, ["phases"]) for t in (labeled, spoilt))
    for x, y in ((a.val, b.val), (a.dynamics, b.dynamics)):
        np.testing.assert_array_equal(x.labels.phases, y.labels.phases)
        np.testing.assert_array_equal(x.mask, y.mask)
    assert a.sizes == {"phases": 7, "tools": 0}
    # Transitions are counted in fully labeled videos only; for a network of tools, phases join the model.
    assert len(a.dynamics.mask) == 4
    assert bridge.gather_lessons(labeled, predicted, ["tools"]).sizes == {"phases": 7, "tools": 7}
    single, _ = label(known, "S_D", positives=4, negatives=4, apart=0)
    lessons = bridge.gather_lessons(single, predicted, ["tools"])
    assert lessons.dynamics is None and lessons.sizes == {"phases": 0, "tools": 7} and len(lessons.val.mask) == 2


def test_stabilizing_helps_a_flickering_recognizer(everything):
    known, predicted = everything
    found = stabilize(label(known, "S_C")[0], predicted, ["phases"], ["confusion"])
    assert found["M_H, confusion"]["phase changes"] < found["M"]["phase changes"]
    assert 0 < found["hmm"]["confusion"]["powers"]["phases"] < 1
    # Powers that suit whole videos make a filter react too late, so it has none.
    lessons = bridge.gather_lessons(label(known, "S_C")[0], predicted, ["phases"])
    params, _ = bridge.learn_hmm(lessons, "confusion")
    versions = bridge.apply_hmm(params, lessons.val, "confusion")
    obs, plain = lessons.val.obs.discretize(), without_powers(params)
    for name, answer in (
        ("M_H online", hmmjax.filter(plain, obs, lessons.val.mask)),
        ("M_H counted", hmmjax.posterior(plain, obs, lessons.val.mask)),
        ("M_H", hmmjax.posterior(params, obs, lessons.val.mask)),
    ):
        np.testing.assert_allclose(versions[name].phases, answer.phases, atol=1e-5)
    assert found["truth"]["phase changes"] == sum((np.diff(s.phases) != 0).sum() for s in SURGERIES[6:])


def test_pseudo_labels_carry_confidence(everything):
    known, _ = everything
    labeled, _ = label(known, "S_C")
    name = SURGERIES[2].name
    count = len(SURGERIES[2])
    phases = np.full((1, count, 7), 0.1, np.float32)
    phases[:, :, 3] = 0.4
    tools = np.full((1, count, 7), 0.75, np.float32)
    more = pseudo_label(labeled, [name], Observations(phases, tools))
    mine = more.videos == name
    assert (more.phases[mine] == 3).all() and (more.tools[mine] == 1).all() and (more.parts[mine] == "train").all()
    np.testing.assert_allclose(more.phase_weights[mine], (0.4 * 7 - 1) / 6, rtol=1e-5)
    np.testing.assert_allclose(more.tool_weights[mine], 0.5)
    np.testing.assert_array_equal(more.phases[~mine], labeled.phases[~mine])
    assert (more.phase_weights[~mine] == 1).all()
    # A single phase does not exceed chance, and names of parts keep their length.
    long = dataclasses.replace(labeled, parts=np.full(len(labeled), "a part with a long name"))
    one = pseudo_label(long, [name], Observations(np.ones((1, count, 1), np.float32), None))
    assert (one.phase_weights[mine] == 0).all() and (one.parts[~mine] == "a part with a long name").all()


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """A finished experiment of two cells."""
    folder = tmp_path_factory.mktemp("grid")
    (folder / "plan.yaml").write_text(yaml.safe_dump(PLAN | {"out": str(folder / "out")}))
    main([str(folder / "plan.yaml")])
    return folder


def test_an_experiment_writes_its_table(grid):
    record = json.loads((grid / "out" / "grid.json").read_text())
    rows = {(row["system"], row["version"]) for row in record["summary"]}
    versions = {"M", "M_H, confusion", "M_H counted, confusion", "M_H online, confusion"}
    assert rows == {(system, version) for system in PLAN["systems"] for version in versions}
    frames, sequence, both = record["cells"]
    assert both["train_seconds"] == pytest.approx(frames["train_seconds"] + sequence["train_seconds"], abs=0.02)
    outputs = [dict(np.load(grid / "out" / "seed0" / "S_C" / name / "predictions.npz")) for name in PLAN["systems"]]
    keys = [key for key in outputs[0] if key.startswith("phases_")]
    for key in keys:
        np.testing.assert_allclose(outputs[2][key], (outputs[0][key] + outputs[1][key]) / 2, atol=1e-6)
    assert len(keys) == 2 and len(str(both["commit"])) >= 40
    assert sequence["train_seconds"] > frames["train_seconds"] > 0
    labeled = read_cache(grid / "out" / "seed0" / "S_C" / "view").table
    assert frames["cost"]["labels"] == np.isin(labeled.parts, ["train", "val"]).sum()
    assert "| PhaseNet_L | M_H, confusion |" in (grid / "out" / "table.md").read_text()
    assert (grid / "out" / "cost.png").stat().st_size > 10_000


def test_an_experiment_resumes_where_it_stopped(grid, capsys):
    before = (grid / "out" / "grid.json").read_text()
    folder = grid / "out" / "seed0" / "S_C" / "PhaseNet"
    written = (folder / "run" / "metrics.jsonl").stat().st_mtime_ns
    (folder / "result.json").unlink()
    main([str(grid / "plan.yaml")])
    assert "3 of 3 cells" in capsys.readouterr().out
    assert (folder / "run" / "metrics.jsonl").stat().st_mtime_ns == written
    again = json.loads((grid / "out" / "grid.json").read_text())
    assert again["summary"] == json.loads(before)["summary"]
    main([str(grid / "plan.yaml"), "--stage", "stabilize", "--systems", "PhaseNet", "--emissions", "auto"])
    more = read_result(folder / "result.json")
    assert "M_H online, auto" in more and "M_H, confusion" in more and set(more["hmm"]) == {"confusion", "auto"}


def test_self_training(grid, capsys):
    view = grid / "out" / "seed0" / "S_C"
    words = [str(view / "PhaseNet" / "run"), str(view / "view"), "--out", str(grid / "self"), "--rounds", "1"]
    selftrain_main([*words, "--control"])
    rounds = json.loads((grid / "self" / "rounds.json").read_text())
    assert [row["round"] for row in rounds] == [0, 1, 1] and rounds[2]["verdict"] == "control"
    steps = [
        [json.loads(line)["step"] for line in (grid / "self" / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("round1", "control1")
    ]
    # The control trains whole epochs, the number nearest to the updates of the round.
    assert len(steps[1]) > 1 and abs(steps[0][-1] - steps[1][-1]) < steps[1][0]
    assert 0 < rounds[1]["mean weight of pseudo-labels"] <= 1
    kept = rounds[1]["verdict"] == "kept"
    best = Path((grid / "self" / "best").read_text().strip())
    assert best == (grid / "self" / "round1" if kept else view / "PhaseNet" / "run")
    assert kept == (rounds[1]["validation score of M"] > rounds[0]["validation score of M"])
    assert "round 1" in capsys.readouterr().out


def test_pseudo_labels_have_no_boxes(tmp_path):
    (tmp_path / "config.yaml").write_text("system: frcnn\n")
    with pytest.raises(SystemExit, match="give a run of frcnn_l"):
        selftrain_main([str(tmp_path), "x", "--out", str(tmp_path / "out")])


def test_plans_are_read_and_wrong_ones_refused(tmp_path):
    plans = Path(__file__).parents[2] / "models" / "experiment" / "plans"
    for path in plans.glob("*.yaml"):
        for cell in read_plan(path).cells():
            read_config(None, cell.settings)
    for change, message in (
        ({"sistems": {}}, "unknown setting sistems"),
        ({"systems": {"X": {"system": "endnet"}}}, "unknown system 'endnet'"),
        ({"systems": {"X": {"system": "toolnet_l"}}}, "frozen: NAME"),
        ({"systems": {"X": {"system": "toolnet_l", "frozen": "Y"}}}, "needs 'Y'"),
        ({"scenarios": {"S_X": {}}}, "unknown scenario"),
        ({"scenarios": {"S_C": {}, "S_D": {}}, "systems": {"X": {"system": "frcnn"}}}, "learns from boxes"),
        ({"emissions": ["gaussian"]}, "unknown emission family"),
        ({"emissions": []}, "emissions in .* is empty"),
        ({"systems": {"X": {"system": "toolnet", "mean": ["Y", "Z"]}}}, "X needs 'Y', which is not among"),
        ({"seeds": 3}, "seeds in .* is 3: give a list"),
        ({"seeds": ["a"]}, "seeds in .* is 'a'"),
        ({"data": None}, "data in .* is None"),
        ({"data": {}}, "give either cache or simsurg"),
        ({"train": [1]}, "train in .* give settings by name"),
        ({"train": {"epochz": 3}}, "PhaseNet in .*: unknown setting epochz"),
        ({"scenarios": ["S_C"]}, "scenarios in .* give settings by name"),
        ({"systems": {"X": None}}, "systems: X in .* is None"),
        ({"systems": {"../X": {"system": "toolnet"}}}, "is not a folder name"),
        ({"systems": {"X": {"system": "toolnet_l", "frozen": "X"}}}, "'X', which has no backbone of its own"),
        ({"systems": {"X": {"system": "toolnet_l", "clip": 4, "hmm": "X"}}}, "X needs itself"),
        (
            {
                "scenarios": {"S_C": {}, "S_D": {}},
                "systems": {
                    "X": {"system": "toolnet", "scenarios": ["S_C"]},
                    "Y": {"system": "toolnet_l", "frozen": "X"},
                },
            },
            "Y needs 'X', which is not in S_D",
        ),
    ):
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump(PLAN | {"out": "x"} | change))
        with pytest.raises(ValueError, match=message):
            read_plan(tmp_path / "plan.yaml")
    with pytest.raises(SystemExit, match=r"nothing\.yaml: No such file"):
        main([str(tmp_path / "nothing.yaml")])
    (tmp_path / "plan.yaml").write_text("a: [")
    with pytest.raises(SystemExit, match="is not valid YAML"):
        main([str(tmp_path / "plan.yaml")])
    # A system that another depends on comes first, regardless of the order in the file.
    late = {
        "H": {"system": "swinnet_l", "clip": 4, "hmm": "L", "loss": {"hmm": 1}},
        "L": {"system": "swinnet_l", "frozen": "S"},
        "S": {"system": "swinnet"},
    }
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(PLAN | {"out": "x", "systems": late}, sort_keys=False))
    assert [cell.name for cell in read_plan(tmp_path / "plan.yaml").cells()] == ["S", "L", "H"]
    for words, message in (
        (["--systems", "Z"], "--systems 'Z' is not in .* choose among H, L, S"),
        (["--scenarios", "S_D"], "'S_D' is not in"),
        (["--shard", "2/2"], "--shard 2/2"),
        (["--shard", "1"], "--shard 1"),
    ):
        with pytest.raises(SystemExit, match=message):
            main([str(tmp_path / "plan.yaml"), *words])


def test_the_summary_is_mean_and_sample_deviation(tmp_path):
    def cell(seed, m, h):
        cost = {"labels": 10, "frames": 5}
        figures = {"M": {"mAP": m}, "M_H, confusion": {"mAP": h}}
        return {"system": "X", "scenario": "S_C", "seed": seed, "cost": cost, "train_seconds": 1.0, **figures}

    rows = summary([cell(0, 0.5, 0.6), cell(1, 0.7, 0.7), cell(2, 0.6, float("nan"))][:2])
    assert rows[0]["figures"]["mAP"] == {"mean": 0.6, "sd": 0.1414}
    assert rows[1]["gain over M"]["mAP"] == {"mean": 0.05, "sd": 0.0707, "smallest": 0.0}
    assert "0.600 ± 0.141" in table(rows)
    draw_cost(rows, tmp_path / "cost.png")
    assert (tmp_path / "cost.png").exists()


def test_records_with_british_spelling_are_read(grid, tmp_path, capsys):
    """Files of older versions: the key "stabilise_seconds", the stage "stabilise" and the part "unlabelled"."""
    old = tmp_path / "result.json"
    old.write_text(json.dumps({"seed": 0, "stabilise_seconds": 2.0}))
    assert read_result(old) == {"seed": 0, "stabilize_seconds": 2.0}
    main([str(grid / "plan.yaml"), "--stage", "stabilise"])
    assert "--stage stabilise is deprecated: write --stage stabilize" in capsys.readouterr().err
    view = grid / "out" / "seed0" / "S_C" / "view"
    table = read_cache(view).table
    parts = np.where(table.parts == "unlabeled", "unlabelled", table.parts)
    write_view((view / "images.npy").resolve(), dataclasses.replace(table, parts=parts), tmp_path / "old")
    _, source, unlabeled = _open(view.parent / "PhaseNet" / "run", tmp_path / "old", tmp_path / "out", ())
    assert set(source.table.parts) == set(table.parts) and len(unlabeled) == 1
