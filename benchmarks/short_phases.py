"""Measure what keeps short phases and prompt changes: ``python benchmarks/short_phases.py``.

TMRNet's phases (videos 41-60, five-fold, by either split of `calibrated`). Errors are learned on the other folds;
start, transitions and the number of stages in the labels of videos 1-40. Every model is scored, none is chosen. Writes
``benchmarks/results/short_phases.json``.
"""

import dataclasses
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import calibrated
import jax.numpy as jnp
import numpy as np
import real

import hmmjax
from hmmjax import Labels, Observations, Params, metrics
from hmmjax.emissions import Tempered
from hmmjax.stabilize.candidates import POWER, with_restarts

RESULTS = Path(__file__).parent / "results" / "short_phases.json"


@dataclasses.dataclass(frozen=True)
class Model:
    """How a model is learned.

    Attributes:
        objective: "counted", "calibrated", or one of `hmmjax.refine`.
        restarts: whether phases may restart anywhere, see `hmmjax.stabilize.candidates`.
        stages: whether phases have the stages that `hmmjax.durations.choose` finds.
        balanced: whether all phases weigh the same in the objective.
    """

    objective: str
    restarts: bool = False
    stages: bool = False
    balanced: bool = False


MODELS = {
    "counted": Model("counted"),
    "counted, restarts": Model("counted", restarts=True),
    "calibrated": Model("calibrated"),
    "calibrated, durations": Model("calibrated", stages=True),
    "filter": Model("filter"),
    "filter, durations": Model("filter", stages=True),
    "filter, restarts": Model("filter", restarts=True),
    "filter, restarts, durations": Model("filter", restarts=True, stages=True),
    "filter, restarts, balanced": Model("filter", restarts=True, balanced=True),
    "smoother, restarts": Model("smoother", restarts=True),
    "smoother, restarts, balanced": Model("smoother", restarts=True, balanced=True),
}
MEANS = {
    "mean of three": ("filter", "filter, restarts", "counted, restarts"),
    "mean of three and balanced": ("filter", "filter, restarts", "counted, restarts", "filter, restarts, balanced"),
    "mean of three and durations": ("filter", "filter, restarts", "counted, restarts", "filter, restarts, durations"),
}
"""Models whose posteriors are averaged."""


def main() -> None:
    """Measure, print and write."""
    truth, predicted = real.tmrnet_videos()
    results: dict[str, Any] = {
        "command": "python benchmarks/short_phases.py",
        "device": f"CPU, {os.cpu_count()} cores ({platform.machine()})",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy")}},
        "raw": score(truth, predicted),
    }
    for split in calibrated.SPLITS:
        found = {name: posteriors(model, split, truth, predicted) for name, model in MODELS.items()}
        found |= {
            name: [np.mean(members, 0) for members in zip(*(found[m] for m in own), strict=True)]
            for name, own in MEANS.items()
        }
        results[split] = {name: score(truth, [x.argmax(-1) for x in videos]) for name, videos in found.items()}
        for name, scores in results[split].items():
            print(split, name, json.dumps({k: v for k, v in scores.items() if k != "accuracy per video"}), flush=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def posteriors(model: Model, split: str, truth: list[np.ndarray], predicted: list[np.ndarray]) -> list[np.ndarray]:
    """Return P(phase given the whole video) (T, 7) of each video, by a model of the other folds."""
    found: list[Any] = [None] * len(truth)
    for held_out in calibrated.SPLITS[split]:
        others = np.setdiff1d(np.arange(len(truth)), held_out)
        params = learn(model, Labels([truth[i] for i in others]), Observations([predicted[i] for i in others]))
        smoothed = hmmjax.posterior(params, Observations([predicted[i] for i in held_out])).phases
        for i, video in zip(held_out, smoothed, strict=True):
            found[i] = np.asarray(video)
    return found


def learn(model: Model, labels: Labels, obs: Observations) -> Params:
    """Return the model of some videos."""
    emission = hmmjax.estimate(labels, obs, num_phases=7, priors=real.PRIORS).phases.emission
    chain = dataclasses.replace(calibrated.chains(model.stages).phases, emission=emission)
    chain = with_restarts(chain) if model.restarts else chain
    if model.objective == "counted":
        return Params(chain)
    if model.objective == "calibrated":
        return hmmjax.calibrate(Params(chain), obs, None, labels, priors=real.PRIORS).params
    start = Params(dataclasses.replace(chain, emission=Tempered(emission, jnp.asarray(POWER))))
    return hmmjax.refine(start, obs, None, labels, objective=model.objective, balanced=model.balanced).params


def score(truth: list[np.ndarray], output: list[np.ndarray]) -> dict[str, Any]:
    """Return accuracy and Jaccard, metrics of changes and of lost phases, and the accuracy of every video."""
    measured = (
        metrics.changes_found(truth, output),
        metrics.change_f1(truth, output),
        metrics.phases_lost(truth, output),
        metrics.phases_gained(truth, output),
    )
    delays = {f"delay, {how}": metrics.transition_delay(truth, output, average=how).value for how in ("mean", "median")}
    absolute = metrics.transition_delay(truth, output, absolute=True).value
    accuracies = [float((a == b).mean()) for a, b in zip(truth, output, strict=True)]
    return {
        **real.phase_scores(truth, output),
        **{m.name: m.value for m in measured},
        **delays,
        "delay, mean absolute": absolute,
        "accuracy per video": np.round(accuracies, 4).tolist(),
    }


if __name__ == "__main__":
    main()
