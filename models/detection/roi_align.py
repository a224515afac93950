"""RoIAlign (He et al. 2017) as two small matrix products.

Bilinear sampling on an axis-aligned grid is a linear map of the rows and one of the columns, and both include the
average over the samples of a bin. The gradient is two more products, without scatter-adds, which are not
deterministic on a GPU.
"""

import jax
from jax import Array
from jax import numpy as jnp


def roi_align(
    features: Array, boxes: Array, bins: int, scale: tuple[float, float], *, samples: int = 2, exact: bool = False
) -> Array:
    """Compute the feature maps of boxes, equal to torchvision's ``roi_align(aligned=True)``.

    Args:
        features: (H, W, C) map of one image.
        boxes: (R, 4) as fractions of the image.
        bins: side of a box's map.
        scale: height and width of the image in cells of `features`.
        samples: number of points along each side of a bin.
        exact: compute float32 products at full precision.

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
    """Return the weight of every cell in every bin along one axis: (R, bins, cells)."""
    place = (jnp.arange(bins * samples) + 0.5) / (bins * samples)
    # The value of a cell is at its center, hence the shift by half a cell.
    at = start[:, None] - 0.5 + place * (stop - start)[:, None]
    inside = (at >= -1) & (at <= cells)
    at = jnp.clip(at, 0, cells - 1)[..., None]
    weight = jnp.maximum(1 - jnp.abs(at - jnp.arange(cells)), 0) * inside[..., None]
    return weight.reshape(len(start), bins, samples, cells).mean(2)
