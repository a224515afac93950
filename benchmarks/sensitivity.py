"""Measure how the real results depend on the phase-transition pseudo-count: ``python benchmarks/sensitivity.py``.

Phases of TMRNet, not calibrated. Writes ``benchmarks/results/sensitivity.json``.
"""

import dataclasses
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import real

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
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
