"""Seeds that train together as lanes of one program (`models.experiment.lanes`): their videos, and the choices."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from models.data.frames import FrameTable
from models.data.loader import Arrays
from models.settings import Config
from models.stabilize import Predictions
from models.training.feeds import Sequences


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """One seed: settings, frames with the parts "train", "val" and "test", and their features.

    Attributes:
        config: settings; those of all runs differ in seed and places alone.
        table: labels of n frames.
        features: (n, D) of a frozen backbone.
    """

    config: Config
    table: FrameTable
    features: np.ndarray

    def sequences(self, part: str) -> Sequences:
        """Return the whole videos of a part."""
        return Sequences.of(self.table, part, self.features.__getitem__)


@dataclasses.dataclass(frozen=True, eq=False)
class Chosen:
    """What the validation videos chose for a seed.

    Attributes:
        predicted: of all frames of the validation and test videos, probabilities by track.
        updates: number of updates of the chosen network.
        rate: factor of the learning rate.
        score: in validation, the mean of mAP and phase accuracy.
        history: by rate, score after each number of updates.
    """

    predicted: Predictions
    updates: int
    rate: float
    score: float
    history: dict[str, list[list[float]]]

    def record(self) -> dict[str, Any]:
        """Return the choice and its reasons, without the predictions."""
        return {k: getattr(self, k) for k in ("updates", "rate", "score", "history")}


def whole_videos(each: Sequence[Sequences]) -> list[Arrays]:
    """Return all videos of sequences, padded to one length; padding has no labels."""
    length = max(sequences.rows.shape[1] for sequences in each)
    fill = {"phases": -1, "tools": -1}

    def pad(name: str, x: np.ndarray) -> np.ndarray:
        spare = [(0, 0), (0, length - x.shape[1]), *((0, 0),) * (x.ndim - 2)]
        return np.pad(x, spare, constant_values=fill.get(name, 0))

    batches = (sequences.batch(np.arange(len(sequences.rows))) for sequences in each)
    return [{name: pad(name, x) for name, x in batch.items()} for batch in batches]


def stack(each: Sequence[Arrays]) -> Arrays:
    """Stack the arrays of several seeds by name."""
    return {name: np.stack([x[name] for x in each]) for name in each[0]}


def by_video(table: FrameTable, rows: np.ndarray, outputs: dict[str, np.ndarray], lane: int) -> Predictions:
    """Return the outputs (rates, n, ...) of one lane by video, from the row numbers (B, T) of its frames."""
    found, start = {}, 0
    for mine in rows:
        mine = mine[mine >= 0]
        span = slice(start, start + len(mine))
        found[str(table.videos[mine[0]])] = {
            "frames": table.frames[mine],
            **{name: x[lane, span] for name, x in outputs.items()},
        }
        start += len(mine)
    return found


def check_runs(runs: Sequence[Run]) -> None:
    """Raise ValueError for runs that lanes cannot train."""
    config = runs[0].config
    for name, value, plain in (
        ("clip", config.clip, 1),
        ("accumulate", config.accumulate, 1),
        ("loss.hmm", config.loss.hmm, 0),
    ):
        if value != plain:
            raise ValueError(f"{name}={value} cannot be combined with rates. Fix: leave {name} or rates out")
    for part in ("train", "val", "test"):
        counts = {len(run.sequences(part).rows) for run in runs}
        if len(counts) > 1:
            raise ValueError(
                f"the seeds have {' and '.join(map(str, sorted(counts)))} videos in {part}: seeds that train together "
                "need equally many. Fix: leave rates out"
            )
