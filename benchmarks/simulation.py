"""Compare simulated surgeries, by either law of tools, with Cholec80's annotations.

    python benchmarks/simulation.py --out benchmarks/results/simulation.json

The annotations are read from the folder that HMMJAX_DATA names (default ../shared/data): cholec80/labels_1fps.npz.
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.simulate import TOOLS, Departures, simulate_surgeries
from models.training.run import environment

Videos = list[tuple[np.ndarray, np.ndarray]]
GRASPER, BIPOLAR, HOOK, SCISSORS, CLIPPER = range(5)


def real() -> Videos:
    """Return phases (T,) and tools (T, K) of Cholec80's 80 videos."""
    path = Path(os.environ.get("HMMJAX_DATA", "../shared/data")) / "cholec80" / "labels_1fps.npz"
    with np.load(path) as file:
        return [(file[f"phase_{v:02d}"].astype(int), file[f"tools_{v:02d}"].astype(int)) for v in range(1, 81)]


def lengths(track: np.ndarray, value: int) -> np.ndarray:
    """Return the lengths of the runs of a value in a track of 0 and 1."""
    edges = np.flatnonzero(np.diff(track, prepend=1 - track[0]))
    return np.diff(np.append(edges, len(track)))[track[edges] == value]


def spread(values: np.ndarray) -> dict[str, float]:
    """Return mean, coefficient of variation and quantiles of lengths in seconds."""
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    numbers = {"mean": values.mean(), "cv": values.std() / values.mean(), "10 %": low, "50 %": middle, "90 %": high}
    return {name: round(float(x), 2) for name, x in numbers.items()} | {"count": len(values)}


def describe(videos: Videos) -> dict[str, Any]:
    """Return statistics of the tools and phases of videos."""
    tools = np.concatenate([t for _, t in videos])
    phases = np.concatenate([p for p, _ in videos])
    changed = np.concatenate([np.diff(t, axis=0) != 0 for _, t in videos])
    scissors = [t for _, t in videos if t[:, SCISSORS].any() and t[:, CLIPPER].any()]
    orders = [p[np.flatnonzero(np.diff(p, prepend=-1))].tolist() for p, _ in videos]
    correlation = np.corrcoef(tools.T)
    return {
        "prevalence": dict(zip(TOOLS, np.round(tools.mean(0), 3).tolist(), strict=True)),
        "prevalence by phase": np.round([tools[phases == p].mean(0) for p in range(7)], 3).T.tolist(),
        "seconds with 0, 1, 2, 3 tools": np.round(np.bincount(tools.sum(1), minlength=4)[:4] / len(tools), 3).tolist(),
        "episodes": {
            name: spread(np.concatenate([lengths(t[:, k], 1) for _, t in videos])) for k, name in enumerate(TOOLS)
        },
        "gaps": {
            name: spread(np.concatenate([lengths(t[:, k], 0) for _, t in videos])) for k, name in enumerate(TOOLS)
        },
        "grasper changes when hook does": round(float(changed[changed[:, HOOK], GRASPER].mean()), 3),
        "grasper changes": round(float(changed[:, GRASPER].mean()), 3),
        "correlation of hook and bipolar": round(float(correlation[HOOK, BIPOLAR]), 3),
        "clipper before scissors": round(float(np.mean([t[:, 4].argmax() < t[:, 3].argmax() for t in scissors])), 3),
        "videos in which a phase returns": sum(len(order) > len(set(order)) for order in orders),
    }


def error_correlation(departures: Departures | None) -> float:
    """Return the correlation of the recognizer's errors of grasper and hook."""
    surgeries = simulate_surgeries(80, 3, departures=departures)
    wrong = np.concatenate([(s.tool_probabilities >= 0.5) != s.tools for s in surgeries]).astype(float)
    return round(float(np.corrcoef(wrong[:, GRASPER], wrong[:, HOOK])[0, 1]), 3)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    laws = {"episodes": Departures(), "markov": None}
    found: dict[str, Any] = {"environment": environment(), "Cholec80": describe(real())}
    for name, departures in laws.items():
        surgeries = simulate_surgeries(80, 3, departures=departures)
        found[name] = describe([(s.phases.astype(int), s.tools.astype(int)) for s in surgeries])
        found[name]["correlation of the recognizer's errors, grasper and hook"] = error_correlation(departures)
    Path(options.out).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for name in ("Cholec80", *laws):
        print(name, json.dumps({k: v for k, v in found[name].items() if k != "prevalence by phase"}))


if __name__ == "__main__":
    main()
