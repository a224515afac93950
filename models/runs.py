"""What is read back from the folder of a training run before its network is."""

import json
from pathlib import Path

from hmmjax.io import FormatError
from models.settings import Config, read_config


def read_run(folder: str | Path) -> Config:
    """The configuration of a training run.

    Args:
        folder: of the run.

    Returns:
        What it was told.

    Raises:
        FormatError: when the folder holds no run.
    """
    path = Path(folder) / "config.yaml"
    if not path.is_file():
        raise FormatError("no training run", file=folder, fix="give the folder that models.train wrote, its run=...")
    return read_config(path)


def read_classes(folder: str | Path) -> dict[str, list[str]]:
    """The names of the classes that a run has learned.

    Args:
        folder: of the run.

    Returns:
        Names by track, "phases" and "tools".

    Raises:
        FormatError: when they are missing or damaged.
    """
    path = Path(folder) / "classes.json"
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {track: [str(name) for name in kept[track]] for track in ("phases", "tools")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"the names of the run's classes cannot be read ({type(error).__name__})",
            file=path,
            fix="get the file again, or train anew",
        ) from error
