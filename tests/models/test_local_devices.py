"""Prediction and extraction on four devices of a process are those of one device."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

from tiny import settings

import models.extract
import models.predict
from models.train import main as train_main
from models.training import local_devices
from models.training.local_devices import batch_size

pytestmark = pytest.mark.thorough
HERE = Path(__file__).parent

FOUR = """
import importlib, json, sys
import tiny
import numpy as np
from models.training.local_devices import LocalDevices
for module, words in json.loads(sys.argv[1]):
    importlib.import_module(module).main(words)
for rows, held in ((8, 2), (7, 7)):  # seven rows cannot be divided: each device has all of them
    array = LocalDevices().divide(np.zeros((rows, 3)))
    assert [shard.data.shape for shard in array.addressable_shards] == [(held, 3)] * 4
"""


def commands(root, out):
    """The command lines that write predictions of frames and of whole videos, and features."""
    predict = [str(root / "cache"), "--batch", "16", "--quiet", "--out"]
    extract = ["micro", str(root / "cache"), "--random", "--size", "16", "24", "--batch", "16", "--quiet", "--out"]
    return [
        ("models.predict", [str(root / "run"), *predict, str(out / "frames.npz")]),
        ("models.predict", [str(root / "top"), *predict, str(out / "videos.npz")]),
        ("models.extract", [*extract, str(out / "features")]),
    ]


def test_four_devices_predict_and_extract_as_one(tmp_path):
    train_main(["--quiet", *settings(tmp_path, backbone="micro", epochs=1)])
    top = {"run": tmp_path / "top", "system": "tecno", "frozen": tmp_path / "run", "batch": 2, "epochs": 1}
    train_main(["--quiet", *settings(tmp_path, **top)])
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    path = os.pathsep.join(filter(None, (str(HERE.parents[1]), str(HERE), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    command = [sys.executable, "-c", FOUR, json.dumps(commands(tmp_path, tmp_path / "four"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    models.predict.main(commands(tmp_path, tmp_path / "one")[0][1])
    models.predict.main(commands(tmp_path, tmp_path / "one")[1][1])
    models.extract.main(commands(tmp_path, tmp_path / "one")[2][1])
    for name in ("frames.npz", "videos.npz"):
        with np.load(tmp_path / "one" / name) as one, np.load(tmp_path / "four" / name) as four:
            assert set(one) == set(four)
            for array in one:
                if array.startswith(("phases_", "tools_")):
                    np.testing.assert_allclose(four[array], one[array], atol=1e-5)
                else:
                    np.testing.assert_array_equal(four[array], one[array])
    for path in (tmp_path / "one" / "features").glob("*.npy"):
        # In half precision.
        np.testing.assert_allclose(
            np.load(tmp_path / "four" / "features" / path.name), np.load(path), rtol=2e-3, atol=2e-3
        )


def test_batches_that_the_devices_cannot_divide_are_refused(monkeypatch):
    assert batch_size(None) == 64 and batch_size(7) == 7
    monkeypatch.setattr(local_devices.jax, "local_device_count", lambda: 8)
    assert batch_size(None) == 512 and batch_size(16) == 16
    with pytest.raises(ValueError, match=r"--batch 60 cannot be divided among the 8 devices.*multiple of 8"):
        batch_size(60)
