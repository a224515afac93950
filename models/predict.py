"""Predict phases and tools of videos: ``python -m models.predict RUN INPUT... --out predictions.npz``.

An input is a video, a folder of its pictures, a cache, or whatever else `models.data.cache.open_source` opens. The file
written holds, for each video, ``phases_<video>`` (n, L) and ``tools_<video>`` (n, K) probabilities and
``frames_<video>`` (n,) frame numbers, and once ``phase_names``, ``tool_names`` and ``fps``: `hmmjax.io.read` and
``hmmjax stabilize`` take it.
"""

import argparse
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from hmmjax.io import FormatError, natural, save_npz, video_id
from models.commands import check_out, count, progress, rate, reported
from models.data.cache import open_source
from models.data.frames import Source, decode
from models.data.video import probe, read_frames
from models.data.video_images import RULES, SUFFIXES, check_spacing, find_images
from models.recognizer import Recognizer
from models.runs import read_run

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


def check_inputs(inputs: Sequence[str]) -> None:
    """See that all inputs are there and of a kind that `open_clips` reads, before the first is.

    Raises:
        FormatError: for the first that is not.
    """
    for place in inputs:
        path = Path(place)
        if place.startswith("m2cai16:"):
            continue
        if not path.exists():
            raise FormatError("no such file or folder", file=place)
        if path.is_file() and path.suffix.lower() not in (*VIDEO_SUFFIXES, ".npz"):
            raise FormatError(
                "neither a video nor packed pictures",
                file=place,
                fix=f"give a video ({', '.join(VIDEO_SUFFIXES)}), a folder of pictures, a cache or a packed .npz",
            )
        if path.is_dir() and not (path / "table.npz").exists():
            _check_folder(path)


def _check_folder(path: Path) -> None:
    names = [file.name.lower() for file in path.iterdir() if not file.name.startswith(".")]
    if any(name.endswith(SUFFIXES) for name in names):
        return
    if any(name.endswith(VIDEO_SUFFIXES) for name in names):
        raise FormatError("a folder of videos", file=path, fix=f"give the videos themselves, such as {path}/*.mp4")
    raise FormatError(
        "neither pictures nor a finished cache in this folder",
        file=path,
        fix="give a folder of one video's pictures, or what python -m models.data.cache wrote",
    )


