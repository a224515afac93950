"""Train on several GPUs and on one with equal losses, and resume a checkpoint of several GPUs on one.

    python benchmarks/train_devices.py CACHE --out FILE key=value ...

Each run is a process of its own, in float32 with exact products, so that the numbers of devices differ in the order of
summation only. Further words are settings of `models.train`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from models.training.run import read_metrics

ROOT = Path(__file__).parents[1]


def start(words: list[str], devices: str) -> subprocess.Popen:
    """Start a training process on some GPUs, such as "0,1"; without GPUs, on as many parts of the CPU."""
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    more = {"CUDA_VISIBLE_DEVICES": devices, "JAX_DEFAULT_MATMUL_PRECISION": "highest", "PYTHONPATH": paths}
    more["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.3"
    count = len(devices.split(","))
    more["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}".strip()
    return subprocess.Popen([sys.executable, "-m", "models.train", "--quiet", *words], env={**os.environ, **more})


def finish(processes: list[subprocess.Popen]) -> None:
    """Wait for processes; raise RuntimeError if one fails."""
    for process in processes:
        if process.wait():
            raise RuntimeError(f"{process.args} ended with status {process.returncode}")


def losses(run: Path) -> np.ndarray:
    """Return the training loss of each update."""
    return np.array([line["train/loss"] for line in read_metrics(run) if "train/loss" in line])


def compared(found: np.ndarray, reference: np.ndarray) -> dict[str, Any]:
    """Return the relative differences of losses by update."""
    difference = np.abs(found - reference) / reference
    return {
        "updates": len(found),
        "first update": float(difference[0]),
        "first ten": float(difference[:10].max()),
        "all": float(difference.max()),
        "last losses": [float(found[-1]), float(reference[-1])],
    }


def main() -> None:
    """Train, stop, resume, compare and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cache")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--devices", default="0,1", help="the GPUs (0,1)")
    parser.add_argument("--stop", type=int, default=15, help="updates before the checkpoint that is resumed (15)")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    options = parser.parse_intermixed_args()
    several, one = options.devices, options.devices.partition(",")[0]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        words = ["system=endonet", "backbone=resnet18", "dtype=float32", "batch=64", "epochs=1", "log_every=1"]
        words += ["tensorboard=false", "deterministic=true", "eval_every=9", f"data.train={options.cache}"]
        words += [f"data.val={options.cache}", *options.settings]
        stop = [f"stop_after={options.stop}", "save_every=5"]
        # Only correctness is measured: processes share the GPUs.
        finish(
            [
                start([*words, f"run={folder / 'several'}"], several),
                start([*words, f"run={folder / 'one'}"], one),
                start([*words, f"run={folder / 'stopped'}", *stop], several),
            ]
        )
        shutil.copytree(folder / "stopped", folder / "moved")
        finish(
            [
                start(["--resume", str(folder / "stopped")], several),
                start(["--resume", str(folder / "moved")], one),
            ]
        )
        environment = json.loads((folder / "several" / "environment.json").read_text(encoding="utf-8"))
        results = {
            "command": ["python", *sys.argv],
            "environment": environment,
            "settings": words,
            "several devices and one": compared(losses(folder / "several"), losses(folder / "one")),
            "checkpoint of several devices, resumed on them": compared(
                losses(folder / "stopped"), losses(folder / "several")
            ),
            "checkpoint of several devices, resumed on one": compared(
                losses(folder / "moved"), losses(folder / "several")
            ),
        }
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in results.items() if key != "environment"}, indent=1))


if __name__ == "__main__":
    main()
