"""Boxes (..., 4): xmin, ymin, xmax, ymax as shares of the picture's width and height.

Overlap and box coding do not change when an axis is stretched, so that no pixel size is ever needed here.
"""

import math

from jax import Array
from jax import numpy as jnp

#: Most that a side may grow by, as a logarithm, so that a wild prediction stays finite (Detectron's 1000 / 16).
_GROWTH = math.log(1000 / 16)


def area(boxes: Array) -> Array:
    """Area (...) of boxes (..., 4); 0 for an empty one."""
    return jnp.prod(jnp.maximum(boxes[..., 2:] - boxes[..., :2], 0), -1)


def iou(boxes: Array, others: Array) -> Array:
    """Intersection over union of every pair.

    Args:
        boxes: (..., N, 4).
        others: (..., M, 4).

    Returns:
        (..., N, M); 0 where both are empty.
    """
    first, second = boxes[..., :, None, :], others[..., None, :, :]
    corners = (jnp.maximum(first[..., :2], second[..., :2]), jnp.minimum(first[..., 2:], second[..., 2:]))
    common = area(jnp.concatenate(corners, -1))
    union = area(first) + area(second) - common
    return jnp.where(union > 0, common / jnp.where(union > 0, union, 1), 0)


def encode(boxes: Array, anchors: Array) -> Array:
    """Boxes as shifts of center, in sides of the anchor, and logarithms of growth (Girshick et al. 2014).

    Args:
        boxes: (..., 4), not empty.
        anchors: (..., 4), not empty.

    Returns:
        (..., 4): dx, dy, log growth of width and of height.
    """
    size, base = boxes[..., 2:] - boxes[..., :2], anchors[..., 2:] - anchors[..., :2]
    shift = (boxes[..., :2] + size / 2 - anchors[..., :2] - base / 2) / base
    return jnp.concatenate([shift, jnp.log(size / base)], -1)


def decode(deltas: Array, anchors: Array) -> Array:
    """What `encode` encoded: (..., 4) and (..., 4) to (..., 4)."""
    base = anchors[..., 2:] - anchors[..., :2]
    center = anchors[..., :2] + base / 2 + deltas[..., :2] * base
    half = base * jnp.exp(jnp.minimum(deltas[..., 2:], _GROWTH)) / 2
    return jnp.concatenate([center - half, center + half], -1)


def clip(boxes: Array) -> Array:
    """The part of boxes that lies in the picture; an empty box on its border for one that lies outside."""
    return jnp.clip(boxes, 0, 1)
