"""The folder of a training run: configuration, class names, environment and metrics, written and read back."""

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

from hmmjax.io import FormatError, write_atomically
from models.settings import Config, config_text, read_config

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "grain", "hmmjax")


def read_run(folder: str | Path) -> Config:
    """Read the configuration of a training run from its folder.

    Raises:
        FormatError: if the folder holds no training run.
    """
    path = Path(folder) / "config.yaml"
    if not path.is_file():
        raise FormatError(
            "not a training run: it has no config.yaml",
            file=folder,
            fix="give the folder that models.train wrote, its run=...",
        )
    return read_config(path)


def read_classes(folder: str | Path) -> dict[str, list[str]]:
    """Read the class names that a run was trained on, by track: "phases" and "tools".

    Raises:
        FormatError: if the names are missing or damaged.
    """
    path = Path(folder) / "classes.json"
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {track: [str(name) for name in kept[track]] for track in ("phases", "tools")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"the class names of the run cannot be read ({type(error).__name__})",
            file=path,
            fix="restore the file from a backup, or train the run again",
        ) from error


def write_width(folder: str | Path, width: int) -> None:
    """Write the length of the features that take the place of a backbone in a run."""
    write_text(Path(folder) / "features.json", json.dumps({"width": width}) + "\n")


def read_width(folder: str | Path) -> int:
    """Read the length of the features that take the place of a backbone in a run.

    Raises:
        FormatError: for a run that does not read features, or a damaged file.
    """
    path = Path(folder) / "features.json"
    try:
        return int(json.loads(path.read_text(encoding="utf-8"))["width"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"the width of the run's features cannot be read ({type(error).__name__})",
            file=path,
            fix="give a run with features=FOLDER, or train it again",
        ) from error


def write_parts(folder: str | Path, parts: Mapping[str, str]) -> None:
    """Write the part that each video has in a run, by name of the video."""
    write_text(Path(folder) / "parts.json", json.dumps(dict(sorted(parts.items())), indent=0) + "\n")


def read_parts(folder: str | Path) -> dict[str, str]:
    """Read the part that each video has in a run: "train", "val" or another; empty for runs of earlier versions."""
    path = Path(folder) / "parts.json"
    if not path.exists():
        return {}
    try:
        return {str(video): str(part) for video, part in json.loads(path.read_text(encoding="utf-8")).items()}
    except (ValueError, AttributeError) as error:
        raise FormatError(f"damaged parts of videos ({error})", file=path, fix="restore it from a backup") from error


class Record:
    """The written record of a run.

    Args:
        config: of the run; `config.run` is the folder.
        classes: names by track, "phases" and "tools".
        step: number of updates so far. Metrics of later updates, left by a run that was killed, are removed.

    Raises:
        ImportError: if event files are asked for and tensorboardX is not installed.
    """

    def __init__(self, config: Config, classes: Mapping[str, tuple[str, ...]], step: int = 0):
        self.folder = Path(config.run)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path = self.folder / "metrics.jsonl"
        kept = [line for line in read_metrics(self.folder) if line["step"] <= step]
        # Atomic writes, so that a process killed here leaves the files of the run as they were.
        write_text(self._path, "".join(json.dumps(line) + "\n" for line in kept))
        write_text(self.folder / "classes.json", json.dumps(classes, indent=2) + "\n")
        write_text(self.folder / "environment.json", json.dumps(environment(), indent=2) + "\n")
        write_text(self.folder / "config.yaml", config_text(config))
        self._events = None
        if config.tensorboard:
            try:
                from tensorboardX import SummaryWriter
            except ImportError as error:
                raise ImportError(
                    "tensorboard=true needs tensorboardX, which is not installed. Fix: install it, or set "
                    "tensorboard=false"
                ) from error
            self._events = SummaryWriter(str(self.folder), purge_step=step + 1 if step else None)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Append one line of metrics; NaN and infinities are written as null."""
        values = {name: float(value) for name, value in metrics.items()}
        line = {"step": step, **{name: value if math.isfinite(value) else None for name, value in values.items()}}
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._events is not None:
            for name, value in values.items():
                self._events.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush the event files."""
        if self._events is not None:
            self._events.close()


class Silent:
    """The record of a process that writes none, because the first one does."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write nothing."""

    def close(self) -> None:
        """Do nothing."""


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """Read the complete lines of a run's ``metrics.jsonl``; return an empty list if there is no such file."""
    path = Path(folder) / "metrics.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, over an existing one."""
    with write_atomically(path, force=True) as temporary:
        Path(temporary).write_text(text, encoding="utf-8")


def environment() -> dict[str, Any]:
    """Return the command line, versions of packages, devices and the commit of this process."""
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
        "commit": commit(),
    }


def commit(folder: str | Path = Path(__file__).parent) -> str | None:
    """Return the hash of the commit that a folder is checked out from, followed by "+" if tracked files differ from it.

    Where there is no repository, as in a copy of the working tree on another machine, the environment variable
    HMMJAX_COMMIT states it; None if it is not set either.
    """
    hashed = _git(folder, "rev-parse", "--verify", "-q", "HEAD^{commit}")
    changed = _git(folder, "diff", "--name-only", "HEAD")
    if not hashed:
        return os.environ.get("HMMJAX_COMMIT") or None
    return hashed + ("+" if changed else "")


def _git(folder: str | Path, *words: str) -> str:
    """Return the output of a git command, empty if it fails: it may print its arguments before it does."""
    try:
        answer = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return "" if answer.returncode else answer.stdout.strip()
