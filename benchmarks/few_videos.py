"""Choose how far to trust recognizers with few labeled videos, on real ones: ``python benchmarks/few_videos.py``.

One or two videos of a recognizer of phases are labeled, five draws of each; all others are scored. TMRNet (videos
41-60) and the five outputs of MS-TCN (71-75) are stabilized with error tables that are shrunk towards a recognizer that
is mostly right (`hmmjax.stabilize.strengths`), with all `FRAMES` and `POWERS`, with transitions counted in videos 1-40
("many") or in the labeled videos alone ("few"). The choice has the largest mean gain (of accuracy and Jaccard, each
network weighing the same) among those with which no network loses more than `LOSS`; no change at all is among them. It
is also made on each network alone and scored on the other. Writes ``benchmarks/results/few_videos.json``.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import real
from auto import transitions

from hmmjax import Labels, Observations, estimate
from hmmjax.stabilize import PRIORS, numpy_posterior
from hmmjax.stabilize.examples import Examples
from hmmjax.stabilize.strengths import STRENGTHS, Strength, shrunk

RESULTS = Path(__file__).parent / "results" / "few_videos.json"
FRAMES = (1.0, 100.0, 1000.0, 10_000.0)
POWERS = (1.0, 0.3, 0.1)
DRAWS = 5
LOSS = 0.002
"""Largest loss of a network, in the mean of accuracy and Jaccard, with which a strength can be chosen."""


def main() -> None:
    """Measure, choose, print and write."""
    gains: dict[str, Any] = {}
    for name, videos in recognizers():
        for count, where in itertools.product((1, 2), STRENGTHS):
            gains[f"{name}, {count} labeled, {where}"] = measure(videos, count, where)
    networks = ("TMRNet", "MS-TCN")
    results: dict[str, Any] = {"command": "python benchmarks/few_videos.py", "choices": {}}
    for where, mode in itertools.product(STRENGTHS, ("offline", "online")):
        means = {n: mean_gains(gains, n, where, mode) for n in networks}
        chosen = {
            "all": choose(list(means.values())),
            **{f"without {n}": choose([means[m] for m in networks if m != n]) for n in networks},
        }
        results["choices"][f"{where}, {mode}"] = {
            how: {"frames, power": key, **{n: round(means[n].get(key, 0.0), 4) for n in networks}}
            for how, key in chosen.items()
        }
    print(json.dumps(results["choices"], indent=1))
    results["mean change of accuracy and of Jaccard, offline and online, by recognizer, frames and power"] = gains
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def recognizers() -> Iterator[tuple[str, Examples]]:
    """Yield each recognizer's labels of videos, with the truth."""
    truth, predicted = real.tmrnet_videos()
    yield "TMRNet", examples(truth, predicted)
    truth, softmax = real.mstcn_videos()
    yield "MS-TCN", examples(truth, [x.argmax(-1) for x in softmax])
    with np.load(real.DATA / "mstcn" / "phase_logits_1fps.npz") as file:
        for stage in range(4):
            outputs = [file[f"stages_{v}"][stage].argmax(-1) for v in range(71, 76)]
            yield f"MS-TCN stage {stage}", examples(truth, outputs)


def examples(truth: list[np.ndarray], predicted: list[np.ndarray]) -> Examples:
    """Return padded videos."""
    length = max(map(len, truth))
    labels, outputs = (
        np.stack([np.pad(x, (0, length - len(x)), constant_values=fill) for x in videos]).astype(np.int32)
        for videos, fill in ((truth, -1), (predicted, 0))
    )
    return Examples(Observations(outputs), Labels(labels), labels >= 0)


def measure(videos: Examples, count: int, where: str) -> dict[str, list[float]]:
    """Return mean changes of accuracy and Jaccard, offline and online, by frames and power."""
    total, rng = len(videos.mask), np.random.default_rng(0)
    draws = [rng.choice(total, count, replace=False) for _ in range(DRAWS)]
    found: dict[str, list[list[float]]] = {}
    for labeled in draws:
        known, rest = videos.only(labeled), np.setdiff1d(np.arange(total), labeled)
        others = transitions(True, False)
        counts = (others.labels, others.mask) if where == "many" else (known.labels, known.mask)
        chain = estimate(counts[0], None, counts[1], priors=PRIORS, num_phases=7).phases
        assert chain is not None
        for frames, power in itertools.product(FRAMES, POWERS):
            pair = shrunk(chain, known, Strength(frames, power, power))
            rows = found.setdefault(f"{frames:g}, {power:g}", [])
            rows.append([x for mode in (0, 1) for x in change(pair[mode], videos.take(rest), bool(mode))])
    return {key: np.round(np.mean(rows, 0), 4).tolist() for key, rows in found.items()}


def change(params: Any, videos: Examples, online: bool) -> tuple[float, float]:
    """Return by how much accuracy and Jaccard change."""
    posterior, _ = numpy_posterior(params, videos.obs, videos.mask, online=online)
    truth, *both = (
        [x[m] for x, m in zip(array, videos.mask, strict=True)]
        for array in (videos.labels.phases, videos.obs.phases, posterior.phases.argmax(-1))
    )
    before, after = (real.phase_scores(truth, x) for x in both)
    first, second, *_ = before
    return after[first] - before[first], after[second] - before[second]


def mean_gains(gains: dict[str, Any], network: str, where: str, mode: str) -> dict[str, float]:
    """Return the mean change of accuracy and Jaccard of a network's outputs by frames and power."""
    tables = [t for name, t in gains.items() if name.startswith(network) and name.endswith(where)]
    start = 0 if mode == "offline" else 2
    return {key: float(np.mean([t[key][start : start + 2] for t in tables])) for key in tables[0]}


def choose(networks: list[dict[str, float]]) -> str:
    """Return the frames and power with the largest mean gain, or "unchanged"."""
    means = {
        key: float(np.mean([n[key] for n in networks])) for key in networks[0] if all(n[key] > -LOSS for n in networks)
    }
    best = max(means, key=means.__getitem__, default="unchanged")
    return best if means.get(best, 0.0) > 0 else "unchanged"


if __name__ == "__main__":
    main()
