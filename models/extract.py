"""Extract features of videos: ``python -m models.extract ENCODER INPUT... --out FOLDER``.

ENCODER is the folder of a training run, or the name of a backbone with its weights (``--pretrained FILE``). An input is
one of those of `models.predict`. The folder gets, per video, ``<video>.npy`` (n, D) in half precision, which later
stages map into memory, and ``<video>.frames.npy`` (n,), and once ``features.json``, which identifies the encoder. The
same command continues after an interruption. `models.train` reads the folder with ``features=FOLDER``.
"""

import argparse
import dataclasses
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from hmmjax.io import FormatError, write_atomically
from models import weights
from models.backbones import BACKBONES, build
from models.backbones.images import IMAGENET_MEAN, IMAGENET_STD, normalize
from models.commands import count, progress, rate, reported, shard
from models.data.feature_files import FRAMES, INDEX
from models.data.loader import prefetch
from models.data.video_images import RULES
from models.inputs import Clip, Reading, check_inputs, open_clips
from models.settings import config_text, parse_yaml
from models.training.augment import resize
from models.training.recognizer import Recognizer
from models.training.run import read_run

#: The largest number in half precision.
_HALF = float(np.finfo(np.float16).max)


@dataclasses.dataclass(frozen=True)
class Encoder:
    """A network from images to features.

    Attributes:
        name: the run, or the backbone and the weights.
        digest: identifies the weights.
        size: (height, width) to which images are decoded.
        width: length D of the features.
        compute: images (N, H, W, 3) uint8 to features (N, D).
    """

    name: str
    digest: str
    size: tuple[int, int]
    width: int
    compute: Callable[[np.ndarray], np.ndarray]


def encoder_of_run(run: str, size: tuple[int, int] | None = None) -> Encoder:
    """Return the backbone of a training run, at its best checkpoint.

    Raises:
        FormatError: if the folder holds no training run, or one without a backbone.
    """
    config = read_run(run)
    if config.features is not None:
        raise FormatError("the run reads precomputed features and has no backbone", file=run, fix="give another run")
    recognizer = Recognizer(run)
    # The folder may have moved.
    text = config_text(dataclasses.replace(config, run=""))
    digest = hashlib.sha256(f"{recognizer.step} {text}".encode()).hexdigest()[:16]
    return Encoder(str(run), digest, size or config.data.load or config.size, recognizer.width, recognizer.features)


def encoder_of_backbone(
    name: str,
    pretrained: str | None,
    *,
    size: tuple[int, int] = (224, 224),
    options: dict[str, Any] | None = None,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
    dtype: str = "bfloat16",
) -> Encoder:
    """Return a backbone with published weights.

    Args:
        name: a key of `models.backbones.BACKBONES`.
        pretrained: file of weights; None leaves them random, from the seed 0.
        size: (height, width) of the network's input.
        options: of the backbone.
        mean: of RGB in [0, 1], subtracted from images.
        std: of RGB in [0, 1], by which images are divided.
        dtype: in which the network computes.

    Raises:
        ValueError: for an unknown name, and for weights that do not fit.
    """
    network = build(name, rngs=nnx.Rngs(0), **({"dtype": jnp.dtype(dtype)} | (options or {})))
    digest = "random"
    if pretrained is not None:
        weights.load_weights(network, pretrained)
        with open(pretrained, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    network.eval()
    graph, state = nnx.split(network)

    @jax.jit
    def run(state: nnx.State, images: jax.Array) -> jax.Array:
        return nnx.merge(graph, state)(normalize(resize(images, size), mean, std)).pooled.astype(jnp.float32)

    shown = f"{name} {Path(pretrained).name if pretrained else 'random'} {options or ''}".strip()
    return Encoder(shown, digest, size, network.width, lambda images: np.asarray(run(state, images)))


def extract(
    encoder: Encoder,
    inputs: Sequence[str],
    folder: str | Path,
    reading: Reading,
    *,
    part: tuple[int, int] = (0, 1),
    show: Callable[[str, int], None] = lambda video, frames: None,
) -> tuple[list[str], list[str], dict[str, str]]:
    """Write the features of all videos that the folder lacks.

    Args:
        encoder: computes them.
        inputs: videos, folders of images, caches or packed files.
        folder: gets the files.
        reading: settings of reading the inputs.
        part: (i, n) takes every n-th video, starting with the i-th; processes may share a folder.
        show: called with each video's name and its number of frames read so far.

    Returns:
        The videos that were written, those that were there already, and the errors of those that cannot be read.

    Raises:
        FormatError: for inputs that do not exist, and for a folder with features of another encoder or frame rate.
    """
    check_inputs(inputs)
    written, there, failed = [], [], {}
    seen: set[str] = set()
    for place in inputs:
        try:
            for clip in open_clips(place, reading):
                if clip.video in seen:
                    raise FormatError(f"{clip.video} occurs twice", file=place, fix="use another --out for one of them")
                seen.add(clip.video)
                if (len(seen) - 1) % part[1] != part[0]:
                    continue
                _check_index(Path(folder), encoder, reading, clip.fps)
                if (Path(folder) / f"{clip.video}.npy").exists():
                    there.append(clip.video)
                    continue
                _write(clip, encoder, Path(folder), reading.batch, show)
                written.append(clip.video)
        except _OtherFolder:
            raise
        except (FormatError, OSError) as error:
            # One damaged video does not keep the others from being written.
            failed[place] = str(error)
    return written, there, failed


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
    }
    path = folder / INDEX
    if not path.exists():
        with write_atomically(path, force=True) as temporary:
            Path(temporary).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _OtherFolder(f"damaged index ({error})", file=path, fix="choose another --out") from error
    if differ := [key for key in index if key != "encoder" and kept.get(key) != index[key]]:
        raise _OtherFolder(
            f"the folder holds features with other {differ[0]}: {kept.get(differ[0])}, now {index[differ[0]]}",
            file=folder,
            fix="choose another --out",
        )


