"""Test the messages of the command lines: one-line errors with cause and fix, before any work; progress; help."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import dataclasses
import shutil

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn", "PIL", "rich"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

from PIL import Image
from tiny import frames, settings

import models.predict
import models.selftrain
from models.commands import reported
from models.data.cache import main as cache_main
from models.data.cache import write_cache
from models.data.simsurg import write_cholec80
from models.detect import main as detect_main
from models.experiment.__main__ import main as experiment_main
from models.inputs import Reading
from models.predict import main as predict_main
from models.selftrain import main as selftrain_main
from models.train import main as train_main


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a run of one epoch and the cache that it was trained on."""
    folder = tmp_path_factory.mktemp("commands")
    train_main(["--quiet", *settings(folder, epochs=1)])
    return folder


def ending(main, words, capsys):
    """Run a command line that fails; return its status and its message."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    printed = capsys.readouterr().err
    return (1, ended.value.code) if isinstance(ended.value.code, str) else (ended.value.code, printed)


@pytest.mark.parametrize("main", [predict_main, detect_main])
def test_a_folder_without_a_run_is_named(main, tmp_path, capsys):
    status, words = ending(main, [tmp_path, tmp_path, "--out", tmp_path / "a.npz"], capsys)
    assert status == 1 and words.startswith(f"error: {tmp_path}: not a training run: it has no config.yaml. Fix: ")


def test_selftrain_and_resume_name_a_folder_without_a_run(tmp_path, capsys):
    assert "not a training run" in ending(selftrain_main, [tmp_path, tmp_path, "--out", tmp_path / "o"], capsys)[1]
    status, words = ending(train_main, ["--resume", tmp_path], capsys)
    assert status == 2 and f"{tmp_path}: not a training run" in words


@pytest.mark.parametrize("text", ["", "[1]", '{"phases": ["A"]}', '{"phases": 3, "tools": 3}'])
def test_damaged_names_of_classes_are_an_error_in_words(run, tmp_path, capsys, text):
    shutil.copytree(run / "run", tmp_path / "run")
    (tmp_path / "run" / "classes.json").write_text(text)
    status, words = ending(predict_main, [tmp_path / "run", run / "cache", "--out", tmp_path / "a.npz"], capsys)
    assert status == 1 and "classes.json: the class names of the run cannot be read" in words


def no_network(monkeypatch):
    """Fail if a network is loaded before the expected error."""
    monkeypatch.setattr(models.predict, "Recognizer", lambda *_: pytest.fail("the network was loaded first"))


@pytest.mark.parametrize(
    ("name", "make", "fix"),
    [
        ("missing", lambda path: None, "no such file or folder"),
        ("empty", lambda path: path.mkdir(), "neither images nor a complete cache"),
        ("notes.txt", lambda path: path.write_text("a"), "neither a video nor a packed file of images"),
        (
            "videos",
            lambda path: (path.mkdir(), (path / "a.mp4").touch()),
            "this is a folder of videos. Fix: give the videos",
        ),
    ],
)
def test_unusable_inputs_are_refused_before_the_network_is_loaded(run, tmp_path, capsys, monkeypatch, name, make, fix):
    no_network(monkeypatch)
    make(tmp_path / name)
    words = [run / "run", run / "cache", tmp_path / name, "--out", tmp_path / "out.npz"]
    status, text = ending(predict_main, words, capsys)
    assert status == 1 and text.startswith(f"error: {tmp_path / name}: ") and fix in text


def test_the_output_path_is_checked_before_the_network_is_loaded(run, tmp_path, capsys, monkeypatch):
    no_network(monkeypatch)
    (tmp_path / "there.npz").touch()
    for name, answer in (("there.npz", "with --force"), ("out.txt", "ends in .npz"), ("", "ends in .npz")):
        assert answer in ending(predict_main, [run / "run", run / "cache", "--out", tmp_path / name], capsys)[1]


@pytest.mark.parametrize(
    "option", [["--batch", "0"], ["--rate", "0"], ["--rate", "nan"], ["--fps", "-1"], ["--size", "0", "8"]]
)
def test_numbers_must_be_positive(run, tmp_path, capsys, option):
    status, words = ending(predict_main, [run / "run", run / "cache", "--out", tmp_path / "a.npz", *option], capsys)
    assert status == 2 and f"argument {option[0]}: {option[1]!r} is not a" in words


def test_progress_names_videos_on_standard_error(run, tmp_path, capsys):
    words = [str(run / "run"), str(run / "cache"), "--out", str(tmp_path / "a.npz"), "--batch", "8"]
    predict_main(words)
    answer = capsys.readouterr()
    assert "video02" in answer.err and "20 frames" in answer.err
    assert answer.out == f"{tmp_path / 'a.npz'}: 40 frames of 2 video(s)\n"
    predict_main([*words, "--force", "--quiet"])
    assert capsys.readouterr().err == ""


def test_images_of_several_videos_in_one_folder_are_refused(run, tmp_path, capsys):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in ("v01_000000.png", "v01_000025.png", "v02_000050.png"):
        Image.fromarray(frames(4).images[0]).save(folder / name)
    words = [run / "run", folder, "--naming", "frame", "--out", tmp_path / "a.npz", "--quiet"]
    message = ending(predict_main, words, capsys)[1]
    assert "images of several videos. Fix: give each video its own folder" in message
    (folder / "v02_000050.png").unlink()
    predict_main([str(word) for word in words])
    with np.load(tmp_path / "a.npz") as found:
        assert found["frames_pictures"].tolist() == [0, 25]


def test_detectors_refuse_counters_of_two_rates(tmp_path, monkeypatch):
    for name, fps in (("a", 25.0), ("b", 30.0)):
        source = frames(8)
        table = dataclasses.replace(source.table, videos=np.repeat([name], 8), fps=fps)
        write_cache(dataclasses.replace(source, table=table), tmp_path / name)

    class Blind:
        def predict(self, pictures, batch):
            return {"frames": np.array([number for number, _ in pictures])}

    reading = Reading((20, 28))
    with pytest.raises(ValueError, match=r"b counts 30 frames per second, others 25\. Fix: "):
        models.predict.collect(Blind(), [str(tmp_path / "a"), str(tmp_path / "b")], reading, lambda *_: None)


def test_training_names_what_is_missing(run, tmp_path, capsys):
    assert "data.train is not set. Fix: " in ending(train_main, ["run=x"], capsys)[1]
    for name, answer in (
        ("frozen", "not a training run: it has no config.yaml. Fix: give the folder of a trained run"),
        ("start", "not a training run: it has no config.yaml. Fix: give the folder of a trained run"),
        ("pretrained", "no such file"),
        ("loss.hmm_model", "no such file"),
    ):
        gone = tmp_path / "gone"
        status, words = ending(train_main, [*settings(run, run=tmp_path / "run"), f"{name}={gone}"], capsys)
        assert status == 1 and words.startswith(f"error: {name}={gone}: {answer}")
    assert not any(tmp_path.iterdir())


def test_help_names_the_file_that_lists_the_settings(capsys):
    with pytest.raises(SystemExit, match="0"):
        train_main(["--help"])
    assert "models/settings/fields.py" in " ".join(capsys.readouterr().out.split())


def test_selftraining_checks_its_arguments_before_it_predicts(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(models.selftrain, "evaluate", lambda *_: pytest.fail("predicted first"))
    words = [run / "run", run / "cache", "--out", tmp_path / "out"]
    assert "Fix: list videos in its manifest with part: unlabeled" in ending(selftrain_main, words, capsys)[1]
    assert "was epochs meant?" in ending(selftrain_main, [*words, "epoch=1"], capsys)[1]
    (tmp_path / "out" / "round1").mkdir(parents=True)
    assert "exists already. Fix: choose another --out" in ending(selftrain_main, words, capsys)[1]


def test_caches_are_written_from_folders_of_cholec80(tmp_path, capsys):
    write_cholec80(tmp_path / "c80", num_videos=1, seed=1, minutes=0.5, size=(48, 64))
    cache_main([f"cholec80:{tmp_path / 'c80'}", str(tmp_path / "cache"), "--size", "24", "32"])
    with np.load(tmp_path / "cache" / "table.npz") as table:
        assert set(table["videos"]) == {"video01"} and (table["phases"] >= 0).all()
    size = ["--size", "24", "32"]
    words = [f"cholec80:{tmp_path / 'c80'}", tmp_path / "other", *size, "--split", "40/40"]
    status, text = ending(cache_main, words, capsys)
    assert status == 2 and "79 of the 80 videos of the split are not among the 1 of this copy" in text
    status, text = ending(cache_main, [tmp_path, tmp_path / "other", *size], capsys)
    assert status == 2 and "neither a source of frames nor a manifest. Fix: give m2cai16:FOLDER" in text
    status, text = ending(cache_main, [tmp_path / "a.csv", tmp_path / "other", *size, "--split", "40/40"], capsys)
    assert status == 2 and "--split applies only to Cholec80" in text


def test_a_report_without_finished_cells_is_an_error(tmp_path, capsys):
    plan = tmp_path / "plan.yaml"
    plan.write_text("{out: runs, data: {simsurg: {whole: 1}}, systems: {ToolNet: {system: toolnet}}}")
    words = [plan, "--out", tmp_path / "out", "--stage", "report"]
    assert "none of 1 cells is finished. Fix: run the other stages first" in ending(experiment_main, words, capsys)[1]


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ValueError("cause. Fix: this"), "error: cause. Fix: this", ""),
        (FileNotFoundError(2, "No such file or directory", "a.pth"), "error: a.pth: No such file or directory", ""),
        (ImportError("needs rich. Fix: install it"), "error: needs rich. Fix: install it", ""),
        (KeyboardInterrupt(), 130, "\ngo on with --resume\n"),
    ],
)
def test_errors_are_one_line(capsys, error, status, words):
    with pytest.raises(SystemExit) as ended, reported("go on with --resume"):
        raise error
    assert ended.value.code == status and capsys.readouterr().err == words
    with (
        pytest.raises(ZeroDivisionError),
        reported(),
    ):  # errors that files or settings do not cause keep their traceback
        raise ZeroDivisionError
