"""Caches of frames, scaled once and stored as memory-mapped uint8 arrays, so that reading a frame copies its bytes.

A cache is a folder with ``images.npy`` (n, H, W, 3) uint8 and ``table.npz`` (see `FrameTable`).

    python -m models.data.cache m2cai16:FOLDER CACHE --size 160 284
"""

import argparse
import dataclasses
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from hmmjax.data.splits import CHOLEC80_SPLITS
from hmmjax.io import FormatError, lock, write_atomically
from hmmjax.io.atomic_write import remove_partial_files
from models.commands import count
from models.data.collections import Collection
from models.data.frames import FrameTable, Source, read_packed
from models.data.m2cai_source import m2cai16_locations
from models.data.partial_cache import PartialCache, check_space, decode_videos, report_failures
from models.data.places import common_rate, open_collection, table_of


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayImages:
    """Frames of one size, in memory or mapped from a file.

    Attributes:
        table: labels of n frames.
        images: (n, H, W, 3) uint8 RGB.
    """

    table: FrameTable
    images: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.images[index]


def write_cache(source: Source, folder: str | Path, *, workers: int = 4, progress: bool = False) -> ArrayImages:
    """Decode all frames of a source into a cache.

    Args:
        source: of frames in one size, for example `m2cai16_locations` with a size.
        folder: of the cache. An existing cache is replaced after everything is written.
        workers: number of threads that decode; Pillow releases Python's lock.
        progress: show a progress bar.

    Returns:
        The cache, opened.

    Raises:
        FormatError: if images differ in size or cannot be read.
    """
    return _write(
        Path(folder), source.table, _common_size(source), partial(_fill, pictures=_decoded(source, workers, progress))
    )


