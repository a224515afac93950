"""Test runs that are killed, shared by two processes, changed on resuming, set up inconsistently, or that diverge."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import dataclasses
import json
import math
import os

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

import jax
import optax
from flax import nnx
from tiny import frames, settings

import hmmjax
from hmmjax.io import lock, save_params
from models.data.cache import write_cache
from models.settings import read_config
from models.train import main as train_main
from models.training import checkpoint, loop
from models.training.checkpoint import Checkpoints
from models.training.feeds import Clips
from models.training.recognizer import Recognizer
from models.training.run import read_metrics
from models.training.step import data_mesh, init_state

pytestmark = pytest.mark.thorough


class CutOff(Exception):
    """Stands for the signal that kills a process."""


def words(folder, **more):
    return settings(folder, **({"backbone": "micro"} | more))


def train(*arguments):
    train_main(["--quiet", *map(str, arguments)])


def steps(run):
    return {
        which: sorted(path.name for path in (run / "checkpoints" / which).glob("[0-9]*")) for which in ("last", "best")
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of 3 epochs of 3 updates."""
    folder = tmp_path_factory.mktemp("whole")
    train(*words(folder))
    return folder


def cut_off_at(monkeypatch, which, count):
    """Kill the run just before it saves its count-th checkpoint of a kind."""
    save, calls = Checkpoints.save, []

    def fails(self, name, state, progress):
        calls.append(name)
        if name == which and calls.count(which) == count:
            raise CutOff
        save(self, name, state, progress)

    monkeypatch.setattr(Checkpoints, "save", fails)


