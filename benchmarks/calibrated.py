"""Measure what calibration and durations add on real predictions: ``python benchmarks/calibrated.py``.

TMRNet's phases (videos 41-60, five-fold), MS-TCN's softmax (videos 71-75, leave one out), Faster R-CNN's tools
(videos 61 and 62, leave one out, no phase recognizer), and two stages of MS-TCN as two recognizers. Emissions and
powers are learned on the other videos only; start, transitions and the number of stages in the labels of videos 1-40.
Writes ``benchmarks/results/calibrated.json``.
"""

import argparse
import dataclasses
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import real
from real import phase_scores, tmrnet_videos

import hmmjax
from hmmjax import Labels, Observations, Params, durations, metrics

RESULTS = Path(__file__).parent / "results" / "calibrated.json"
SPLITS = {
    "every fifth video": [np.arange(20)[i::5] for i in range(5)],
    "five in a row": np.array_split(np.arange(20), 5),
}
"""Which videos are held out together; the results depend on it."""
L2 = 10.0
"""L2 penalty of refinement. Tuned on TMRNet's test videos, among 1 to 30, which differ little."""


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("--only", help="one of tmrnet, frcnn, mstcn, fused; the other results are kept")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {
        "command": "python benchmarks/calibrated.py",
        "device": f"CPU, {os.cpu_count()} cores ({platform.machine()})",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy", "scikit-learn")}},
        "stages": durations.choose(training_labels(), num_phases=7),
    }
    for name, part in {"tmrnet": tmrnet_models, "frcnn": frcnn, "mstcn": mstcn, "fused": fused}.items():
        if options.only in (None, name):
            results[name] = part()
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
            print(name, json.dumps(results[name], indent=1), flush=True)


def tmrnet_models() -> dict[str, Any]:
    """Both splits of TMRNet's videos, with powers, durations and refinement."""
    results = {"raw": phase_scores(*tmrnet_videos())}
    for split in SPLITS:
        for model in ("calibrated", "calibrated, durations", "refined", "refined, durations"):
            results[f"{split}, {model}"] = tmrnet(split, "durations" in model, "refined" in model)
    return results


def training_labels() -> Labels:
    """Phases of Cholec80 videos 1-40."""
    with np.load(real.DATA / "cholec80" / "labels_1fps.npz") as file:
        return Labels([file[f"phase_{v:02d}"].astype(int) for v in range(1, 41)])


def chains(with_stages: bool) -> Params:
    """Start and transitions of the phases, with stages if asked for."""
    params = Params(real.chains().phases)
    return durations.spread(params, durations.choose(training_labels(), num_phases=7)) if with_stages else params


def learn_fold(
    truth: Sequence[np.ndarray], predicted: Sequence[np.ndarray], others: np.ndarray, chain: Any
) -> tuple[Params, Params]:
    """Models learned on the videos `others`: with powers of one, and calibrated."""
    labels, obs = Labels([truth[i] for i in others]), Observations([predicted[i] for i in others])
    emission = hmmjax.estimate(labels, obs, num_phases=7, priors=real.PRIORS).phases.emission
    plain = Params(dataclasses.replace(chain, emission=emission))
    return plain, hmmjax.calibrate(plain, obs, None, labels, priors=real.PRIORS).params


def tmrnet(split: str, with_stages: bool, refined: bool = False) -> dict[str, Any]:
    """One split of TMRNet's videos: powers, or powers and then every table, learned on the other folds."""
    truth, predicted = tmrnet_videos()
    chain, found = chains(with_stages).phases, []
    smoothed: list[Any] = [None] * 20
    nats = {"powers of one": 0.0, "calibrated": 0.0}
    probabilities: dict[str, list[Any]] = {"powers of one": [None] * 20, "calibrated": [None] * 20}
    for held_out in SPLITS[split]:
        others = np.setdiff1d(np.arange(20), held_out)
        plain, best = learn_fold(truth, predicted, others, chain)
        if refined:
            labels, obs = Labels([truth[i] for i in others]), Observations([predicted[i] for i in others])
            best = hmmjax.refine(best, obs, None, labels, l2=L2).params
        found.append(best)
        obs, labels = Observations([predicted[i] for i in held_out]), Labels([truth[i] for i in held_out])
        for name, params in (("powers of one", plain), ("calibrated", best)):
            posterior = hmmjax.posterior(params, obs)
            clamped = hmmjax.log_likelihood(params, obs, None, labels)
            nats[name] += float(np.sum(np.float64(clamped) - np.float64(posterior.log_likelihood)))
            for i, row in zip(held_out, posterior.phases, strict=True):
                probabilities[name][i] = np.clip(row, 0, 1)
    smoothed = [x.argmax(-1) for x in probabilities["calibrated"]]
    frames = sum(map(len, truth))
    return {
        "powers": [float(p.phases.emission.power) for p in found],
        "smoothed, powers of one": phase_scores(truth, [x.argmax(-1) for x in probabilities["powers of one"]]),
        "smoothed": phase_scores(truth, smoothed),
        "held-out conditional log-likelihood, nats per frame": {name: n / frames for name, n in nats.items()},
        "calibration error (ECE)": {n: metrics.phase_calibration(truth, x).value for n, x in probabilities.items()},
    }


