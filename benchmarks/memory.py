"""Measure emissions with memory and label-wise training on TMRNet's labels: ``python benchmarks/memory.py``.

Phases of the test videos of Cholec80, eight folds; emissions are counted (and trained, with ``--train``) in the videos
of the other folds, start and transitions counted in the labels of videos 1-40. Counting chooses nothing by the
scores. The settings of training are the defaults of `hmmjax.refine`, from a power of one half; they were taken over
from an earlier experiment on folds of the same videos. ``--folder`` holds ``gt-phase`` and
``phase`` of all forty test videos (``code/eval/matlab-phase`` of YuemingJin/TMRNet, commit ab1b51c); without it the
twenty videos in HMMJAX_DATA are used. Writes ``benchmarks/results/memory.json``, one row per model and split.
"""

import argparse
import dataclasses
import json
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import real

import hmmjax
from hmmjax import Labels, Observations, Params, metrics
from hmmjax.emissions import Tempered
from hmmjax.stabilize import PRIORS

RESULTS = Path(__file__).parent / "results" / "memory.json"
FAMILIES = ("confusion", "autoregressive")
FOLDS = 8


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--folder", type=Path, help="gt-phase and phase of videos 41-80")
    parser.add_argument("--train", nargs=2, metavar=("FAMILY", "OBJECTIVE"), help="also train, one row per split")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": {}}
    results |= {
        "command": "python benchmarks/memory.py",
        "device": f"CPU, {os.cpu_count()} cores ({platform.machine()})",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy")}},
    }
    videos, truth, predicted = read(options.folder)
    results["videos"] = videos
    rows = results["rows"]
    rows["raw"] = scores(truth, predicted)
    everything = np.arange(len(truth))
    splits = {
        "every eighth video": [everything[i::FOLDS] for i in range(FOLDS)],
        "consecutive videos": np.array_split(everything, FOLDS),
    }
    models = [tuple(options.train)] if options.train else [(family, "counted") for family in FAMILIES]
    for split, folds in splits.items():
        for family, objective in models:
            start = time.perf_counter()
            for how, output in infer(truth, predicted, folds, family, objective).items():
                row = f"{split}, {family}, {objective}, {how}"
                rows[row] = scores(truth, output) | {"seconds": round(time.perf_counter() - start)}
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
                print(row, {name: x for name, x in rows[row].items() if name != "accuracies"}, flush=True)


def read(folder: Path | None) -> tuple[list[int], list[np.ndarray], list[np.ndarray]]:
    """Return the numbers of the videos, their phases and the predicted phases."""
    if folder is None:
        return [*range(41, 61)], *real.tmrnet_videos()
    numbers = [*range(41, 81)]
    kinds = ([np.loadtxt(folder / k / f"video{v}-phase.txt", dtype=int)[:, 1] for v in numbers] for k in KINDS)
    return numbers, *kinds


KINDS = ("gt-phase", "phase")


def scores(truth: list[np.ndarray], output: list[np.ndarray]) -> dict[str, Any]:
    """Score phases: over all frames, per video, and the worst video."""
    accuracies = np.array([(a == b).mean() for a, b in zip(truth, output, strict=True)])
    return {
        "accuracy, pooled": float(metrics.accuracy(truth, output, mean="pooled").value),
        "accuracy, per video": float(accuracies.mean()),
        "standard deviation": float(accuracies.std(ddof=1)),
        "worst video": float(accuracies.min()),
        "Jaccard, strict": float(metrics.jaccard(truth, output).value),
        "changes": metrics.phase_changes(output).value,
        "accuracies": accuracies.round(4).tolist(),
    }


def infer(
    truth: list[np.ndarray], predicted: list[np.ndarray], folds: list[np.ndarray], family: str, objective: str
) -> dict[str, list[np.ndarray]]:
    """Return the smoothed and the filtered phases of every video, by models of the other folds."""
    chain = real.chains().phases
    length = max(map(len, truth))
    mask = np.arange(length) < np.array([len(x) for x in truth])[:, None]
    labels, outputs = (np.zeros(mask.shape, np.int32) for _ in range(2))
    for i, (known, said) in enumerate(zip(truth, predicted, strict=True)):
        labels[i, : len(known)], outputs[i, : len(said)] = known, said
    found: dict[str, dict[int, np.ndarray]] = {"smoothed": {}, "filtered": {}}
    for fold in folds:
        others = np.setdiff1d(np.arange(len(truth)), fold)
        known = Observations(outputs[others]), mask[others], Labels(labels[others])
        counted = hmmjax.estimate(known[2], *known[:2], num_phases=7, priors=PRIORS, emissions=family)
        emission = counted.phases.emission
        if objective != "counted":
            emission = Tempered(emission, jnp.asarray(0.5))
        params = Params(dataclasses.replace(chain, emission=emission))
        if objective != "counted":
            params = hmmjax.refine(params, *known, objective=objective).params
        held_out = Observations(outputs[fold]), mask[fold]
        for how, answer in (("smoothed", hmmjax.posterior), ("filtered", hmmjax.filter)):
            phases = np.asarray(answer(params, *held_out).phases).argmax(-1)
            found[how] |= {int(v): row[: len(truth[v])] for v, row in zip(fold, phases, strict=True)}
    return {how: [videos[i] for i in range(len(truth))] for how, videos in found.items()}


if __name__ == "__main__":
    main()
