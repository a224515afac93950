"""Videos so long that not every message can be kept."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import hmmjax
from hmmjax.messages import logspace

MILLION = Path(__file__).parents[1] / "benchmarks" / "million.py"


def test_the_best_path_is_the_same_when_scores_are_found_again(monkeypatch):
    params = hmmjax.init_params(3, 2, emissions="confusion", stay=0.8)
    # Not a whole number of chunks; under jit nothing is padded to a bucket.
    _, obs, mask = hmmjax.sample(params, jax.random.key(0), [150, 70, 64, 1])
    mask = np.asarray(mask) & (np.arange(150) % 7 != 3)
    decode = jax.jit(lambda obs, mask: hmmjax.decode(params, obs, mask))
    want = decode(obs, mask)
    monkeypatch.setattr(logspace, "STORED_BYTES", 0)
    jax.clear_caches()
    found = jax.jit(lambda obs, mask: hmmjax.decode(params, obs, mask))(obs, mask)
    jax.tree.map(assert_array_equal, found, want)


@pytest.mark.slow
@pytest.mark.parametrize("job", ["log_likelihood", "posterior", "filter", "decode"])
def test_memory_is_bounded(job):
    """The scores of 400,000 frames alone would take 1.75 GiB, and messages as much."""
    command = [sys.executable, MILLION, job, "400000"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["peak resident memory, GiB"] - found["of which before the call"] < 1.2
