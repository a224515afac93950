"""Cache, extract, train, predict and detect are killed, and continue to the files of an unbroken run."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn", "av"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")
if not hasattr(signal, "SIGKILL"):
    pytest.skip("needs SIGKILL", allow_module_level=True)

from tiny import settings

from models.data.cache import main as cache_main
from models.data.cache import read_cache
from models.data.simsurg import write_cholec80
from models.detect import FIELDS
from models.detect import main as detect_main
from models.extract import main as extract_main
from models.inputs import Reading
from models.partial_predictions import partial_predictions, prediction_key
from models.predict import main as predict_main
from models.train import main as train_main
from models.training.recognizer import Recognizer
from models.training.run import read_metrics

pytestmark = pytest.mark.thorough
HERE = Path(__file__).parent


def kill(module, words, count, pattern):
    """Run a command in a process that kills itself before it publishes the count-th file whose path has a pattern."""
    path = os.pathsep.join(filter(None, (str(HERE.parents[1]), os.environ.get("PYTHONPATH", ""))))
    command = [sys.executable, HERE / "killed.py", count, pattern, module, *words]
    done = subprocess.run(
        [*map(str, command)], env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def files(folder):
    """The visible files of a folder by name."""
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Three short videos, and what unbroken commands make of them: a cache, features, a run, predictions."""
    root = tmp_path_factory.mktemp("killed")
    write_cholec80(root / "c80", 3, seed=2, minutes=0.5, size=(20, 28))
    cache_main(cache_words(root, root / "cache"))
    extract_main(extract_words(root, root / "features"))
    train_main(train_words(root, root / "run"))
    predict_main(predict_words(root, root / "predictions.npz"))
    return root


def cache_words(root, out):
    return [f"cholec80:{root / 'c80'}", str(out), "--size", "20", "28", "--workers", "1"]


def extract_words(root, out):
    videos = [str(root / "c80" / "videos" / f"video{n:02d}.mp4") for n in (1, 2, 3)]
    words = ["micro", *videos, "--random", "--out", str(out), "--size", "16", "24", "--batch", "16", "--quiet"]
    return [*words, "--workers", "1"]


def train_words(root, run):
    own = {"run": run, "backbone": "micro", "epochs": 3, "data.train": root / "cache", "data.val": root / "cache"}
    return ["--quiet", *settings(root, **own, **{"data.train_part": "null", "data.val_part": "null", "batch": 32})]


def predict_words(root, out):
    return [str(root / "run"), str(root / "cache"), "--out", str(out), "--batch", "16", "--quiet"]


def test_cache(whole, tmp_path):
    out = tmp_path / "cache"
    kill("models.data.cache", cache_words(whole, out), 2, r"partial\.json$")
    assert "images.npy" not in files(out)
    cache_main(cache_words(whole, out))
    assert set(files(out)) == set(files(whole / "cache"))
    want, found = read_cache(whole / "cache"), read_cache(out)
    np.testing.assert_array_equal(found.images, want.images)
    for name, array in want.table.arrays().items():
        np.testing.assert_array_equal(found.table.arrays()[name], array)


def test_extract(whole, tmp_path):
    out = tmp_path / "features"
    kill("models.extract", extract_words(whole, out), 2, r"video\d+\.npy$")
    finished = {name for name in files(out) if re.fullmatch(r"video\d+\.npy", name)}
    assert finished == {"video01.npy"}
    extract_main(extract_words(whole, out))
    assert set(files(out)) == set(files(whole / "features"))
    for name, path in files(out).items():
        assert path.read_bytes() == (whole / "features" / name).read_bytes()


def steps(run):
    return {
        which: sorted(path.name for path in (run / "checkpoints" / which).glob("[0-9]*")) for which in ("last", "best")
    }


def test_train(whole, tmp_path):
    """Killed when its second checkpoint is written and not yet in place: the first one is the last."""
    run = tmp_path / "run"
    kill("models.train", train_words(whole, run), 2, r"checkpoints/last/\d+$")
    (step,) = (name for name in steps(run)["last"] if name.isdecimal())
    assert 0 < int(step) < read_metrics(whole / "run")[-1]["step"]
    train_main(["--quiet", "--resume", str(run)])
    assert read_metrics(run) == read_metrics(whole / "run") and steps(run) == steps(whole / "run")
    images = read_cache(whole / "cache").images[:8]
    for which in ("last", "best"):
        found, want = (Recognizer(folder, which)(images) for folder in (run, whole / "run"))
        for name in want:
            np.testing.assert_array_equal(found[name], want[name])


