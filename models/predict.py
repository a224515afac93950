"""Predict phases and tools of videos: ``python -m models.predict RUN INPUT... --out predictions.npz``.

An input is a video, a folder of images of one video, a cache, or any other source that `models.data.cache.open_source`
opens; for a run on precomputed features, a file of features or a folder with one per video. The output file holds, per
video, probabilities ``phases_<video>`` (n, L) and ``tools_<video>`` (n, K), frame numbers ``frames_<video>`` (n,) and
``part_<video>``, the part that the video had in training; and once ``phase_names``, ``tool_names`` and ``fps``.
`hmmjax.io.read` and ``hmmjax stabilize`` read it. Until it is written, finished videos are kept in
``predictions.npz.partial/``, so that the same command continues after an interruption.
"""

import argparse
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from hmmjax.io import FormatError, save_npz
from models.commands import check_out, count, progress, rate, reported, shard
from models.data.feature_files import Layout, VideoFeatures, find_features, read_features
from models.data.video_images import RULES
from models.inputs import Clip, Reading, check_inputs, open_clips
from models.partial_predictions import PartialPredictions, partial_predictions, prediction_key
from models.training.local_devices import batch_size
from models.training.recognizer import Recognizer
from models.training.run import read_parts, read_run


def collect(
    recognizer: Recognizer,
    inputs: Sequence[str],
    reading: Reading,
    show: Callable[[str, int], None],
    part: tuple[int, int] = (0, 1),
    kept: PartialPredictions | None = None,
) -> dict[str, np.ndarray]:
    """Predict all videos of some inputs.

    Args:
        recognizer: the trained system.
        inputs: videos, folders of images, caches or packed files.
        reading: settings of reading them.
        show: called with each video's name and its number of frames read so far.
        part: (i, n) takes every n-th video, starting with the i-th.
        kept: the videos that an earlier process has finished, and those that this one finishes; None keeps none.

    Returns:
        "<name>_<video>" (n, ...) for each array that the recognizer predicts, "frames_<video>" (n,), and "fps".

    Raises:
        FormatError: if two videos have the same name, their frame numbers have different rates, or there are fewer
            videos than parts.
    """
    check_inputs(inputs, features=reading.features)
    arrays: dict[str, np.ndarray] = {}
    seen: set[str] = set()
    read = _features_of if reading.features else open_clips
    for place in inputs:
        for clip in read(place, reading):
            suffix = clip.video.removeprefix("video")
            if clip.video in seen:
                raise FormatError(f"{clip.video} occurs twice", file=place, fix="predict the two in separate runs")
            seen.add(clip.video)
            if (len(seen) - 1) % part[1] != part[0]:
                continue
            if arrays.setdefault("fps", np.array(clip.fps, np.float64)) != clip.fps:
                raise FormatError(
                    f"{clip.video} counts {clip.fps:g} frames per second, others {arrays['fps']:g}",
                    file=place,
                    fix="predict videos of each rate in separate runs",
                )
            predicted = None if kept is None else kept.read(clip.video)
            if predicted is None:
                predicted = _predict_clip(recognizer, clip, reading, show)
                if kept is not None:
                    kept.write(clip.video, predicted)
            arrays |= {f"{name}_{suffix}": x for name, x in predicted.items()}
    if not arrays:
        raise FormatError(
            f"there are {len(seen)} videos, none of which is for part {part[0]} of {part[1]}",
            fix=f"give --shard i/n with n up to {len(seen)}",
        )
    return arrays


def _predict_clip(
    recognizer: Recognizer, clip: Clip | VideoFeatures, reading: Reading, show: Callable[[str, int], None]
) -> dict[str, np.ndarray]:
    """Predict one video; errors name it."""
    try:
        if isinstance(clip, VideoFeatures):
            show(clip.video, len(clip.frames))
            return _decide(recognizer, clip)
        return recognizer.predict(_counted(clip, show), reading.batch)
    except FormatError as error:
        raise FormatError(f"{clip.video}: {error}") from error


def _features_of(place: str, reading: Reading) -> Iterator[VideoFeatures]:
    """Yield the videos of a file or folder of features, in natural order of their names."""
    layout = Layout(reading.rate, reading.fps, reading.channels_first)
    for path in find_features(place).values():
        yield read_features(path, layout)


def _decide(recognizer: Recognizer, features: VideoFeatures) -> dict[str, np.ndarray]:
    """Predict a video from its features, and return its frame numbers too."""
    values = np.asarray(features.values, np.float32)
    if values.shape[1] != recognizer.width:
        raise FormatError(
            f"features with {values.shape[1]} channels, but the run was trained on {recognizer.width}",
            file=features.path,
            fix="extract them with the encoder of the run's features",
        )
    if not np.isfinite(values).all():
        raise FormatError("features that are not finite", file=features.path, fix="extract them again")
    return {"frames": features.frames, **recognizer.decide(values)}


