"""What a worker of a collection does with one video is what the commands do; needs no Apache Beam."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import dataclasses
import os

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn", "av"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

from tiny import settings

import hmmjax
from hmmjax import io
from hmmjax.io import FormatError
from models.beam.entries import Entry, find_entries
from models.beam.operations import VIDEO_SUFFIXES, Extract, Predict, Stabilize
from models.data.simsurg import write_cholec80
from models.encoder_choice import EncoderChoice
from models.inputs import VIDEO_SUFFIXES as READ
from models.inputs import Reading
from models.predict import main as predict_main
from models.predict import predict
from models.train import main as train_main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two short videos, and a run of one epoch."""
    folder = tmp_path_factory.mktemp("beam")
    write_cholec80(folder / "c80", 2, seed=1, minutes=0.3, size=(20, 28))
    train_main(["--quiet", *settings(folder, epochs=1)])
    return folder


def test_predictions_are_those_of_the_command_under_the_name_of_the_list(folder, tmp_path):
    video = str(folder / "c80" / "videos" / "video02.mp4")
    operation = Predict(str(folder / "run"), batch=16)
    frames = operation.load()(Entry("video77", ((None, video),)), tmp_path).frames
    expected = predict(folder / "run", [video], Reading((16, 24), batch=16))
    with np.load(tmp_path / "video77.npz") as found:
        assert set(found) == {name.replace("_02", "_77") for name in expected} and len(found["frames_77"]) == frames
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name.replace("_02", "_77")], array)


def test_processes_share_the_videos_to_predict(folder, tmp_path, capsys):
    videos = [str(folder / "c80" / "videos" / f"video0{n}.mp4") for n in (1, 2)]
    words = [str(folder / "run"), *videos, "--quiet", "--batch", "16"]
    predict_main([*words, "--out", str(tmp_path / "whole.npz")])
    found = {}
    for i in range(2):
        predict_main([*words, "--shard", f"{i}/2", "--out", str(tmp_path / f"{i}.npz")])
        with np.load(tmp_path / f"{i}.npz") as arrays:
            assert [name for name in arrays if name.startswith("frames_")] == [f"frames_0{i + 1}"]
            found |= dict(arrays)
    with np.load(tmp_path / "whole.npz") as arrays:
        assert set(found) == set(arrays)
        for name in arrays:
            np.testing.assert_array_equal(found[name], arrays[name])
    with pytest.raises(SystemExit, match="there are 2 videos, none of which is for part 2 of 3"):
        predict_main([*words, "--shard", "2/3", "--out", str(tmp_path / "c.npz")])