def open_clips(place: str, reading: Reading) -> Iterator[Clip]:
    """The videos of an input, in natural order.

    Raises:
        FormatError: for pictures whose numbering is not declared, and for files that cannot be read.
    """
    check_inputs([place])
    path = Path(place)
    if path.suffix.lower() in VIDEO_SUFFIXES:
        pictures = read_frames(path, rate=reading.rate, size=reading.size)
        yield Clip(video_id(path.stem), probe(path).fps, pictures)
    elif path.is_dir() and not (path / "table.npz").exists():
        if reading.naming is None:
            raise FormatError(
                "nothing says what the numbers in the pictures' names count",
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


def collect(
    recognizer: Recognizer, inputs: Sequence[str], reading: Reading, show: Callable[[str, int], None]
) -> dict[str, np.ndarray]:
    """What a recognizer says of all videos of some inputs.

    Args:
        recognizer: to ask.
        inputs: see `open_clips`.
        reading: how they are read.
        show: told each video's name and how many of its frames have been read.

    Returns:
        "<name>_<video>" (n, ...) for all that it answers with, "frames_<video>" (n,), and "fps".

    Raises:
        FormatError: when two videos have one name, or number their frames at different rates.
    """
    check_inputs(inputs)
    arrays: dict[str, np.ndarray] = {}
    for place in inputs:
        for clip in open_clips(place, reading):
            suffix = clip.video.removeprefix("video")
            if f"frames_{suffix}" in arrays:
                raise FormatError(f"{clip.video} is there twice", file=place, fix="run the two apart")
            if arrays.setdefault("fps", np.float64(clip.fps)) != clip.fps:
                raise FormatError(
                    f"{clip.video} counts {clip.fps:g} frames a second, others {arrays['fps']:g}",
                    file=place,
                    fix="run videos of each rate apart",
                )
            try:
                answer = recognizer.predict(_counted(clip, show), reading.batch)
            except FormatError as error:
                raise FormatError(f"{clip.video}: {error}") from error
            arrays |= {f"{name}_{suffix}": x for name, x in answer.items()}
    return arrays


def _counted(clip: Clip, show: Callable[[str, int], None]) -> Iterator[tuple[int, np.ndarray]]:
    for number, item in enumerate(clip.pictures, 1):
        show(clip.video, number)
        yield item


def predict(
    run: str | Path, inputs: Sequence[str], reading: Reading, *, which: str = "best", quiet: bool = True
) -> dict[str, np.ndarray]:
    """Predictions of all inputs, as the arrays of a predictions file.

    Args:
        run: folder of a training run.
        inputs: see `open_clips`.
        reading: how they are read.
        which: checkpoint, "best" or "last".
        quiet: show no progress.

    Returns:
        The arrays that the module's text lists.

    Raises:
        FormatError: for inputs that cannot be read, and when two have one name, or number their frames at different
            rates.
    """
    check_inputs(inputs)
    recognizer = Recognizer(run, which)
    with progress(quiet) as show:
        arrays = collect(recognizer, inputs, reading, show)
    for track, names in recognizer.names.items():
        arrays[f"{track[:-1]}_names"] = np.array(names)
    return arrays


def add_reading(parser: argparse.ArgumentParser) -> None:
    """The arguments that every command takes that runs a trained network on inputs."""
    parser.add_argument("run", help="folder of a training run")
    parser.add_argument(
        "inputs", nargs="+", help="a video, a folder of one video's pictures, a cache, a packed .npz or m2cai16:FOLDER"
    )
    parser.add_argument("--out", required=True, metavar="FILE.npz", help="file to write")
    parser.add_argument("--force", action="store_true", help="write over it")
    parser.add_argument(
        "--checkpoint", choices=("best", "last"), default="best", help="best by validation (the default), or the last"
    )
    parser.add_argument(
        "--size",
        type=count,
        nargs=2,
        metavar=("HEIGHT", "WIDTH"),
        help="that videos and pictures in folders are decoded to; as in training if left out",
    )
    parser.add_argument(
        "--rate", type=rate, default=1.0, help="frames a second to take of a video, or that there are pictures of (1)"
    )
    parser.add_argument(
        "--fps", type=rate, default=25.0, help="of the video that a folder's pictures were taken from (25)"
    )
    parser.add_argument("--naming", choices=RULES, help="what the numbers in the names of a folder's pictures count")
    parser.add_argument("--part", help="of a cache or a packed file, such as val; all of it if left out")
    parser.add_argument("--batch", type=count, default=64, help="frames at once (64)")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def reading_of(options: argparse.Namespace) -> Reading:
    """How inputs are read, by the arguments of `add_reading` and the configuration of the run.

    Raises:
        FormatError: when there is no run.
    """
    config = read_run(options.run)
    size = tuple(options.size or config.data.load or config.size)
    return Reading(size, options.rate, options.fps, options.naming, options.part, options.batch)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m models.predict", description=(__doc__ or "").partition(":")[0])
    add_reading(parser)
    options = parser.parse_intermixed_args(arguments)
    with reported():
        check_out(options.out, force=options.force)
        reading = reading_of(options)
        arrays = predict(options.run, options.inputs, reading, which=options.checkpoint, quiet=options.quiet)
        save_npz(options.out, arrays, force=options.force)
    videos = [name.removeprefix("frames_") for name in arrays if name.startswith("frames_")]
    frames = sum(len(arrays[f"frames_{video}"]) for video in videos)
    print(f"{options.out}: {frames} frames of {len(videos)} video(s)")


if __name__ == "__main__":
    main()
