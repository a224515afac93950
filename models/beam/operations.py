"""What is done to each video of a collection: stabilize its predictions, predict it, or extract its features.

An operation is a small frozen object that travels to the workers. Each worker loads what it needs once (`load`).
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

import hmmjax
from hmmjax import io
from hmmjax import stabilize as job
from hmmjax.io import FormatError, Track
from models.beam.entries import Entry
from models.digests import file_digest, run_digest
from models.encoder_choice import EncoderChoice


class Done(NamedTuple):
    """What was done to a video.

    Attributes:
        frames: number of frames.
        notices: messages for the user.
    """

    frames: int
    notices: tuple[str, ...] = ()


#: Writes the files of one video, whose inputs are local, to a folder.
Apply = Callable[[Entry, Path], Done]


#: Of the files of a folder that are videos.
VIDEO_SUFFIXES = (".mp4", ".avi", ".mkv", ".mov", ".webm")


class Operation(Protocol):
    """What is done to each video."""

    @property
    def name(self) -> str:
        """A word, for messages."""
        ...

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Of the files of a folder that are inputs."""
        ...

    @property
    def shared(self) -> tuple[str, ...]:
        """Names of files that all videos write alike."""
        ...

    def fingerprint(self) -> str:
        """Return a digest of everything but the inputs on which the results depend; raise if a file is missing."""
        ...

    def load(self) -> Apply:
        """Return the function that processes a video."""
        ...


@dataclasses.dataclass(frozen=True)
class Stabilize:
    """Stabilize predictions with a learned model.

    Attributes:
        model: file of the model (model.npz of `hmmjax stabilize`).
        online_model: that of the filter (model_online.npz); None is `model` without its powers.
        kind: of the scores: "labels", "probabilities" or "logits"; None recognizes them.
        phase_names: as `hmmjax.io.read` takes them; None takes those of the model.
        tool_names: as `hmmjax.io.read` takes them; None takes those of the model.
        fps: frame numbers per second; None is as `hmmjax.io.read` takes it.
        first_index: index of the first phase class in files with indices.
        row_step: frames from one row to the next in files without frame numbers.
        threshold: probability at or above which a tool is present.
    """

    model: str
    online_model: str | None = None
    kind: str | None = None
    phase_names: str | None = None
    tool_names: str | None = None
    fps: float | None = None
    first_index: int = 0
    row_step: int = 25
    threshold: float = 0.5
    name: str = dataclasses.field(default="stabilize", init=False)
    suffixes: tuple[str, ...] = dataclasses.field(
        default=(".npz", ".txt", ".csv", ".tsv", ".npy", ".pkl", ".json"), init=False
    )
    shared: tuple[str, ...] = dataclasses.field(default=(), init=False)

    def fingerprint(self) -> str:
        """Return a digest of the models and settings."""
        files = {name: file_digest(path) for name in ("model", "online_model") if (path := getattr(self, name))}
        return _digest(self, **files)

    def load(self) -> Apply:
        """Load the models."""
        model = io.load_params(self.model)
        online = io.load_params(self.online_model) if self.online_model else None
        settings = job.Settings(threshold=self.threshold)

        def apply(entry: Entry, folder: Path) -> Done:
            tracks = self._read(entry, model)
            result = job.stabilize(tracks, settings=settings, model=model, online_model=online)
            job.write_stabilized(result, folder / f"{entry.video}.npz")
            return Done(len(result.frames[0]), result.notices)

        return apply

    def _read(self, entry: Entry, model: io.ModelFile) -> list[Track]:
        options = {
            "kind": self.kind,
            "phase_names": self.phase_names or model.phase_names,
            "tool_names": self.tool_names or model.tool_names,
            "fps": self.fps,
            "first_index": self.first_index,
            "step": self.row_step,
        }
        tracks = [t for what, path in entry.paths for t in io.read(path, track=what, **options)]
        if len(videos := {track.video for track in tracks}) > 1:
            tracks = [track for track in tracks if track.video == entry.video]
            if not tracks:
                raise FormatError(
                    f"{entry.video} is not among the {len(videos)} videos of its file",
                    file=entry.paths[0][1],
                    fix="list each video under the name that it has in the file",
                )
        return [dataclasses.replace(track, video=entry.video) for track in tracks]