def _write(clip: Clip, encoder: Encoder, folder: Path, batch: int, show: Callable[[str, int], None]) -> None:
    """Compute the features of one video and write them, in batches; an interruption leaves no file."""

    def stack(piece: list[tuple[int, np.ndarray]]) -> tuple[list[int], np.ndarray]:
        # Every piece is filled up to a full batch, so that a single compiled program suffices.
        images = [image for _, image in piece] + [piece[0][1]] * (batch - len(piece))
        return [number for number, _ in piece], np.stack(images)

    frames: list[int] = []
    with write_atomically(folder / f"{clip.video}.npy", force=True) as temporary:
        with open(temporary, "wb") as file:
            _header(file, (0, encoder.width))
            for numbers, images in prefetch(_pieces(clip.images, batch), stack):
                values = np.clip(encoder.compute(images)[: len(numbers)], -_HALF, _HALF)
                file.write(values.astype(np.float16).tobytes())
                frames += numbers
                show(clip.video, len(frames))
            # NumPy reserves room for the number of rows, so the header keeps its length.
            file.seek(0)
            _header(file, (len(frames), encoder.width))
        if not frames:
            raise FormatError(f"{clip.video} has no frames", fix="check that the file or folder is complete")
        with write_atomically(folder / f"{clip.video}{FRAMES}", force=True) as numbers:
            np.save(numbers, np.array(frames, np.int64))


def _header(file: Any, shape: tuple[int, int]) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": "<f2", "fortran_order": False, "shape": shape})


def _pieces(items: Iterator[tuple[int, np.ndarray]], length: int) -> Iterator[list[tuple[int, np.ndarray]]]:
    piece: list[tuple[int, np.ndarray]] = []
    for item in items:
        piece.append(item)
        if len(piece) == length:
            yield piece
            piece = []
    if piece:
        yield piece


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m models.extract", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("encoder", help=f"folder of a training run, or one of {', '.join(BACKBONES)}")
    parser.add_argument("inputs", nargs="+", help="videos, folders of images of one video, caches or packed .npz")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="gets one file per video")
    parser.add_argument("--pretrained", metavar="FILE", help="weights of a backbone, .pth or .safetensors")
    parser.add_argument("--random", action="store_true", help="allow a backbone without weights, to try things out")
    parser.add_argument("--options", default="{}", metavar="YAML", help="of the backbone, such as '{pool: mean}'")
    parser.add_argument(
        "--size",
        type=count,
        nargs=2,
        metavar=("HEIGHT", "WIDTH"),
        help="of the network's input (a run's own, 224 224 for a backbone)",
    )
    parser.add_argument("--rate", type=rate, default=1.0, help="frames per second to read from a video (1)")
    parser.add_argument("--fps", type=rate, default=25.0, help="frame rate of the video of a folder of images (25)")
    parser.add_argument("--naming", choices=RULES, help="what the numbers in the names of the images in a folder count")
    parser.add_argument("--part", help="part of a cache or a packed file (default: all of it)")
    parser.add_argument("--batch", type=count, default=64, help="frames per call of the network (64)")
    parser.add_argument("--shard", default="0/1", help="i/n: take every n-th video, starting with the i-th (0/1)")
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    return parser


def _encoder(options: argparse.Namespace) -> Encoder:
    size = None if options.size is None else (options.size[0], options.size[1])
    if options.encoder not in BACKBONES:
        if options.pretrained is not None or options.options != "{}":
            raise ValueError(
                f"{options.encoder} is a run, which has its own weights and options. Fix: leave --pretrained and "
                f"--options out, or give one of {', '.join(BACKBONES)}"
            )
        return encoder_of_run(options.encoder, size)
    if options.pretrained is None and not options.random:
        raise ValueError(
            f"{options.encoder} has no weights. Fix: give --pretrained FILE, or --random to try things out"
        )
    settings = parse_yaml(options.options, "--options")
    return encoder_of_backbone(options.encoder, options.pretrained, size=size or (224, 224), options=settings)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; videos that cannot be read are listed at the end, with exit code 1."""
    options = _parser().parse_intermixed_args(arguments)
    with reported("stopped; the same command continues"):
        check_inputs(options.inputs)
        part = shard(options.shard)
        encoder = _encoder(options)
        reading = Reading(encoder.size, options.rate, options.fps, options.naming, options.part, options.batch)
        with progress(options.quiet) as show:
            written, there, failed = extract(encoder, options.inputs, options.out, reading, part=part, show=show)
    shown = f", {len(there)} were there" if there else ""
    print(f"{options.out}: features of {len(written)} video(s), {encoder.width} channels{shown}")
    for place, error in failed.items():
        print(f"error: {place}: {error}", file=sys.stderr)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
