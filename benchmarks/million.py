"""One video of a million frames, 7 phases, 7 tools: ``python benchmarks/million.py``. Writes ``results/million.json``.

Each job runs in a process of its own, whose peak resident memory is read when it ends. The log-likelihood of the first
`SLICE` frames is compared with the forward recursion in float64 NumPy, over all 896 joint states.
"""

import json
import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np

import hmmjax

RESULTS = Path(__file__).parent / "results" / "million.json"
FRAMES, SLICE = 1_000_000, 2_000
JOBS = ("log_likelihood", "posterior", "filter", "decode")


def video(frames: int) -> tuple[hmmjax.Params, hmmjax.Observations]:
    """Return a model with confusion emissions and random predictions of `frames` frames."""
    rng = np.random.default_rng(0)
    params = hmmjax.init_params(7, 7, emissions="confusion")
    phases = rng.integers(0, 7, FRAMES, np.int32)[:frames]
    return params, hmmjax.Observations(phases, rng.integers(0, 2, (FRAMES, 7), np.int32)[:frames])


def reference(params: hmmjax.Params, obs: hmmjax.Observations) -> float:
    """Compute the log-likelihood by the forward recursion over joint states, in float64."""
    phase, tool = params.phases, params.tools
    assert phase is not None and tool is not None
    bits = (np.arange(128)[:, None] >> np.arange(6, -1, -1)) & 1
    start, matrix = np.asarray(tool.initial, float), np.asarray(tool.transition.matrix, float)
    joint = np.asarray(phase.initial, float)[:, None] * np.prod(
        np.where(bits[None], start.T[:, None], 1 - start.T[:, None]), -1
    )
    moves = np.stack([np.prod([matrix[k, q][np.ix_(bits[:, k], bits[:, k])] for k in range(7)], 0) for q in range(7)])
    transition = np.asarray(phase.transition, float)
    see_phase, see_tool = (np.asarray(c.emission.matrix, float) for c in (phase, tool))
    total = 0.0
    for t, (p, o) in enumerate(zip(np.asarray(obs.phases), np.asarray(obs.tools), strict=True)):
        if t:
            joint = np.einsum("qc,qcd->qd", transition.T @ joint, moves)
        likelihood = np.prod(see_tool[np.arange(7), bits, o], -1)
        joint = joint * see_phase[:, p][:, None] * likelihood
        total += np.log(joint.sum())
        joint /= joint.sum()
    return total


def measure(job: str, frames: int) -> dict[str, float]:
    """Measure the first call: seconds with compilation, peak memory, and the resulting log-probability."""
    params, obs = video(frames)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    answer = jax.block_until_ready(getattr(hmmjax, job)(params, obs))
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    value = getattr(answer, "log_likelihood", getattr(answer, "log_prob", answer))
    return {
        "seconds, compilation included": round(seconds, 1),
        "peak resident memory, GiB": round(after / 2**20, 2),
        "of which before the call": round(before / 2**20, 2),
        "nats": float(value),
    }


def main() -> None:
    """Check the log-likelihood, measure each job in a process of its own, print and write the results."""
    if len(sys.argv) == 3:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
        return
    params, obs = video(SLICE)
    found, want = float(hmmjax.log_likelihood(params, obs)), reference(params, obs)
    results = {
        "command": "python benchmarks/million.py",
        "device": f"CPU, {os.cpu_count()} cores ({platform.machine()})",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy")}},
        "model": "7 phases, 7 tools, confusion emissions; one video of random labels",
        "frames": FRAMES,
        "check": {"frames": SLICE, "float64 NumPy": want, "hmmjax": found, "relative error": abs(found / want - 1)},
    }
    for job in JOBS:
        done = subprocess.run(
            [sys.executable, __file__, job, str(FRAMES)], check=True, capture_output=True, text=True, env=os.environ
        )
        results[job] = json.loads(done.stdout.splitlines()[-1])
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        print(job, results[job], flush=True)


if __name__ == "__main__":
    main()
