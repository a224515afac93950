"""A trained system, restored from the folder of its run, and the features of its backbone kept on disk."""

import hashlib
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from hmmjax.io import FormatError, write_atomically
from models.backbones.base import Backbone, Cells
from models.data.frames import Source
from models.data.loader import even_batches, prefetch
from models.systems import ComposedSystem, Outputs, System, make_system, probabilities
from models.training.augment import resize
from models.training.checkpoint import Checkpoints
from models.training.feeds import video_rows
from models.training.local_devices import LocalDevices
from models.training.processes import in_turn
from models.training.run import read_classes, read_run, read_width

T = TypeVar("T")

#: Number of videos per call of a temporal model.
GROUP = 8


class Recognizer:
    """A trained system that predicts from images or from features, on all devices of this process.

    Args:
        run: folder of the training run.
        which: checkpoint to restore, "best" or "last".

    Raises:
        FormatError: if the folder holds no training run, or a damaged one.
        FileNotFoundError: if the run has no such checkpoint.

    Attributes:
        config: configuration of the run.
        names: class names by track.
        step: number of updates at the checkpoint.
        width: length D of a frame's features.
        cells: rows, columns and channels if these features are a flattened map, else None.
        temporal: whether the system has a temporal model.
    """

    def __init__(self, run: str | Path, which: str = "best"):
        run = Path(run)
        self.config = read_run(run)
        self.names = read_classes(run)
        # A run on a frozen backbone contains a copy of that backbone's run.
        self._frozen = Recognizer(run / "frozen") if self.config.frozen is not None else None
        sizes = (len(self.names["phases"]), len(self.names["tools"]))
        width, cells = (None, None) if self._frozen is None else (self._frozen.width, self._frozen.cells)
        if self.config.features is not None:
            width, cells = read_width(run), None
        # The checkpoint replaces pretrained weights, so their file is not needed any more.
        system = make_system(self.config, *sizes, pretrained=False, width=width, cells=cells)
        checkpoints = Checkpoints(run / "checkpoints", write=False)
        self.step = checkpoints.restore_model(which, system)
        checkpoints.close()
        system.eval()
        self.width: int = system.width
        self.cells: Cells | None = system.cells
        temporal = system.temporal
        self.temporal = temporal is not None
        self._start = temporal.start(1) if temporal is not None and temporal.carries else None
        self._devices = LocalDevices()
        graph, state = nnx.split(system)
        self._graph, self._state = graph, self._devices.copy(state)
        size = self.config.size
        self._run = jax.jit(lambda state, images: self._predict(nnx.merge(graph, state), resize(images, size)))
        self._features = jax.jit(lambda state, images: nnx.merge(graph, state).features(resize(images, size)))
        self._decide = jax.jit(lambda state, *args: probabilities(nnx.merge(graph, state).decide(*args)))

        def advance(state: nnx.State, features: jax.Array, mask: jax.Array, past: Any) -> tuple[Any, Any]:
            system = nnx.merge(graph, state)
            # The others have no temporal model.
            assert isinstance(system, ComposedSystem)
            outputs, past = system.run(features, mask, past)
            return self._select(system, outputs), past

        self._advance = jax.jit(advance)

    def backbone(self) -> Backbone:
        """Return the trained backbone, in evaluation mode."""
        return nnx.merge(self._graph, self._state).backbone

    def _predict(self, system: System, images: jax.Array) -> dict[str, jax.Array]:
        """Compute what is predicted from single images; jitted, overridden by `models.detect.Locator`."""
        return {name: x.astype(jnp.float32) for name, x in probabilities(system(images)).items()}

    def _select(self, system: ComposedSystem, outputs: Outputs) -> dict[str, jax.Array]:
        """Select what is predicted from the outputs of a temporal model with state; jitted."""
        return {name: x.astype(jnp.float32) for name, x in probabilities(outputs.logits).items()}

    def _finish(self, predicted: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Post-process the network's outputs on the host (hook for subclasses)."""
        return predicted

    def __call__(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Predict each image (N, H, W, 3) uint8 alone: probabilities of phases (N, L) and tools (N, K), float32."""
        found = self._run(self._state, self._devices.divide(images))
        return self._finish({name: np.asarray(x) for name, x in found.items()})

    def features(self, images: np.ndarray) -> np.ndarray:
        """Compute features (N, width), the input of temporal models, of images (N, H, W, 3) uint8; float32."""
        if self._frozen is not None:
            return self._frozen.features(images)
        return np.asarray(self._features(self._state, self._devices.divide(images)), np.float32)

    def decide(self, features: np.ndarray) -> dict[str, np.ndarray]:
        """Predict probabilities (n, classes) by track from the features (n, width) of a whole video."""
        count = len(features)
        if self.temporal:
            # Padding is masked; few lengths mean few compiled programs.
            return self.decide_all(np.pad(features, ((0, -count % 256), (0, 0)))[None], np.array([count]))[0]
        found = self._decide(self._state, self._devices.divide(features))
        return {name: np.asarray(x, np.float32) for name, x in found.items()}

    def decide_all(self, features: np.ndarray, lengths: np.ndarray, group: int = GROUP) -> list[dict[str, np.ndarray]]:
        """Predict several videos with a temporal model.

        Args:
            features: (B, T, width), padded at the end.
            lengths: (B,) frames of each video.
            group: number of videos per call of the network.

        Returns:
            For each video, probabilities (n, classes) by track.
        """
        found = []
        group = min(group, len(features))
        for start in range(0, len(features), group):
            # The first video fills up the last group.
            chosen = np.arange(start, start + group)
            chosen = np.where(chosen < len(features), chosen, 0)
            mask = np.arange(features.shape[1]) < lengths[chosen, None]
            divided = (self._devices.divide(x) for x in (features[chosen], mask))
            predicted = {n: np.asarray(x, np.float32) for n, x in self._decide(self._state, *divided).items()}
            for row, video in enumerate(range(start, min(start + group, len(features)))):
                found.append({name: x[row, : lengths[video]] for name, x in predicted.items()})
        return found

    def predict(self, images: Iterator[tuple[int, np.ndarray]], batch: int) -> dict[str, np.ndarray]:
        """Predict a whole video.

        Args:
            images: (frame number, (H, W, 3) uint8) in order of time.
            batch: number of frames per call of the network.

        Returns:
            Probabilities (n, classes) by track, and their frame numbers as "frames" (n,).

        Raises:
            FormatError: for a video without frames.
        """
        from_features = self.temporal or self._frozen is not None
        parts: list[dict[str, np.ndarray]] = []

        def stack(piece: list[tuple[int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
            # Every piece is filled up to a full batch, so that a single compiled program suffices.
            filled = [image for _, image in piece] + [piece[0][1]] * (batch - len(piece))
            return np.array([number for number, _ in piece], np.int64), np.stack(filled)

        past = self._start
        for numbers, stacked in prefetch(_pieces(images, batch), stack):
            if past is not None:
                # The maps of a whole video would not fit in memory; the state of the temporal model does.
                valid = np.arange(batch)[None] < len(numbers)
                outputs, past = self._advance(self._state, self.features(stacked)[None], valid, past)
                predicted = self._finish({name: np.asarray(x[0]) for name, x in outputs.items()})
            else:
                predicted = {"features": self.features(stacked)} if from_features else self(stacked)
            parts.append({"frames": numbers, **{k: x[: len(numbers)] for k, x in predicted.items()}})
        if not parts:
            raise FormatError("the video has no frames", fix="check that the file or folder is complete")
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return {"frames": joined["frames"], **self.decide(joined["features"])} if "features" in joined else joined


def _pieces(items: Iterator[T], length: int) -> Iterator[list[T]]:
    while piece := list(itertools.islice(items, length)):
        yield piece


#: The largest number in half precision.
_HALF = float(np.finfo(np.float16).max)


def cached_features(run: str | Path, source: Source, *, batch: int = 256) -> np.ndarray:
    """Compute the features of all frames of a source, or read them from ``<run>/features`` if computed before.

    They are kept in half precision, which is finer than the noise of a network that computes in bfloat16, and their
    size is announced before they are written: maps of long videos are large.

    Args:
        run: of the system whose backbone, at its best checkpoint, computes them.
        source: the frames.
        batch: number of frames per call of the network.

    Returns:
        (n, D) float16, memory-mapped from the file.
    """
    recognizer = Recognizer(run)
    # The key identifies the weights and the frames. Videos begin and end in black, so images in between are hashed too.
    table = source.table
    some = np.unique(np.linspace(0, len(source) - 1, 64).astype(int))
    digest = hashlib.sha256(f"half {recognizer.step} {table.fps} {source[0].shape}".encode())
    for x in (table.videos.astype(np.str_), table.frames, *(source[int(row)] for row in some)):
        digest.update(np.ascontiguousarray(x).tobytes())
    path = Path(run) / "features" / f"{digest.hexdigest()[:16]}.npy"
    in_turn(lambda: path.exists() or _write_features(path, recognizer, source, batch))
    return np.load(path, mmap_mode="r")


def _write_features(path: Path, recognizer: Recognizer, source: Source, batch: int) -> None:
    """Compute the features of all frames of a source and write them."""
    size = 2 * len(source) * recognizer.width
    print(f"{path}: writing features of {len(source):,} frames, {size / 1e9:.3g} GB", file=sys.stderr, flush=True)
    with write_atomically(path, force=True) as temporary:
        features = np.lib.format.open_memmap(temporary, "w+", np.float16, (len(source), recognizer.width))
        rows = even_batches(np.arange(len(source)), batch)
        for chunk, images in prefetch(rows, lambda chunk: (chunk, np.stack([source[row] for row in chunk]))):
            # The first row fills up the last chunk; it is computed again, with the same result.
            features[chunk] = np.clip(recognizer.features(images), -_HALF, _HALF)
        features.flush()


def predict_cached(
    run: str | Path, source: Source, parts: Sequence[str | None], tracks: Sequence[str]
) -> dict[str, dict[str, np.ndarray]]:
    """Predict the videos of some parts of a source.

    A system that decides each frame alone predicts from the images. One on a frozen backbone, or with a temporal model,
    reads features that are kept on disk.

    Args:
        run: folder of the training run.
        source: the frames; for a run on precomputed features, `models.data.features.FeatureRows`.
        parts: of the source; all frames of every video with a frame in one of them are predicted.
        tracks: the tracks to return.

    Returns:
        By video, track to probabilities (n, classes), and "frames" (n,).
    """
    recognizer, table = Recognizer(run), source.table
    videos = [rows for part in parts for rows in video_rows(table, part)]
    batch = recognizer.config.eval_batch
    if recognizer.config.features is not None:
        predicted = _predict_features(recognizer, source, videos)
    elif recognizer.temporal or recognizer.config.frozen is not None:
        # The features of a frozen backbone are in the folder of its own run, which its training has filled.
        features = cached_features(recognizer.config.frozen or run, source, batch=batch)
        predicted = _predict_features(recognizer, features, videos)
    else:
        predicted = _predict_images(recognizer, source, videos, batch)
    return {
        str(table.videos[rows[0]]): {"frames": table.frames[rows], **{t: arrays[t] for t in tracks}}
        for rows, arrays in zip(videos, predicted, strict=True)
    }


def _predict_images(
    recognizer: Recognizer, source: Source, videos: list[np.ndarray], batch: int
) -> list[dict[str, np.ndarray]]:
    """Predict all frames of some videos, each frame alone; batches may hold frames of two videos."""
    rows = np.concatenate(videos)
    order = even_batches(rows, batch)
    parts = [recognizer(images) for images in prefetch(order, lambda chunk: np.stack([source[row] for row in chunk]))]
    joined = {name: np.concatenate([part[name] for part in parts])[: len(rows)] for name in parts[0]}
    ends = np.cumsum(list(map(len, videos)))[:-1]
    split = {name: np.split(x, ends) for name, x in joined.items()}
    return [{name: x[number] for name, x in split.items()} for number in range(len(videos))]


def _predict_features(recognizer: Recognizer, features: Any, videos: list[np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Predict some videos from the features (n, D) of all frames, a few videos at a time: maps are large."""
    if not recognizer.temporal:
        return [recognizer.decide(np.asarray(features[rows], np.float32)) for rows in videos]
    length = -(-max(map(len, videos)) // 256) * 256
    found: list[dict[str, np.ndarray]] = []
    group = min(GROUP, len(videos))
    for start in range(0, len(videos), group):
        chosen = videos[start : start + group]
        padded = np.zeros((group, length, features.shape[1]), np.float32)
        for number, rows in enumerate(chosen):
            padded[number, : len(rows)] = features[rows]
        lengths = np.array([*map(len, chosen), *[0] * (group - len(chosen))])
        found += recognizer.decide_all(padded, lengths, group)[: len(chosen)]
    return found
