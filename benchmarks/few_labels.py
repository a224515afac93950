"""Measure models that are learned without labels, or with a few: ``python benchmarks/few_labels.py``.

Unlabeled phases: `init_params`, `fit`, `posterior` on simulated recognizers of three degrees of confidence and, if the
data is there, on MS-TCN's softmax (videos 71-75, with 0, 1 and 2 of them labeled) and TMRNet's labels (41-60); frame
accuracy per video of the videos without labels, with anchored emissions (the default) and by maximum likelihood. Single
frames: `hmmjax.stabilize.learn_from_single_frames` with 15 positive and 15 negative labels per tool in six simulated
videos, scored on six others; mAP and macro F1. Writes ``benchmarks/results/few_labels.json``.
"""

import argparse
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import hmmjax
from hmmjax import Labels, Observations, metrics
from hmmjax.simulate import Recognizer, simulate_surgeries
from hmmjax.stabilize import Examples, learn_from_single_frames, numpy_posterior

DATA = Path(os.environ.get("HMMJAX_DATA", "../shared/data"))
RESULTS = Path(__file__).parent / "results" / "few_labels.json"
TOOLS = {
    "default": Recognizer(),
    "errors of 30 s, many false alarms": Recognizer(
        tool_run_seconds=30.0, tool_gain=6.0, false_alarm_rate=(0.4, 0.12, 0.25, 0.08, 0.08, 0.12, 0.1)
    ),
}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--only", choices=("unlabeled", "single"), help="keep the other results")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {
        "command": "python benchmarks/few_labels.py",
        "device": f"CPU, {os.cpu_count()} cores ({platform.machine()})",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy", "scikit-learn")}},
    }
    for name, part in {"single": single_frames, "unlabeled": unlabeled}.items():
        if options.only in (None, name):
            results[name] = part()
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def unlabeled() -> dict[str, Any]:
    """Accuracy of phases per video, by recognizer."""
    found = {}
    for gain in (1.0, 3.5, 20.0):
        for seed in range(3):
            videos = simulate_surgeries(5, seed, minutes=15, recognizer=Recognizer(phase_gain=gain))
            given = [v.phase_probabilities for v in videos], [v.phases for v in videos]
            found[f"simulated, gain {gain:g}, seed {seed}"] = phases(*given, "probability")
    if not DATA.exists():
        return found
    truth = np.load(DATA / "cholec80" / "labels_1fps.npz")
    logits = np.load(DATA / "mstcn" / "phase_logits_1fps.npz")
    known = [truth[f"phase_{v}"].astype(int) for v in range(71, 76)]
    for stage in (0, 3):
        outputs = [np.asarray(jax.nn.softmax(logits[f"stages_{v}"][stage])) for v in range(71, 76)]
        for labeled in ((), (0,), (0, 1)):
            name = f"MS-TCN, stage {stage}, {len(labeled)} of 5 labeled"
            found[name] = phases(outputs, known, "probability", labeled)
    files = [[DATA / "tmrnet" / f"{k}-phase" / f"video{v}-phase.txt" for v in range(41, 61)] for k in ("pred", "gt")]
    read = [[np.loadtxt(f)[:, 1].astype(int) for f in paths] for paths in files]
    found["TMRNet, labels"] = phases(*read, "confusion")
    found["TMRNet, one-hot"] = phases([np.eye(7, dtype=np.float32)[x] for x in read[0]], read[1], "probability")
    return found


def phases(outputs: list, truth: list, emissions: str, labeled: tuple[int, ...] = ()) -> dict[str, list[float]]:
    """Accuracy per video without labels: raw, anchored and by maximum likelihood."""
    length = [min(len(x), len(y)) for x, y in zip(outputs, truth, strict=True)]
    outputs, truth = ([x[:n] for x, n in zip(given, length, strict=True)] for given in (outputs, truth))
    rest = [i for i in range(len(truth)) if i not in labeled]
    labels = [y if i in labeled else np.full(len(y), -1) for i, y in enumerate(truth)]
    obs, start = Observations(outputs), hmmjax.init_params(7, 0, emissions=emissions)

    def accuracy(values: list) -> list[float]:
        chosen = [np.asarray(x) if np.ndim(x) == 1 else np.asarray(x).argmax(-1) for x in values]
        return [round(float((chosen[i] == truth[i]).mean()), 4) for i in rest]

    found = {"raw": accuracy(outputs)}
    for name, priors in (("anchored", None), ("maximum likelihood", hmmjax.Priors())):
        # Maximum likelihood drives transitions to zero, which recursions in logarithms handle best.
        backend = "auto" if priors is None else "logspace"
        known = Labels(labels) if labeled else None
        fitted = hmmjax.fit(start, obs, labels=known, priors=priors, backend=backend, max_iterations=50).params
        found[name] = accuracy(hmmjax.posterior(fitted, obs, backend=backend).phases)
    print({name: round(float(np.mean(x)), 3) for name, x in found.items()}, flush=True)
    return found


def single_frames() -> dict[str, Any]:
    """Mean average precision and macro F1 of tools, raw and stabilized, by recognizer, family and seed."""
    found = {}
    for name, recognizer in TOOLS.items():
        for seed in range(3):
            outputs, truth, known, mask = few_frames(recognizer, seed)
            found[f"{name}, seed {seed}, M"] = _score(outputs, outputs, truth, mask)
            for emissions in ("confusion", "probability"):
                obs = Observations(tools=outputs)
                obs = obs.discretize() if emissions == "confusion" else obs
                examples = Examples(obs, Labels(tools=known), mask)
                learned = learn_from_single_frames(examples, num_tools=7, emissions=emissions)
                for version_, online in (("M_H", False), ("M_H online", True)):
                    post, _ = numpy_posterior(learned.params, obs, mask, online=online)
                    key = f"{name}, seed {seed}, {version_}, {emissions}"
                    found[key] = _score(post.tool_log_odds, post.tools, truth, mask)
                    print(key, found[key], flush=True)
    return found


def few_frames(recognizer: Recognizer, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Simulate twelve videos, the first six with 15 positive and 15 negative labels per tool.

    Returns:
        Outputs (12, T, 7), true tools, known tools (-1 for unknown), and the mask (12, T).
    """
    videos = simulate_surgeries(12, seed, minutes=12, recognizer=recognizer)
    shape = len(videos), max(map(len, videos))
    outputs, truth, mask = np.zeros((*shape, 7), np.float32), np.full((*shape, 7), -1), np.zeros(shape, bool)
    for i, video in enumerate(videos):
        mask[i, : len(video)] = True
        outputs[i, : len(video)], truth[i, : len(video)] = video.tool_probabilities, video.tools
    known, rng = np.full_like(truth, -1), np.random.default_rng(seed)
    for tool in range(7):
        for value in (0, 1):
            at = np.argwhere(truth[:6, :, tool] == value)
            at = at[rng.permutation(len(at))[:15]]
            known[at[:, 0], at[:, 1], tool] = value
    return outputs, truth, known, mask


def _score(ranks: np.ndarray, values: np.ndarray, truth: np.ndarray, mask: np.ndarray) -> dict[str, float]:
    known, ranks, values = ([x[m] for x, m in zip(a[6:], mask[6:], strict=True)] for a in (truth, ranks, values))
    return {
        "mAP": round(metrics.average_precision(known, ranks).value, 4),
        "F1": round(metrics.tool_f1(known, values).value, 4),
    }


if __name__ == "__main__":
    main()
