"""Bicubic resizing of grids of position embeddings, as PyTorch's `interpolate` without antialiasing."""

import numpy as np
from jax import Array
from jax import numpy as jnp

#: The coefficient of PyTorch's cubic kernel; JAX and PIL use -0.5.
_A = -0.75


def cubic_weights(before: int, after: int) -> np.ndarray:
    """Return the weights (after, before) of the old samples in each new one; the border is repeated."""
    place = (np.arange(after) + 0.5) * before / after - 0.5
    floor = np.floor(place).astype(int)
    out = np.zeros((after, before))
    for offset in (-1, 0, 1, 2):
        distance = np.abs(place - floor - offset)
        near = (_A + 2) * distance**3 - (_A + 3) * distance**2 + 1
        far = _A * (distance**3 - 5 * distance**2 + 8 * distance - 4)
        np.add.at(out, (np.arange(after), np.clip(floor + offset, 0, before - 1)), np.where(distance <= 1, near, far))
    return out.astype(np.float32)


def resize_grid(grid: Array | np.ndarray, rows: int, columns: int) -> Array:
    """Resize a grid (H, W, C) to (rows, columns, C)."""
    vertical, horizontal = cubic_weights(grid.shape[0], rows), cubic_weights(grid.shape[1], columns)
    return jnp.einsum("rh,hwc,kw->rkc", vertical, grid, horizontal, precision="highest")
