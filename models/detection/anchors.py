"""Anchors, their assignment to boxes, and random samples of fixed size for training."""

from collections.abc import Sequence

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

#: Returned by `match` for a candidate without a box, and for one between the two thresholds.
BACKGROUND, UNDECIDED = -1, -2


def anchor_grid(
    shape: tuple[int, int],
    stride: int,
    image_size: tuple[int, int],
    sizes: Sequence[float],
    ratios: Sequence[float],
) -> np.ndarray:
    """Compute anchors around the center of every cell of a feature map (Ren et al. 2015).

    Args:
        shape: rows and columns of the map.
        stride: pixels from one cell to the next.
        image_size: height and width of the image in pixels.
        sizes: square roots of the anchors' areas, as fractions of the image's height.
        ratios: width over height, in pixels.

    Returns:
        (rows * columns * sizes * ratios, 4) float32, cell by cell; anchors at the border extend outside the image.
    """
    height, width = image_size
    y, x = (np.arange(count) + 0.5 for count in shape)
    centers = np.stack(np.meshgrid(x * stride / width, y * stride / height), -1).reshape(-1, 1, 2)
    size, ratio = (a.reshape(-1) for a in np.meshgrid(sizes, ratios, indexing="ij"))
    half = np.stack([size * np.sqrt(ratio) * height / width, size / np.sqrt(ratio)], -1) / 2
    return np.concatenate([centers - half, centers + half], -1).reshape(-1, 4).astype(np.float32)


def match(overlap: Array, real: Array, low: float, high: float, *, force: bool) -> Array:
    """Assign boxes to candidates.

    Args:
        overlap: (N, M) intersection over union of candidates and boxes.
        real: (M,) bool, False for padding.
        low: a candidate whose greatest overlap is below this is background.
        high: a candidate whose greatest overlap is at least this is assigned to that box; between the two thresholds it
            is undecided.
        force: also assign the candidates that overlap a box most (all of them, on a tie) to their own best box, however
            small the overlap, so that every box that overlaps a candidate is used.

    Returns:
        (N,) int32: index of a box, `BACKGROUND`, or `UNDECIDED`.
    """
    overlap = jnp.where(real, overlap, -1.0)
    best, value = overlap.argmax(1).astype(jnp.int32), overlap.max(1)
    assigned = jnp.where(value >= high, best, jnp.where(value < low, BACKGROUND, UNDECIDED))
    if force:
        top = overlap.max(0)
        assigned = jnp.where(((overlap == top) & (top > 0) & real).any(1), best, assigned)
    return assigned.astype(jnp.int32)


def sample(key: Array, matches: Array, count: int, positives: int) -> tuple[Array, Array]:
    """Draw a random sample of fixed size from the candidates that are not undecided.

    Args:
        key: of the random draw.
        matches: (N,) from `match`, N >= count.
        count: size of the sample.
        positives: maximum number of candidates with a box; background candidates make up the rest.

    Returns:
        (count,) distinct indices, and (count,) bool, False for padding that must not enter the loss.
    """
    noise = jax.random.uniform(key, matches.shape)
    positive = matches >= 0
    place = jnp.argsort(jnp.argsort(jnp.where(positive, -noise, 1)))
    wanted = jnp.where(positive & (place < positives), 2, jnp.where(matches == BACKGROUND, 1, 0))
    value, rows = jax.lax.top_k(wanted + noise, count)
    return rows, value >= 1
