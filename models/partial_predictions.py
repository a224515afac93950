"""Predictions of the videos that are finished while others are predicted: a killed process loses one video, not all."""

import dataclasses
import hashlib
import json
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.io import array_suffix, lock, save_npz
from hmmjax.io.atomic_write import remove_partial_files
from models.digests import run_digest

_KEY = "key.json"


@dataclasses.dataclass(frozen=True)
class PartialPredictions:
    """The arrays of finished videos, a file each.

    Attributes:
        folder: of the files.
    """

    folder: Path

    def read(self, video: str) -> dict[str, np.ndarray] | None:
        """Return the arrays of a finished video; None for other videos."""
        path = self._path(video)
        if not path.exists():
            return None
        try:
            # np.load of a path leaves a damaged file open.
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                return dict(arrays)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):
            return None  # damaged: the video is predicted again

    def write(self, video: str, arrays: dict[str, np.ndarray]) -> None:
        """Keep the arrays of a finished video."""
        save_npz(self._path(video), arrays, force=True)

    def _path(self, video: str) -> Path:
        return self.folder / f"{array_suffix(video)}.npz"


@contextmanager
def partial_predictions(out: str | Path, key: str) -> Iterator[PartialPredictions]:
    """Yield the finished videos of an output file, which are kept in ``<out>.partial`` until the block succeeds.

    Args:
        out: the file that is written at the end.
        key: everything on which the predictions depend, see `prediction_key`. Videos of another key are removed.

    Raises:
        FileExistsError: if another process is writing this output.
    """
    folder = Path(f"{out}.partial")
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder):
        remove_partial_files(folder)
        if not (folder / _KEY).exists() or (folder / _KEY).read_text(encoding="utf-8") != key:
            for path in folder.glob("*.npz"):
                path.unlink()
            (folder / _KEY).write_text(key, encoding="utf-8")
        try:
            yield PartialPredictions(folder)
        except BaseException:
            if not any(folder.glob("*.npz")):
                shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)


def prediction_key(what: str, run: str | Path, checkpoint: str, inputs: Sequence[str], reading: Any) -> str:
    """Return a digest of the network, of the settings of reading, and of the names, sizes and times of the input files.

    Args:
        what: the command: several predict different arrays of the same videos.
        run: folder of the training run.
        checkpoint: "best" or "last".
        inputs: files and folders, with or without a kind such as ``m2cai16:`` before them.
        reading: settings of reading, a dataclass.

    Raises:
        FormatError: if the folder holds no training run, or it has no such checkpoint.
    """
    files = []
    for place in inputs:
        root = Path(place) if Path(place).exists() else Path(place.partition(":")[2])
        for path in [root] if root.is_file() else sorted(path for path in root.rglob("*") if path.is_file()):
            state = path.stat()
            files.append([str(path), state.st_size, state.st_mtime_ns])
    settings = {name: value for name, value in dataclasses.asdict(reading).items() if name not in ("batch", "threads")}
    told = [what, run_digest(str(run), checkpoint), list(inputs), settings, files]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