def _counted(clip: Clip, show: Callable[[str, int], None]) -> Iterator[tuple[int, np.ndarray]]:
    for number, item in enumerate(clip.images, 1):
        show(clip.video, number)
        yield item


def predict(
    run: str | Path,
    inputs: Sequence[str],
    reading: Reading,
    *,
    which: str = "best",
    part: tuple[int, int] = (0, 1),
    quiet: bool = True,
    kept: PartialPredictions | None = None,
) -> dict[str, np.ndarray]:
    """Predict all inputs; return the arrays of a predictions file, which the module's docstring lists.

    Args:
        run: folder of a training run.
        inputs: videos, folders of images, caches or packed files.
        reading: settings of reading them.
        which: checkpoint, "best" or "last".
        part: (i, n) takes every n-th video, starting with the i-th.
        quiet: do not show progress.
        kept: see `collect`.

    Raises:
        FormatError: for inputs that cannot be read, and if two videos have the same name or their frame numbers have
            different rates.
    """
    reading = dataclasses.replace(reading, features=read_run(run).features is not None)
    check_inputs(inputs, features=reading.features)
    recognizer = Recognizer(run, which)
    with progress(quiet) as show:
        return complete(collect(recognizer, inputs, reading, show, part, kept), recognizer, run)


def complete(arrays: dict[str, np.ndarray], recognizer: Recognizer, run: str | Path) -> dict[str, np.ndarray]:
    """Return the arrays of `collect` with the names of the classes, and the part that each video had in training.

    Args:
        arrays: from `collect`.
        recognizer: the trained system.
        run: folder of its training run.
    """
    # Tells `hmmjax stabilize` in which videos the network's errors are fewer than in others.
    parts = {video.removeprefix("video"): part for video, part in read_parts(run).items()}
    videos = [name.removeprefix("frames_") for name in arrays if name.startswith("frames_")]
    arrays |= {f"part_{video}": np.array(parts[video]) for video in videos if video in parts}
    for track, names in recognizer.names.items():
        if names:
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
        help="frames per second to read from a video, or of a folder of images (1), or rows per second of features "
        "without frame numbers (as in training)",
    )
    parser.add_argument(
        "--fps",
        type=rate,
        default=25.0,
        help="frame rate of the video that a folder of images is from (25)",
    )
    parser.add_argument("--naming", choices=RULES, help="what the numbers in the names of the images in a folder count")
    parser.add_argument("--part", help="part of a cache or a packed file, such as val (default: all of it)")
    parser.add_argument("--batch", type=count, help="frames per call of the network, on all GPUs together (64 per GPU)")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")


def reading_of(options: argparse.Namespace) -> Reading:
    """Return the settings of reading inputs from the arguments of `add_reading` and the configuration of the run.

    Raises:
        FormatError: if the folder holds no training run.
        ValueError: if the devices do not divide the batch.
    """
    config = read_run(options.run)
    height, width = options.size or config.data.load or config.size
    rate = options.rate or (1.0 if config.features is None else config.data.rate)
    features = config.features is not None
    if features and options.part:
        raise FormatError("files of features have no parts", file=config.features, fix="give the files of the videos")
    return Reading(
        (height, width),
        rate,
        options.fps,
        options.naming,
        options.part,
        batch_size(options.batch),
        features,
        features and config.data.channels_first,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m models.predict", description=(__doc__ or "").partition(":")[0])
    add_reading(parser)
    parser.add_argument("--shard", default="0/1", help="i/n: take every n-th video, starting with the i-th (0/1)")
    options = parser.parse_intermixed_args(arguments)
    with reported("stopped; the same command continues"):
        check_out(options.out, force=options.force)
        part, reading = shard(options.shard), reading_of(options)
        check_inputs(options.inputs, features=reading.features)
        key = prediction_key("predict", options.run, options.checkpoint, options.inputs, reading)
        with partial_predictions(options.out, key) as kept:
            own = {"which": options.checkpoint, "part": part, "quiet": options.quiet, "kept": kept}
            arrays = predict(options.run, options.inputs, reading, **own)
            save_npz(options.out, arrays, force=options.force)
    videos = [name.removeprefix("frames_") for name in arrays if name.startswith("frames_")]
    frames = sum(len(arrays[f"frames_{video}"]) for video in videos)
    print(f"{options.out}: {frames} frames of {len(videos)} video(s)")


if __name__ == "__main__":
    main()
