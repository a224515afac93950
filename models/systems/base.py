"""The interface of a system, and its outputs."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import jax
from jax import Array

from models.backbones.base import Backbone, Cells
from models.temporal import Temporal

#: Logits by track, "phases" and "tools": (N, classes) or (B, T, classes), float32.
Logits = dict[str, Array]

#: Named terms of a loss, scalars.
Terms = dict[str, Array]


class Outputs(NamedTuple):
    """The outputs of a composed system.

    Attributes:
        logits: by track, (N, classes) or (B, T, classes), float32.
        inputs: by track, the features that its head reads, without the logits of other heads: (..., width).
    """

    logits: Logits
    inputs: dict[str, Array]


class Criterion(Protocol):
    """The loss of logits against labels, as `models.training.losses.Criterion` computes it."""

    def frames(self, logits: Logits, labels: Mapping[str, Array]) -> tuple[Array, Terms]:
        """Return the loss over all labeled frames, and its terms by track."""
        ...

    def sequences(self, logits: Logits, labels: Mapping[str, Array], mask: Array) -> Terms:
        """Return weighted terms that are defined on sequences (B, T, ...) only; the caller adds them."""
        ...


class System(Protocol):
    """A recognition system: images to logits of phases and tools. Every system is an `nnx.Module`."""

    @property
    def learns_from_boxes(self) -> bool:
        """Whether training needs the true boxes of each image."""
        ...

    @property
    def temporal(self) -> Temporal | None:
        """The model of sequences, or None if each frame is decided alone."""
        ...

    @property
    def width(self) -> int:
        """Length D of a frame's features."""
        ...

    @property
    def cells(self) -> Cells | None:
        """Rows, columns and channels if these features are a flattened map, else None."""
        ...

    @property
    def backbone(self) -> Backbone:
        """The network that computes the features of images."""
        ...

    def train(self, **attributes: Any) -> None:
        """Switch to training mode, see `nnx.Module.train`."""
        ...

    def eval(self, **attributes: Any) -> None:
        """Switch to evaluation mode, see `nnx.Module.eval`."""
        ...

    def __call__(self, images: Array, *, key: Array | None = None) -> Logits:
        """Compute logits from images (N, H, W, 3), or (B, T, H, W, 3) with a temporal model; uint8 or in [0, 1]."""
        ...

    def features(self, images: Array, *, key: Array | None = None) -> Array:
        """Compute features (..., D) of images (..., H, W, 3)."""
        ...

    def decide(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Logits:
        """Compute logits from features (N, D), or (B, T, D) with a temporal model and its mask (B, T)."""
        ...

    def locate(self, images: Array) -> dict[str, Array]:
        """Localize tools in images (N, H, W, 3): boxes with scores and tools, or "maps" of logits.

        Raises:
            TypeError: if the system cannot localize tools.
        """
        ...

    def training_loss(self, batch: Mapping[str, Array], criterion: Criterion, *, key: Array) -> tuple[Array, Terms]:
        """Compute the training loss of a batch, see `models.training.step.Batch`, and its terms by name."""
        ...


def probabilities(logits: Logits) -> dict[str, Array]:
    """Return probabilities of phases (..., L), which sum to one, and of the presence of each tool (..., K)."""
    return {name: jax.nn.softmax(x) if name == "phases" else jax.nn.sigmoid(x) for name, x in logits.items()}
