"""Stabilize real predictions with plain library calls: ``python benchmarks/real.py``.

TMRNet's phases of Cholec80 videos 41-60 (emissions by five-fold cross-validation) and Faster R-CNN's tools of videos
61 and 62 (leave one out, no phase recognizer at all); transitions counted in videos 1-40. Writes
``benchmarks/results/real.json``. The environment variable HMMJAX_DATA is the folder of the data, default
../shared/data.
"""

import dataclasses
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import hmmjax
from hmmjax import Labels, Observations, Params, metrics
from hmmjax.stabilize import PRIORS

DATA = Path(os.environ.get("HMMJAX_DATA", "../shared/data"))
RESULTS = Path(__file__).parent / "results" / "real.json"


def main() -> None:
    """Measure, print and write."""
    results = {
        "command": "python benchmarks/real.py",
        "device": f"CPU, {os.cpu_count()} cores ({platform.machine()})",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy", "scikit-learn")}},
        "tmrnet": tmrnet(),
        "frcnn": frcnn(),
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


def chains(tools_only: bool = False) -> Params:
    """Start and transitions, counted in the labels of Cholec80 videos 1-40."""
    with np.load(DATA / "cholec80" / "labels_1fps.npz") as file:
        phases = [file[f"phase_{v:02d}"].astype(int) for v in range(1, 41)]
        tools = [file[f"tools_{v:02d}"].astype(int) for v in range(1, 41)]
    return hmmjax.estimate(Labels(None if tools_only else phases, tools), num_phases=7, priors=PRIORS)


def phase_scores(truth: Sequence[np.ndarray], predicted: Sequence[np.ndarray]) -> dict[str, float]:
    """Accuracy, Jaccard and number of changes of phases."""
    return {
        "accuracy, pooled over frames": metrics.accuracy(truth, predicted, mean="pooled").value,
        "Jaccard, strict, per video then mean over phases": metrics.jaccard(truth, predicted).value,
        "phase changes": metrics.phase_changes(predicted).value,
    }


def tool_scores(
    truth: Sequence[np.ndarray], tools: Sequence[np.ndarray], log_odds: Sequence[np.ndarray] | None = None
) -> dict[str, float]:
    """Average precision, of log-odds if given, and F1 and number of changes of tools."""
    ranks = tools if log_odds is None else log_odds
    return {
        "mAP, scikit-learn step AP, pooled over videos": metrics.average_precision(truth, ranks).value,
        "F1, macro over tools, pooled, threshold 0.5": metrics.tool_f1(truth, tools).value,
        "on/off changes": metrics.tool_changes(tools).value,
    }


def tmrnet_videos() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the true and the predicted phases of videos 41-60."""

    def read(kind: str, video: int) -> np.ndarray:
        return np.loadtxt(DATA / "tmrnet" / f"{kind}-phase" / f"video{video}-phase.txt", dtype=int)[:, 1]

    return [read("gt", v) for v in range(41, 61)], [read("pred", v) for v in range(41, 61)]


def mstcn_videos() -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the phases (n,) and MS-TCN's softmax (n, 7) float32 of videos 71-75."""
    videos = range(71, 76)
    with np.load(DATA / "mstcn" / "phase_logits_1fps.npz") as file:
        logits = [file[f"logits_{v}"].astype(float) for v in videos]
    with np.load(DATA / "cholec80" / "labels_1fps.npz") as file:
        truth = [file[f"phase_{v}"].astype(int) for v in videos]
    softmax = [np.exp(x - x.max(-1, keepdims=True)) for x in logits]
    return truth, [(x / x.sum(-1, keepdims=True)).astype(np.float32) for x in softmax]


def tmrnet() -> dict[str, Any]:
    """Phases of videos 41-60: raw, smoothed, filtered, decoded."""
    truth, predicted = tmrnet_videos()
    model = chains().phases
    outputs: dict[str, list[np.ndarray]] = {"smoothed": [], "filtered": [], "decoded": []}
    for held_out in np.array_split(np.arange(20), 5):
        others = np.setdiff1d(np.arange(20), held_out)
        labels, obs = Labels([truth[i] for i in others]), Observations([predicted[i] for i in others])
        learned = hmmjax.estimate(labels, obs, num_phases=7, priors=PRIORS)
        params = Params(dataclasses.replace(model, emission=learned.phases.emission))
        obs = Observations([predicted[i] for i in held_out])
        outputs["smoothed"] += [np.argmax(x, -1) for x in hmmjax.posterior(params, obs).phases]
        outputs["filtered"] += [np.argmax(x, -1) for x in hmmjax.filter(params, obs).phases]
        outputs["decoded"] += [np.asarray(x) for x in hmmjax.decode(params, obs).phases]

    raw = phase_scores(truth, predicted)
    return {"raw": raw} | {name: phase_scores(truth, x) for name, x in outputs.items()}


def frcnn() -> dict[str, Any]:
    """Tools of videos 61 and 62: raw scores, the coupled model with its phases unobserved, and tools only."""
    with np.load(DATA / "frcnn" / "scores_1fps.npz") as file:
        scores = [file["score_61"], file["score_62"]]
    with np.load(DATA / "cholec80" / "labels_1fps.npz") as file:
        truth = [file["tools_61"].astype(int), file["tools_62"].astype(int)]
        phases = [file["phase_61"].astype(int), file["phase_62"].astype(int)]

    results = {"raw": tool_scores(truth, scores)}
    for name, tools_only in (("coupled, phases unobserved", False), ("tools only", True)):
        model = chains(tools_only)
        smoothed, filtered, inferred = [], [], []  # tools as probabilities and as log-odds
        for held_out in (0, 1):
            other = 1 - held_out
            train = Observations(tools=scores[other]).discretize()
            learned = hmmjax.estimate(Labels(tools=truth[other]), train, priors=PRIORS)
            params = Params(
                None if tools_only else dataclasses.replace(model.phases, emission=None),
                dataclasses.replace(model.tools, emission=learned.tools.emission),
            )
            obs = Observations(tools=scores[held_out]).discretize()
            posterior = hmmjax.posterior(params, obs)
            online = hmmjax.filter(params, obs)
            smoothed.append((np.asarray(posterior.tools), np.asarray(posterior.tool_log_odds)))
            filtered.append((np.asarray(online.tools), np.asarray(online.tool_log_odds)))
            if not tools_only:
                inferred.append(np.argmax(posterior.phases, -1))
        results[f"{name}, smoothed"] = tool_scores(truth, *zip(*smoothed, strict=True))
        results[f"{name}, filtered"] = tool_scores(truth, *zip(*filtered, strict=True))
        if not tools_only:
            accuracy = metrics.accuracy(phases, inferred, mean="pooled").value
            results[f"{name}, smoothed"]["phase accuracy from tools alone, pooled over frames"] = accuracy
    return results


if __name__ == "__main__":
    main()
