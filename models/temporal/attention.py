"""Causal self-attention over the last frames of a video (the _A systems)."""

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.attention import dense
from models.backbones.layers import Dropout, LayerNorm, fold, gelu
from models.temporal.base import Temporal, sinusoids


class CausalAttention(nnx.Module):
    """Multi-head attention of each frame to itself and the `band - 1` frames before it.

    Args:
        width: channels C.
        heads: number of heads.
        band: frames seen, the present one included; None sees all of the past.
        dropout: of attention weights and of the result.
        dtype: of the computation; the softmax is in float32.
        rngs: for the initial parameters.

    Raises:
        ValueError: for heads that do not share the width, and for a band without any frame.
    """

    def __init__(self, width: int, heads: int, band: int | None, dropout: float, *, dtype: DTypeLike, rngs: nnx.Rngs):
        if width % heads:
            raise ValueError(f"{width} channels cannot be shared by {heads} heads")
        if band is not None and band < 1:
            raise ValueError(f"a band of {band} frames: give at least 1, the present one, or None for all of the past")
        self.qkv = dense(width, 3 * width, dtype=dtype, rngs=rngs)
        self.proj = dense(width, width, dtype=dtype, rngs=rngs)
        self.drop_weights, self.drop = Dropout(dropout), Dropout(dropout)
        self.heads = heads
        self.band = band

    def __call__(self, x: Array, there: Array, key: Array | None) -> Array:
        """(B, T, C) to (B, T, C); only frames that are there (B, T) are seen, beside each frame by itself."""
        batch, length, width = x.shape
        # Blocks as long as the band: a frame's past lies in its own block and the one before.
        block = length if self.band is None else min(max(self.band - 1, 64), length)
        count = -(-length // block)
        spare = count * block - length
        qkv = jnp.pad(self.qkv(x), ((0, 0), (0, spare), (0, 0)))
        qkv = qkv.reshape(batch, count, block, 3, self.heads, width // self.heads).transpose(3, 0, 1, 4, 2, 5)
        there = jnp.pad(there, ((0, 0), (0, spare))).reshape(batch, count, block)
        q, k, v = qkv
        if count > 1:
            k, v, there = _with_previous(k, 3), _with_previous(v, 3), _with_previous(there, 2)
        place, other = jnp.arange(block)[:, None] + (there.shape[-1] - block), jnp.arange(there.shape[-1])
        past = (other <= place) & (other > place - (there.shape[-1] + 1 if self.band is None else self.band))
        seen = (past & there[:, :, None, None, :]) | (other == place)
        logits = jnp.einsum("bnhqd,bnhkd->bnhqk", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
        weights = jax.nn.softmax(jnp.where(seen, logits, -jnp.inf)).astype(v.dtype)
        out = jnp.einsum("bnhqk,bnhkd->bnqhd", self.drop_weights(weights, fold(key, 0)), v)
        out = out.reshape(batch, count * block, width)[:, :length]
        return self.drop(self.proj(out), fold(key, 1))


def _with_previous(x: Array, axis: int) -> Array:
    """Blocks (B, blocks, ...) with the block before each put before it along an axis; nothing before the first."""
    before = jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], 1)
    return jnp.concatenate([before, x], axis)


class Block(nnx.Module):
    """Attention, then a two-layer perceptron, each normalized before and added.

    Args:
        width: channels C.
        heads: number of heads.
        band: see `CausalAttention`.
        expand: the perceptron is this many times wider.
        dropout: of each branch and of attention weights.
        dtype: of the computation.
        rngs: for the initial parameters.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        band: int | None,
        expand: int,
        dropout: float,
        *,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        self.norm1, self.norm2 = LayerNorm(width), LayerNorm(width)
        self.attn = CausalAttention(width, heads, band, dropout, dtype=dtype, rngs=rngs)
        self.widen = dense(width, expand * width, dtype=dtype, rngs=rngs)
        self.narrow = dense(expand * width, width, dtype=dtype, rngs=rngs)
        self.drop = Dropout(dropout)

    def __call__(self, x: Array, there: Array, key: Array | None) -> Array:
        """(B, T, C) to (B, T, C)."""
        x = x + self.attn(self.norm1(x), there, fold(key, 0))
        return x + self.drop(self.narrow(gelu(self.widen(self.norm2(x)))), fold(key, 1))


class Stack(nnx.Module):
    """Blocks one after the other; arguments as `Block`'s, and the number of layers."""

    def __init__(self, layers: int, width: int, heads: int, band: int | None, expand: int, dropout: float, **options):
        self.blocks = nnx.List([Block(width, heads, band, expand, dropout, **options) for _ in range(layers)])

    def __call__(self, x: Array, there: Array, key: Array | None) -> Array:
        """(B, T, C) to (B, T, C)."""
        for number, block in enumerate(self.blocks):
            x = block(x, there, fold(key, number))
        return x


class CausalTransformer(Temporal):
    """Features, their place in the video, and causal attention.

    Args:
        inputs: length D of the features.
        width: channels inside.
        layers: number of blocks.
        heads: of attention.
        band: frames that a layer sees, the present one included; None for all of the past.
        expand: of the perceptrons.
        dropout: inside the blocks.
        drop_inputs: of the projected features.
        dtype: of the computation.
        rngs: for the initial parameters.
    """

    def __init__(
        self,
        inputs: int,
        *,
        width: int = 512,
        layers: int = 4,
        heads: int = 8,
        band: int | None = None,
        expand: int = 4,
        dropout: float = 0.1,
        drop_inputs: float = 0.1,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.project = dense(inputs, width, dtype=dtype, rngs=rngs)
        self.drop = Dropout(drop_inputs)
        self.stack = Stack(layers, width, heads, band, expand, dropout, dtype=dtype, rngs=rngs)
        self.norm = LayerNorm(width)
        self.width = width

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Array:
        """See `Temporal`."""
        features, there = only_there(features, mask)
        x = self.drop(self.project(features), fold(key, 0))
        x = x + sinusoids(x.shape[1], self.width).astype(x.dtype)
        return self.norm(self.stack(x, there, fold(key, 1)))


def only_there(features: Array, mask: Array | None) -> tuple[Array, Array]:
    """Features with zeros where the mask is False (padding may hold NaN), and the mask."""
    there = jnp.ones(features.shape[:2], bool) if mask is None else mask
    return jnp.where(there[..., None], features, 0), there


def lapformer(inputs: int, *, layers: int = 2, band: int = 16, **options) -> CausalTransformer:
    """LapFormer's idea (Kondo 2021): a transformer over a short window of frame features.

    Its depth, heads and window are not in its abstract; those here are choices. The window is of past frames only.
    Options are those of `CausalTransformer`.
    """
    return CausalTransformer(inputs, layers=layers, band=band, **options)