def test_features_are_those_of_the_command(folder, tmp_path):
    from models.encoders import encoder_of_backbone
    from models.extract import extract

    video = str(folder / "c80" / "videos" / "video01.mp4")
    own = {"options": "{}", "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.2)}
    operation = Extract(EncoderChoice("micro", size=(16, 24), random=True, **own), batch=8, threads=1)
    (tmp_path / "many").mkdir()
    count = operation.load()(Entry("video01", ((None, video),)), tmp_path / "many").frames
    assert np.load(tmp_path / "many" / "video01.npy").shape == (count, 8)
    encoder = encoder_of_backbone("micro", None, size=(16, 24), mean=own["mean"], std=own["std"])
    extract(encoder, [video], tmp_path / "one", Reading((16, 24), batch=8))
    names = {path.name for path in (tmp_path / "one").iterdir()}
    assert names == {path.name for path in (tmp_path / "many").iterdir()} and set(operation.shared) < names
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()
    for change, message in (
        ({"random": False}, "micro has no weights"),
        ({"options": "3"}, "--options 3 is not a mapping"),
        ({"name": "run"}, "leave --pretrained, --options, --mean and --std out"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(operation, encoder=dataclasses.replace(operation.encoder, **change)).fingerprint()
    other = dataclasses.replace(operation, encoder=dataclasses.replace(operation.encoder, mean=(0.1, 0.4, 0.3)))
    assert other.fingerprint() != operation.fingerprint()
    assert dataclasses.replace(operation, threads=2).fingerprint() == operation.fingerprint()


def test_names_are_those_of_the_model(tmp_path):
    """Text files without `phase_names`: the names of the model are expected, in the order of the model."""
    names = ("Alpha", "Beta", "Gamma")
    params = hmmjax.init_params(3, 0, emissions="confusion")
    io.save_params(tmp_path / "model.npz", params, phase_names=names, fps=1.0)
    rows = [f"{25 * i}\t{name}" for i, name in enumerate(("Gamma", "Gamma", "Beta", "Alpha"))]
    (tmp_path / "a.txt").write_text("\n".join(["Frame\tPhase", *rows, ""]))
    entry = Entry("video01", ((None, str(tmp_path / "a.txt")),))
    assert Stabilize(str(tmp_path / "model.npz")).load()(entry, tmp_path).frames == 4
    with np.load(tmp_path / "video01.npz") as found:
        assert tuple(found["phase_names"].tolist()) == names and found["phases_01"].shape == (4, 3)


def test_both_commands_that_extract_have_the_same_options():
    from models.beam.__main__ import _operation, _parser, _workers
    from models.encoder_choice import encoder_choice
    from models.extract import _parser as single

    words = ["--mean", ".1", ".2", ".3", "--std", "1", "1", "1", "--options", "{a: 1}", "--size", "8", "9", "--random"]
    options = _parser().parse_args(["extract", "micro", "videos", "--out", "o", "--workers", "64", *words])
    operation = _operation(options)
    assert operation.encoder == encoder_choice("micro", single().parse_args(["micro", "v", "--out", "o", *words]))
    assert operation.encoder == EncoderChoice("micro", None, True, "{a: 1}", (8, 9), (0.1, 0.2, 0.3), (1.0, 1.0, 1.0))
    assert operation.threads == max((os.cpu_count() or 1) // 64, 1)
    assert _workers(options) == ["--direct_num_workers=64", "--direct_running_mode=multi_threading"]
    options.runner = "FlinkRunner"
    with pytest.raises(ValueError, match="give the option of FlinkRunner after --"):
        _workers(options)


def test_fingerprints_tell_weights_and_settings_apart(folder, tmp_path):
    one = Predict(str(folder / "run"))
    assert one.fingerprint() == Predict(str(folder / "run"), batch=3).fingerprint()  # only the speed differs
    assert one.fingerprint() != Predict(str(folder / "run"), rate=2.0).fingerprint()
    for operation, message in (
        (Predict(str(tmp_path)), "not a training run"),
        (Stabilize(str(tmp_path / "model.npz")), "cannot be read"),
    ):
        with pytest.raises(FormatError, match=message):
            operation.fingerprint()


def test_videos_of_a_folder_are_found_by_their_names(folder, tmp_path):
    assert VIDEO_SUFFIXES == READ
    found = find_entries(str(folder / "c80"), VIDEO_SUFFIXES)
    assert [entry.video for entry in found] == ["video01", "video02"]
    assert found[0].paths == ((None, str(folder / "c80" / "videos" / "video01.mp4")),)
    (tmp_path / "list.jsonl").write_text('{"video": "video03", "phases": "p.txt", "tools": "gs://bucket/t.txt"}\n')
    (entry,) = find_entries(str(tmp_path / "list.jsonl"), ())
    assert entry.paths == (("phases", str(tmp_path / "p.txt")), ("tools", "gs://bucket/t.txt"))
    (entry,) = find_entries(str(tmp_path / "list.jsonl"), (), "gs://bucket/lists/list.jsonl")
    assert entry.paths == (("phases", "gs://bucket/lists/p.txt"), ("tools", "gs://bucket/t.txt"))
    twice = Entry("video01", ((None, "a.mp4"), (None, "b.mp4")))
    with pytest.raises(FormatError, match=r"video01 has 2 files: a\.mp4, b\.mp4"):
        Predict(str(folder / "run")).load()(twice, tmp_path)
