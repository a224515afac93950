"""Extract features of videos: ``python -m models.extract ENCODER INPUT... --out FOLDER``.

ENCODER is the folder of a training run, or the name of a backbone with its weights (``--pretrained FILE``). An input is
one of those of `models.predict`. The folder gets, per video, ``<video>.npy`` (n, D) in half precision, which later
stages map into memory, and ``<video>.frames.npy`` (n,), and once ``features.json``, which identifies the encoder. The
same command continues after an interruption. `models.train` reads the folder with ``features=FOLDER``.

Several videos are decoded at a time, so that the accelerator has always a batch to work on.
"""

import argparse
import dataclasses
import glob
import json
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.io import FormatError, lock, natural, write_atomically
from models.backbones import BACKBONES
from models.backbones.images import IMAGENET_MEAN, IMAGENET_STD
from models.commands import count, progress, rate, reported, shard
from models.data.feature_files import FRAMES, INDEX
from models.data.pool import End, Failure, read_together
from models.data.video_images import RULES
from models.encoder_choice import add_encoder, encoder_choice
from models.encoders import Encoder
from models.inputs import Clip, Reading, check_inputs, open_clips
from models.training.local_devices import batch_size

#: The largest number in half precision.
_HALF = float(np.finfo(np.float16).max)
#: Batches that the accelerator has received before the result of the first is awaited.
_AHEAD = 2


def extract(
    encoder: Encoder,
    inputs: Sequence[str],
    folder: str | Path,
    reading: Reading,
    *,
    part: tuple[int, int] = (0, 1),
    workers: int = 1,
    show: Callable[[str, int], None] = lambda video, frames: None,
) -> tuple[list[str], list[str], dict[str, str]]:
    """Write the features of all videos that the folder lacks.

    Args:
        encoder: computes them.
        inputs: videos, folders of images, caches or packed files.
        folder: gets the files.
        reading: settings of reading the inputs.
        part: (i, n) takes every n-th video, starting with the i-th; processes may share a folder.
        workers: number of videos that are read at a time.
        show: called with each video's name and its number of frames so far.

    Returns:
        The videos that were written, those that were there already, and the errors of those that cannot be read, by
        input.

    Raises:
        FormatError: for inputs that do not exist, and for a folder with features of another encoder or frame rate.
    """
    check_inputs(inputs)
    written, there, failed = [], [], {}
    waiting = _waiting(encoder, inputs, Path(folder), reading, part, there, failed)
    pending: deque[tuple[_Output, list[int], Any]] = deque()
    outputs: dict[str, _Output] = {}

    def settle(most: int) -> None:
        while len(pending) > most:
            output, numbers, values = pending.popleft()
            output.add(numbers, np.asarray(values))
            show(output.video, len(output.frames))

    def read(job: tuple[str, Clip]) -> Iterator[tuple[list[int], np.ndarray]]:
        for numbers, images in job[1].batches(reading.batch):
            # Every batch is filled up, so that a single compiled program suffices.
            spare = np.repeat(images[:1], reading.batch - len(images), 0)
            yield numbers, np.concatenate([images, spare]) if len(spare) else images

    with ExitStack() as unfinished:
        unfinished.callback(lambda: [output.discard() for output in outputs.values()])
        for (place, clip), item in read_together(waiting, read, workers=workers, depth=2 * workers):
            if clip.video not in outputs:
                outputs[clip.video] = _Output(clip.video, Path(folder), encoder.width)
            output = outputs[clip.video]
            if not isinstance(item, End | Failure):
                pending.append((output, item[0], encoder.compute(item[1])))
                settle(_AHEAD)
                continue
            settle(0)
            del outputs[clip.video]
            # One damaged video does not keep the others from being written.
            error = item.error if isinstance(item, Failure) else output.finish()
            if error is None:
                written.append(clip.video)
                continue
            output.discard()
            if not isinstance(error, FormatError | OSError):
                raise error
            failed[place] = "; ".join(filter(None, [failed.get(place), f"{clip.video}: {error}"]))
    return sorted(written, key=natural), there, failed


def _waiting(
    encoder: Encoder,
    inputs: Sequence[str],
    folder: Path,
    reading: Reading,
    part: tuple[int, int],
    there: list[str],
    failed: dict[str, str],
) -> Iterator[tuple[str, Clip]]:
    """Yield the input and the video of each that is to be written; append the others to `there` and `failed`."""
    seen: set[str] = set()
    for place in inputs:
        try:
            for clip in open_clips(place, reading):
                if clip.video in seen:
                    raise FormatError(f"{clip.video} occurs twice", file=place, fix="use another --out for one of them")
                seen.add(clip.video)
                if (len(seen) - 1) % part[1] != part[0]:
                    continue
                _check_index(folder, encoder, reading, clip.fps)
                if (folder / f"{clip.video}.npy").exists():
                    there.append(clip.video)
                else:
                    yield place, clip
        except _OtherFolder:
            raise
        except (FormatError, OSError) as error:
            failed[place] = str(error)


class _OtherFolder(FormatError):
    """The folder belongs to other features; no video can be written to it."""


