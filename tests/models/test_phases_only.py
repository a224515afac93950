"""Data with phases and without tools, from frames and from a frozen run to predictions."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import dataclasses

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

from tiny import frames

import hmmjax
from models.data.cache import write_cache
from models.predict import main as predict_main
from models.train import main as train_main


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    source = frames()
    table = dataclasses.replace(source.table, tools=np.zeros((len(source), 0), np.int32), tool_names=())
    folder = tmp_path_factory.mktemp("phases") / "cache"
    write_cache(dataclasses.replace(source, table=table), folder)
    return folder


def words(cache, run, **more):
    common = {"size": "[20,28]", "dtype": "float32", "epochs": 1, "tensorboard": "false", "eval_batch": 8}
    common |= {"data.train": cache, "data.val": cache, "run": run, **more}
    return ["--quiet", *(f"{key}={value}" for key, value in common.items())]


def test_from_frames_to_predictions_that_are_stabilized(cache, tmp_path):
    """The head of tools is left out, of a system of frames and of a temporal model on its features."""
    run, top, out = tmp_path / "run", tmp_path / "top", tmp_path / "predictions.npz"
    train_main(words(cache, run, system="endonet", backbone="micro", batch=8))
    train_main(words(cache, top, system="tecno", frozen=run, batch=1, temporal_options="{width: 8, layers: 2}"))
    predict_main([str(top), str(cache), "--out", str(out), "--quiet"])
    with np.load(out) as found:
        assert {name.partition("_")[0] for name in found} == {"fps", "frames", "phases", "part", "phase"}
    assert {track.track for track in hmmjax.io.read(str(out))} == {"phases"}
    with pytest.raises(SystemExit, match="toolnet recognizes tools, and the data names none"):
        train_main(words(cache, tmp_path / "tools", system="toolnet", backbone="micro", batch=8))