def test_a_run_killed_between_its_two_checkpoints_resumes(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(CutOff):
        cut_off_at(patch, "last", 1)
        train(*words(whole, run=tmp_path / "run"))
    assert steps(tmp_path / "run") == {"last": [], "best": ["3"]}
    train("--resume", tmp_path / "run")
    assert read_metrics(tmp_path / "run") == read_metrics(whole / "run")
    assert steps(tmp_path / "run") == steps(whole / "run")
    predicted = [Recognizer(folder / "run", "last")(frames().images[:8]) for folder in (whole, tmp_path)]
    jax.tree.map(np.testing.assert_array_equal, *predicted)


def test_a_run_without_a_checkpoint_begins_again(whole, tmp_path, monkeypatch):
    """Starting and resuming must not refer the user to each other forever."""
    with monkeypatch.context() as patch, pytest.raises(CutOff):
        cut_off_at(patch, "best", 1)
        train(*words(whole, run=tmp_path / "run"))
    assert steps(tmp_path / "run") == {"last": [], "best": []}
    with pytest.raises(SystemExit, match="train without --resume"):
        train("--resume", tmp_path / "run")
    train(*words(whole, run=tmp_path / "run"))
    assert read_metrics(tmp_path / "run") == read_metrics(whole / "run")


def test_checkpoints_between_validations_at_the_end_of_an_epoch(whole, tmp_path):
    train(*words(whole, run=tmp_path / "run", eval_every=3, save_every=3, stop_after=6))
    assert steps(tmp_path / "run") == {"last": ["6"], "best": []}


def test_one_process_at_a_time(whole, tmp_path):
    (tmp_path / "run").mkdir()
    with lock(tmp_path / "run"), pytest.raises(SystemExit, match="another process is writing to"):
        train(*words(whole, run=tmp_path / "run"))
    train(*words(whole, run=tmp_path / "run", stop_after=1))


def test_a_failure_on_resuming_leaves_the_run_unchanged(whole, tmp_path, monkeypatch):
    train(*words(whole, run=tmp_path / "run", stop_after=3))
    before = read_config(tmp_path / "run" / "config.yaml")

    def fails(*_):
        raise CutOff

    with monkeypatch.context() as patch, pytest.raises(CutOff):
        patch.setattr(os, "replace", fails)
        train("--resume", tmp_path / "run", "log_every=3")
    assert read_config(tmp_path / "run" / "config.yaml") == before
    assert read_metrics(tmp_path / "run") == read_metrics(whole / "run")[:4]


def test_a_finished_run_continues_with_more_patience_or_epochs(whole, tmp_path, capsys):
    """It prints its best validation again; more patience or more epochs make it continue."""
    words_of = words(whole, run=tmp_path / "run", patience=1, **{"optimizer.learning_rate": 0})
    train(*words_of)
    first = capsys.readouterr().out
    assert read_metrics(tmp_path / "run")[-1]["step"] == 6 and "best validation: loss" in first
    train("--resume", tmp_path / "run")
    assert read_metrics(tmp_path / "run")[-1]["step"] == 6 and capsys.readouterr().out == first
    train("--resume", tmp_path / "run", "patience=2", "epochs=5")
    assert read_metrics(tmp_path / "run")[-1]["step"] == 9 and capsys.readouterr().out == first
    train(*words(whole, run=tmp_path / "short", stop_after=1))
    assert "no validation yet" in capsys.readouterr().out


def test_changes_that_a_resumed_run_cannot_take(whole, tmp_path):
    train(*words(whole, run=tmp_path / "run", stop_after=3))
    kept = read_metrics(tmp_path / "run"), (tmp_path / "run" / "config.yaml").read_text()
    for change, message in (
        ("batch=4", "had 3 updates and would now have 7"),
        ("backbone=tiny", "belongs to another network"),
        ("system=toolnet", "belongs to another network"),
    ):
        with pytest.raises(SystemExit, match=message):
            train("--resume", tmp_path / "run", change)
    assert kept == (read_metrics(tmp_path / "run"), (tmp_path / "run" / "config.yaml").read_text())
    for path in (tmp_path / "run" / "checkpoints" / "last").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(SystemExit, match="is damaged"):
        train("--resume", tmp_path / "run")


def cache(folder, **columns):
    source = frames()
    write_cache(dataclasses.replace(source, table=dataclasses.replace(source.table, **columns)), folder)
    return folder


def test_parts_of_a_run_must_have_the_same_classes(whole, tmp_path):
    swapped = cache(tmp_path / "swapped", tool_names=("None", "Lamp"))
    model = tmp_path / "model.npz"
    names = {"phase_names": ("Green", "Red", "Blue"), "tool_names": ("Lamp", "None")}
    save_params(model, hmmjax.init_params(3, 2, emissions="probability"), fps=1.0, **names)
    hmm = {"loss.hmm": 1, "loss.hmm_model": model}
    for more, message in (
        ({"data.val": swapped}, "the tools of data.train are Lamp, None, and those of data.val are None, Lamp"),
        ({"data.train": swapped, "data.val": swapped, "start": whole / "run"}, "same classes in the same order"),
        ({"system": "endonet_l", "clip": 4, **hmm}, "the phases of .* are Green, Red, Blue"),
        ({"loss.hmm": 1}, "set loss.hmm_model"),
    ):
        with pytest.raises(SystemExit, match=message):
            train(*words(whole, run=tmp_path / "run", **more))
    save_params(model, hmmjax.init_params(3, 2, emissions="probability"), force=True)
    with pytest.raises(SystemExit, match=r"loss\.hmm is defined on sequences"):
        train(*words(whole, run=tmp_path / "run", **hmm))
    train(*words(whole, run=tmp_path / "on", stop_after=3))
    with pytest.raises(SystemExit, match="same classes in the same order"):
        train("--resume", tmp_path / "on", f"data.train={swapped}", f"data.val={swapped}")
    assert json.loads((tmp_path / "on" / "classes.json").read_text())["tools"] == ["Lamp", "None"]


def test_weights_that_a_checkpoint_replaces_are_not_read(whole, tmp_path):
    more = {"start": whole / "run", "pretrained": tmp_path / "gone.pth", "stop_after": 1}
    train(*words(whole, run=tmp_path / "run", **more))
    with pytest.raises(SystemExit, match=r"gone\.pth"):
        train(*words(whole, run=tmp_path / "other", **(more | {"start": "null"})))


def test_training_that_diverges_ends(whole, tmp_path):
    more = {"optimizer.learning_rate": 1e30, "optimizer.clip": 0, "save_every": 1}
    with pytest.raises(SystemExit, match="training has diverged"):
        train(*words(whole, run=tmp_path / "run", **more))
    assert read_metrics(tmp_path / "run")[-1]["step"] < 9


def test_any_score_is_better_than_nan(whole, tmp_path, monkeypatch):
    scores = iter((math.nan, 0.5, 0.4))
    monkeypatch.setattr(loop, "score", lambda *_: {"score": next(scores)})
    train(*words(whole, run=tmp_path / "run"))
    assert steps(tmp_path / "run") == {"last": ["9"], "best": ["6"]}


def test_videos_shorter_than_a_clip(whole):
    """The number of batches per epoch equals `per_epoch`; otherwise training would wait forever for the rest."""
    source = frames()
    videos = np.array(["long"] * 4 + [f"short{n // 3}" for n in range(36)])
    source = dataclasses.replace(source, table=dataclasses.replace(source.table, videos=videos))
    config = read_config(None, words(whole, clip=4, batch=2, **{"data.train_part": "null"}))
    feed = Clips(config, source, source, data_mesh())
    assert feed.per_epoch == len(list(feed.batches(0, 0))) == 1


def test_reading_a_run_writes_nothing(whole, tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name in ("config.yaml", "classes.json"):
        (run / name).write_bytes((whole / "run" / name).read_bytes())
    with pytest.raises(FileNotFoundError, match="train the run first"):
        Recognizer(run)
    assert {path.name for path in run.iterdir()} == {"config.yaml", "classes.json"}


def test_checkpoints_with_british_spelling_are_restored(tmp_path, monkeypatch):
    """Checkpoints of older versions name FCN's layer "localise"."""
    layer = nnx.Dict(localize=nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    state = init_state(layer, optax.adam(0.1))
    checkpoints = Checkpoints(tmp_path)
    with monkeypatch.context() as patch:
        names = checkpoint._named
        patch.setattr(checkpoint, "_named", lambda tree: {checkpoint._old_name(k): x for k, x in names(tree).items()})
        checkpoints.save("best", state, {})
    other = nnx.Dict(localize=nnx.Linear(2, 3, rngs=nnx.Rngs(1)))
    assert checkpoints.restore_model("best", other) == 0
    np.testing.assert_array_equal(other.localize.kernel[...], layer.localize.kernel[...])
    assert checkpoints.restore(init_state(other, optax.adam(0.1)))[1] == {}
    checkpoints.close()