def test_predict(whole, tmp_path, monkeypatch):
    out, predicted, predict = tmp_path / "predictions.npz", [], Recognizer.predict
    partial = Path(f"{out}.partial")
    kill("models.predict", predict_words(whole, out), 2, r"partial/.*npz$")
    assert not out.exists() and [path.name for path in partial.glob("[!.]*.npz")] == ["01.npz"]
    copy = tmp_path / "copy.npz.partial"
    shutil.copytree(partial, copy)
    monkeypatch.setattr(Recognizer, "predict", lambda *a: predicted.append(1) or predict(*a))
    predict_main(predict_words(whole, out))
    assert len(predicted) == 2 and not partial.exists()
    # Neither a damaged file nor one of other settings is taken for the video's predictions.
    (copy / "01.npz").write_bytes((copy / "01.npz").read_bytes()[:-50])
    predict_main(predict_words(whole, tmp_path / "copy.npz"))
    assert len(predicted) == 5
    for path in (out, tmp_path / "copy.npz"):
        with np.load(path) as found, np.load(whole / "predictions.npz") as want:
            assert set(found) == set(want)
            for name in want:
                np.testing.assert_array_equal(found[name], want[name])


def test_detect(whole, tmp_path, monkeypatch):
    """FCN, whose localization maps are too large to be kept with the boxes."""
    names = {"run": tmp_path / "fcn", "system": "fcn", "backbone": "gridded", "epochs": 1}
    places = {"data.train": whole / "cache", "data.val": whole / "cache", "data.val_part": "null"}
    train_main(["--quiet", *settings(tmp_path, **names, **places, **{"data.train_part": "null", "batch": 32})])
    words = [str(tmp_path / "fcn"), str(whole / "cache"), "--batch", "16", "--quiet", "--out"]
    detect_main([*words, str(tmp_path / "unbroken.npz")])
    out, predicted, predict = tmp_path / "boxes.npz", [], Recognizer.predict
    partial = Path(f"{out}.partial")
    kill("models.detect", [*words, out], 2, r"partial/.*npz$")
    assert not out.exists() and [path.name for path in partial.glob("[!.]*.npz")] == ["01.npz"]
    with np.load(partial / "01.npz") as kept:
        assert set(kept) == {"frames", *FIELDS}
    monkeypatch.setattr(Recognizer, "predict", lambda *a: predicted.append(1) or predict(*a))
    detect_main([*words, str(out)])
    assert len(predicted) == 2 and not partial.exists()
    with np.load(out) as found, np.load(tmp_path / "unbroken.npz") as want:
        assert set(found) == set(want) and {"boxes_01", "boxes_02", "boxes_03", "tool_names", "fps"} <= set(want)
        assert any((want[f"box_tools_{video}"] >= 0).any() for video in ("01", "02", "03"))
        for name in want:
            np.testing.assert_array_equal(found[name], want[name])


def test_predictions_of_other_inputs_are_removed(whole, tmp_path):
    out = tmp_path / "a.npz"
    with pytest.raises(KeyboardInterrupt), partial_predictions(out, "one") as kept:
        kept.write("video01", {"phases": np.ones(3)})
        raise KeyboardInterrupt
    with partial_predictions(out, "one") as kept, pytest.raises(FileExistsError), partial_predictions(out, "one"):
        pass
    with pytest.raises(KeyboardInterrupt), partial_predictions(out, "one") as kept:
        assert kept.read("video01") is None  # the block above succeeded
        kept.write("video01", {"phases": np.ones(3)})
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt), partial_predictions(out, "two") as kept:
        assert kept.read("video01") is None
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())  # nothing was finished
    reading = Reading((16, 24))
    keys = {prediction_key("predict", whole / "run", "best", [str(whole / "cache")], reading)}
    keys.add(prediction_key("predict", whole / "run", "last", [str(whole / "cache")], reading))
    keys.add(prediction_key("predict", whole / "run", "best", [str(whole / "cache")], Reading((20, 28))))
    copied = shutil.copytree(whole / "cache", tmp_path / "cache")
    keys |= {prediction_key("predict", whole / "run", "best", [str(copied)], reading)}
    os.utime(copied / "images.npy", ns=(1, 1))
    keys |= {prediction_key("predict", whole / "run", "best", [str(copied)], reading)}
    keys |= {prediction_key("detect", whole / "run", "best", [str(copied)], reading)}
    assert len(keys) == 6
