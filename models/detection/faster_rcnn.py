"""Faster R-CNN (Ren et al. 2015): proposals from anchors, then a class and a box for each.

A backbone is divided as in the original papers: VGG16 before its fully connected layers, a ResNet before its last
stage. All shapes are fixed, so one compiled program serves every batch. The score of a frame for a tool is that of its
best detection.
"""

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models import weights
from models.backbones import Backbone, build
from models.backbones.images import IMAGENET_MEAN, IMAGENET_STD, normalize, size_of
from models.backbones.layers import conv, fold
from models.detection.anchors import anchor_grid
from models.detection.boxes import area, clip, decode
from models.detection.losses import proposal_losses, region_losses, region_sample
from models.detection.nms import suppress
from models.detection.roi_align import roi_align
from models.settings import Detection

#: Standard deviations by which the second stage's regression targets are divided (Girshick 2015).
SPREAD = (0.1, 0.1, 0.2, 0.2)

#: Logits by track.
Logits = dict[str, Array]


class Detections(NamedTuple):
    """Detected boxes, best first, padded to D per image.

    Attributes:
        boxes: (N, D, 4) xmin, ymin, xmax, ymax as fractions of the image's width and height.
        scores: (N, D) probability of the tool.
        tools: (N, D) int32, -1 for padding.
    """

    boxes: Array
    scores: Array
    tools: Array


class Proposals(NamedTuple):
    """Output of the first stage.

    Attributes:
        objectness: (N, A) logits of the anchors.
        deltas: (N, A, 4) boxes encoded relative to the anchors, see `models.detection.boxes.encode`.
        anchors: (A, 4) as fractions of the image.
    """

    objectness: Array
    deltas: Array
    anchors: Array


