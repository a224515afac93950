"""Training in several processes, and checkpoints of sharded runs on another number of devices, equal one device's."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

from tiny import settings

from models.train import main as train_main
from models.training import processes
from models.training.run import read_metrics

HERE = Path(__file__).parent


def start(words, devices):
    """Start a training run in a process with some devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    path = os.pathsep.join(filter(None, (str(HERE.parents[1]), os.environ.get("PYTHONPATH", ""))))
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": path}
    command = [sys.executable, str(HERE / "tiny.py"), "--quiet", *map(str, words)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(*running):
    printed = []
    for process in running:
        printed.append(process.communicate(timeout=300)[0])
    for process, text in zip(running, printed, strict=True):
        assert process.returncode == 0, text
    return printed


def losses(run):
    lines = read_metrics(run)
    return [
        [line[name] for line in lines if name in line]
        for name in ("train/loss", "val/loss", "val/score", "train/gradient")
    ]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """An uninterrupted run of two epochs, 4 updates, on one device."""
    folder = tmp_path_factory.mktemp("one")
    train_main(["--quiet", *words(folder)])
    return folder


def words(folder, **more):
    return settings(folder, **{"backbone": "micro", "batch": 12, "eval_batch": 12, "epochs": 2, "accumulate": 2} | more)


def test_each_process_takes_its_rows(monkeypatch):
    rows = np.arange(24).reshape(2, 12)
    monkeypatch.setattr(processes.jax, "process_count", lambda: 3)
    found = []
    for number in range(3):
        monkeypatch.setattr(processes.jax, "process_index", lambda number=number: number)
        found.append(processes.own_rows(rows))
    np.testing.assert_array_equal(np.concatenate(found, 1), rows)
    assert found[1].tolist() == [[4, 5, 6, 7], [16, 17, 18, 19]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--processes", "2"], "belong together. Fix: give all three"),
        (["--coordinator", "h:1", "--processes", "2", "--process", "2"], "--process 2 of --processes 2. Fix: count"),
    ],
)
def test_addresses_that_are_incomplete_are_refused(one, options, message):
    with pytest.raises(SystemExit, match=message):
        train_main(["--quiet", *words(one, run=one / "other"), *options])


def in_two_processes(own):
    """Train in two processes with a device each; return what they print."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    common = ["--coordinator", f"localhost:{port}", "--processes", 2]
    return finish(*(start([*own, *common, "--process", i], 1) for i in range(2)))


@pytest.mark.slow
def test_two_processes_train_as_one(one, tmp_path):
    """Two processes with a device each; frames that fill up the last batch are in the second process's rows."""
    first, second = in_two_processes(words(one, run=tmp_path / "two"))
    assert "best validation" in first and "best validation" not in second
    for a, b in zip(losses(one / "run"), losses(tmp_path / "two"), strict=True):
        assert len(a) == len(b) > 0
        np.testing.assert_allclose(a, b, rtol=1e-4)


@pytest.mark.slow
def test_two_processes_train_on_a_frozen_run_as_one(one, tmp_path):
    """The first process copies the run and writes its features; the other waits for both."""
    more = {"frozen": one / "run", "system": "tecno", "batch": 2, "eval_batch": 8, "accumulate": 1}
    shutil.rmtree(one / "run" / "features", ignore_errors=True)
    in_two_processes(words(one, run=tmp_path / "two", **more))
    assert len(list((one / "run" / "features").iterdir())) == 1
    train_main(["--quiet", *words(one, run=tmp_path / "single", **more)])
    for a, b in zip(losses(tmp_path / "single"), losses(tmp_path / "two"), strict=True):
        assert len(a) == len(b) > 0
        np.testing.assert_allclose(a, b, rtol=1e-4)


@pytest.mark.slow
def test_a_checkpoint_of_two_devices_continues_on_one_and_back(one, tmp_path):
    run = tmp_path / "run"
    finish(start(words(one, run=run, stop_after=2, save_every=1), 2))
    train_main(["--quiet", "--resume", str(run), "stop_after=3"])
    finish(start(["--resume", run], 2))
    for a, b in zip(losses(one / "run"), losses(run), strict=True):
        assert len(a) == len(b) > 0
        np.testing.assert_allclose(a, b, rtol=1e-4)
