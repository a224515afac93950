"""Periodic noise pictures that look like tissue, glints and clouds."""

import numpy as np


def tissue_texture(rng: np.random.Generator, height: int) -> np.ndarray:
    """Three textures for pictures `height` pixels high.

    Returns:
        (3, 2 * height, 2 * height) float32 from 0 to 1, periodic: tissue (lobes and fine grain), glints (small and
        sharp), clouds (large and soft). A detail has the same size in picture heights whatever the number of pixels.
    """
    size = 2 * height
    tissue = cloud(rng, size, (4, 7, 13, 25, 49), (1.0, 0.8, 0.6, 0.4, 0.25))
    glints = cloud(rng, size, (10, 40, 80), (0.9, 1.0, 0.5))
    clouds = cloud(rng, size, (2, 4, 8), (1.0, 0.6, 0.3))
    return np.stack([tissue, glints, clouds])


def cloud(rng: np.random.Generator, size: int, frequencies: tuple[int, ...], weights: tuple[float, ...]) -> np.ndarray:
    """(size, size) float32 periodic noise: random grids of these frequencies, interpolated and added, made uniform."""
    total = np.zeros((size, size))
    for frequency, weight in zip(frequencies, weights, strict=True):
        grid = rng.standard_normal((frequency, frequency))
        total += weight * _stretch(_stretch(grid, size).T, size).T
    # Ranks in place of values: a threshold then covers a known share of the picture.
    order = np.argsort(total, axis=None, kind="stable")
    ranks = np.empty(size * size, np.float32)
    ranks[order] = np.linspace(0, 1, size * size, dtype=np.float32)
    return ranks.reshape(size, size)


def _stretch(grid: np.ndarray, size: int) -> np.ndarray:
    """Periodic smooth interpolation of the first axis to `size` rows."""
    at = np.arange(size) * len(grid) / size
    low = at.astype(int)
    part = at - low
    part = (part * part * (3 - 2 * part))[:, None]
    return (1 - part) * grid[low] + part * grid[(low + 1) % len(grid)]