def _check_index(folder: Path, encoder: Encoder, reading: Reading, fps: float) -> None:
    """Write the index of a folder of features, or raise unless it states the same encoder and rates."""
    index = {
        "encoder": encoder.name,
        "weights": encoder.digest,
        "size": list(encoder.size),
        "width": encoder.width,
        "fps": fps,
        "rate": reading.rate,
        **({} if encoder.mean is None or encoder.std is None else {"mean": [*encoder.mean], "std": [*encoder.std]}),
    }
    path = folder / INDEX
    if not path.exists():
        with write_atomically(path, force=True) as temporary:
            Path(temporary).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _OtherFolder(f"damaged index ({error})", file=path, fix="choose another --out") from error
    # Before 0.3 the mean and standard deviation were always ImageNet's.
    kept = {"mean": [*IMAGENET_MEAN], "std": [*IMAGENET_STD]} | kept
    if differ := [key for key in index if key != "encoder" and kept.get(key) != index[key]]:
        raise _OtherFolder(
            f"the folder holds features with other {differ[0]}: {kept.get(differ[0])}, now {index[differ[0]]}",
            file=folder,
            fix="choose another --out",
        )


class _Output:
    """The files of one video, which appear when it is finished.

    Args:
        video: name of the video.
        folder: gets the files.
        width: length D of a feature.
    """

    def __init__(self, video: str, folder: Path, width: int):
        self.video, self.frames = video, []
        self._numbers, self._width = folder / f"{video}{FRAMES}", width
        _remove_leftovers(folder, video)
        self._atomic = ExitStack()
        temporary = self._atomic.enter_context(write_atomically(folder / f"{video}.npy", force=True))
        self._atomic.enter_context(lock(temporary))
        self._file = self._atomic.enter_context(open(temporary, "wb"))  # noqa: SIM115
        self._header(0)

    def add(self, numbers: list[int], values: np.ndarray) -> None:
        """Append the features (n or more, D) of n frames."""
        half = np.clip(values[: len(numbers)], -_HALF, _HALF).astype(np.float16)
        self._file.write(half.tobytes())
        self.frames += numbers

    def finish(self) -> Exception | None:
        """Write what is missing and return None, or the error of a video without frames."""
        if not self.frames:
            return FormatError(f"{self.video} has no frames", fix="check that the file or folder is complete")
        # NumPy reserves room for the number of rows, so the header keeps its length.
        self._file.seek(0)
        self._header(len(self.frames))
        self._file.close()
        with write_atomically(self._numbers, force=True) as numbers, lock(numbers):
            np.save(numbers, np.array(self.frames, np.int64))
        self._atomic.close()
        return None

    def discard(self) -> None:
        """Leave no file."""
        self._file.close()
        unfinished = FormatError(f"{self.video} is not complete")
        with suppress(FormatError):
            self._atomic.__exit__(type(unfinished), unfinished, None)

    def _header(self, rows: int) -> None:
        header = {"descr": "<f2", "fortran_order": False, "shape": (rows, self._width)}
        np.lib.format.write_array_header_1_0(self._file, header)


def _remove_leftovers(folder: Path, video: str) -> None:
    """Remove what killed processes have left of a video; a process that still writes it holds the lock of its file."""
    for suffix in (".npy", FRAMES):
        for path in folder.glob(f".{glob.escape(video)}{suffix}.*.npy"):
            with suppress(FileExistsError), lock(path):
                path.unlink(missing_ok=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.extract", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("encoder", help=f"folder of a training run, or one of {', '.join(BACKBONES)}")
    parser.add_argument("inputs", nargs="+", help="videos, folders of images of one video, caches or packed .npz")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="gets one file per video")
    add_encoder(parser)
    parser.add_argument("--rate", type=rate, default=1.0, help="frames per second to read from a video (1)")
    parser.add_argument("--fps", type=rate, default=25.0, help="frame rate of the video of a folder of images (25)")
    parser.add_argument("--naming", choices=RULES, help="what the numbers in the names of the images in a folder count")
    parser.add_argument("--part", help="part of a cache or a packed file (default: all of it)")
    parser.add_argument("--batch", type=count, help="frames per call of the network, on all GPUs together (64 per GPU)")
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", type=count, default=min(cores, 8), help="videos read at a time (cores, at most 8)")
    parser.add_argument("--shard", default="0/1", help="i/n: take every n-th video, starting with the i-th (0/1)")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; videos that cannot be read are listed at the end, with exit code 1."""
    options = _parser().parse_intermixed_args(arguments)
    with reported("stopped; the same command continues"):
        check_inputs(options.inputs)
        part, batch = shard(options.shard), batch_size(options.batch)
        encoder = encoder_choice(options.encoder, options).load()
        reading = Reading(encoder.size, options.rate, options.fps, options.naming, options.part, batch)
        # All cores together, however many videos are decoded at a time.
        reading = dataclasses.replace(reading, threads=max((os.cpu_count() or 1) // options.workers, 1))
        with progress(options.quiet) as show:
            written, there, failed = extract(
                encoder, options.inputs, options.out, reading, part=part, workers=options.workers, show=show
            )
    shown = f", {len(there)} were there" if there else ""
    print(f"{options.out}: features of {len(written)} video(s), {encoder.width} channels{shown}")
    for place, error in failed.items():
        print(f"error: {place}: {error}", file=sys.stderr)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
