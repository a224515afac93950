"""Check that a resumed run is bit-equal to an uninterrupted one, and that several devices train as one does.

    python benchmarks/train_resume.py packed.npz --out resume.json      # packed.npz: see train_real.py

Each run is a separate process, as after a crash. It computes in float32 with exact products, so that one device and
several differ in the order of summation only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp

from models.training.run import read_metrics

ROOT = Path(__file__).parents[1]


def train(words: list[str], **environment: str) -> None:
    """Run one training process."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "PYTHONPATH": paths, "JAX_DEFAULT_MATMUL_PRECISION": "highest", **environment}
    subprocess.run([sys.executable, "-m", "models.train", "--quiet", *words], check=True, env=env)


def arrays(run: Path) -> dict[str, np.ndarray]:
    """Return the arrays of model and optimizer in the last checkpoint."""
    manager = ocp.CheckpointManager(run.resolve() / "checkpoints" / "last")
    items = {name: ocp.args.StandardRestore() for name in ("model", "optimizer")}
    kept = manager.restore(manager.latest_step(), args=ocp.args.Composite(**items))
    manager.close()
    return {name: np.asarray(x) for name, x in {**kept["model"], **kept["optimizer"]}.items()}


def losses(run: Path) -> np.ndarray:
    """Return the training loss of each update."""
    return np.array([line["train/loss"] for line in read_metrics(run) if "train/loss" in line])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("packed")
    parser.add_argument("--out", required=True)
    parser.add_argument("settings", nargs="*", metavar="key=value")
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        command = [sys.executable, "-m", "models.data.cache", options.packed, str(cache), "--size", "144", "256"]
        subprocess.run(command, check=True, cwd=ROOT)
        words = ["system=endonet", "backbone=resnet18", "size=[128,224]", "dtype=float32", "batch=64", "epochs=3"]
        words += ["log_every=1", "tensorboard=false", "deterministic=true", f"data.train={cache}", f"data.val={cache}"]
        words += options.settings
        whole, parts, one = (Path(folder) / name for name in ("whole", "parts", "one"))
        train([*words, f"run={whole}"])
        environment = json.loads((whole / "environment.json").read_text(encoding="utf-8"))
        train([*words, f"run={parts}", "save_every=5", "stop_after=30"])
        train(["--resume", str(parts)])
        a, b = arrays(whole), arrays(parts)
        results: dict[str, Any] = {
            "environment": environment,
            "settings": options.settings,
            "resume": {
                "arrays": len(a),
                "bit_equal": a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a),
                "metrics_equal": read_metrics(whole) == read_metrics(parts),
            },
        }
        if len(environment["devices"]) > 1:
            train([*words, f"run={one}"], CUDA_VISIBLE_DEVICES="0", XLA_FLAGS="")
            several, single = losses(whole), losses(one)
            # Rounding differences grow with every update.
            difference = np.abs(several - single) / single
            results["devices"] = {
                "count": len(environment["devices"]),
                "updates": len(single),
                "relative difference of the loss": {
                    "first update": float(difference[0]),
                    "first ten": float(difference[:10].max()),
                    "all": float(difference.max()),
                },
                "first ten": [several[:10].tolist(), single[:10].tolist()],
                "last": [float(several[-1]), float(single[-1])],
            }
    Path(options.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in results.items() if key != "environment"}, indent=1))


if __name__ == "__main__":
    main()
