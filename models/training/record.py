"""What a run leaves behind: its configuration, versions, and metrics as JSON lines and TensorBoard events."""

import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from models.settings import Config, config_text

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "grain", "hmmjax")


class Record:
    """The folder of a run.

    Args:
        config: of the run; `config.run` is the folder.
        classes: names by track, "phases" and "tools".
        step: updates done already: lines of a run that was cut off after them are dropped.
    """

    def __init__(self, config: Config, classes: Mapping[str, tuple[str, ...]], step: int = 0):
        self.folder = Path(config.run)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path = self.folder / "metrics.jsonl"
        kept = [line for line in read_metrics(self.folder) if line["step"] <= step]
        _replace(self._path, "".join(json.dumps(line) + "\n" for line in kept))
        _replace(self.folder / "classes.json", json.dumps(classes, indent=2) + "\n")
        _replace(self.folder / "environment.json", json.dumps(environment(), indent=2) + "\n")
        _replace(self.folder / "config.yaml", config_text(config))
        self._events = None
        if config.tensorboard:
            try:
                from tensorboardX import SummaryWriter
            except ImportError as error:
                raise ImportError("event files need tensorboardX. Fix: install it, or set tensorboard=false") from error
            self._events = SummaryWriter(str(self.folder), purge_step=step + 1 if step else None)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line of metrics; NaN is written as null."""
        values = {name: float(value) for name, value in metrics.items()}
        line = {"step": step, **{name: value if math.isfinite(value) else None for name, value in values.items()}}
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._events is not None:
            for name, value in values.items():
                self._events.add_scalar(name, value, step)

    def close(self) -> None:
        """Write out what is buffered."""
        if self._events is not None:
            self._events.close()


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The lines of a run's ``metrics.jsonl``; none when it has no such file."""
    path = Path(folder) / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def _replace(path: Path, text: str) -> None:
    """Write a file that is never there in part: what stops a process while it writes must not change the run."""
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def environment() -> dict[str, Any]:
    """Command, versions and devices."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "versions": versions,
        "devices": [device.device_kind for device in jax.devices()],
        "commit": _commit(),
    }


def _commit() -> str | None:
    command = ["git", "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return answer.stdout.strip() or None
