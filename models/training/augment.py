"""Random crops, mirroring, color changes and blanked rectangles of a batch, inside the jitted training step.

Cropping, mirroring and resizing are together one linear map per axis of the image, so each image takes two small matrix
products. Color changes are together one affine map of RGB.
"""

from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from models.backbones.images import as_floats
from models.settings import Augment

#: RGB to luma and two axes of chroma (YIQ), in which hue is an angle.
_YIQ = np.array([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]], np.float32)


class Span(NamedTuple):
    """Spans of one axis of N images: start and length as fractions of the axis (N,), and which are mirrored (N,)."""

    start: Array
    length: Array
    mirrored: Array


def interpolation(span: Span, inputs: int, outputs: int) -> Array:
    """Compute the matrix that resamples spans of an axis linearly, with antialiasing if they shrink.

    Args:
        span: the span of each image.
        inputs: number of input pixels along the axis.
        outputs: number of output pixels.

    Returns:
        (N, outputs, inputs), rows that sum to one.
    """
    place = (jnp.arange(outputs) + 0.5) / outputs
    place = jnp.where(span.mirrored[:, None], 1 - place, place)
    center = (span.start[:, None] + place * span.length[:, None]) * inputs - 0.5
    radius = jnp.maximum(span.length * inputs / outputs, 1)[:, None, None]
    weights = jnp.maximum(1 - jnp.abs(jnp.arange(inputs) - center[..., None]) / radius, 0)
    return weights / weights.sum(-1, keepdims=True)


def resample(images: Array, rows: Span, columns: Span, size: tuple[int, int]) -> Array:
    """Cut spans out of images (N, H, W, 3) and scale them to (N, *size, 3)."""
    height, width = images.shape[1:3]
    down = interpolation(rows, height, size[0])
    along = interpolation(columns, width, size[1])
    return jnp.einsum("niy,nyxc,njx->nijc", down, images, along, optimize=[(0, 1), (0, 1)])


def resize(images: Array, size: tuple[int, int]) -> Array:
    """Resize images (N, H, W, 3), uint8 or in [0, 1], to floats (N, *size, 3) in [0, 1]."""
    images = as_floats(images)
    if images.shape[1:3] == tuple(size):
        return images
    whole = Span(jnp.zeros(len(images)), jnp.ones(len(images)), jnp.zeros(len(images), bool))
    return resample(images, whole, whole, size)


def augment(images: Array, key: Array, config: Augment, size: tuple[int, int]) -> Array:
    """Compute random variants of images.

    Args:
        images: (N, H, W, 3) uint8, or floats in [0, 1].
        key: for all random choices. The variant of an image depends on its index in the batch, not on how the batch is
            sharded over devices.
        config: kinds and strengths of the changes.
        size: (height, width) of the output.

    Returns:
        (N, *size, 3) floats in [0, 1].
    """
    where, color, blank = jax.random.split(key, 3)
    images = resample(as_floats(images), *_crops(where, len(images), config), size)
    return _erase(_recolor(images, color, config), blank, config.erase)


def augment_boxes(boxes: Array, real: Array, key: Array, config: Augment, least: float = 0.25) -> tuple[Array, Array]:
    """Compute the boxes of images after `augment` with the same key.

    Args:
        boxes: (N, M, 4) xmin, ymin, xmax, ymax, as fractions of the image.
        real: (N, M) bool, False for padding.
        key: the key of the call of `augment`.
        config: the settings of the call of `augment`.
        least: smallest fraction of a box's area that must remain in the image for the box to be kept.

    Returns:
        Boxes clipped to the image (N, M, 4), and which of them remain (N, M).
    """
    rows, columns = _crops(jax.random.split(key, 3)[0], len(boxes), config)
    moved = jnp.stack([_to_span(columns, boxes[..., 0::2]), _to_span(rows, boxes[..., 1::2])], -1).reshape(boxes.shape)
    clipped = jnp.clip(moved, 0, 1)
    kept, area = (jnp.prod(x[..., 2:] - x[..., :2], -1) for x in (clipped, moved))
    real = real & (kept > 0) & (kept >= least * area)
    return jnp.where(real[..., None], clipped, 0), real