class FasterRCNN(nnx.Module):
    """A detector: images to boxes of tools.

    Args:
        backbone: a backbone with `trunk` and `top`.
        tools: number of tools K.
        config: sizes and thresholds.
        mean: of RGB in [0, 1], subtracted from images.
        std: of RGB in [0, 1], by which images are divided.
        rngs: for the initial parameters of the heads.

    Attributes:
        learns_from_boxes: True; `loss` needs the true boxes of each image.
        temporal: None; every frame is decided alone.
        width: length 5 K + C of the features of a frame.
        cells: None; these features are no map.

    Raises:
        ValueError: for a backbone that cannot be divided.
    """

    learns_from_boxes = True

    def __init__(
        self,
        backbone: Backbone,
        tools: int,
        config: Detection,
        *,
        mean: tuple[float, ...] = IMAGENET_MEAN,
        std: tuple[float, ...] = IMAGENET_STD,
        rngs: nnx.Rngs,
    ):
        if backbone.channels is None:
            raise backbone.indivisible()
        each, width = len(config.sizes) * len(config.ratios), backbone.channels
        small, smaller = nnx.initializers.normal(0.01), nnx.initializers.normal(0.001)
        self.backbone = backbone
        self.look = conv(width, config.width, 3, 1, 1, dtype=backbone.dtype, rngs=rngs, kernel_init=small)
        self.objectness = nnx.Linear(config.width, each, kernel_init=small, dtype=jnp.float32, rngs=rngs)
        self.shift = nnx.Linear(config.width, 4 * each, kernel_init=small, dtype=jnp.float32, rngs=rngs)
        self.classify = nnx.Linear(backbone.width, tools + 1, kernel_init=small, dtype=jnp.float32, rngs=rngs)
        self.refine = nnx.Linear(backbone.width, 4 * tools, kernel_init=smaller, dtype=jnp.float32, rngs=rngs)
        self.tools, self.config = tools, config
        self.temporal = None
        self.width, self.cells = 5 * tools + width, None
        self.mean, self.std = tuple(mean), tuple(std)

    def __call__(self, images: Array, *, key: Array | None = None) -> Logits:
        """Compute the presence of tools from the best detections of each frame.

        Args:
            images: (N, H, W, 3) uint8, or floats in [0, 1].
            key: for dropout; needed only in training mode.

        Returns:
            "tools" (N, K): the logit of each tool's greatest box probability.
        """
        return self.decide(self.features(images, key=key))

    def decide(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Logits:
        """Compute the logits of tools (..., K) from `features` (..., width); mask and key are not used."""
        del mask, key
        return {"tools": features[..., : self.tools]}

    def features(self, images: Array, *, key: Array | None = None) -> Array:
        """Compute frame features for a temporal model: each tool's best detection, and the mean of the trunk's map.

        Suppression never removes a tool's best box, so it is not needed here.

        Args:
            images: (N, H, W, 3) uint8, or floats in [0, 1].
            key: for dropout; needed only in training mode.

        Returns:
            (N, width): K logits, K boxes of four coordinates, C channel means.
        """
        maps = self._trunk(images)
        regions, real, logits, deltas = self._judge(maps, size_of(images), key)
        odds = jnp.where(real[..., None], log_odds(logits), -jnp.inf)
        boxes = clip(decode(deltas, regions[:, :, None]))
        top = odds.argmax(1)[:, None]
        best = jnp.take_along_axis(boxes, top[..., None], 1)
        means = maps.mean((1, 2)).astype(jnp.float32)
        found = jnp.take_along_axis(odds, top, 1)[:, 0], best.reshape(len(images), 4 * self.tools)
        return jnp.concatenate([*found, means], -1)

    def detect(self, images: Array) -> Detections:
        """Detect tools in images (N, H, W, 3), uint8 or floats in [0, 1]."""
        regions, real, logits, deltas = self._judge(self._trunk(images), size_of(images), None)
        boxes = clip(decode(deltas, regions[:, :, None]))
        probabilities = jax.nn.softmax(logits)[..., 1:]
        return jax.vmap(self._select)(boxes, probabilities, real)

    def locate(self, images: Array) -> dict[str, Array]:
        """Detect tools in images (N, H, W, 3): "boxes" (N, D, 4), "box_scores" (N, D) and "box_tools" (N, D)."""
        found = self.detect(images)
        return {"boxes": found.boxes, "box_scores": found.scores, "box_tools": found.tools}

    def training_loss(
        self, batch: Mapping[str, Array], criterion: object, *, key: Array
    ) -> tuple[Array, dict[str, Array]]:
        """Compute `loss` of a batch with "images", "boxes" and "box_tools"; the criterion of logits is not used."""
        del criterion
        return self.loss(batch["images"], batch["boxes"], batch["box_tools"], key)

    def loss(self, images: Array, boxes: Array, tools: Array, key: Array) -> tuple[Array, dict[str, Array]]:
        """Compute the training loss (Ren et al. 2015, equation 1, and Girshick 2015, equation 1).

        Args:
            images: (N, H, W, 3) uint8, or floats in [0, 1].
            boxes: (N, M, 4) true boxes.
            tools: (N, M) tool in each box, -1 for padding; an image, and a whole batch, may have no boxes.
            key: for the sampling of anchors and regions, and for dropout.

        Returns:
            The total loss, and its terms by name.
        """
        keys = jax.random.split(jax.random.fold_in(key, 0), len(images))
        first, second = jax.vmap(jax.random.split, out_axes=1)(keys)
        features = self._trunk(images)
        proposals = self._propose(features, size_of(images))
        parts = proposal_losses(*proposals, boxes, tools >= 0, first, self.config)
        regions, real = jax.lax.stop_gradient(self._survivors(proposals))
        sampled = jax.vmap(partial(region_sample, config=self.config))(regions, real, boxes, tools, second)
        logits, deltas = self._heads(features, sampled.regions, size_of(images), key)
        parts |= region_losses(logits, deltas, sampled, SPREAD)
        return jnp.asarray(sum(parts.values())), parts

    def _judge(
        self, features: Array, image_size: tuple[int, int], key: Array | None
    ) -> tuple[Array, Array, Array, Array]:
        """Return proposals (N, P, 4), which are real (N, P), and their logits (N, P, K + 1) and deltas (N, P, K, 4)."""
        regions, real = self._survivors(self._propose(features, image_size))
        logits, deltas = self._heads(features, regions, image_size, key)
        return regions, real, logits, deltas * jnp.array(SPREAD)

    def _trunk(self, images: Array) -> Array:
        return self.backbone.trunk(normalize(images, self.mean, self.std))

    def _propose(self, features: Array, image_size: tuple[int, int]) -> Proposals:
        config = self.config
        grid = anchor_grid(size_of(features), self.backbone.stride, image_size, config.sizes, config.ratios)
        seen = jax.nn.relu(self.look(features)).astype(jnp.float32)
        n, count = len(features), len(grid)
        objectness, deltas = self.objectness(seen).reshape(n, count), self.shift(seen).reshape(n, count, 4)
        return Proposals(objectness, deltas, jnp.asarray(grid))

    def _survivors(self, proposals: Proposals) -> tuple[Array, Array]:
        """Return the best proposals that do not overlap (N, P, 4), and which are real (N, P)."""
        config = self.config

        def of_one(objectness: Array, deltas: Array) -> tuple[Array, Array]:
            # Decode only the best candidates: there are thousands of anchors.
            value, best = jax.lax.top_k(objectness, min(config.candidates, len(objectness)))
            boxes = clip(decode(deltas[best], proposals.anchors[best]))
            rows, real = suppress(boxes, value, config.proposal_overlap, config.proposals)
            return boxes[rows], real

        return jax.vmap(of_one)(proposals.objectness, proposals.deltas)

    def _heads(
        self, features: Array, regions: Array, image_size: tuple[int, int], key: Array | None
    ) -> tuple[Array, Array]:
        """Return logits (N, R, K + 1), background first, and deltas (N, R, K, 4) in units of `SPREAD`."""
        n, count = regions.shape[:2]
        bins = self.config.bins or self.backbone.bins
        height, width = (side / self.backbone.stride for side in image_size)
        exact = features.dtype == jnp.float32
        maps = jax.vmap(lambda f, b: roi_align(f, b, bins, (height, width), exact=exact))(features, regions)
        # Images stay the outer axis, so a batch that is sharded over devices stays sharded.
        pooled = self.backbone.top(maps.reshape(n * count, *maps.shape[2:]), key=fold(key, 1)).astype(jnp.float32)
        return (
            self.classify(pooled).reshape(n, count, self.tools + 1),
            self.refine(pooled).reshape(n, count, self.tools, 4),
        )

    def _select(self, boxes: Array, probabilities: Array, real: Array) -> Detections:
        """Select the detections of one image from boxes (P, K, 4) with probabilities (P, K)."""
        config = self.config
        boxes, scores = boxes.reshape(-1, 4), probabilities.reshape(-1)
        tools = jnp.tile(jnp.arange(self.tools, dtype=jnp.int32), len(probabilities))
        candidate = jnp.repeat(real, self.tools) & (scores >= config.min_score) & (area(boxes) > 0)
        rows, kept = suppress(
            boxes,
            scores,
            config.overlap,
            config.detections,
            classes=tools,
            real=candidate,
            candidates=4 * config.proposals,
        )
        return Detections(
            jnp.where(kept[:, None], boxes[rows], 0), jnp.where(kept, scores[rows], 0), jnp.where(kept, tools[rows], -1)
        )


def log_odds(logits: Array) -> Array:
    """Return log-odds (..., K) of each tool against all other classes, from logits (..., K + 1), background first."""
    others = jnp.where(jnp.eye(logits.shape[-1], dtype=bool), -jnp.inf, logits[..., None, :])
    return (logits - jax.nn.logsumexp(others, -1))[..., 1:]


def build_faster_rcnn(
    *,
    backbone: str | None = None,
    options: Mapping[str, object] | None = None,
    tools: int = 7,
    pretrained: str | None = None,
    config: Detection | None = None,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
    dtype: DTypeLike = jnp.float32,
    rngs: nnx.Rngs,
) -> FasterRCNN:
    """Build Faster R-CNN on a backbone given by name.

    Args:
        backbone: a ResNet or "vgg16"; None takes "resnet50".
        options: of the backbone, such as `remat`.
        tools: number of tools K.
        pretrained: path of a torchvision state dict for the backbone, ``.pth`` or ``.safetensors``.
        config: sizes and thresholds; None takes the defaults.
        mean: of RGB in [0, 1], subtracted from images.
        std: of RGB in [0, 1], by which images are divided.
        dtype: in which the backbone computes; its parameters are always float32.
        rngs: for the initial parameters.

    Raises:
        ValueError: for an unknown backbone, or one that cannot be divided.
    """
    network = build(backbone or "resnet50", dtype=dtype, rngs=rngs, **(options or {}))
    if pretrained is not None:
        weights.load_weights(network, pretrained)
    return FasterRCNN(network, tools, config or Detection(), mean=mean, std=std, rngs=rngs)
