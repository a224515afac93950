"""`hmmjax compare`: the inputs of the ranking, the table, and errors."""

import csv
import dataclasses
import json
import re

import numpy as np
import pytest
from commands import NAMES, read_both, run

import hmmjax
from hmmjax import io
from hmmjax import stabilize as job
from hmmjax.comparison import Agreement, Rank, Ranking, comparable


def tools(world):
    """Return the options for tool scores of four videos."""
    files = [world / "said" / f"video{v:02d}-tool.csv" for v in range(1, 5)]
    return (*files, "--annotations", world / "truth", *NAMES, "--folds", 2, "--no-hidden-phases")


@pytest.fixture
def asked(monkeypatch):
    """The calls of `hmmjax.compare`, replaced because it is slow (see tests/test_comparison.py)."""
    calls = []

    def answer(obs, mask, labels, *, families, callback, **options):
        calls.append({"labels": labels, "obs": obs, "mask": mask, "families": families, **options})
        ranks = []
        for number, name in enumerate(families, 1):
            callback(number)
            nats = -float(number)
            rank = Rank(
                name, nats, -0.5, float("nan") if name == "scaled" else 1.25, {"tools": [0.5]},
                as_it_is=Agreement(float("nan"), 0.25), calibrated=Agreement(float("nan"), 0.5),
                videos=((nats * 10 - number, 10), (nats * 10 + number, 10)),
            )  # fmt: skip
            ranks.append(rank)
        return Ranking(ranks, Agreement(float("nan"), 0.75))

    monkeypatch.setattr("hmmjax.stabilize.rank.compare_families", answer)
    return calls


def test_compare_is_called_with_the_files(world, asked, tmp_path):
    options = (*tools(world), "--emissions", "confusion", "--json", "--csv", tmp_path / "t.csv")
    found = json.loads(run("compare", *options).stdout)
    predictions, annotations = read_both(world)
    predictions = [t for t in predictions if t.track == "tools" and t.video < "video05"]
    annotations = [t.reorder(predictions[0].names) for t in annotations if t.track == "tools"]
    obs, labels, mask, _ = io.to_batch(io.join(predictions), annotations)
    (call,) = asked
    assert call["families"] == ("confusion",) and call["folds"] == 2 and call["priors"] == job.PRIORS
    for name, want in (("obs", obs), ("labels", labels)):
        assert call[name].phases is None
        np.testing.assert_array_equal(call[name].tools, want.tools)
    np.testing.assert_array_equal(call["mask"], mask)
    (row,) = found["table"]
    assert row == {
        "family": "confusion", "conditional": -1.0, "uncalibrated": -0.5, "marginal": 1.25, "powers": {"tools": [0.5]},
        "behind": 0.0, "error": 0.0, "tied": True, "phase_accuracy": None, "tool_f1": 0.25,
        "phase_accuracy_calibrated": None, "tool_f1_calibrated": 0.5,
    }  # fmt: skip
    assert found["recognizer"] == {"phase_accuracy": None, "tool_f1": 0.75}
    assert "no family predicts tools as well as the recognizer itself (0.750)" in " ".join(found["notices"])
    assert found["protocol"] == "4 annotated videos, held out in 2 folds" and found["videos"][0] == "video01"
    with open(tmp_path / "t.csv", newline="") as file:
        (line,) = csv.DictReader(file)
    assert float(line["conditional"]) == row["conditional"] and json.loads(line["powers"]) == row["powers"]


def test_the_table_has_all_families_and_an_explanation(world, asked, tmp_path):
    (tmp_path / "t.csv").write_text("mine")
    assert "--force" in run("compare", *tools(world), "--csv", tmp_path / "t.csv", code=2).stderr
    assert not asked
    result = run("compare", *tools(world))
    lines = result.stdout.split("\n")
    last = next(i for i, line in enumerate(lines) if "recognizer" in line)
    rows = [re.split(r" {2,}", line.strip()) for line in lines[: last + 1]]
    rows = [row for row in rows if row[0] in (*comparable(True), "autoregressive-", "recognizer")]
    assert [row[0] for row in rows[:3]] == comparable(True)[:3] and rows[0][1] == "-1"
    assert len(rows) == len(comparable(True)) + 1 and max(map(len, lines[: len(rows) + 5])) <= 100
    # The second's videos are one nat in ten frames behind, one less and one more: 2 sqrt(2) / sqrt(2) over 20 frames.
    assert rows[1][2:4] == ["1", "0.1"] and rows[-1] == ["recognizer", ".750"] and rows[0][-1] == ".250 / .500"
    assert rows[-2][5] == "-" and "larger is better" in result.stdout and "no density" in result.stdout
    assert [(call["folds"], call["families"]) for call in asked] == [(2, tuple(comparable(True)))]
    assert asked[0]["chains"] is None and asked[0]["obs"].tools.shape[0] == 4


