"""The interface of a temporal model, and positions and padding that several of them share."""

from typing import Any

from flax import nnx
from jax import Array
from jax import numpy as jnp

from models.backbones.base import Cells

#: One sequence (B, T, width) for all heads, or one per track.
Sequences = Array | dict[str, Array]


class Temporal(nnx.Module):
    """A model called as ``temporal(features, mask=None, key=None)``.

    Features are (B, T, D), one row per video, from its first frame. The mask (B, T) is False at missing frames (padding
    and gaps), whose features do not affect any other frame. The key is for dropout and is needed only in training mode.

    Attributes:
        width: length of its output features.
        causal: whether the output at a frame depends on this frame and earlier ones only.
        cells: rows, columns and channels if these are flattened maps, else None.
        carries: whether `start` and `run` can process a video piece by piece, for models whose input features are too
            large to keep for a whole video.
    """

    width: int
    causal: bool = True
    cells: Cells | None = None
    carries: bool = False

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Sequences:
        """Compute output features (B, T, width), or a dictionary of them by track, from features (B, T, D)."""
        raise TypeError(f"{type(self).__name__} must define __call__")

    def start(self, batch: int) -> Any:
        """Return the state before the first frame of `batch` videos."""
        raise TypeError(f"{type(self).__name__} processes whole videos only. Fix: call it with all frames of a video")

    def run(self, features: Array, mask: Array | None, state: Any) -> tuple[Sequences, Any]:
        """Process the next frames of videos from their state; return the output features and the new state."""
        raise TypeError(f"{type(self).__name__} processes whole videos only. Fix: call it with all frames of a video")


def sinusoids(length: int, width: int) -> Array:
    """Return positions (length, width) as sines and cosines of wavelength 2 pi to 20,000 pi (Vaswani et al. 2017)."""
    frequency = 10000.0 ** (-(jnp.arange(width) // 2 * 2) / width)
    angle = jnp.arange(length)[:, None] * frequency
    return jnp.where(jnp.arange(width) % 2 == 0, jnp.sin(angle), jnp.cos(angle))


def zero_missing(features: Array, mask: Array | None) -> tuple[Array, Array]:
    """Set the features of missing frames to zero, because padding may hold NaN; also return the mask (B, T)."""
    valid = jnp.ones(features.shape[:2], bool) if mask is None else mask
    return jnp.where(valid[..., None], features, 0), valid
