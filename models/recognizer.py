"""A trained system, read from the folder of its run."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from hmmjax.io import FormatError
from models.backbones.base import Cells
from models.data.loader import prefetch
from models.runs import read_classes, read_run
from models.systems import Answer, probabilities
from models.training.augment import resize
from models.training.checkpoint import Checkpoints
from models.training.system import make_system

T = TypeVar("T")


class Recognizer:
    """A trained system.

    Args:
        run: folder of the run.
        which: checkpoint, "best" or "last".

    Raises:
        FormatError: when the folder holds no run, or a damaged one.
        FileNotFoundError: when the run has no such checkpoint.

    Attributes:
        config: of the run.
        names: of the classes, by track.
        step: updates that the checkpoint had.
        width: length of a frame's features.
        cells: rows, columns and channels of these where they are maps.
        temporal: whether it decides on sequences.
    """

    def __init__(self, run: str | Path, which: str = "best"):
        run = Path(run)
        self.config = read_run(run)
        self.names = read_classes(run)
        # A run on a frozen backbone keeps that backbone's run inside its own.
        self._frozen = Recognizer(run / "frozen") if self.config.frozen is not None else None
        # The weights that training began with may be gone by now, and are not needed.
        sizes = (len(self.names["phases"]), len(self.names["tools"]))
        read = {} if self._frozen is None else {"width": self._frozen.width, "cells": self._frozen.cells}
        system = make_system(self.config, *sizes, pretrained=False, **read)
        checkpoints = Checkpoints(run / "checkpoints", write=False)
        self.step = checkpoints.restore_model(which, system)
        checkpoints.close()
        system.eval()
        self.width: int = system.width
        self.cells: Cells | None = system.cells
        self.temporal = system.temporal is not None
        self._start = system.temporal.start(1) if self.temporal and system.temporal.carries else None
        graph, self._state = nnx.split(system)
        size = self.config.size
        self._run = jax.jit(lambda state, images: self._answer(nnx.merge(graph, state), resize(images, size)))
        self._features = jax.jit(lambda state, images: nnx.merge(graph, state).features(resize(images, size)))
        self._decide = jax.jit(lambda state, *args: probabilities(nnx.merge(graph, state).decide(*args)))

        def go_on(state: nnx.State, features: jax.Array, mask: jax.Array, past: Any) -> tuple[Any, Any]:
            system = nnx.merge(graph, state)
            answer, past = system.run(features, mask, past)
            return self._tell(system, answer), past

        self._go_on = jax.jit(go_on)

    def _answer(self, system: Any, images: jax.Array) -> dict[str, jax.Array]:
        """What is asked of the network about single pictures; compiled."""
        return {name: x.astype(jnp.float32) for name, x in probabilities(system(images)).items()}

    def _tell(self, system: Any, answer: Answer) -> dict[str, jax.Array]:
        """What is asked of a network that goes on from where it was; compiled."""
        return {name: x.astype(jnp.float32) for name, x in probabilities(answer.logits).items()}

    def _finish(self, answer: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What becomes of an answer on its way out."""
        return answer

    def __call__(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Probabilities of pictures (N, H, W, 3) uint8 one by one: phases (N, L), tools (N, K), float32."""
        return self._finish({name: np.asarray(x) for name, x in self._run(self._state, images).items()})

    def features(self, images: np.ndarray) -> np.ndarray:
        """Features (N, width) of pictures (N, H, W, 3) uint8, float32, which temporal models read."""
        if self._frozen is not None:
            return self._frozen.features(images)
        return np.asarray(self._features(self._state, images), np.float32)

    def decide(self, features: np.ndarray) -> dict[str, np.ndarray]:
        """Probabilities (n, classes) of a whole video's features (n, width)."""
        count = len(features)
        if self.temporal:
            # Causal models do not care what comes after: few lengths, few programs.
            return self.decide_all(np.pad(features, ((0, -count % 256), (0, 0)))[None], np.array([count]))[0]
        return {name: np.asarray(x, np.float32) for name, x in self._decide(self._state, features).items()}

    def decide_all(self, features: np.ndarray, lengths: np.ndarray, group: int = 8) -> list[dict[str, np.ndarray]]:
        """Probabilities of several videos by a temporal model.

        Args:
            features: (B, T, width), padded at the end.
            lengths: (B,) frames of each.
            group: videos at once.

        Returns:
            For each video (n, classes) by track.
        """
        found = []
        group = min(group, len(features))
        for start in range(0, len(features), group):
            # The last group is filled up with the first video.
            chosen = np.arange(start, start + group)
            chosen = np.where(chosen < len(features), chosen, 0)
            mask = np.arange(features.shape[1]) < lengths[chosen, None]
            answer = {
                n: np.asarray(x, np.float32) for n, x in self._decide(self._state, features[chosen], mask).items()
            }
            for row, video in enumerate(range(start, min(start + group, len(features)))):
                found.append({name: x[row, : lengths[video]] for name, x in answer.items()})
        return found

    def predict(self, pictures: Iterator[tuple[int, np.ndarray]], batch: int) -> dict[str, np.ndarray]:
        """Probabilities of a whole video.

        Args:
            pictures: (number, (H, W, 3) uint8) in order.
            batch: frames at once.

        Returns:
            Probabilities (n, ...) by track, and the "frames" (n,) that they belong to.

        Raises:
            FormatError: for a video without frames.
        """
        whole = self.temporal or self._frozen is not None
        parts: list[dict[str, np.ndarray]] = []

        def stack(piece: list[tuple[int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
            # Filled up to a whole batch, so that one compiled program serves.
            images = [picture for _, picture in piece] + [piece[0][1]] * (batch - len(piece))
            return np.array([number for number, _ in piece], np.int64), np.stack(images)

        past = self._start
        for numbers, images in prefetch(_pieces(pictures, batch), stack):
            if past is not None:
                # Maps of a whole video would not fit in memory: what they leave behind does.
                there = np.arange(batch)[None] < len(numbers)
                told, past = self._go_on(self._state, self.features(images)[None], there, past)
                answer = self._finish({name: np.asarray(x[0]) for name, x in told.items()})
            else:
                answer = {"features": self.features(images)} if whole else self(images)
            parts.append({"frames": numbers, **{k: x[: len(numbers)] for k, x in answer.items()}})
        if not parts:
            raise FormatError("a video has no frames")
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return {"frames": joined["frames"], **self.decide(joined["features"])} if "features" in joined else joined


def _pieces(items: Iterator[T], length: int) -> Iterator[list[T]]:
    while piece := list(itertools.islice(items, length)):
        yield piece
