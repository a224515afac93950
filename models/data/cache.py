"""Frames scaled once and kept as uint8, mapped into memory: reading one is a copy of its bytes.

A cache is a folder with ``images.npy`` (n, H, W, 3) uint8 and ``table.npz`` (see `FrameTable`).

    python -m models.data.cache m2cai16:FOLDER CACHE --size 160 284
"""

import argparse
import dataclasses
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hmmjax.data.splits import CHOLEC80_SPLITS, cholec80_split
from hmmjax.io import FormatError
from models.data.cholec80 import cholec80
from models.data.collections import Collection
from models.data.collections_manifest import read_manifest
from models.data.frames import FrameTable, Source, m2cai16_locations, read_packed


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayImages:
    """Pictures of one size, in memory or mapped from a file.

    Attributes:
        table: of n frames.
        images: (n, H, W, 3) uint8.
    """

    table: FrameTable
    images: np.ndarray

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> np.ndarray:
        return self.images[index]


def write_cache(source: Source, folder: str | Path, *, workers: int = 4, progress: bool = False) -> ArrayImages:
    """Decode all frames of a source, which must give them in one size, into a cache.

    Args:
        source: for instance `m2cai16_locations` with a size.
        folder: to write to.
        workers: threads that decode; Pillow decodes outside Python's lock.
        progress: show a progress bar.

    Returns:
        The cache, opened. An earlier one in the folder stays until all is written.

    Raises:
        FormatError: when pictures differ in size or cannot be read.
    """
    return _write(Path(folder), source.table, _common_size(source), _decoded(source, workers, progress))


def write_collection(
    collection: Collection, folder: str | Path, size: tuple[int, int], *, crop: bool = False, progress: bool = False
) -> ArrayImages:
    """Decode the used frames of all videos of a collection into a cache, one video after the other.

    Args:
        collection: for instance a manifest, or Cholec80.
        folder: to write to.
        size: (height, width) to scale to.
        crop: cut black borders off first.
        progress: show a progress bar for each video.

    Returns:
        The cache, opened.

    Raises:
        FormatError: when the videos count frames at different rates: a cache has one counter for all.
    """
    rates = {recording.fps for recording in collection.recordings}
    if len(rates) != 1:
        raise FormatError(
            f"the videos of {collection.name} count frames at {len(rates)} rates "
            f"({', '.join(f'{rate:g}' for rate in sorted(rates))} a second), and a cache has one",
            fix="list the videos of each rate in a manifest of its own and cache them apart",
        )
    known = [collection.annotation(video) for video in collection.ids]
    lengths = [len(annotation) for annotation in known]
    table = FrameTable(
        videos=np.repeat(collection.ids, lengths),
        frames=np.concatenate([annotation.frames for annotation in known]),
        phases=np.concatenate([annotation.phases for annotation in known]),
        tools=np.concatenate([annotation.tools for annotation in known]),
        parts=np.repeat([recording.part for recording in collection.recordings], lengths),
        phase_names=collection.phase_names,
        tool_names=collection.tool_names,
        fps=rates.pop(),
    )
    pictures = (
        picture
        for annotation in known
        for _, picture in collection.pictures(annotation.id, annotation.frames, size=size, crop=crop, progress=progress)
    )
    return _write(Path(folder), table, size, enumerate(pictures))


def _write(
    folder: Path, table: FrameTable, size: tuple[int, int], pictures: Iterable[tuple[int, np.ndarray]]
) -> ArrayImages:
    folder.mkdir(parents=True, exist_ok=True)
    # Under other names until all is there: an earlier cache survives a failure, and may even be the source.
    unfinished = folder / ".images.npy", folder / ".table.npz"
    try:
        images = np.lib.format.open_memmap(unfinished[0], "w+", np.uint8, (len(table), *size, 3))
        for index, image in pictures:
            if image.shape != images.shape[1:]:
                raise FormatError(f"frame {index} is {image.shape}, the first {images.shape[1:]}", fix="give a size")
            images[index] = image
        images.flush()
        np.savez(unfinished[1], allow_pickle=False, **table.arrays())
        # A cache without a table is unfinished: no moment has the old table with the new pictures.
        (folder / "table.npz").unlink(missing_ok=True)
        os.replace(unfinished[0], folder / "images.npy")
        os.replace(unfinished[1], folder / "table.npz")
    finally:
        for path in unfinished:
            path.unlink(missing_ok=True)
    return read_cache(folder)


