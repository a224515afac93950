"""Anchors, which of them stand for which instrument, and samples of fixed size to learn from."""

from collections.abc import Sequence

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

#: What `match` says of a candidate that stands for nothing, and of one too close to call.
BACKGROUND, UNDECIDED = -1, -2


def anchor_grid(
    shape: tuple[int, int],
    stride: int,
    picture: tuple[int, int],
    sizes: Sequence[float],
    ratios: Sequence[float],
) -> np.ndarray:
    """Anchors around the center of every cell of a feature map (Ren et al. 2015).

    Args:
        shape: rows and columns of the map.
        stride: pixels from one cell to the next.
        picture: height and width in pixels.
        sizes: roots of the anchors' areas, as shares of the picture's height.
        ratios: width over height, in pixels.

    Returns:
        (rows * columns * sizes * ratios, 4) float32, cell by cell; those at the border reach outside.
    """
    height, width = picture
    y, x = (np.arange(count) + 0.5 for count in shape)
    centers = np.stack(np.meshgrid(x * stride / width, y * stride / height), -1).reshape(-1, 1, 2)
    size, ratio = (a.reshape(-1) for a in np.meshgrid(sizes, ratios, indexing="ij"))
    half = np.stack([size * np.sqrt(ratio) * height / width, size / np.sqrt(ratio)], -1) / 2
    return np.concatenate([centers - half, centers + half], -1).reshape(-1, 4).astype(np.float32)


def match(overlap: Array, real: Array, low: float, high: float, *, force: bool) -> Array:
    """Which box each candidate stands for.

    Args:
        overlap: (N, M) intersection over union of candidates and boxes.
        real: (M,) bool, False for padding.
        low: below it a candidate is background.
        high: from it on a candidate stands for its best box; between the two it is undecided.
        force: let the candidates that overlap a box most (all of them, on a tie) stand for their own best box however
            small the overlap is, so that no box goes without.

    Returns:
        (N,) int32: a box, or `BACKGROUND`, or `UNDECIDED`.
    """
    overlap = jnp.where(real, overlap, -1.0)
    best, value = overlap.argmax(1).astype(jnp.int32), overlap.max(1)
    answer = jnp.where(value >= high, best, jnp.where(value < low, BACKGROUND, UNDECIDED))
    if force:
        top = overlap.max(0)
        answer = jnp.where(((overlap == top) & (top > 0) & real).any(1), best, answer)
    return answer.astype(jnp.int32)


def sample(key: Array, matches: Array, count: int, positives: int) -> tuple[Array, Array]:
    """A random sample of fixed size of decided candidates.

    Args:
        key: decides it.
        matches: (N,) from `match`, N >= count.
        count: candidates to take.
        positives: most of them that stand for a box; background fills up the rest.

    Returns:
        (count,) different rows, and (count,) bool, False for rows that only fill up and must cost nothing.
    """
    chance = jax.random.uniform(key, matches.shape)
    positive = matches >= 0
    place = jnp.argsort(jnp.argsort(jnp.where(positive, -chance, 1)))
    wanted = jnp.where(positive & (place < positives), 2, jnp.where(matches == BACKGROUND, 1, 0))
    value, rows = jax.lax.top_k(wanted + chance, count)
    return rows, value >= 1
