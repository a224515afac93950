"""How the real figures depend on choices: ``python benchmarks/sensitivity.py``.

The phase-transition pseudo-count on TMRNet, what `hmmjax.calibrate` adds there, and MS-TCN's softmax, which the plain
model does not help. Writes ``benchmarks/results/sensitivity.json``.
"""

import dataclasses
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import real

import hmmjax
from hmmjax import Labels, Observations, Params, metrics

RESULTS = Path(__file__).parent / "results" / "sensitivity.json"


def main() -> None:
    """Measure, print and write."""
    kept = real.PRIORS
    results: dict[str, Any] = {
        "command": "python benchmarks/sensitivity.py",
        "device": f"CPU, {os.cpu_count()} cores ({platform.machine()})",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy", "scikit-learn")}},
        "tmrnet by phase-transition pseudo-count": {},
    }
    for count in (0.0, 1e-12, 1e-8, 1e-4, 1e-3, 1e-2):
        real.PRIORS = dataclasses.replace(kept, phase_transition=count)
        results["tmrnet by phase-transition pseudo-count"][f"{count:g}"] = real.tmrnet()["smoothed"]
    real.PRIORS = kept
    results["tmrnet calibrated"] = calibrated()
    results["mstcn"] = mstcn()
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def score(truth: list[np.ndarray], predicted: list[np.ndarray]) -> dict[str, float]:
    """The three figures of phases."""
    return {
        "accuracy, pooled over frames": metrics.accuracy(truth, predicted, mean="pooled").value,
        "Jaccard, strict, per video then mean over phases": metrics.jaccard(truth, predicted).value,
        "phase changes": metrics.phase_changes(predicted).value,
    }


def calibrated() -> dict[str, Any]:
    """TMRNet, five-fold: emissions and their power from the other four fifths."""

    def read(kind: str, video: int) -> np.ndarray:
        return np.loadtxt(real.DATA / "tmrnet" / f"{kind}-phase" / f"video{video}-phase.txt", dtype=int)[:, 1]

    truth, said = ([read(kind, v) for v in range(41, 61)] for kind in ("gt", "pred"))
    chain, answers, powers = real.chains().phases, {"smoothed": [], "filtered": []}, []
    for held_out in np.array_split(np.arange(20), 5):
        others = np.setdiff1d(np.arange(20), held_out)
        labels, mask = real.stack([truth[i] for i in others], -1)
        obs = Observations(real.stack([said[i] for i in others])[0])
        learnt = hmmjax.estimate(Labels(labels), obs, mask, num_phases=7, priors=real.PRIORS).phases.emission
        found = hmmjax.calibrate(Params(dataclasses.replace(chain, emission=learnt)), obs, mask, Labels(labels))
        powers.append(float(found.params.phases.emission.power))
        phases, mask = real.stack([said[i] for i in held_out])
        for name, run in (("smoothed", hmmjax.posterior), ("filtered", hmmjax.filter)):
            answers[name] += metrics.unpad(np.argmax(run(found.params, Observations(phases), mask).phases, -1), mask)
    return {"powers": powers, **{name: score(truth, x) for name, x in answers.items()}}


def mstcn() -> dict[str, Any]:
    """MS-TCN's last stage, videos 71-75, leave one out: raw and with either family."""
    videos = range(71, 76)
    with np.load(real.DATA / "mstcn" / "phase_logits_1fps.npz") as file:
        logits = [file[f"logits_{v}"].astype(float) for v in videos]
    with np.load(real.DATA / "cholec80" / "labels_1fps.npz") as file:
        truth = [file[f"phase_{v}"].astype(int) for v in videos]
    softmax = [np.exp(x - x.max(-1, keepdims=True)) for x in logits]
    softmax = [(x / x.sum(-1, keepdims=True)).astype(np.float32) for x in softmax]
    results = {"raw": score(truth, [x.argmax(-1) for x in softmax])}
    chain = real.chains().phases
    for kind in ("confusion", "probability"):
        plain, tempered = [], []
        for i in range(5):
            others = [j for j in range(5) if j != i]
            labels, mask = real.stack([truth[j] for j in others], -1)
            seen, one = Observations(real.stack([softmax[j] for j in others])[0]), Observations(softmax[i])
            if kind == "confusion":
                seen, one = seen.discretize(), one.discretize()
            learnt = hmmjax.estimate(
                Labels(labels), seen, mask, emissions=kind, num_phases=7, priors=real.PRIORS
            ).phases.emission
            params = Params(dataclasses.replace(chain, emission=learnt))
            plain.append(np.argmax(hmmjax.posterior(params, one).phases, -1))
            params = hmmjax.calibrate(params, seen, mask, Labels(labels)).params
            tempered.append(np.argmax(hmmjax.posterior(params, one).phases, -1))
        results[f"{kind}, smoothed"] = score(truth, plain)
        results[f"{kind}, calibrated, smoothed"] = score(truth, tempered)
    return results


if __name__ == "__main__":
    main()