def write_collection(
    collection: Collection,
    folder: str | Path,
    size: tuple[int, int],
    *,
    crop: bool = False,
    progress: bool = False,
    workers: int = 1,
) -> ArrayImages:
    """Decode the used frames of all videos of a collection into a cache, video by video.

    Args:
        collection: for example from a manifest, or Cholec80.
        folder: of the cache. An existing cache is replaced after everything is written.
        size: (height, width) to scale to.
        crop: cut off black borders first.
        progress: show a progress bar.
        workers: number of threads that decode, a video each; PyAV releases Python's lock.

    Returns:
        The cache, opened.

    Raises:
        FormatError: if the videos have different frame rates: a cache has a single one; if the disk has no room; and
            after all others are written, for videos that cannot be read. What is written is kept for the next call.
    """
    common_rate(collection)
    annotations = [collection.annotation(video) for video in collection.ids]
    table, folder = table_of(collection, annotations), Path(folder)
    starts = np.cumsum([0, *map(len, annotations[:-1])]).tolist()
    folder.mkdir(parents=True, exist_ok=True)
    with lock(folder):
        remove_partial_files(folder)
        partly = PartialCache(folder, table, size, f"{crop}")
        jobs = [(a, start) for a, start in zip(annotations, starts, strict=True) if a.id not in partly.done]
        # All cores together, however many videos are decoded at a time.
        options = {"size": size, "crop": crop, "threads": max((os.cpu_count() or 1) // workers, 1)}
        with _frames_bar(sum(len(a) for a, _ in jobs), progress) as advance:
            failed = decode_videos(collection, jobs, partly, options, workers, advance)
        report_failures(failed, len(annotations), folder)
        partly.publish(table)
    return read_cache(folder)


@contextmanager
def _frames_bar(total: int, shown: bool) -> Iterator[Callable[[], None]]:
    """Show a progress bar of frames; yield a function to call for each, from any thread."""
    if not shown:
        yield lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("frames"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("frames", total=total)
        yield lambda: bar.advance(task)


def _fill(images: np.ndarray, pictures: Iterable[tuple[int, np.ndarray]]) -> None:
    for index, image in pictures:
        if image.shape != images.shape[1:]:
            raise FormatError(
                f"frame {index} has shape {image.shape}, the first {images.shape[1:]}",
                fix="give a size to scale all frames to",
            )
        images[index] = image


def _write(folder: Path, table: FrameTable, size: tuple[int, int], fill: Callable[[np.ndarray], None]) -> ArrayImages:
    """Write a cache, whose images (n, H, W, 3) `fill` sets."""
    remove_partial_files(folder)  # the images of a killed run may take gigabytes
    check_space(folder, table, size)
    # An earlier cache survives a failure, and may even be the source: nothing is replaced before all is written.
    with (
        write_atomically(folder / "table.npz", force=True) as new_table,
        write_atomically(folder / "images.npy", force=True) as new_images,
    ):
        images = np.lib.format.open_memmap(new_images, "w+", np.uint8, (len(table), *size, 3))
        fill(images)
        images.flush()
        np.savez(new_table, allow_pickle=False, **table.arrays())
        # A cache without a table is unfinished, so the old table is never read with the new images.
        (folder / "table.npz").unlink(missing_ok=True)
    return read_cache(folder)


def read_cache(folder: str | Path) -> ArrayImages:
    """Open a cache; images are read when they are accessed.

    Raises:
        FormatError: if the folder contains no finished cache, or a damaged one.
    """
    folder = Path(folder)
    if not (folder / "table.npz").exists():
        raise FormatError(
            "no finished cache in this folder", file=folder, fix="write it with python -m models.data.cache"
        )
    try:
        with open(folder / "table.npz", "rb") as file, np.load(file, allow_pickle=False) as arrays:
            table = FrameTable.from_arrays(dict(arrays))
        images = np.load(folder / "images.npy", mmap_mode="r")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise FormatError(f"damaged cache ({error})", file=folder, fix="write the cache again") from error
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or not images.size:
        raise FormatError(
            f"the images are {images.dtype} {images.shape}, expected uint8 (n, height, width, 3)",
            file=folder,
            fix="write the cache again",
        )
    if len(images) != len(table):
        raise FormatError(
            f"{len(images)} images but labels of {len(table)} frames", file=folder, fix="write the cache again"
        )
    return ArrayImages(table, images)


def load_images(source: Source, *, workers: int = 4, progress: bool = False) -> ArrayImages:
    """Decode all frames of a source into memory."""
    images = np.empty((len(source), *_common_size(source), 3), np.uint8)
    for index, image in _decoded(source, workers, progress):
        images[index] = image
    return ArrayImages(source.table, images)


def open_source(place: str, size: tuple[int, int] | None = None) -> Source:
    """Open a source of frames named on a command line or in a configuration.

    Args:
        place: the folder of a cache, a packed ``.npz``, or ``m2cai16:FOLDER``.
        size: (height, width) to scale images to; None keeps their size. A cache must have this size already.

    Raises:
        FormatError: if it is missing, damaged, or a cache of another size.
    """
    kind, colon, folder = place.partition(":")
    if colon and kind == "m2cai16":
        return m2cai16_locations(folder, size)
    if place.endswith(".npz"):
        return read_packed(place, size)
    source = read_cache(place)
    if size is not None and source.images.shape[1:3] != tuple(size):
        raise FormatError(
            f"the images of this cache are {source.images.shape[1:3]}, not {tuple(size)}",
            file=place,
            fix="write a cache of this size, or use its own",
        )
    return source


def _common_size(source: Source) -> tuple[int, int]:
    height, width, _ = source[0].shape
    return height, width


def _decoded(source: Source, workers: int, progress: bool) -> Iterator[tuple[int, np.ndarray]]:
    with ThreadPoolExecutor(workers) as pool:
        images = enumerate(pool.map(source.__getitem__, range(len(source))))
        if progress:
            from rich.progress import track

            images = track(images, "frames", total=len(source))
        yield from images


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line: write a cache; a FormatError is one line on stderr and exit code 2.

    Args:
        arguments: of the command line; None takes those of this process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m models.data.cache",
        description="Decode videos or images into a cache of frames.",
    )
    parser.add_argument(
        "source",
        help="m2cai16:FOLDER, m2cai16-workflow:FOLDER, cholec80:FOLDER, a packed .npz, or a manifest of videos (.yaml, "
        ".csv)",
    )
    parser.add_argument("cache", help="folder of the cache to write")
    parser.add_argument(
        "--size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), required=True, help="of the frames, in pixels"
    )
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", type=count, default=cores, help=f"number of threads that decode ({cores})")
    parser.add_argument("--crop", action="store_true", help="cut off the black borders of videos")
    parser.add_argument(
        "--split", choices=CHOLEC80_SPLITS, help="for Cholec80: the split into train, val and test videos"
    )
    options = parser.parse_args(arguments)
    size = (options.size[0], options.size[1])
    try:
        if (collection := open_collection(options.source, options.split)) is not None:
            cache = write_collection(
                collection, options.cache, size, crop=options.crop, progress=True, workers=options.workers
            )
        else:
            source = open_source(options.source, size)
            cache = write_cache(source, options.cache, workers=options.workers, progress=True)
    except (FormatError, OSError) as error:
        parser.exit(2, f"error: {error}\n")
    print(f"{len(cache)} frames of {cache.images.shape[1]}x{cache.images.shape[2]} in {options.cache}")


if __name__ == "__main__":
    main()
