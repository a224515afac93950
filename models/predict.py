"""Predict phases and tools of videos: ``python -m models.predict RUN INPUT... --out predictions.npz``.

An input is a video, a folder of images of one video, a cache, or any other source that `models.data.cache.open_source`
opens. The output file holds, per video, probabilities ``phases_<video>`` (n, L) and ``tools_<video>`` (n, K) and frame
numbers ``frames_<video>`` (n,), and once ``phase_names``, ``tool_names`` and ``fps``. `hmmjax.io.read` and
``hmmjax stabilize`` read it.
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
from models.training.recognizer import Recognizer
from models.training.run import read_run

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
        video: name of the video.
        fps: rate of its frame numbers, per second.
        images: (frame number, (H, W, 3) uint8) in order of time.
    """

    video: str
    fps: float
    images: Iterator[tuple[int, np.ndarray]]


def check_inputs(inputs: Sequence[str]) -> None:
    """Raise FormatError for the first input that does not exist or that `open_clips` cannot read."""
    for place in inputs:
        path = Path(place)
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
        images = read_frames(path, rate=reading.rate, size=reading.size)
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
        yield Clip(video, table.fps, ((int(table.frames[row]), source[row]) for row in mine))


def collect(
    recognizer: Recognizer, inputs: Sequence[str], reading: Reading, show: Callable[[str, int], None]
) -> dict[str, np.ndarray]:
    """Predict all videos of some inputs.

    Args:
        recognizer: the trained system.
        inputs: videos, folders of images, caches or packed files.
        reading: settings of reading them.
        show: called with each video's name and its number of frames read so far.

    Returns:
        "<name>_<video>" (n, ...) for each array that the recognizer predicts, "frames_<video>" (n,), and "fps".

    Raises:
        FormatError: if two videos have the same name, or their frame numbers have different rates.
    """
    check_inputs(inputs)
    arrays: dict[str, np.ndarray] = {}
    for place in inputs:
        for clip in open_clips(place, reading):
            suffix = clip.video.removeprefix("video")
            if f"frames_{suffix}" in arrays:
                raise FormatError(f"{clip.video} occurs twice", file=place, fix="predict the two in separate runs")
            if arrays.setdefault("fps", np.float64(clip.fps)) != clip.fps:
                raise FormatError(
                    f"{clip.video} counts {clip.fps:g} frames per second, others {arrays['fps']:g}",
                    file=place,
                    fix="predict videos of each rate in separate runs",
                )
            try:
                predicted = recognizer.predict(_counted(clip, show), reading.batch)
            except FormatError as error:
                raise FormatError(f"{clip.video}: {error}") from error
            arrays |= {f"{name}_{suffix}": x for name, x in predicted.items()}
    return arrays


def _counted(clip: Clip, show: Callable[[str, int], None]) -> Iterator[tuple[int, np.ndarray]]:
    for number, item in enumerate(clip.images, 1):
        show(clip.video, number)
        yield item


def predict(
    run: str | Path, inputs: Sequence[str], reading: Reading, *, which: str = "best", quiet: bool = True
) -> dict[str, np.ndarray]:
    """Predict all inputs; return the arrays of a predictions file, which the module's docstring lists.

    Args:
        run: folder of a training run.
        inputs: videos, folders of images, caches or packed files.
        reading: settings of reading them.
        which: checkpoint, "best" or "last".
        quiet: do not show progress.

    Raises:
        FormatError: for inputs that cannot be read, and if two videos have the same name or their frame numbers have
            different rates.
    """
    check_inputs(inputs)
    recognizer = Recognizer(run, which)
    with progress(quiet) as show:
        arrays = collect(recognizer, inputs, reading, show)
    for track, names in recognizer.names.items():
        arrays[f"{track[:-1]}_names"] = np.array(names)
    return arrays


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of commands that apply a trained network to inputs."""
    parser.add_argument("run", help="folder of a training run")
    parser.add_argument(
        "inputs", nargs="+", help="a video, a folder of images of one video, a cache, a packed .npz or m2cai16:FOLDER"
    )
    parser.add_argument("--out", required=True, metavar="FILE.npz", help="file to write")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument(
        "--checkpoint",
        choices=("best", "last"),
        default="best",
        help="best by validation (default), or the last",
    )
    parser.add_argument(
        "--size",
        type=count,
        nargs=2,
        metavar=("HEIGHT", "WIDTH"),
        help="size to which videos and images in folders are decoded (default: as in training)",
    )
    parser.add_argument(
        "--rate",
        type=rate,
        default=1.0,
        help="frames per second to read from a video, or of a folder of images (1)",
    )
    parser.add_argument(
        "--fps",
        type=rate,
        default=25.0,
        help="frame rate of the video that a folder of images is from (25)",
    )
    parser.add_argument("--naming", choices=RULES, help="what the numbers in the names of the images in a folder count")
    parser.add_argument("--part", help="part of a cache or a packed file, such as val (default: all of it)")
    parser.add_argument("--batch", type=count, default=64, help="frames per call of the network (64)")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")


def reading_of(options: argparse.Namespace) -> Reading:
    """Return the settings of reading inputs from the arguments of `add_reading` and the configuration of the run.

    Raises:
        FormatError: if the folder holds no training run.
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
