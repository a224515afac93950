"""Self-attention among all tokens, in a fused form on GPUs, and rotary positions."""

import math

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.attention import dense

#: A rotation of queries and keys: cosines and sines (tokens, channels per head).
Rotation = tuple[np.ndarray, np.ndarray]


def on_nvidia(dtype: DTypeLike) -> bool:
    """Whether a network in this dtype computes on an NVIDIA GPU with fused attention (Ampere or later)."""
    if jax.default_backend() != "gpu" or jnp.dtype(dtype) not in (jnp.bfloat16, jnp.float16):
        return False
    capability = str(getattr(jax.devices()[0], "compute_capability", "0")).partition(".")[0]
    return capability.isdecimal() and int(capability) >= 8


class Attention(nnx.Module):
    """Multi-head self-attention.

    Args:
        width: number of channels C.
        heads: number of heads.
        flash: use cuDNN's fused attention; None uses it in half precision on NVIDIA GPUs.
        dtype: in which the layer computes.
        rngs: for the initial parameters.
    """

    def __init__(self, width: int, heads: int, *, flash: bool | None, dtype: DTypeLike, rngs: nnx.Rngs):
        self.qkv = dense(width, 3 * width, dtype=dtype, rngs=rngs)
        self.proj = dense(width, width, dtype=dtype, rngs=rngs)
        self.heads = heads
        self.flash, self.dtype = flash, dtype

    def __call__(self, x: Array, rotation: Rotation | None, lengths: Array | None = None) -> Array:
        """Apply attention to x (N, T, C).

        Args:
            x: tokens.
            rotation: of the last tokens, or None.
            lengths: (N,) number of tokens that are attended to, the first ones; None for all.

        Returns:
            (N, T, C).
        """
        n, tokens, width = x.shape
        q, k, v = jnp.moveaxis(self.qkv(x).reshape(n, tokens, 3, self.heads, width // self.heads), 2, 0)
        if rotation is not None:
            q, k = _rotate(q, rotation), _rotate(k, rotation)
        form = "cudnn" if self.fused() else "xla"
        out = jax.nn.dot_product_attention(q, k, v, implementation=form, key_value_seq_lengths=lengths)
        return self.proj(out.reshape(n, tokens, width))

    def fused(self) -> bool:
        """Whether this layer uses cuDNN's fused attention."""
        return on_nvidia(self.dtype) if self.flash is None else self.flash


def _rotate(x: Array, rotation: Rotation) -> Array:
    """Rotate the last tokens of x (N, T, heads, d); class token and registers come before them and have no place."""
    cos, sin = (jnp.asarray(part, jnp.float32)[:, None] for part in rotation)
    count = cos.shape[0]
    rest, own = x[:, :-count], x[:, -count:].astype(jnp.float32)
    first, second = jnp.split(own, 2, -1)
    turned = own * cos + jnp.concatenate([-second, first], -1) * sin
    return jnp.concatenate([rest, turned.astype(x.dtype)], 1)


def rotation_of(rows: int, columns: int, width: int, base: float) -> Rotation:
    """Return DINOv3's rotary embedding of a grid of patches, by the places of their centers in [-1, 1].

    Args:
        rows: of the grid.
        columns: of the grid.
        width: channels per head, a multiple of 4.
        base: the longest period.
    """
    places = [(np.arange(count) + 0.5) / count * 2 - 1 for count in (rows, columns)]
    grid = np.stack(np.meshgrid(*places, indexing="ij"), -1).reshape(-1, 2, 1)
    periods = base ** (4 * np.arange(width // 4) / width)
    angles = np.tile((2 * math.pi * grid / periods).reshape(len(grid), -1), 2)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
