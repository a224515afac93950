"""Losses of Faster R-CNN's two stages, on random samples of fixed size."""

from typing import NamedTuple

import jax
import optax
from jax import Array
from jax import numpy as jnp

from models.detection.anchors import BACKGROUND, match, sample
from models.detection.boxes import encode, iou
from models.settings import Detection


class Sample(NamedTuple):
    """Regions in the second stage's loss.

    Attributes:
        regions: (..., R, 4) boxes.
        classes: (..., R) int32, 0 for background, tool k is k + 1.
        boxes: (..., R, 4) true box of each region; meaningless for background.
        used: (..., R) bool, False for padding.
    """

    regions: Array
    classes: Array
    boxes: Array
    used: Array


def smooth_l1(error: Array, beta: float) -> Array:
    """Compute the Huber loss divided by `beta`, summed over the last axis."""
    return optax.losses.huber_loss(error, delta=beta).sum(-1) / beta


def proposal_losses(
    objectness: Array, deltas: Array, anchors: Array, boxes: Array, real: Array, keys: Array, config: Detection
) -> dict[str, Array]:
    """Compute the first stage's losses over a sample of each image's anchors.

    Args:
        objectness: (N, A) logits.
        deltas: (N, A, 4) encoded boxes.
        anchors: (A, 4).
        boxes: (N, M, 4) true boxes.
        real: (N, M) bool, False for padding.
        keys: (N,) keys of the random samples.
        config: gives the size of the samples.

    Returns:
        "objectness", the mean binary cross-entropy of the sampled anchors, and "proposals", the box loss divided by the
        same number of anchors.
    """
    count = min(config.anchors, len(anchors))

    def of_one(logits: Array, deltas: Array, boxes: Array, real: Array, key: Array) -> tuple[Array, Array, Array]:
        matches = match(iou(anchors, boxes), real, 0.3, 0.7, force=True)
        rows, used = sample(key, matches, count, count // 2)
        positive = used & (matches[rows] >= 0)
        wanted = _encoded(boxes[jnp.maximum(matches[rows], 0)], anchors[rows], positive)
        wrong = optax.sigmoid_binary_cross_entropy(logits[rows], positive.astype(logits.dtype))
        far = smooth_l1(deltas[rows] - wanted, 1 / 9)
        return jnp.where(used, wrong, 0).sum(), jnp.where(positive, far, 0).sum(), used.sum()

    wrong, far, used = (x.sum() for x in jax.vmap(of_one)(objectness, deltas, boxes, real, keys))
    return {"objectness": wrong / jnp.maximum(used, 1), "proposals": far / jnp.maximum(used, 1)}


def region_sample(regions: Array, real: Array, boxes: Array, tools: Array, key: Array, config: Detection) -> Sample:
    """Draw a sample of fixed size from one image's proposals and true boxes.

    Args:
        regions: (P, 4) proposals.
        real: (P,) bool, False for padding.
        boxes: (M, 4) true boxes.
        tools: (M,) tool in each true box, -1 for padding.
        key: of the random sample.
        config: gives the size of the sample.

    Returns:
        The sample, without an axis for images.
    """
    candidates = jnp.concatenate([regions, boxes])
    present = jnp.concatenate([real, tools >= 0])
    matches = match(iou(candidates, boxes), tools >= 0, 0.5, 0.5, force=False)
    matches = jnp.where(present, matches, BACKGROUND - 1)
    count = min(config.regions, len(candidates))
    rows, used = sample(key, matches, count, round(config.positives * count))
    chosen = jnp.maximum(matches[rows], 0)
    classes = jnp.where(used & (matches[rows] >= 0), tools[chosen] + 1, 0)
    return Sample(candidates[rows], classes, boxes[chosen], used)


def region_losses(logits: Array, deltas: Array, sampled: Sample, spread: tuple[float, ...]) -> dict[str, Array]:
    """Compute the second stage's losses.

    Args:
        logits: (N, R, K + 1), background first.
        deltas: (N, R, K, 4) encoded boxes of each tool, in units of `spread`.
        sampled: the samples of N images.
        spread: standard deviations of encoded boxes.

    Returns:
        "classes", the mean cross-entropy of the sample, and "boxes", the box loss of the true tools divided by the same
        number of regions.
    """
    positive = sampled.classes > 0
    wrong = optax.softmax_cross_entropy_with_integer_labels(logits, sampled.classes)
    own = jnp.take_along_axis(deltas, jnp.maximum(sampled.classes - 1, 0)[..., None, None], -2)[..., 0, :]
    far = smooth_l1(own - _encoded(sampled.boxes, sampled.regions, positive) / jnp.array(spread), 1.0)
    used = jnp.maximum(sampled.used.sum(), 1)
    return {
        "classes": jnp.where(sampled.used, wrong, 0).sum() / used,
        "boxes": jnp.where(positive, far, 0).sum() / used,
    }


def _encoded(boxes: Array, anchors: Array, wanted: Array) -> Array:
    """Encode boxes where `wanted`, and return 0 elsewhere: padding would give infinite logarithms."""
    whole = jnp.array([0.0, 0.0, 1.0, 1.0])
    wanted = wanted[..., None]
    return encode(jnp.where(wanted, boxes, whole), jnp.where(wanted, anchors, whole))
