"""Predict phases and tools of videos: ``python -m models.predict RUN INPUT... --out predictions.npz``.

An input is a video, a folder of its pictures, a cache, or whatever else `models.data.cache.open_source` opens. The file
written holds, for each video, ``phases_<video>`` (n, L) and ``tools_<video>`` (n, K) probabilities and
``frames_<video>`` (n,) frame numbers, and once ``phase_names``, ``tool_names`` and ``fps``: `hmmjax.io.read` and
``hmmjax stabilize`` take it.
"""

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hmmjax.io import FormatError, natural, save_npz, video_id
from models.data.cache import open_source
from models.data.frames import Source, decode
from models.data.video import probe, read_frames
from models.data.video_images import RULES, check_spacing, find_images
from models.recogniser import Recogniser
from models.training.config import read_config

VIDEO_SUFFIXES = (".mp4", ".avi", ".mkv", ".mov", ".webm")


@dataclasses.dataclass(frozen=True)
class Reading:
    """How inputs are read.

    Attributes:
        size: (height, width) that pictures are decoded to.
        rate: frames per second to take from a video, and that there are pictures of.
        fps: of the video that pictures were taken from.
        naming: what the numbers in pictures' names count: "frame", "second" or "counter".
        part: of a cache.
        batch: frames at once.
    """

    size: tuple[int, int]
    rate: float = 1.0
    fps: float = 25.0
    naming: str | None = None
    part: str | None = None
    batch: int = 128


@dataclasses.dataclass(frozen=True)
class Clip:
    """One video to predict.

    Attributes:
        video: its name.
        fps: of the counter that numbers its frames.
        pictures: (number, (H, W, 3) uint8) in order.
    """

    video: str
    fps: float
    pictures: Iterator[tuple[int, np.ndarray]]


def open_clips(place: str, reading: Reading) -> Iterator[Clip]:
    """The videos of an input, in natural order.

    Raises:
        FormatError: for pictures whose numbering is not declared, and for files that cannot be read.
    """
    path = Path(place)
    if path.suffix.lower() in VIDEO_SUFFIXES:
        pictures = read_frames(path, rate=reading.rate, size=reading.size)
        yield Clip(video_id(path.stem), probe(path).fps, pictures)
    elif path.is_dir() and not (path / "table.npz").exists():
        if reading.naming is None:
            raise FormatError(
                "what do the numbers in the pictures' names count?",
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
        # By hundreds: pool.map reads everything ahead of its use.
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
        yield Clip(video, table.fps, ((int(table.frames[row]), source[row]) for row in mine))


def predict(run: str | Path, inputs: Sequence[str], reading: Reading, *, which: str = "best") -> dict[str, np.ndarray]:
    """Predictions of all inputs, as the arrays of a predictions file.

    Raises:
        FormatError: when two inputs have one name, or number their frames at different rates.
    """
    recogniser = Recogniser(run, which)
    arrays: dict[str, np.ndarray] = {}
    for place in inputs:
        for clip in open_clips(place, reading):
            suffix = clip.video.removeprefix("video")
            if f"frames_{suffix}" in arrays:
                raise FormatError(f"{clip.video} is there twice", file=place, fix="predict the two apart")
            if arrays.setdefault("fps", np.float64(clip.fps)) != clip.fps:
                raise FormatError(f"{clip.video} counts {clip.fps:g} frames a second, others {arrays['fps']:g}")
            try:
                predicted = recogniser.predict(clip.pictures, reading.batch)
            except FormatError as error:
                raise FormatError(f"{clip.video}: {error}") from error
            arrays |= {f"{name}_{suffix}": x for name, x in predicted.items()}
    for track, names in recogniser.names.items():
        arrays[f"{track[:-1]}_names"] = np.array(names)
    return arrays


def add_reading(parser: argparse.ArgumentParser) -> None:
    """The arguments that every command takes that runs a trained network on inputs."""
    parser.add_argument("run", help="folder of a training run")
    parser.add_argument("inputs", nargs="+", help="a video, a folder of its pictures, a cache or a packed .npz")
    parser.add_argument("--out", required=True, help="file to write, .npz")
    parser.add_argument("--force", action="store_true", help="write over it")
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best")
    parser.add_argument("--size", type=int, nargs=2, help="height and width to decode to; as in training if left out")
    parser.add_argument(
        "--rate", type=float, default=1.0, help="frames per second of a video, or of a counter in names"
    )
    parser.add_argument("--fps", type=float, default=25.0, help="of the video that pictures were taken from")
    parser.add_argument("--naming", choices=RULES, help="what the numbers in pictures' names count")
    parser.add_argument("--part", help="of a cache, such as val")
    parser.add_argument("--batch", type=int, default=64)


def reading_of(options: argparse.Namespace) -> Reading:
    """How inputs are read, by the arguments of `add_reading` and the configuration of the run."""
    config = read_config(Path(options.run) / "config.yaml")
    size = tuple(options.size or config.data.load or config.size)
    return Reading(size, options.rate, options.fps, options.naming, options.part, options.batch)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m models.predict", description=(__doc__ or "").partition(":")[0])
    add_reading(parser)
    options = parser.parse_intermixed_args(arguments)
    try:
        arrays = predict(options.run, options.inputs, reading_of(options), which=options.checkpoint)
        save_npz(options.out, arrays, force=options.force)
    except (ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    videos = [name.removeprefix("frames_") for name in arrays if name.startswith("frames_")]
    count = sum(len(arrays[f"frames_{video}"]) for video in videos)
    print(f"{options.out}: {count} frames of {len(videos)} video(s)")


if __name__ == "__main__":
    main()
