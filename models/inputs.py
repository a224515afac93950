"""Inputs of commands that apply a network: videos, folders of images, caches and packed files, and how to read them."""

import dataclasses
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hmmjax.io import FormatError, natural, video_id
from models.data.cache import ArrayImages, open_source
from models.data.feature_files import is_features
from models.data.frames import Source, decode
from models.data.video import probe, read_frames
from models.data.video_images import RULES, SUFFIXES, check_spacing, find_images

VIDEO_SUFFIXES = (".mp4", ".avi", ".mkv", ".mov", ".webm")


@dataclasses.dataclass(frozen=True)
class Reading:
    """Settings of reading inputs.

    Attributes:
        size: (height, width) that images are decoded to.
        rate: frames per second that are read from a video, or that a folder of images has.
        fps: frame rate of the video from which a folder of images was extracted.
        naming: what the numbers in image names count: "frame", "second" or "counter".
        part: the part of a cache or packed file to read; None reads all of it.
        batch: number of frames per call of the network.
        features: the inputs are files and folders of precomputed features.
        channels_first: these are (channels, frames).
        threads: number of threads that decode a video; 0 for one per core.
    """

    size: tuple[int, int]
    rate: float = 1.0
    fps: float = 25.0
    naming: str | None = None
    part: str | None = None
    batch: int = 128
    features: bool = False
    channels_first: bool = False
    threads: int = 0


@dataclasses.dataclass(frozen=True)
class Clip:
    """One video to predict.

    Attributes:
        video: name of the video.
        fps: rate of its frame numbers, per second.
        images: (frame number, (H, W, 3) uint8) in order of time.
        array: frame numbers (n,), images (m, H, W, 3), and the rows (n,) of them that are the video; None unless they
            are in one array.
    """

    video: str
    fps: float
    images: Iterator[tuple[int, np.ndarray]]
    array: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def batches(self, length: int) -> Iterator[tuple[list[int], np.ndarray]]:
        """Yield frame numbers and images (length, H, W, 3) of successive frames; the last batch may be shorter."""
        if self.array is None:
            piece: list[tuple[int, np.ndarray]] = []
            for item in self.images:
                piece.append(item)
                if len(piece) == length:
                    yield [number for number, _ in piece], np.stack([image for _, image in piece])
                    piece = []
            if piece:
                yield [number for number, _ in piece], np.stack([image for _, image in piece])
            return
        numbers, images, rows = self.array
        for start in range(0, len(rows), length):
            mine = rows[start : start + length]
            together = mine[-1] - mine[0] == len(mine) - 1 and (np.diff(mine) == 1).all()
            chosen = np.array(images[mine[0] : mine[-1] + 1]) if together else np.asarray(images[mine])
            yield numbers[start : start + length].tolist(), chosen


def check_inputs(inputs: Sequence[str], *, features: bool = False) -> None:
    """Raise FormatError for the first input that does not exist or cannot be read.

    Args:
        inputs: videos, folders of images, caches or packed files; or files and folders of features.
        features: the inputs are features.
    """
    for place in inputs:
        path = Path(place)
        if features:
            if not path.exists() or not is_features(path) or (path / "table.npz").exists():
                raise FormatError(
                    "the run reads precomputed features, and there are none here" if path.exists() else "no such file",
                    file=place,
                    fix="give a folder with one file of features per video, such as models.extract writes",
                )
            continue
        if place.startswith("m2cai16:"):
            continue
        if not path.exists():
            raise FormatError("no such file or folder", file=place, fix="check the path")
        if path.is_file() and path.suffix.lower() not in (*VIDEO_SUFFIXES, ".npz"):
            raise FormatError(
                "neither a video nor a packed file of images",
                file=place,
                fix=f"give a video ({', '.join(VIDEO_SUFFIXES)}), a folder of images, a cache or a packed .npz",
            )
        if path.is_dir() and not (path / "table.npz").exists():
            _check_folder(path)


def _check_folder(path: Path) -> None:
    names = [file.name.lower() for file in path.iterdir() if not file.name.startswith(".")]
    if any(name.endswith(SUFFIXES) for name in names):
        return
    if any(name.endswith(VIDEO_SUFFIXES) for name in names):
        raise FormatError("this is a folder of videos", file=path, fix=f"give the videos, such as {path}/*.mp4")
    raise FormatError(
        "this folder holds neither images nor a complete cache",
        file=path,
        fix="give a folder of images of one video, or a cache written by python -m models.data.cache",
    )


def open_clips(place: str, reading: Reading) -> Iterator[Clip]:
    """Yield the videos of an input, in natural order of their names.

    Raises:
        FormatError: for images whose numbering is not declared, and for files that cannot be read.
    """
    check_inputs([place])
    path = Path(place)
    if path.suffix.lower() in VIDEO_SUFFIXES:
        images = read_frames(path, rate=reading.rate, size=reading.size, threads=reading.threads)
        yield Clip(video_id(path.stem), probe(path).fps, images)
    elif path.is_dir() and not (path / "table.npz").exists():
        if reading.naming is None:
            raise FormatError(
                "the meaning of the numbers in the image names is not declared",
                file=place,
                fix=f"give --naming, one of {', '.join(RULES)}",
            )
        files = find_images(path, reading.naming, fps=reading.fps, rate=reading.rate)
        check_spacing(list(files), round(reading.fps / reading.rate), path)
        yield Clip(video_id(path.name), reading.fps, _in_threads(list(files), list(files.values()), reading.size))
    else:
        yield from _clips_of_source(open_source(place), reading)


def _in_threads(numbers: list[int], files: list[str], size: tuple[int, int]) -> Iterator[tuple[int, np.ndarray]]:
    with ThreadPoolExecutor(4) as pool:
        # In chunks, because pool.map reads all of its input ahead.
        for start in range(0, len(files), 100):
            chunk = slice(start, start + 100)
            load = pool.map(lambda file: decode(Path(file).read_bytes(), size, file=file), files[chunk])
            yield from zip(numbers[chunk], load, strict=True)


def _clips_of_source(source: Source, reading: Reading) -> Iterator[Clip]:
    table = source.table
    rows = table.rows(reading.part)
    for video in sorted(set(table.videos[rows].tolist()), key=natural):
        mine = rows[table.videos[rows] == video]
        mine = mine[np.argsort(table.frames[mine], kind="stable")]
        array = (table.frames[mine], source.images, mine) if isinstance(source, ArrayImages) else None
        yield Clip(video, table.fps, _rows(source, mine), array)


def _rows(source: Source, rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    for row in rows:
        yield int(source.table.frames[row]), source[row]
