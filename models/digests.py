"""Digests of files and of training runs: results that are there are kept as long as these are the same."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from hmmjax.io import FormatError


def file_digest(path: str | Path) -> str:
    """Return the SHA-256 of a file.

    Raises:
        FormatError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", file=path, fix="check the path") from None


def input_digest(paths: Sequence[tuple[str | None, str]]) -> str:
    """Return a digest of the content of a video's local files."""
    return hashlib.sha256(json.dumps([[what, file_digest(path)] for what, path in paths]).encode()).hexdigest()


def run_digest(run: str, checkpoint: str) -> str:
    """Return a digest of a training run's configuration, classes and weights.

    Raises:
        FormatError: the folder holds no training run, or the run has no such checkpoint.
    """
    folder = Path(run)
    if not (folder / "config.yaml").is_file():
        raise FormatError("not a training run: it has no config.yaml", file=run, fix="give the run=... of models.train")
    files = sorted(_files_of(folder, checkpoint))
    if not any("checkpoints" in path.relative_to(folder).parts for path in files):
        raise FormatError(f"no {checkpoint} checkpoint", file=run, fix="train the run first")
    told = [[path.relative_to(folder).as_posix(), file_digest(path)] for path in files]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _files_of(folder: Path, checkpoint: str) -> Iterator[Path]:
    yield from (folder / name for name in ("config.yaml", "classes.json") if (folder / name).is_file())
    yield from (path for path in (folder / "checkpoints" / checkpoint).rglob("*") if path.is_file())
    if (folder / "frozen").is_dir():
        yield from _files_of(folder / "frozen", "best")
