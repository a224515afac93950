"""Test the plan from Cholec80's folder to a table: its commands, and all of it on a simulated copy with 80 videos."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import csv
import shlex

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn", "av"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

from models.data.simsurg import write_cholec80
from models.experiment.__main__ import main
from models.experiment.cholec80 import STAGES, check_words, keep_words, plan


def option(command, name):
    words = command.words
    return [words[i + 1] for i, word in enumerate(words) if word == name]


def test_only_validation_videos_teach_errors_and_only_test_videos_are_scored(tmp_path):
    commands = plan([f"data={tmp_path}", f"out={tmp_path / 'o'}", "system=phasenet", "on_top=tecno", "on_top.epochs=7"])
    assert tuple(dict.fromkeys(command.stage for command in commands)) == STAGES
    by = {command.stage: command for command in commands}
    frames, top = (command for command in commands if command.stage == "train")
    assert "system=phasenet" in frames.words
    assert {"system=tecno", f"frozen={tmp_path / 'o' / 'frames'}", "epochs=7"} <= set(top.words)
    assert "epochs=7" not in frames.words
    val, test = (command for command in commands if command.stage == "predict")
    assert option(val, "--part") == ["val"] and option(test, "--part") == ["test"]
    hmm = by["stabilize"]
    assert hmm.words[1:3] == (*option(val, "--out"), *option(test, "--out"))
    assert option(hmm, "--learn-from") == ["val"] and option(hmm, "--apply-to") == ["test"]
    assert option(hmm, "--transition-videos") == ["1-40"]
    assert shlex.split(hmm.text)[:2] == ["hmmjax", "stabilize"]


def test_words_that_are_no_settings_are_named(tmp_path, capsys):
    for words, message in (
        (["out=o"], "data is not set"),
        ([f"data={tmp_path}", "splt=32/8/40"], "unknown setting splt"),
        ([f"data={tmp_path}", "split=40/40"], "has no validation videos"),
        ([f"data={tmp_path}", "fast"], "is not a setting"),
        ([f"data={tmp_path}", "on_top.epochs=7"], "on_top is not set"),
        ([f"data={tmp_path}", "on_top=tecno", "on_top.epoch=7"], "unknown setting epoch"),
    ):
        with pytest.raises(SystemExit, match=message):
            main(["cholec80", "--show", *words])
    main(["cholec80", f"data={tmp_path}", f"out={tmp_path}", "--show", "--stage", "cache"])
    assert capsys.readouterr().out.startswith(
        f"[cache] python -m models.data.cache cholec80:{tmp_path} {tmp_path}/cache"
    )


def test_results_of_other_settings_are_not_taken_for_those_asked_for(tmp_path):
    words = [f"data={tmp_path}", f"out={tmp_path / 'out'}", "system=endonet"]
    for command in plan(words):
        keep_words(tmp_path / "out", command)
    # Nothing was written: the settings of a run that failed at once may be corrected.
    check_words(tmp_path / "out", plan([*words, "height=64"]))
    (tmp_path / "out" / "cache").mkdir()
    (tmp_path / "out" / "cache" / "table.npz").touch()
    check_words(tmp_path / "out", plan([*words, "height=256", "epochs=3"]))  # the default, and not the cache's
    with pytest.raises(ValueError, match=r"cache table\.npz ran with 256, not 64"):
        check_words(tmp_path / "out", plan([*words, "height=64"]))
    (tmp_path / "out" / "frames" / "checkpoints" / "last" / "3").mkdir(parents=True)
    check_words(tmp_path / "out", plan(words))
    with pytest.raises(ValueError, match="train frames ran with system=endonet, not system=phasenet"):
        check_words(tmp_path / "out", plan([*words[:2], "system=phasenet"]))


def test_weights_are_looked_for_before_anything_is_read(tmp_path):
    with pytest.raises(ValueError, match=r"pretrained=none\.pth: no such file"):
        plan([f"data={tmp_path}", "pretrained=none.pth"])


@pytest.mark.slow
def test_the_whole_plan_on_a_simulated_copy(tmp_path, capfd):
    """80 short videos from their folder to a table and a report; a second call runs nothing again."""
    write_cholec80(tmp_path / "c80", 80, seed=5, minutes=0.5, size=(32, 48))
    words = ["cholec80", f"data={tmp_path / 'c80'}", f"out={tmp_path / 'out'}", "height=32", "width=48", "crop=false"]
    words += ["system=endonet", "backbone=small", "size=[32,48]", "dtype=float32", "batch=32", "eval_batch=32"]
    words += ["epochs=6", "eval_every=2", "tensorboard=false"]
    words += ["optimizer.learning_rate=4e-3", "optimizer.warmup_epochs=0.5"]
    main(words)
    with open(tmp_path / "out" / "results" / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 5
    with np.load(tmp_path / "out" / "predictions_test.npz") as predicted:
        assert {name for name in predicted if name.startswith("phases_")} == {f"phases_{n}" for n in range(41, 81)}
    assert (tmp_path / "out" / "results" / "report" / "report.html").exists()
    capfd.readouterr()
    main([word for word in words if word != "epochs=6"] + ["epochs=6", "--stage", "cache", "predict", "stabilize"])
    shown = capfd.readouterr().out
    assert shown.count("(done)") == 4 and "frames of" not in shown
