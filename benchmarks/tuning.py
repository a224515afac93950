"""Measure penalty and length of refinement chosen on inner folds: ``python benchmarks/tuning.py``.

``hmmjax stabilize --emissions confusion --learn`` count, refine (fixed penalty and length) and tune (chosen on inner
folds of the videos that a fold's models learn from) on TMRNet's phases of Cholec80 videos 41-60, five-fold, contiguous
and interleaved. Writes ``benchmarks/results/tuning.json``.
"""

import json
import os
import platform
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import auto
import numpy as np
import real

from hmmjax import Labels, Observations
from hmmjax.stabilize import Settings
from hmmjax.stabilize.folds import plan_folds
from hmmjax.stabilize.posteriors import infer_plan

RESULTS = Path(__file__).parent / "results" / "tuning.json"
CHOICE = re.compile(r"(offline|online) (?:with a penalty \(l2\) of (\S+) and (\d+) iterations|not at all)")


def main() -> None:
    """Measure, print and write."""
    truth, predicted = real.tmrnet_videos()
    results: dict[str, Any] = {
        "command": "python benchmarks/tuning.py",
        "device": f"CPU, {os.cpu_count()} cores ({platform.machine()})",
        "versions": {"python": platform.python_version(), **{p: version(p) for p in ("jax", "numpy")}},
        "raw": auto.scores(truth, predicted),
    }
    for split, order in auto.SPLITS.items():
        obs, labels = Observations([predicted[i] for i in order]), Labels([truth[i] for i in order])
        prepared, place = auto.prepare(obs, labels, 7, 0), np.argsort(order)
        for learn in ("count", "refine", "tune"):
            plan, _, learned = plan_folds(
                prepared, Settings(emissions="confusion", learn=learn, folds=5), lambda *_: None
            )
            examples, ids = prepared.labeled(0.5), prepared.index.ids
            found = infer_plan(plan, examples, ids, learned.params, lambda *_: None)
            for mode, system in (("offline", found.smoothed), ("online", found.filtered)):
                output = [system.phases[place[i], : len(truth[i])].argmax(-1) for i in range(len(truth))]
                results[f"{split}, {learn}, {mode}"] = auto.scores(truth, output)
            if learn == "tune" and (pairs := CHOICE.findall(learned.method)):
                results[f"{split}, chosen from all videos"] = {
                    mode: {"l2": float(l2), "iterations": int(count)} if l2 else "as counted"
                    for mode, l2, count in pairs
                }
            print(split, learn, learned.method, flush=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
