"""Geometry of boxes (..., 4): xmin, ymin, xmax, ymax as fractions of the image's width and height.

Overlap and encoding are invariant to stretching an axis, so no pixel size is needed.
"""

import math

from jax import Array
from jax import numpy as jnp

#: Maximum log growth of a side, which keeps extreme predictions finite (Detectron's 1000 / 16).
_GROWTH = math.log(1000 / 16)


def area(boxes: Array) -> Array:
    """Return the area (...) of boxes (..., 4); 0 for an empty box."""
    return jnp.prod(jnp.maximum(boxes[..., 2:] - boxes[..., :2], 0), -1)


def iou(boxes: Array, others: Array) -> Array:
    """Compute the intersection over union of every pair.

    Args:
        boxes: (..., N, 4).
        others: (..., M, 4).

    Returns:
        (..., N, M); 0 if both boxes are empty.
    """
    first, second = boxes[..., :, None, :], others[..., None, :, :]
    corners = (jnp.maximum(first[..., :2], second[..., :2]), jnp.minimum(first[..., 2:], second[..., 2:]))
    common = area(jnp.concatenate(corners, -1))
    union = area(first) + area(second) - common
    return jnp.where(union > 0, common / jnp.where(union > 0, union, 1), 0)


def encode(boxes: Array, anchors: Array) -> Array:
    """Encode boxes relative to anchors (Girshick et al. 2014).

    Args:
        boxes: (..., 4), not empty.
        anchors: (..., 4), not empty.

    Returns:
        (..., 4): shift of the center in units of the anchor's width and height, and log ratios of width and height.
    """
    size, base = boxes[..., 2:] - boxes[..., :2], anchors[..., 2:] - anchors[..., :2]
    shift = (boxes[..., :2] + size / 2 - anchors[..., :2] - base / 2) / base
    return jnp.concatenate([shift, jnp.log(size / base)], -1)


def decode(deltas: Array, anchors: Array) -> Array:
    """Compute boxes (..., 4) from deltas (..., 4) and anchors (..., 4), the inverse of `encode`."""
    base = anchors[..., 2:] - anchors[..., :2]
    center = anchors[..., :2] + base / 2 + deltas[..., :2] * base
    half = base * jnp.exp(jnp.minimum(deltas[..., 2:], _GROWTH)) / 2
    return jnp.concatenate([center - half, center + half], -1)


def clip(boxes: Array) -> Array:
    """Clip boxes to the image; a box outside becomes an empty one on the border."""
    return jnp.clip(boxes, 0, 1)
