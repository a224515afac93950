"""Features of whole videos by a frozen backbone, computed once and kept on disk beside the run that they come from."""

import hashlib
import os
from pathlib import Path

import numpy as np

from models.data.frames import Source
from models.data.loader import even_batches, prefetch
from models.recognizer import Recognizer


def cached_features(run: str | Path, source: Source, *, batch: int = 256) -> np.ndarray:
    """Features of all frames of a source, read from ``<run>/features`` where they have been computed before.

    Args:
        run: of the system whose backbone, at its best checkpoint, computes them.
        source: of the frames.
        batch: frames at once.

    Returns:
        (n, D) float32, mapped from the file.
    """
    recognizer = Recognizer(run)
    # The same frames in the same order, seen by the same weights. Videos begin and end in black: some pictures between
    # tell one source from another.
    table = source.table
    some = np.unique(np.linspace(0, len(source) - 1, 64).astype(int))
    digest = hashlib.sha256(f"{recognizer.step} {table.fps} {source[0].shape}".encode())
    for x in (table.videos.astype(np.str_), table.frames, *(source[int(row)] for row in some)):
        digest.update(np.ascontiguousarray(x).tobytes())
    path = Path(run) / "features" / f"{digest.hexdigest()[:16]}.npy"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        # Under another name until it is whole.
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        kept = np.lib.format.open_memmap(unfinished, "w+", np.float32, (len(source), recognizer.width))
        rows = even_batches(np.arange(len(source)), batch)
        for chunk, images in prefetch(rows, lambda chunk: (chunk, np.stack([source[row] for row in chunk]))):
            # The last chunk is filled up with the first row, which gets the same numbers again.
            kept[chunk] = recognizer.features(images)
        kept.flush()
        os.replace(unfinished, path)
    return np.load(path, mmap_mode="r")
