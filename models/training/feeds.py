"""What a run learns from and is judged on: frames, clips of neighboring frames, or features of whole videos."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from jax.sharding import Mesh

from models.data.frames import FrameTable, Source, take
from models.data.loader import Arrays, epoch_order, even_batches, prefetch, read_batches
from models.settings import Config
from models.training.step import Program, TrainState, spread

Losses = dict[str, float]


class Feed(Protocol):
    """Where batches come from.

    Attributes:
        per_epoch: updates in a pass.
    """

    per_epoch: int

    def batches(self, epoch: int, done: int) -> Iterator[Arrays]:
        """The batches of one pass after the first `done`, in an order that the seed and the pass decide."""
        ...

    def validate(self, program: Program, state: TrainState) -> tuple[dict[str, np.ndarray], FrameTable, Losses]:
        """Probabilities (n, ...) of the validation frames by track, their truth, and losses."""
        ...


class Frames:
    """Single frames.

    Args:
        config: of the run.
        source: frames to learn from.
        val: frames to judge by.
        mesh: of devices.
    """

    def __init__(self, config: Config, source: Source, val: Source, mesh: Mesh):
        self.config, self.source, self.val, self.mesh = config, source, val, mesh
        self.rows = source.table.rows(config.data.train_part)
        self.per_epoch = len(epoch_order(self.rows, config.batch, 0, 0))

    def batches(self, epoch: int, done: int) -> Iterator[Arrays]:
        """See `Feed`."""
        order = epoch_order(self.rows, self.config.batch, self.config.seed, epoch)[done:]
        return read_batches(self.source, order, workers=self.config.data.workers)

    def validate(self, program: Program, state: TrainState) -> tuple[dict[str, np.ndarray], FrameTable, Losses]:
        """See `Feed`. The frame that fills up the last batch is unlabeled, so that it costs nothing."""
        config, source = self.config, self.val
        rows = source.table.rows(config.data.val_part)
        order = even_batches(rows, config.eval_batch)
        spare = order.size - len(rows)
        predicted: list[dict[str, np.ndarray]] = []
        sums: Losses = {}
        for number, batch in enumerate(read_batches(source, order, workers=config.data.workers), 1):
            used = config.eval_batch - (spare if number == len(order) else 0)
            for name in ("phases", "tools"):
                batch[name] = np.concatenate([batch[name][:used], np.full_like(batch[name][used:], -1)])
            answer, losses = program.evaluate(state, spread(batch, self.mesh))
            predicted.append({name: np.asarray(x)[:used] for name, x in answer.items()})
            for name, value in losses.items():
                sums[name] = sums.get(name, 0.0) + float(value) * used
        joined = {name: np.concatenate([part[name] for part in predicted]) for name in predicted[0]}
        return joined, take(source.table, rows), {name: value / len(rows) for name, value in sums.items()}


def video_rows(table: FrameTable, part: str | None) -> list[np.ndarray]:
    """For each video with a frame in the part, in order of names, all its row numbers in order of time."""
    chosen = np.unique(table.videos[table.rows(part)])
    rows = [np.flatnonzero(table.videos == video) for video in chosen]
    return [mine[np.argsort(table.frames[mine], kind="stable")] for mine in rows]


def labels_of(table: FrameTable, rows: np.ndarray, part: str | None) -> Arrays:
    """Labels at some rows, unknown outside the part and where the row is -1."""
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
        rows: (B, T) row numbers in the source, -1 on padding.
        table: of the source.
        part: outside which labels count as unknown.
        features: row numbers (n,) to features (n, D).
    """

    rows: np.ndarray
    table: FrameTable
    part: str | None
    features: Callable[[np.ndarray], np.ndarray]

    @classmethod
    def of(
        cls, table: FrameTable, part: str | None, features: Callable[[np.ndarray], np.ndarray], step: int = 128
    ) -> "Sequences":
        """The videos that have a frame in the part; lengths are rounded up, so that few programs are compiled."""
        videos = video_rows(table, part)
        length = -(-max(map(len, videos)) // step) * step
        rows = np.stack([np.pad(mine, (0, length - len(mine)), constant_values=-1) for mine in videos])
        return cls(rows, table, part, features)

    def batch(self, videos: np.ndarray) -> Arrays:
        """Features, mask and labels of some videos; a number of -1 gives an empty one."""
        rows = np.where(videos[:, None] >= 0, self.rows[videos], -1)
        found = self.features(np.maximum(rows, 0).reshape(-1))
        found = found.reshape(*rows.shape, found.shape[-1])
        mask = rows >= 0
        features = np.where(mask[..., None], found, 0).astype(np.float32)
        return {"features": features, "mask": mask, **labels_of(self.table, rows, self.part)}


def judge(
    sequences: Sequences, program: Program, state: TrainState, batch: int, mesh: Mesh
) -> tuple[dict[str, np.ndarray], FrameTable, Losses]:
    """Probabilities of the frames of the sequences' part; losses are means over videos."""
    count = len(sequences.rows)
    order = np.pad(np.arange(count), (0, -count % batch), constant_values=-1).reshape(-1, batch)
    predicted: list[dict[str, np.ndarray]] = []
    places: list[np.ndarray] = []
    sums: Losses = {}
    for videos in order:
        arrays = sequences.batch(videos)
        answer, losses = program.decide(state, spread(arrays, mesh))
        rows = np.where(videos[:, None] >= 0, sequences.rows[videos], -1)
        used = (rows >= 0) & (True if sequences.part is None else sequences.table.parts[rows] == sequences.part)
        places.append(rows[used])
        predicted.append({name: np.asarray(x)[used] for name, x in answer.items()})
        for name, value in losses.items():
            sums[name] = sums.get(name, 0.0) + float(value) * int((videos >= 0).sum())
    joined = {name: np.concatenate([part[name] for part in predicted]) for name in predicted[0]}
    table = take(sequences.table, np.concatenate(places))
    return joined, table, {name: value / count for name, value in sums.items()}


class WholeVideos:
    """Features of whole videos, from a frozen backbone.

    Args:
        config: of the run.
        source: frames to learn from.
        val: frames to judge by.
        features: (n, D) of the source's frames, and of `val`'s.
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
        return (self.train.batch(videos) for videos in order)

    def validate(self, program: Program, state: TrainState) -> tuple[dict[str, np.ndarray], FrameTable, Losses]:
        """See `Feed`."""
        return judge(self.val, program, state, self.config.batch, self.mesh)


class Clips:
    """Neighboring frames, each clip a sequence from its own beginning; judged on whole videos.

    Args:
        config: of the run.
        source: frames to learn from.
        val: frames to judge by.
        mesh: of devices.

    Raises:
        ValueError: when no video is as long as a clip.
    """

    def __init__(self, config: Config, source: Source, val: Source, mesh: Mesh):
        self.config, self.source, self.val, self.mesh = config, source, val, mesh
        videos = video_rows(source.table, config.data.train_part)
        windows = [
            np.lib.stride_tricks.sliding_window_view(rows, config.clip) for rows in videos if len(rows) >= config.clip
        ]
        if not windows:
            raise ValueError(f"no video has the {config.clip} frames of a clip. Fix: set clip to fewer")
        self.windows = np.concatenate(windows)
        # A video shorter than a clip is in none, and counts for nothing.
        self.frames = sum(len(rows) for rows in videos if len(rows) >= config.clip)
        self.per_epoch = max(self.frames // (config.clip * config.batch), 1)

    def batches(self, epoch: int, done: int) -> Iterator[Arrays]:
        """See `Feed`. A pass has as many frames as videos of a clip's length have, in clips that begin anywhere."""
        config = self.config
        order = epoch_order(np.arange(len(self.windows)), config.batch, config.seed, epoch)[done : self.per_epoch]
        for chosen in order:
            rows = self.windows[chosen]
            images = np.stack([self.source[row] for row in rows.reshape(-1)])
            images = images.reshape(*rows.shape, *images.shape[1:])
            yield {"images": images, **labels_of(self.source.table, rows, config.data.train_part)}

    def validate(self, program: Program, state: TrainState) -> tuple[dict[str, np.ndarray], FrameTable, Losses]:
        """See `Feed`."""
        size = self.config.eval_batch

        def features(rows: np.ndarray) -> np.ndarray:
            needed, place = np.unique(rows, return_inverse=True)
            chunks = prefetch(
                even_batches(needed, size),
                lambda chunk: spread({"images": np.stack([self.val[row] for row in chunk])}, self.mesh),
            )
            found = [np.asarray(program.features(state, batch["images"]), np.float32) for batch in chunks]
            return np.concatenate(found)[: len(needed)][place]

        val = Sequences.of(self.val.table, self.config.data.val_part, features)
        return judge(val, program, state, self.mesh.size, self.mesh)


def make_feed(config: Config, source: Source, val: Source, features: Any, mesh: Mesh) -> Feed:
    """The feed that a configuration asks for; `features` of source and val where the backbone is frozen."""
    if features is not None:
        return WholeVideos(config, source, val, features, mesh)
    return Clips(config, source, val, mesh) if config.clip > 1 else Frames(config, source, val, mesh)
