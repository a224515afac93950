"""The images of a cache while they are written: what is done is kept if a process ends, and the next continues."""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.io import FormatError, write_atomically
from models.data.annotation import Annotation
from models.data.collections import Collection
from models.data.frames import FrameTable

_IMAGES, _DONE = "partial_images.npy", "partial.json"


def check_space(folder: Path, table: FrameTable, size: tuple[int, int], *, there: int = 0) -> None:
    """Print the size that a cache will have, and raise unless the disk has room for it.

    Args:
        folder: of the cache.
        table: labels of its frames.
        size: (height, width) of its images.
        there: bytes that an earlier process has written.

    Raises:
        FormatError: if fewer bytes are free than are missing.
    """
    needed = len(table) * size[0] * size[1] * 3
    parent = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(parent).free
    text = f"{len(table):,} frames of {size[0]}x{size[1]} take {needed / 1e9:.3g} GB; {free / 1e9:.3g} GB are free"
    if needed - there > free:
        raise FormatError(text, file=folder, fix="choose a smaller --size, fewer videos, or another disk")
    print(f"{folder}: {text}", file=sys.stderr)


class PartialCache:
    """The images of a cache that is being written, one video after the other or several at once.

    Args:
        folder: of the cache.
        table: labels of all frames.
        size: (height, width) of the images.
        settings: further text on which the images depend; other settings start over.

    Raises:
        FormatError: if the disk has no room for the images.

    Attributes:
        images: (n, height, width, 3) uint8, mapped from a file.
        done: names of the videos that are complete.
    """

    def __init__(self, folder: Path, table: FrameTable, size: tuple[int, int], settings: str):
        self._folder, self._lock = folder, threading.Lock()
        digest = hashlib.sha256(f"{size} {settings}".encode())
        for name, value in sorted(table.arrays().items()):
            digest.update(name.encode() + np.ascontiguousarray(value).tobytes())
        self._key = digest.hexdigest()
        shape, path = (len(table), *size, 3), folder / _IMAGES
        self.done = self._read()
        # A process may have ended after it published the images, and before the table.
        unfinished = not path.exists() and not (folder / "table.npz").exists()
        if unfinished and self.done == set(table.videos.tolist()) and _holds(folder / "images.npy", shape):
            os.replace(folder / "images.npy", path)
        if not _holds(path, shape):
            self.done = set()
        if self.done:
            check_space(folder, table, size, there=path.stat().st_size)
            self.images = np.load(path, mmap_mode="r+")
            return
        path.unlink(missing_ok=True)
        check_space(folder, table, size)
        folder.mkdir(parents=True, exist_ok=True)
        self.images = np.lib.format.open_memmap(path, "w+", np.uint8, shape)
        # Reserve the bytes, where the file system can: a mapped file that outgrows the disk ends the process.
        with contextlib.suppress(OSError), open(path, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)

    def _read(self) -> set[str]:
        try:
            kept = json.loads((self._folder / _DONE).read_text(encoding="utf-8"))
            return {str(video) for video in kept["done"]} if kept["key"] == self._key else set()
        except (OSError, ValueError, KeyError, TypeError):
            return set()

    def finish(self, video: str) -> None:
        """Record that all frames of a video are written."""
        with self._lock:
            self.images.flush()
            self.done.add(video)
            with write_atomically(self._folder / _DONE, force=True) as temporary:
                text = json.dumps({"key": self._key, "done": sorted(self.done)})
                Path(temporary).write_text(text, encoding="utf-8")

    def publish(self, table: FrameTable) -> None:
        """Make the images those of the cache, in place of earlier ones."""
        self.images.flush()
        with write_atomically(self._folder / "table.npz", force=True) as new:
            np.savez(new, allow_pickle=False, **table.arrays())
            # A cache without a table is unfinished, so the old table is never read with the new images.
            (self._folder / "table.npz").unlink(missing_ok=True)
            os.replace(self._folder / _IMAGES, self._folder / "images.npy")
        (self._folder / _DONE).unlink(missing_ok=True)


def _holds(path: Path, shape: tuple[int, ...]) -> bool:
    """Whether a file is an NPY of uint8 images of a shape, and whole: writable maps extend a truncated one by zeros."""
    try:
        images = np.load(path, mmap_mode="r")
    except Exception:  # damaged headers raise almost anything
        return False
    return (
        isinstance(images, np.memmap)
        and (images.dtype, images.shape, images.flags.c_contiguous) == (np.uint8, shape, True)
        and path.stat().st_size == images.offset + images.nbytes
    )


def decode_videos(
    collection: Collection,
    jobs: list[tuple[Annotation, int]],
    partly: PartialCache,
    options: dict[str, Any],
    workers: int,
    advance: Callable[[], None],
) -> list[tuple[str, Exception]]:
    """Decode videos into the rows of a cache, several at once; what can be read is kept.

    Args:
        collection: of the videos.
        jobs: annotation of each video, and its first row in the cache.
        partly: the cache.
        options: of `Collection.pictures`.
        workers: number of threads, a video each; PyAV releases Python's lock.
        advance: called for each frame, from any thread.

    Returns:
        The videos that cannot be read, and why.
    """
    failed: list[tuple[str, Exception]] = []

    def decode(job: tuple[Annotation, int]) -> None:
        annotation, start = job
        try:
            pictures = collection.pictures(annotation.id, annotation.frames, **options)
            for index, (_, picture) in enumerate(pictures, start):
                partly.images[index] = picture
                advance()
        except (FormatError, OSError) as error:
            # The other videos are worth keeping.
            failed.append((annotation.id, error))
        else:
            partly.finish(annotation.id)

    pool = ThreadPoolExecutor(workers)
    try:
        for _ in pool.map(decode, jobs):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
    return failed


def report_failures(failed: Iterable[tuple[str, Exception]], total: int, folder: Path) -> None:
    """Raise FormatError that lists the videos that could not be decoded, if there are any."""
    listed = sorted(failed)
    if listed:
        shown = "; ".join(f"{video}: {error}" for video, error in listed[:5])
        raise FormatError(
            f"{len(listed)} of {total} videos could not be read; the others are kept. {shown}"
            f"{'; ...' * (len(listed) > 5)}",
            file=folder,
            fix="repair these videos or leave them out, and run the same command again",
        )