@dataclasses.dataclass(frozen=True)
class Predict:
    """Predict phases and tools with a trained network, as `models.predict` does.

    Attributes:
        run: folder of the training run.
        checkpoint: "best" or "last".
        rate: frames per second to read.
        batch: frames per call of the network; None is 64 for each GPU of the worker.
        threads: number of threads that decode a video; 0 for one per core.
    """

    run: str
    checkpoint: str = "best"
    rate: float = 1.0
    batch: int | None = None
    threads: int = 0
    name: str = dataclasses.field(default="predict", init=False)
    suffixes: tuple[str, ...] = dataclasses.field(default=VIDEO_SUFFIXES, init=False)
    shared: tuple[str, ...] = dataclasses.field(default=(), init=False)

    def fingerprint(self) -> str:
        """Return a digest of the network and settings."""
        return _digest(self, run=run_digest(self.run, self.checkpoint))

    def load(self) -> Apply:
        """Load the network."""
        from models import inputs, predict
        from models.training.local_devices import batch_size
        from models.training.recognizer import Recognizer
        from models.training.run import read_run

        config = read_run(self.run)
        recognizer = Recognizer(self.run, self.checkpoint)
        height, width = config.data.load or config.size
        features = config.features is not None
        channels_first = features and config.data.channels_first
        rate = config.data.rate if features else self.rate
        own = {"features": features, "channels_first": channels_first, "threads": self.threads}
        reading = inputs.Reading((height, width), rate, batch=batch_size(self.batch), **own)

        def apply(entry: Entry, folder: Path) -> Done:
            found = predict.collect(recognizer, [_only(entry)], reading, lambda video, frames: None)
            arrays = predict.complete(found, recognizer, self.run)
            frames = [name for name in arrays if name.startswith("frames_")]
            if len(frames) != 1:
                raise FormatError(f"holds {len(frames)} videos", file=_only(entry), fix="give one file per video")
            io.save_npz(folder / f"{entry.video}.npz", _renamed(arrays, frames[0], entry.video))
            return Done(len(arrays[frames[0]]))

        return apply


@dataclasses.dataclass(frozen=True)
class Extract:
    """Extract features with an encoder, as `models.extract` does.

    Attributes:
        encoder: a training run, or a backbone with its weights.
        rate: frames per second to read.
        batch: frames per call of the network; None is 64 for each GPU of the worker.
        threads: number of threads that decode a video; 0 for one per core.
    """

    encoder: EncoderChoice
    rate: float = 1.0
    batch: int | None = None
    threads: int = 0
    name: str = dataclasses.field(default="extract", init=False)
    suffixes: tuple[str, ...] = dataclasses.field(default=VIDEO_SUFFIXES, init=False)
    shared: tuple[str, ...] = dataclasses.field(default=("features.json",), init=False)

    def fingerprint(self) -> str:
        """Return a digest of the weights and settings."""
        return _digest(self, **self.encoder.digests())

    def load(self) -> Apply:
        """Load the encoder."""
        from models import extract, inputs
        from models.training.local_devices import batch_size

        encoder = self.encoder.load()
        reading = inputs.Reading(encoder.size, self.rate, batch=batch_size(self.batch), threads=self.threads)

        def apply(entry: Entry, folder: Path) -> Done:
            written, _, failed = extract.extract(encoder, [_only(entry)], folder, reading)
            if failed or len(written) != 1:
                raise FormatError("; ".join(failed.values()) or f"holds {len(written)} videos, not one")
            for suffix in (".npy", ".frames.npy"):
                (folder / f"{written[0]}{suffix}").rename(folder / f"{entry.video}{suffix}")
            return Done(len(np.load(folder / f"{entry.video}.frames.npy")))

        return apply


def _only(entry: Entry) -> str:
    """Return the file of an entry that must have one."""
    if len(entry.paths) != 1:
        listed = ", ".join(path for _, path in entry.paths)
        raise FormatError(f"{entry.video} has {len(entry.paths)} files: {listed}", fix="give one file per video")
    return entry.paths[0][1]


def _renamed(arrays: dict[str, np.ndarray], frames: str, video: str) -> dict[str, np.ndarray]:
    """Return the arrays of one video under another name of the video."""
    old, new = frames.removeprefix("frames"), f"_{io.array_suffix(video)}"
    return {key.removesuffix(old) + new if key.endswith(old) else key: array for key, array in arrays.items()}


def _digest(operation: Any, **files: str) -> str:
    """Return a digest of an operation's settings, of its files by content, and of the library's version."""
    settings = {
        k: v for k, v in dataclasses.asdict(operation).items() if k not in ("suffixes", "shared", "batch", "threads")
    }
    told = {**settings, **files, "version": hmmjax.__version__}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
