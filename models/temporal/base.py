"""What every temporal model answers."""

from typing import Any

from flax import nnx
from jax import Array
from jax import numpy as jnp

from models.backbones.base import Cells

#: One sequence (B, T, width) for all heads, or one for each track.
Sequences = Array | dict[str, Array]


class Temporal(nnx.Module):
    """A model called as ``temporal(features, mask=None, key=None)``.

    Features are (B, T, D), one row a video from its beginning: what a model remembers starts anew in each row. The mask
    (B, T) is False at frames that are not there (padding, gaps); what they hold changes no other frame's answer. All
    models here are causal: an answer depends on its own frame and earlier ones. The key is for dropout, and only
    training needs it.

    Attributes:
        width: length of its own features.
        cells: rows, columns and channels where these are maps, written as vectors; None where they are not.
        carries: whether it can go on from where it was, by `start` and `run`: one whose features are too large for
            those of a whole video to be kept.
    """

    width: int
    cells: Cells | None = None
    carries: bool = False

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Sequences:
        """(B, T, D) to (B, T, width), or to that by track."""
        raise TypeError(f"{type(self).__name__} must define __call__")

    def start(self, batch: int) -> Any:
        """What it remembers at the beginning of `batch` videos."""
        raise TypeError(f"{type(self).__name__} sees whole videos only")

    def run(self, features: Array, mask: Array | None, state: Any) -> tuple[Sequences, Any]:
        """As the call, on the next frames of videos of which it remembers `state`; and what it remembers then."""
        raise TypeError(f"{type(self).__name__} sees whole videos only")


def sinusoids(length: int, width: int) -> Array:
    """Positions (length, width) as sines and cosines of wavelengths from 2 pi to 20,000 pi (Vaswani et al. 2017)."""
    frequency = 10000.0 ** (-(jnp.arange(width) // 2 * 2) / width)
    angle = jnp.arange(length)[:, None] * frequency
    return jnp.where(jnp.arange(width) % 2 == 0, jnp.sin(angle), jnp.cos(angle))
