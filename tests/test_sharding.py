"""Results on several devices and processes equal those on one device."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import hmmjax

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("processes", [1, 2])
def test_eight_devices_are_one(processes):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={8 // processes}"
    root = Path(__file__).parents[1]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
    environment["PYTHONPATH"] = path
    running = [
        subprocess.Popen(
            [sys.executable, str(root / "tests" / "sharded.py"), str(i), str(processes), str(port)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i in range(processes)
    ]  # fmt: skip
    for i, process in enumerate(running):
        out, errors = process.communicate(timeout=300)
        assert process.returncode == 0 and f"same {i}" in out, errors


def test_one_device_is_no_different():
    start = hmmjax.init_params(2, 1)
    _, obs, mask = hmmjax.sample(start, jax.random.key(0), [9, 4])
    spread = hmmjax.shard(*jax.tree.map(np.asarray, (obs, mask)), devices=jax.devices()[:1])
    answers = hmmjax.log_likelihood(start, *spread[:2]), hmmjax.log_likelihood(start, obs, mask)
    np.testing.assert_allclose(*answers, rtol=1e-6)
    with pytest.raises(ValueError, match="all empty"):
        hmmjax.shard(hmmjax.Observations())


def test_single_videos_are_refused():
    for single in (hmmjax.Observations(np.zeros(5, int)), hmmjax.Observations(None, np.zeros((5, 2), int))):
        with pytest.raises(ValueError, match="leading axis"):
            hmmjax.shard(single)