def test_labels_suit_few_families_and_transitions_come_from_elsewhere(world, asked):
    files = [world / "said" / f"video{v:02d}-phase.txt" for v in (1, 2, 3)]
    options = ("--annotations", world / "truth", "--transitions-from", world / "truth", *NAMES)
    mixed = run("compare", world / "said", *options[:2], *NAMES, code=2).stderr.replace("\n", " ")
    assert "give the track of probabilities by itself" in mixed and not asked
    named = ("--json", "--leave-one-out", "--emissions", "confusion")
    found = json.loads(run("compare", *files, *options, *named).stdout)
    assert [row["family"] for row in found["table"]] == ["confusion"] and asked[0]["folds"] == 3
    both = json.loads(run("compare", *files, *options, "--json").stdout)
    assert {row["family"] for row in both["table"]} == {"confusion", "autoregressive"}
    assert found["protocol"] == "3 annotated videos, held out one at a time"
    # Counted in the two videos that are not compared on.
    _, annotations = read_both(world)
    labels, _, mask, _ = io.to_batch(io.join([t for t in annotations if t.track == "phases" and t.video > "video03"]))
    want = hmmjax.estimate(hmmjax.Labels(labels.phases), None, mask, priors=job.PRIORS)
    np.testing.assert_allclose(asked[0]["chains"].phases.transition, want.phases.transition, rtol=1e-6)
    assert "no video is left" in run("compare", *files, *options, *named, "--transition-videos", "1-3", code=2).stderr


def test_a_track_without_annotations_is_left_out_with_a_notice(world, asked):
    predictions, annotations = read_both(world)
    annotations = [t for t in annotations if t.track == "phases"]
    found = job.rank_families(predictions, annotations, families=["confusion"], folds=2)
    assert found.tracks == ("phases",) and "tools are predicted but not annotated" in " ".join(found.notices)
    assert asked[0]["obs"].tools is None and asked[0]["num_phases"] == 3


def test_phases_without_predictions_stay_in_the_model(world, asked):
    predictions, annotations = read_both(world)
    predictions = [t for t in predictions if t.track == "tools"]
    for hidden in (True, False):
        job.rank_families(predictions, annotations, families=["confusion"], hidden_phases=hidden)
        assert (asked[-1]["labels"].phases is not None) == hidden


def test_bad_input_and_a_dry_run(world, tmp_path):
    assert "choose among confusion" in run("compare", *tools(world), "--emissions", "gauss", code=2).stderr
    assert "at least 2 parts" in run("compare", *tools(world), "--folds", 1, code=2).stderr
    one = ("compare", world / "said" / "video01-tool.csv", "--annotations", world / "truth", *NAMES)
    assert "at least two videos" in run(*one, code=2).stderr.replace("\n", " ")
    one = ("--videos", "1", "--dry-run")
    assert "at least two videos" in run("compare", *tools(world), *one, code=2).stderr
    for bad in (["--folds", 1], ["--time-step", 0], ["--emissions", "probability", "--tool-kind", "labels"]):
        run("compare", *tools(world), *bad, "--dry-run", code=2)
    plan = json.loads(run("compare", *tools(world), "--dry-run", "--json", "--csv", tmp_path / "t.csv").stdout)
    assert plan["would_compare_on"] == [f"video{v:02d}" for v in range(1, 5)] and not (tmp_path / "t.csv").exists()
    predictions, annotations = read_both(world)
    with pytest.raises(io.FormatError, match="which has no annotations"):
        job.rank_families([t for t in predictions if t.track == "tools"], [annotations[0]])
    unknown = [dataclasses.replace(t, values=np.full_like(t.values, -1)) for t in annotations]
    with pytest.raises(io.FormatError, match=r"0 predicted video\(s\) are annotated"):
        job.rank_families(predictions, unknown)


def test_titles_are_whole_in_a_narrow_terminal(monkeypatch, capsys):
    from hmmjax.cli.tables import print_ranking

    monkeypatch.setenv("COLUMNS", "80")
    both = Agreement(0.8, 0.7)
    ranks = [
        Rank(name, -i, -2.0, -1000.0, {}, both, both, ((-3.0, 10), (-4.0 * i, 12)))
        for i, name in enumerate(("confusion", "autoregressive-logit-normal"))
    ]
    ranking = Ranking(ranks, both)
    print_ranking(ranking, "phases and tools")
    text = capsys.readouterr().out
    head = text[: text.index("confusion")]
    assert "\N{HORIZONTAL ELLIPSIS}" not in text and "autoregressive-" in text and "logit-normal" in text
    for word in ("conditional", "behind", "uncalibrated", "marginal", "accuracy", "F1"):
        assert head.count(word) == 1
    assert ".800 / .800" in text and max(map(len, text.split("\n")[:8])) <= 100
    assert max(map(len, str(ranking).splitlines())) <= 110


def test_a_processor_is_named_once():
    from hmmjax.cli.bench import describe_device

    assert describe_device("cpu", "cpu").startswith("cpu, ")
    assert describe_device("gpu", "NVIDIA H200").startswith("gpu NVIDIA H200, ")
