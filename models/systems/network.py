"""Systems composed of a backbone, optionally a temporal model, and heads."""

from collections.abc import Mapping
from typing import Any

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from models.backbones import Backbone
from models.backbones.images import IMAGENET_MEAN, IMAGENET_STD, normalize
from models.backbones.layers import fold
from models.backbones.maps import MapHead
from models.systems.base import Criterion, Logits, Outputs, Terms
from models.systems.specs import HeadSpec
from models.temporal import Temporal

# Layers derive their keys by folding small numbers into the call's key; these offsets keep the keys apart.
_TEMPORAL_KEY, _PENALTY_KEY = 1_000_000, 2_000_000


def temporal_key(key: Array | None) -> Array | None:
    """Return the key of a system's temporal model, or None without a key."""
    return fold(key, _TEMPORAL_KEY)


class Head(nnx.Module):
    """A hidden ReLU layer followed by a layer of logits."""

    def __init__(self, inputs: int, hidden: int, classes: int, *, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(inputs, hidden, kernel_init=nnx.initializers.xavier_uniform(), rngs=rngs)
        self.out = nnx.Linear(hidden, classes, kernel_init=nnx.initializers.xavier_uniform(), rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Compute logits (..., classes) from features (..., inputs)."""
        return self.out(jax.nn.relu(self.hidden(x)))


class ComposedSystem(nnx.Module):
    """A backbone, optionally a temporal model, and heads; implements `models.systems.System`.

    Args:
        backbone: images (N, H, W, 3) to features.
        sizes: number of classes of each head.
        heads: see `HeadSpec`.
        temporal: a model of feature sequences (B, T, D); None decides each frame alone.
        penalties: by name, modules of `models.temporal.penalties` and their weights.
        mean: of RGB in [0, 1], subtracted from images.
        std: of RGB in [0, 1], by which images are divided.
        rngs: for the initial parameters of the heads.
    """

    learns_from_boxes = False

    def __init__(
        self,
        backbone: Backbone,
        sizes: Mapping[str, int],
        heads: Mapping[str, HeadSpec],
        *,
        temporal: Temporal | None = None,
        penalties: Mapping[str, tuple[nnx.Module, float]] | None = None,
        mean: tuple[float, ...] = IMAGENET_MEAN,
        std: tuple[float, ...] = IMAGENET_STD,
        rngs: nnx.Rngs,
    ):
        self.backbone = backbone
        self.temporal = temporal
        self.heads = nnx.Dict()
        for name, spec in heads.items():
            read = temporal if temporal is not None and spec.temporal else backbone
            width = read.width + sum(sizes[other] for other in spec.also)
            if spec.minimum_weight is not None and read.cells is not None:
                self.heads[name] = MapHead(read.cells, sizes[name], spec.minimum_weight, rngs=rngs)
                continue
            if spec.hidden:
                self.heads[name] = Head(width, spec.hidden, sizes[name], rngs=rngs)
                continue
            init = nnx.initializers.normal(0.01)
            # This layer is small, so float32 is cheap here.
            self.heads[name] = nnx.Linear(width, sizes[name], kernel_init=init, dtype=jnp.float32, rngs=rngs)
        if penalties:
            self.penalties = nnx.Dict({name: module for name, (module, _) in penalties.items()})
        self.penalty_weights = tuple((name, weight) for name, (_, weight) in (penalties or {}).items())
        self.specs = tuple(heads.items())
        self.width, self.cells = backbone.width, backbone.cells
        self.mean = tuple(mean)
        self.std = tuple(std)

    def __call__(self, images: Array, *, key: Array | None = None) -> Logits:
        """Compute the logits of every head.

        Args:
            images: (N, H, W, 3) frames, or (B, T, H, W, 3) sequences with a temporal model; uint8, or floats in [0, 1].
            key: for dropout and stochastic depth; needed only in training mode.

        Returns:
            Track to logits (N, classes) or (B, T, classes), float32.
        """
        return self.decide(self.features(images, key=key), key=key)

    def features(self, images: Array, *, key: Array | None = None) -> Array:
        """Compute the backbone's features (..., D) of images (..., H, W, 3)."""
        leading = images.shape[:-3]
        pooled = self.backbone(normalize(images, self.mean, self.std).reshape(-1, *images.shape[-3:]), key=key).pooled
        return pooled.reshape(*leading, pooled.shape[-1])

    def decide(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Logits:
        """Compute logits from features (N, D), or (B, T, D) with a temporal model and its mask (B, T)."""
        return self.outputs(features, mask, key=key).logits

    def outputs(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Outputs:
        """Compute logits and the inputs of the heads.

        Args:
            features: (N, D), or (B, T, D) with a temporal model.
            mask: (B, T), False at missing frames.
            key: for dropout; needed only in training mode.
        """
        found: Any = features
        if self.temporal is not None:
            found = self.temporal(features, mask, key=temporal_key(key))
        return self._apply_heads(features, found)

    def run(self, features: Array, mask: Array | None, state: Any) -> tuple[Outputs, Any]:
        """Compute the outputs of the next frames of videos from the temporal model's state; also return the new state.

        Args:
            features: (B, T, D) of the next frames.
            mask: (B, T), False at missing frames.
            state: from `models.temporal.Temporal.start`, or from the previous call.

        Raises:
            TypeError: without a temporal model.
        """
        if self.temporal is None:
            raise TypeError("this system decides each frame alone and has no state. Fix: call decide on its features")
        found, state = self.temporal.run(features, mask, state)
        return self._apply_heads(features, found), state

    def _apply_heads(self, features: Array, found: Any) -> Outputs:
        logits: Logits = {}
        inputs: dict[str, Array] = {}
        for name, spec in self.specs:
            inputs[name] = (found[name] if isinstance(found, dict) else found) if spec.temporal else features
            parts = [inputs[name], *(logits[other] for other in spec.also)]
            logits[name] = self.heads[name](jnp.concatenate([part.astype(jnp.float32) for part in parts], -1))
        return Outputs(logits, inputs)

    def locate(self, images: Array) -> dict[str, Array]:
        """Compute "maps", the logits of tools in every cell (N, rows, columns, K), of images (N, H, W, 3)."""
        return {"maps": self.maps(self.outputs(self.features(images)))}

    def maps(self, outputs: Outputs) -> Array:
        """Compute logits of tools in every cell (..., rows, columns, K).

        Raises:
            TypeError: if the head of tools does not pool maps.
        """
        head = self.heads.get("tools")
        if not isinstance(head, MapHead):
            raise TypeError("this system has no maps of tools. Fix: use fcn, fcn_l or frcnn")
        return head.maps(outputs.inputs["tools"].astype(jnp.float32))

    def training_loss(
        self, batch: Mapping[str, Array], criterion: Criterion, *, key: Array | None
    ) -> tuple[Array, Terms]:
        """Compute the loss of a batch of images, clips or features, and its terms by name.

        Args:
            batch: "images" (N, H, W, 3) or (N, T, H, W, 3), or "features" (N, T, D) with "mask"; and labels.
            criterion: the loss of logits against labels.
            key: for dropout and stochastic depth.
        """
        features = batch.get("features")
        if features is None:
            features = self.features(batch["images"], key=key)
        outputs = self.outputs(features, batch.get("mask"), key=key)
        value, terms = criterion.frames(outputs.logits, batch)
        if features.ndim == 3:
            mask = batch.get("mask", jnp.ones(features.shape[:2], bool))
            more = self.penalty(outputs, batch, mask, key=key) | criterion.sequences(outputs.logits, batch, mask)
            value, terms = value + sum(more.values()), terms | more
        return value, terms

    def penalty(self, outputs: Outputs, labels: Mapping[str, Array], mask: Array, *, key: Array | None = None) -> Terms:
        """Compute the weighted penalties of sequences (B, T, ...) by name, each a scalar."""
        found = {}
        for number, (name, weight) in enumerate(self.penalty_weights):
            own = fold(key, _PENALTY_KEY + number)
            found[name] = weight * self.penalties[name](outputs.logits, outputs.inputs, labels, mask, key=own)
        return found
