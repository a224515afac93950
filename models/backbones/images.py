"""Conversion and normalization of images, which every network applies before its first layer."""

import numpy as np
from jax import Array
from jax import numpy as jnp

#: Mean and standard deviation of ImageNet's RGB in [0, 1], which torchvision's weights expect.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def as_floats(images: Array) -> Array:
    """Convert images (...) of uint8, or of floats in [0, 1], to floats in [0, 1].

    Raises:
        ValueError: for other integer dtypes, whose value range is ambiguous.
    """
    if images.dtype == jnp.uint8:
        return images.astype(jnp.float32) / 255
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise ValueError(f"the images have dtype {images.dtype}. Fix: pass uint8, or floats in [0, 1]")
    return images


def normalize(images: Array, mean: tuple[float, ...], std: tuple[float, ...]) -> Array:
    """Convert images (..., 3), uint8 or floats in [0, 1], to the scale that a network was trained on.

    Args:
        images: (..., 3) RGB.
        mean: per channel, subtracted from the image in [0, 1].
        std: per channel, by which the difference is divided.

    Returns:
        (..., 3) floats.

    Raises:
        ValueError: for other integer dtypes, whose value range is ambiguous.
    """
    return (as_floats(images) - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)


def size_of(images: Array) -> tuple[int, int]:
    """Return the height and width of images or maps (N, H, W, C)."""
    _, height, width, _ = images.shape
    return height, width