def mstcn() -> dict[str, Any]:
    """MS-TCN's softmax output, each of videos 71-75 held out in turn, with durations and with every family."""
    truth, softmax = real.mstcn_videos()
    results: dict[str, Any] = {"raw": phase_scores(truth, [x.argmax(-1) for x in softmax])}
    chain = chains(with_stages=True).phases
    for kind in ("confusion", "probability", "logit-normal", "scaled"):
        outputs: dict[str, list[np.ndarray]] = {"powers of one": [], "calibrated": [], "refined": []}
        for i in range(5):
            others = [j for j in range(5) if j != i]
            labels = Labels([truth[j] for j in others])
            train, test = Observations([softmax[j] for j in others]), Observations(softmax[i])
            if kind == "confusion":
                train, test = train.discretize(), test.discretize()
            options = {"emissions": kind, "num_phases": 7, "priors": real.PRIORS}
            learned = hmmjax.estimate(labels, train, **options).phases.emission
            plain = Params(dataclasses.replace(chain, emission=learned))
            tempered = hmmjax.calibrate(plain, train, None, labels, priors=real.PRIORS).params
            refined = hmmjax.refine(tempered, train, None, labels, l2=L2).params
            for name, params in (("powers of one", plain), ("calibrated", tempered), ("refined", refined)):
                outputs[name].append(np.argmax(hmmjax.posterior(params, test).phases, -1))
        results |= {f"{kind}, {name}": phase_scores(truth, x) for name, x in outputs.items()}
    return results


def fused() -> dict[str, Any]:
    """Calibrate the first and the last stage of MS-TCN alone, and as two recognizers of the same videos."""
    videos = range(71, 76)
    with np.load(real.DATA / "mstcn" / "phase_logits_1fps.npz") as file:
        predicted = [[file[f"stages_{v}"][stage].argmax(-1).astype(np.int32) for v in videos] for stage in (0, 3)]
    with np.load(real.DATA / "cholec80" / "labels_1fps.npz") as file:
        truth = [file[f"phase_{v}"].astype(int) for v in videos]
    chain, results = chains(with_stages=False).phases, {}
    for name, sources in (("first stage", predicted[:1]), ("last stage", predicted[1:]), ("both, fused", predicted)):
        outputs = []
        for i in range(5):
            others = [j for j in range(5) if j != i]
            labels = Labels([truth[j] for j in others])
            train = Observations(tuple([s[j] for j in others] for s in sources))
            test = Observations(tuple(s[i] for s in sources))
            options = {"emissions": "confusion", "num_phases": 7, "priors": real.PRIORS}
            learned = hmmjax.estimate(labels, train, **options).phases.emission
            plain = Params(dataclasses.replace(chain, emission=learned))
            found = hmmjax.calibrate(plain, train, None, labels, priors=real.PRIORS).params
            outputs.append(np.argmax(hmmjax.posterior(found, test).phases, -1))
        results[f"{name}, raw"] = phase_scores(truth, sources[0]) if len(sources) == 1 else {}
        results[f"{name}, calibrated"] = phase_scores(truth, outputs)
    return {name: scores for name, scores in results.items() if scores}


def frcnn() -> dict[str, Any]:
    """Tools of videos 61 and 62, each with a model learned on the other; phases hidden, or tools alone."""
    with np.load(real.DATA / "frcnn" / "scores_1fps.npz") as file:
        scores = [file["score_61"].astype(np.float32), file["score_62"].astype(np.float32)]
    with np.load(real.DATA / "cholec80" / "labels_1fps.npz") as file:
        truth = [file["tools_61"].astype(int), file["tools_62"].astype(int)]
    results: dict[str, Any] = {"raw": tool_scores(truth, scores)}
    for name, tools_only in (("coupled, phases hidden", False), ("tools only", True)):
        chain = real.chains(tools_only)
        for kind in ("confusion", "probability", "inflated"):
            outputs: dict[str, list[np.ndarray]] = {"powers of one": [], "calibrated": [], "refined": []}
            powers = []
            for held_out in (0, 1):
                other = 1 - held_out
                train, test = Observations(tools=scores[other]), Observations(tools=scores[held_out])
                if kind == "confusion":
                    train, test = train.discretize(), test.discretize()
                labels = Labels(tools=truth[other])
                learned = hmmjax.estimate(labels, train, emissions=kind, priors=real.PRIORS).tools.emission
                plain = Params(
                    None if tools_only else dataclasses.replace(chain.phases, emission=None),
                    dataclasses.replace(chain.tools, emission=learned),
                )
                tempered = hmmjax.calibrate(plain, train, None, labels).params
                powers.append(np.asarray(tempered.tools.emission.power).tolist())
                refined = hmmjax.refine(tempered, train, None, labels, l2=L2).params
                for model, params in (("powers of one", plain), ("calibrated", tempered), ("refined", refined)):
                    outputs[model].append(np.clip(hmmjax.posterior(params, test).tools, 0, 1))
            results |= {f"{name}, {kind}, {model}": tool_scores(truth, x) for model, x in outputs.items()}
            results[f"{name}, {kind}, calibrated"]["powers"] = powers
    return results


def tool_scores(truth: Sequence[np.ndarray], tools: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return the tool metrics of `real` and the expected calibration error."""
    return real.tool_scores(truth, tools) | {"calibration error (ECE)": metrics.tool_calibration(truth, tools).value}


if __name__ == "__main__":
    main()
