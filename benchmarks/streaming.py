"""Latency of online inference: ``python benchmarks/streaming.py``. Writes ``benchmarks/results/streaming.json``.

The model has the size of Cholec80: 7 phases and 7 tools, 896 joint states; observations are labels, which all libraries
take. Each frame is timed by itself, from the call to numbers on the host. dynamax has no function for one frame: its
`hmm_filter` runs on a video of one frame, from the prediction of the frame before, jitted as a whole. hmmlearn has none
either: `predict_proba` of one frame, with the prediction as its start.
"""

import json
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hmm_model import codes, dense
from hmm_peers import has

import hmmjax
from hmmjax._core import running

RESULTS = Path(__file__).parent / "results" / "streaming.json"
FRAMES = 1000


def main() -> None:
    """Measure lags of 0, 5 and 30 frames and the other libraries, print and write the results."""
    params = hmmjax.init_params(7, 7, emissions="confusion")
    _, obs, _ = hmmjax.sample(params, jax.random.key(0), FRAMES)
    frames = [hmmjax.Observations(p, t) for p, t in zip(np.asarray(obs.phases), np.asarray(obs.tools), strict=True)]
    filtered = np.asarray(hmmjax.filter(params, obs).phases)
    packages = ["jax", "numpy", *(name for name in ("dynamax", "hmmlearn") if has(name))]
    times: dict[str, Any] = {}
    results = {
        "command": "python benchmarks/streaming.py",
        "device": f"CPU, {os.cpu_count()} cores ({platform.machine()}), {hmmjax.diagnostics.backend()}",
        "load average before": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version(), **{p: version(p) for p in packages}},
        "states": 7 * 2**7,
        "microseconds per frame": times,
    }
    for lag in (0, 5, 30):
        stream = hmmjax.Stream(params, lag=lag)
        times[f"hmmjax, lag {lag}"] = clock(lambda t, s=stream: s.step(frames[t]).phases, filtered)
        stream = hmmjax.Stream(params, lag=lag)
        stream._run = running.Traced(stream.params, lag, in_logs=False)
        times[f"programs of XLA, lag {lag}"] = clock(lambda t, s=stream: s.step(frames[t]).phases, filtered)
    start, move, see = dense(params)
    symbols = codes(obs)
    for name, make in (("dynamax", dynamax), ("hmmlearn", hmmlearn)):
        if has(name):
            times[name] = clock(make(start, move, see, symbols), filtered)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def clock(step: Callable[[int], Any], filtered: np.ndarray) -> dict[str, float]:
    """Return the latency of `step` (phases of frame t), after checking its results."""
    times, worst = [], 0.0
    for t, expected in enumerate(filtered):
        start = time.perf_counter()
        phases = step(t)
        times.append(1e6 * (time.perf_counter() - start))
        worst = max(worst, float(np.abs(phases - expected).max()))
    assert worst < 1e-3, worst
    low, middle, high = np.percentile(times[10:], [5, 50, 99])
    named = {"5 %": low, "median": middle, "99 %": high, "first, compilation included": times[0]}
    return {name: round(float(value), 1) for name, value in named.items()}


def dynamax(start: Any, move: Any, see: Any, symbols: Any) -> Callable[[int], np.ndarray]:
    """Return a step of its filter."""
    from dynamax.hidden_markov_model import inference

    start, move, seen = (jnp.asarray(x, jnp.float32) for x in (start, move, np.log(see.T)))
    run = jax.jit(inference.hmm_filter)
    predicted = start

    def step(t: int) -> np.ndarray:
        nonlocal predicted
        out = run(predicted, move, seen[symbols[t]][None])
        predicted = out.filtered_probs[0] @ move
        return np.asarray(out.filtered_probs[0]).reshape(7, -1).sum(1)

    return step


def hmmlearn(start: Any, move: Any, see: Any, symbols: Any) -> Callable[[int], np.ndarray]:
    """Return a step of its posterior of one frame."""
    from hmmlearn.hmm import CategoricalHMM

    model = CategoricalHMM(len(start), init_params="", implementation="scaling")
    model.n_features = see.shape[1]
    model.startprob_, model.transmat_, model.emissionprob_ = start, move, see

    def step(t: int) -> np.ndarray:
        now = model.predict_proba([[symbols[t]]])[0]
        model.startprob_ = now @ move
        model.startprob_ /= model.startprob_.sum()
        return now.reshape(7, -1).sum(1)

    return step


if __name__ == "__main__":
    main()
