"""Latency of online inference: ``python benchmarks/streaming.py``. Writes ``benchmarks/results/streaming.json``.

The model has the size of Cholec80: 7 phases and 7 tools, 896 joint states; observations are probabilities.
"""

import json
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np

import hmmjax

RESULTS = Path(__file__).parent / "results" / "streaming.json"
FRAMES = 2000


def main() -> None:
    """Measure lags of 0, 5 and 30 frames, print and write the results."""
    params = hmmjax.init_params(7, 7)
    _, obs, _ = hmmjax.sample(params, jax.random.key(0), FRAMES)
    frames = [hmmjax.Observations(p, t) for p, t in zip(np.asarray(obs.phases), np.asarray(obs.tools), strict=True)]
    results = {
        "command": "python benchmarks/streaming.py",
        "device": f"CPU, {os.cpu_count()} cores ({platform.machine()})",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy")}},
        "states": 7 * 2**7,
        "milliseconds per frame, from the call to numbers on the host": {},
    }
    for lag in (0, 5, 30):
        stream, times = hmmjax.Stream(params, lag=lag), []
        for frame in frames:
            start = time.perf_counter()
            stream.step(frame)
            times.append(1e3 * (time.perf_counter() - start))
        low, middle, high = np.percentile(times[10:], [5, 50, 99])
        latency = {"5 %": low, "median": middle, "99 %": high, "first, compilation included": times[0]}
        results["milliseconds per frame, from the call to numbers on the host"][f"lag {lag}"] = latency
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
