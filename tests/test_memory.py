"""Peak memory, and videos too long for storing every message."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import hmmjax
from hmmjax.messages import batching

pytestmark = pytest.mark.thorough
MILLION = Path(__file__).parents[1] / "benchmarks" / "million.py"


def test_the_best_path_is_the_same_when_scores_are_recomputed(monkeypatch):
    params = hmmjax.init_params(3, 2, emissions="confusion", stay=0.8)
    # 150 is not a multiple of the chunk; inside jit there is no padding to a bucket.
    _, obs, mask = hmmjax.sample(params, jax.random.key(0), [150, 70, 64, 1])
    mask = np.asarray(mask) & (np.arange(150) % 7 != 3)
    decode = jax.jit(lambda obs, mask: hmmjax.decode(params, obs, mask))
    want = decode(obs, mask)
    monkeypatch.setattr(batching, "STORED_BYTES", 0)
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


MEMORY = """
import numpy as np
import hmmjax
params = hmmjax.init_params(7, 7)
rng = np.random.default_rng(0)
peaks = []
for frames in (1000, 2000):
    phases = rng.dirichlet(np.ones(7), (1, frames)).astype("f4")
    obs = hmmjax.Observations(phases, rng.uniform(0, 1, (1, frames, 7)).astype("f4"))
    hmmjax.fit(params, obs, max_iterations=1)
    peaks += [int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(*peaks)
"""


@pytest.mark.shipped
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc, which is Linux's")
def test_memory_of_an_em_step_with_896_states():
    """Under 1 GiB in total, and no S * S numbers per frame, which would take 3 GB for 1000 more frames."""
    run = subprocess.run(
        [sys.executable, "-c", MEMORY],
        capture_output=True,
        text=True,
        cwd=Path(hmmjax.__file__).parents[1],
        check=False,
    )
    assert run.returncode == 0, run.stderr
    first, second = map(float, run.stdout.split())
    assert first < 1024 and second - first < 200, run.stdout