def read_cache(folder: str | Path) -> ArrayImages:
    """Open a cache; nothing is read until it is asked for.

    Raises:
        FormatError: when the folder holds no finished cache, or a damaged one.
    """
    folder = Path(folder)
    if not (folder / "table.npz").exists():
        raise FormatError("no finished cache", file=folder, fix="write it with python -m models.data.cache")
    try:
        with open(folder / "table.npz", "rb") as file, np.load(file, allow_pickle=False) as arrays:
            table = FrameTable.from_arrays(dict(arrays))
        images = np.load(folder / "images.npy", mmap_mode="r")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise FormatError(f"damaged cache ({error})", file=folder, fix="write it again") from error
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or not images.size:
        raise FormatError(
            f"pictures are {images.dtype} {images.shape}, uint8 (n, height, width, 3) expected",
            file=folder,
            fix="write the cache again",
        )
    if len(images) != len(table):
        raise FormatError(
            f"{len(images)} pictures and labels of {len(table)} frames", file=folder, fix="write the cache again"
        )
    return ArrayImages(table, images)


def load_images(source: Source, *, workers: int = 4, progress: bool = False) -> ArrayImages:
    """All frames of a source decoded into memory."""
    images = np.empty((len(source), *_common_size(source), 3), np.uint8)
    for index, image in _decoded(source, workers, progress):
        images[index] = image
    return ArrayImages(source.table, images)


def open_source(place: str, size: tuple[int, int] | None = None) -> Source:
    """A source by the words of a configuration.

    Args:
        place: a cache folder, a packed ``.npz``, or ``m2cai16:FOLDER``.
        size: (height, width) to scale pictures to; a cache has its own.
    """
    kind, colon, folder = place.partition(":")
    if colon and kind == "m2cai16":
        return m2cai16_locations(folder, size)
    if place.endswith(".npz"):
        return read_packed(place, size)
    source = read_cache(place)
    if size is not None and source.images.shape[1:3] != tuple(size):
        raise FormatError(f"pictures are {source.images.shape[1:3]}, not {tuple(size)}", file=place)
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


def _collection(place: str, split: str | None) -> Collection | None:
    """The videos that a source of the command line names; None for sources of frames.

    Raises:
        FormatError: for what is neither, and for a split of anything but Cholec80.
    """
    kind, _, folder = place.partition(":")
    if kind == "cholec80":
        return cholec80(folder, split=None if split is None else cholec80_split(split))
    if split is not None:
        raise FormatError("--split is of Cholec80", file=place, fix="say cholec80:FOLDER, or leave --split out")
    if Path(place).suffix.lower() in (".yaml", ".yml", ".csv"):
        return read_manifest(place)
    if kind != "m2cai16" and not place.endswith(".npz") and not (Path(place) / "table.npz").exists():
        raise FormatError(
            "neither a source of frames nor a manifest",
            file=place,
            fix="give m2cai16:FOLDER, cholec80:FOLDER, a packed .npz, or a manifest of videos (.yaml, .csv)",
        )
    return None


def main(arguments: Sequence[str] | None = None) -> None:
    """Write a cache from the command line; what cannot be read is one line and exit code 2.

    Args:
        arguments: words of the command line; those of this process when left out.
    """
    parser = argparse.ArgumentParser(prog="python -m models.data.cache", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "source", help="m2cai16:FOLDER, cholec80:FOLDER, a packed .npz, or a manifest of videos (.yaml, .csv)"
    )
    parser.add_argument("cache", help="folder to write")
    parser.add_argument("--size", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"), required=True)
    parser.add_argument("--workers", type=int, default=4, help="threads that decode pictures")
    parser.add_argument("--crop", action="store_true", help="cut black borders off videos")
    parser.add_argument("--split", choices=CHOLEC80_SPLITS, help="of Cholec80: which videos are train, val and test")
    options = parser.parse_args(arguments)
    size = (options.size[0], options.size[1])
    try:
        if (collection := _collection(options.source, options.split)) is not None:
            cache = write_collection(collection, options.cache, size, crop=options.crop, progress=True)
        else:
            source = open_source(options.source, size)
            cache = write_cache(source, options.cache, workers=options.workers, progress=True)
    except (FormatError, OSError) as error:
        parser.exit(2, f"error: {error}\n")
    print(f"{len(cache)} frames of {cache.images.shape[1]}x{cache.images.shape[2]} in {options.cache}")


if __name__ == "__main__":
    main()