def _to_span(span: Span, ends: Array) -> Array:
    """Map the ends (N, M, 2) of intervals along an axis to the coordinates of a span of that axis."""
    place = (ends - span.start[:, None, None]) / span.length[:, None, None]
    return jnp.where(span.mirrored[:, None, None], 1 - place[..., ::-1], place)


def _crops(key: Array, n: int, config: Augment) -> tuple[Span, Span]:
    area, shape, top, left, mirror = jax.random.split(key, 5)
    area = jax.random.uniform(area, (n,), minval=config.scale, maxval=1.0)
    limit = np.log(config.aspect)
    ratio = jnp.exp(jax.random.uniform(shape, (n,), minval=-limit, maxval=limit))
    height, width = jnp.minimum(jnp.sqrt(area / ratio), 1), jnp.minimum(jnp.sqrt(area * ratio), 1)
    mirrored = jax.random.bernoulli(mirror, 0.5, (n,)) & config.flip
    return (
        Span(jax.random.uniform(top, (n,)) * (1 - height), height, jnp.zeros(n, bool)),
        Span(jax.random.uniform(left, (n,)) * (1 - width), width, mirrored),
    )


def _recolor(images: Array, key: Array, config: Augment) -> Array:
    n = len(images)
    keys = jax.random.split(key, 4)

    def factor(key: Array, amount: float) -> Array:
        return jax.random.uniform(key, (n, 1, 1), minval=1 - amount, maxval=1 + amount)

    brightness = factor(keys[0], config.brightness)
    contrast = factor(keys[1], config.contrast)
    saturation = factor(keys[2], config.saturation)[:, 0, 0]
    angle = 2 * np.pi * jax.random.uniform(keys[3], (n,), minval=-config.hue, maxval=config.hue)
    # In YIQ, saturation scales chroma and hue rotates it.
    turn = saturation[:, None, None] * jnp.stack(
        [jnp.stack([jnp.cos(angle), -jnp.sin(angle)], -1), jnp.stack([jnp.sin(angle), jnp.cos(angle)], -1)], -2
    )
    chroma = jnp.zeros((n, 3, 3)).at[:, 0, 0].set(1).at[:, 1:, 1:].set(turn)
    exact = jax.lax.Precision.HIGHEST
    matrix = jnp.einsum("ab,nbc,cd->nad", np.linalg.inv(_YIQ), chroma, _YIQ, precision=exact)
    matrix = brightness * contrast * matrix
    mean = images.mean((1, 2))
    offset = brightness[:, 0] * (1 - contrast[:, 0]) * mean.mean(-1, keepdims=True)
    images = jnp.einsum("nab,nijb->nija", matrix, images) + offset[:, None, None, :]
    return jnp.clip(images, 0, 1)


def _erase(images: Array, key: Array, fraction: float) -> Array:
    if fraction == 0:
        return images
    n, height, width, _ = images.shape
    chosen, *keys = jax.random.split(key, 5)
    size = jax.random.uniform(keys[0], (n, 2), minval=0.1, maxval=0.5)
    start = jax.random.uniform(keys[1], (n, 2)) * (1 - size)

    def inside(axis: int, pixels: int) -> Array:
        place = (jnp.arange(pixels) + 0.5) / pixels
        begin = start[:, axis, None]
        return (place >= begin) & (place < begin + size[:, axis, None])

    hidden = inside(0, height)[:, :, None] & inside(1, width)[:, None, :]
    hidden &= jax.random.bernoulli(chosen, fraction, (n, 1, 1))
    return jnp.where(hidden[..., None], images.mean((1, 2), keepdims=True), images)
