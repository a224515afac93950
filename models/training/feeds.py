"""Training and validation data: single frames, clips of neighboring frames, or features of whole videos."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from jax.sharding import Mesh

from hmmjax.metrics import average_precision
from models.data.frames import FrameTable, Source, take
from models.data.loader import Arrays, epoch_order, even_batches, prefetch, read_batches
from models.settings import Config
from models.training.processes import own_rows
from models.training.step import Program, TrainState, spread

Losses = dict[str, float]
Predictions = dict[str, np.ndarray]


class Feed(Protocol):
    """A source of training batches and of validation.

    Attributes:
        per_epoch: updates per epoch.
    """

    per_epoch: int

    def batches(self, epoch: int, done: int) -> Iterator[Arrays]:
        """Yield this process's rows of the batches of one epoch after the first `done`.

        Their order depends on seed and epoch only.
        """
        ...

    def validate(self, program: Program, state: TrainState) -> tuple[Predictions, FrameTable, Losses]:
        """Return probabilities (n, ...) of the validation frames by track, their table of labels, and mean losses."""
        ...


class Frames:
    """Single frames; implements `Feed`.

    Args:
        config: of the run.
        source: training frames.
        val: validation frames.
        mesh: of devices.
    """

    def __init__(self, config: Config, source: Source, val: Source, mesh: Mesh):
        self.config, self.source, self.val, self.mesh = config, source, val, mesh
        self.rows = source.table.rows(config.data.train_part)
        self.per_epoch = len(epoch_order(self.rows, config.batch, 0, 0))

    def batches(self, epoch: int, done: int) -> Iterator[Arrays]:
        """See `Feed`."""
        order = epoch_order(self.rows, self.config.batch, self.config.seed, epoch)[done:]
        return read_batches(self.source, own_rows(order), workers=self.config.data.workers)

    def validate(self, program: Program, state: TrainState) -> tuple[Predictions, FrameTable, Losses]:
        """See `Feed`."""
        config, source = self.config, self.val
        rows = source.table.rows(config.data.val_part)
        order = even_batches(rows, config.eval_batch)
        spare = order.size - len(rows)
        predicted: list[Predictions] = []
        sums: Losses = {}
        places = own_rows(np.arange(config.eval_batch))
        for number, batch in enumerate(read_batches(source, own_rows(order), workers=config.data.workers), 1):
            used = config.eval_batch - (spare if number == len(order) else 0)
            # The frame that fills up the last batch loses its labels, so it does not contribute to the loss.
            for name in ("phases", "tools"):
                batch[name] = np.concatenate(
                    [batch[name][places < used], np.full_like(batch[name][places >= used], -1)]
                )
            outputs, losses = program.evaluate(state, spread(batch, self.mesh))
            predicted.append({name: np.asarray(x)[:used] for name, x in outputs.items()})
            for name, value in losses.items():
                sums[name] = sums.get(name, 0.0) + float(value) * used
        joined = {name: np.concatenate([part[name] for part in predicted]) for name in predicted[0]}
        return joined, take(source.table, rows), {name: value / len(rows) for name, value in sums.items()}


def video_rows(table: FrameTable, part: str | None) -> list[np.ndarray]:
    """Return, for each video with a frame in a part, sorted by name, the row numbers of all its frames by time."""
    chosen = np.unique(table.videos[table.rows(part)])
    rows = [np.flatnonzero(table.videos == video) for video in chosen]
    return [mine[np.argsort(table.frames[mine], kind="stable")] for mine in rows]


def labels_of(table: FrameTable, rows: np.ndarray, part: str | None) -> Arrays:
    """Return the labels of some rows, unknown (-1) outside the part and for rows of -1; and their weights, if any."""
    known = (rows >= 0) & (True if part is None else table.parts[rows] == part)
    labels = {
        "phases": np.where(known, table.phases[rows], -1),
        "tools": np.where(known[..., None], table.tools[rows], -1),
    }
    weights = {name: getattr(table, name) for name in ("phase_weights", "tool_weights")}
    return labels | {name: x[rows] for name, x in weights.items() if x is not None}


@dataclasses.dataclass(frozen=True, eq=False)
class Sequences:
    """Whole videos, padded to one length.

    Attributes:
        rows: (B, T) row numbers in the table, -1 for padding.
        table: labels of all frames.
        part: the part whose labels are used; labels outside it count as unknown.
        features: function from row numbers (n,) to features (n, D).
    """

    rows: np.ndarray
    table: FrameTable
    part: str | None
    features: Callable[[np.ndarray], np.ndarray]

    @classmethod
    def of(
        cls, table: FrameTable, part: str | None, features: Callable[[np.ndarray], np.ndarray], step: int = 128
    ) -> "Sequences":
        """Build from the videos with a frame in the part; their length is rounded up so that few programs compile."""
        videos = video_rows(table, part)
        length = -(-max(map(len, videos)) // step) * step
        rows = np.stack([np.pad(mine, (0, length - len(mine)), constant_values=-1) for mine in videos])
        return cls(rows, table, part, features)

    def batch(self, videos: np.ndarray) -> Arrays:
        """Return features, mask and labels of some videos; -1 gives a video of padding."""
        rows = np.where(videos[:, None] >= 0, self.rows[videos], -1)
        # Padding takes the features of a frame of the part, because others may have none.
        found = self.features(np.where(rows >= 0, rows, self.rows[0, 0]).reshape(-1))
        found = found.reshape(*rows.shape, found.shape[-1])
        mask = rows >= 0
        features = np.where(mask[..., None], found, 0).astype(np.float32)
        return {"features": features, "mask": mask, **labels_of(self.table, rows, self.part)}


def validate_sequences(
    sequences: Sequences, program: Program, state: TrainState, batch: int, mesh: Mesh
) -> tuple[Predictions, FrameTable, Losses]:
    """Predict whole videos; return the frames of the sequences' part as `Feed.validate`, with losses per video."""
    count = len(sequences.rows)
    order = np.pad(np.arange(count), (0, -count % batch), constant_values=-1).reshape(-1, batch)
    predicted: list[Predictions] = []
    places: list[np.ndarray] = []
    sums: Losses = {}
    for videos in order:
        arrays = sequences.batch(own_rows(videos))
        outputs, losses = program.decide(state, spread(arrays, mesh))
        rows = np.where(videos[:, None] >= 0, sequences.rows[videos], -1)
        used = (rows >= 0) & (True if sequences.part is None else sequences.table.parts[rows] == sequences.part)
        places.append(rows[used])
        predicted.append({name: np.asarray(x)[used] for name, x in outputs.items()})
        for name, value in losses.items():
            sums[name] = sums.get(name, 0.0) + float(value) * int((videos >= 0).sum())
    joined = {name: np.concatenate([part[name] for part in predicted]) for name in predicted[0]}
    table = take(sequences.table, np.concatenate(places))
    return joined, table, {name: value / count for name, value in sums.items()}


