"""Run the plan from Cholec80's folder to a table on a simulated copy, and time each stage.

    python benchmarks/cholec80.py --out FILE --minutes 1 --size 480 854 system=endonet backbone=resnet50 epochs=20

The copy has 80 videos in Cholec80's layout. Further words are those of ``python -m models.experiment cholec80``, whose
commands are run one by one.
"""

import argparse
import csv
import json
import os
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from models.data.simsurg import write_cholec80
from models.experiment.cholec80 import plan

ROOT = Path(__file__).parents[1]


def main() -> None:
    """Write the copy, run the plan, and write seconds and table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=1.0, help="expected length of a video")
    parser.add_argument("--size", type=int, nargs=2, default=(480, 854), help="height and width of the videos")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes that render")
    parser.add_argument("--keep", type=Path, help="keep copy and results in this folder")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    options = parser.parse_intermixed_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    results: dict[str, Any] = {
        "command": ["python", *sys.argv],
        "cores": len(os.sched_getaffinity(0)),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("jax", "flax", "av")}},
        "seconds": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        begin = time.perf_counter()
        height, width = options.size
        write_cholec80(
            folder / "c80", 80, seed=5, minutes=options.minutes, size=(height, width), workers=options.workers
        )
        results["seconds"]["simulated videos"] = round(time.perf_counter() - begin, 1)
        words = [f"data={folder / 'c80'}", f"out={folder / 'out'}", *options.settings]
        for command in plan(words):
            print(f"[{command.stage}] {command.text}", flush=True)
            begin = time.perf_counter()
            code = command.run()
            name = command.stage if command.stage != "predict" else f"predict {command.words[3]}"
            results["seconds"][name] = round(time.perf_counter() - begin, 1)
            print(f"[{command.stage}] {results['seconds'][name]} s, exit code {code}", flush=True)
            options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            # As in the plan: differences from the published numbers do not end it.
            if code and command.stage != "check":
                sys.exit(code)
        results |= described(folder / "out")
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


def described(out: Path) -> dict[str, Any]:
    """Return the device, the sizes and the table of a finished plan."""
    environment = json.loads((out / "frames" / "environment.json").read_text(encoding="utf-8"))
    with np.load(out / "cache" / "table.npz") as table:
        parts, counts = np.unique(table["parts"], return_counts=True)
    with open(out / "results" / "table.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    frames = dict(zip(parts.tolist(), counts.tolist(), strict=True))
    return {"devices": environment["devices"], "frames": frames, "table": rows}


if __name__ == "__main__":
    main()
