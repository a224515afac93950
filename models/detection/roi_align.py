"""RoIAlign (He et al. 2017) as two small matrix products.

Bilinear sampling on a grid along the axes is one linear map for rows and one for columns; averaging a bin's samples is
part of both. The gradient is two products more, without the scattered additions whose order a GPU does not fix.
"""

import jax
from jax import Array
from jax import numpy as jnp


def roi_align(
    features: Array, boxes: Array, bins: int, scale: tuple[float, float], *, samples: int = 2, exact: bool = False
) -> Array:
    """Feature maps of boxes, as torchvision's ``roi_align(aligned=True)`` computes them.

    Args:
        features: (H, W, C) of one picture.
        boxes: (R, 4), shares of the picture.
        bins: side of a box's map.
        scale: the picture's height and width in cells of `features`.
        samples: points along each side of a bin.
        exact: do not let the device shorten float32 in products.

    Returns:
        (R, bins, bins, C), in the dtype of `features`.
    """
    height, width, _ = features.shape
    rows = _weights(boxes[:, 1] * scale[0], boxes[:, 3] * scale[0], bins, samples, height)
    columns = _weights(boxes[:, 0] * scale[1], boxes[:, 2] * scale[1], bins, samples, width)
    precision = jax.lax.Precision.HIGHEST if exact else None
    dtype = features.dtype
    out = jnp.einsum("rsh,hwc->rswc", rows.astype(dtype), features, precision=precision)
    return jnp.einsum("rswc,rtw->rstc", out, columns.astype(dtype), precision=precision)


def _weights(start: Array, stop: Array, bins: int, samples: int, cells: int) -> Array:
    """Weight of every cell in every bin along one axis: (R, bins, cells)."""
    place = (jnp.arange(bins * samples) + 0.5) / (bins * samples)
    # Half a cell back: a cell's value lies in its middle.
    at = start[:, None] - 0.5 + place * (stop - start)[:, None]
    inside = (at >= -1) & (at <= cells)
    at = jnp.clip(at, 0, cells - 1)[..., None]
    weight = jnp.maximum(1 - jnp.abs(at - jnp.arange(cells)), 0) * inside[..., None]
    return weight.reshape(len(start), bins, samples, cells).mean(2)