class WholeVideos:
    """Features of whole videos from a frozen backbone; implements `Feed`.

    Args:
        config: of the run.
        source: training frames.
        val: validation frames.
        features: (n, D) of the training frames, and of the validation frames.
        mesh: of devices.
    """

    def __init__(
        self, config: Config, source: Source, val: Source, features: tuple[np.ndarray, np.ndarray], mesh: Mesh
    ):
        self.config, self.mesh = config, mesh
        self.train = Sequences.of(source.table, config.data.train_part, features[0].__getitem__)
        self.val = Sequences.of(val.table, config.data.val_part, features[1].__getitem__)
        self.videos = np.arange(len(self.train.rows))
        self.per_epoch = len(epoch_order(self.videos, config.batch, 0, 0))

    def batches(self, epoch: int, done: int) -> Iterator[Arrays]:
        """See `Feed`."""
        order = epoch_order(self.videos, self.config.batch, self.config.seed, epoch)[done:]
        return (self.train.batch(videos) for videos in own_rows(order))

    def validate(self, program: Program, state: TrainState) -> tuple[Predictions, FrameTable, Losses]:
        """See `Feed`."""
        return validate_sequences(self.val, program, state, self.config.batch, self.mesh)


class Clips:
    """Clips of neighboring frames, each a sequence of its own, validated on whole videos; implements `Feed`.

    Args:
        config: of the run.
        source: training frames.
        val: validation frames.
        mesh: of devices.

    Raises:
        ValueError: if no video is as long as a clip.
    """

    def __init__(self, config: Config, source: Source, val: Source, mesh: Mesh):
        self.config, self.source, self.val, self.mesh = config, source, val, mesh
        videos = video_rows(source.table, config.data.train_part)
        windows = [
            np.lib.stride_tricks.sliding_window_view(rows, config.clip) for rows in videos if len(rows) >= config.clip
        ]
        if not windows:
            raise ValueError(
                f"no video has the {config.clip} frames of a clip: the longest has {max(map(len, videos))}. Fix: set a "
                "smaller clip"
            )
        self.windows = np.concatenate(windows)
        # A video shorter than a clip is in no clip, so its frames do not count.
        self.frames = sum(len(rows) for rows in videos if len(rows) >= config.clip)
        self.per_epoch = max(self.frames // (config.clip * config.batch), 1)

    def batches(self, epoch: int, done: int) -> Iterator[Arrays]:
        """See `Feed`. An epoch has the number of frames of all videos with a clip, in clips that start anywhere."""
        config = self.config
        order = epoch_order(np.arange(len(self.windows)), config.batch, config.seed, epoch)[done : self.per_epoch]
        for chosen in order:
            rows = self.windows[own_rows(chosen)]
            images = np.stack([self.source[row] for row in rows.reshape(-1)])
            images = images.reshape(*rows.shape, *images.shape[1:])
            yield {"images": images, **labels_of(self.source.table, rows, config.data.train_part)}

    def validate(self, program: Program, state: TrainState) -> tuple[Predictions, FrameTable, Losses]:
        """See `Feed`."""
        size = self.config.eval_batch

        def features(rows: np.ndarray) -> np.ndarray:
            needed, place = np.unique(rows, return_inverse=True)
            chunks = prefetch(
                even_batches(needed, size),
                lambda chunk: spread({"images": np.stack([self.val[row] for row in own_rows(chunk)])}, self.mesh),
            )
            found = [np.asarray(program.features(state, batch["images"]), np.float32) for batch in chunks]
            return np.concatenate(found)[: len(needed)][place]

        val = Sequences.of(self.val.table, self.config.data.val_part, features)
        return validate_sequences(val, program, state, self.mesh.size, self.mesh)


def make_feed(config: Config, source: Source, val: Source, features: Any, mesh: Mesh) -> Feed:
    """Return the feed of a configuration; `features` of source and val are given if the backbone is frozen."""
    if features is not None:
        return WholeVideos(config, source, val, features, mesh)
    return Clips(config, source, val, mesh) if config.clip > 1 else Frames(config, source, val, mesh)


def score(predicted: Predictions, table: FrameTable) -> dict[str, float]:
    """Compute the metrics of a validation.

    Args:
        predicted: probabilities of "phases" (n, L), of "tools" (n, K), or of both.
        table: labels of the same n frames.

    Returns:
        Metrics by name: "mAP" and "AP/<tool>" (scikit-learn's steps, frames pooled), "accuracy" of phases (frames
        pooled), and "score", the mean of mAP and accuracy as far as they are defined, else NaN.
    """
    metrics: dict[str, float] = {}
    if "tools" in predicted and (table.tools >= 0).any():
        found = average_precision(table.tools, predicted["tools"].astype(np.float64), names=table.tool_names)
        metrics["mAP"] = found.value
        metrics |= {f"AP/{name}": value for name, value in zip(found.class_names, found.per_class, strict=True)}
    known = table.phases >= 0
    if "phases" in predicted and known.any():
        metrics["accuracy"] = float((predicted["phases"].argmax(1) == table.phases)[known].mean())
    parts = [metrics[name] for name in ("mAP", "accuracy") if math.isfinite(metrics.get(name, math.nan))]
    metrics["score"] = float(np.mean(parts)) if parts else math.nan
    return metrics
