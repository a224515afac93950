"""Causal self-attention over the most recent frames of a video (the _A systems)."""

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.attention import dense
from models.backbones.layers import Dropout, LayerNorm, fold, gelu
from models.temporal.base import Temporal, sinusoids, zero_missing


class CausalAttention(nnx.Module):
    """Multi-head attention of each frame to itself and the `band - 1` frames before it.

    Args:
        width: number of channels C.
        heads: number of heads.
        band: maximum number of frames attended to, the current one included; None is all of the past.
        dropout: rate for attention weights and for the output.
        dtype: in which the layer computes; the softmax is in float32.
        rngs: for the initial parameters.

    Raises:
        ValueError: if the number of heads does not divide the width, and for a band below 1.
    """

    def __init__(self, width: int, heads: int, band: int | None, dropout: float, *, dtype: DTypeLike, rngs: nnx.Rngs):
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of heads, {heads}: change one of them")
        if band is not None and band < 1:
            raise ValueError(f"band is {band} frames: give at least 1, the current frame, or None for all of the past")
        self.qkv = dense(width, 3 * width, dtype=dtype, rngs=rngs)
        self.proj = dense(width, width, dtype=dtype, rngs=rngs)
        self.drop_weights, self.drop = Dropout(dropout), Dropout(dropout)
        self.heads = heads
        self.band = band

    def __call__(self, x: Array, valid: Array, key: Array | None) -> Array:
        """Apply attention to x (B, T, C); a frame attends to valid (B, T) frames and to itself."""
        batch, length, width = x.shape
        # In blocks as long as the band, a frame's past lies in its own block and the previous one.
        block = length if self.band is None else min(max(self.band - 1, 64), length)
        count = -(-length // block)
        spare = count * block - length
        qkv = jnp.pad(self.qkv(x), ((0, 0), (0, spare), (0, 0)))
        qkv = qkv.reshape(batch, count, block, 3, self.heads, width // self.heads).transpose(3, 0, 1, 4, 2, 5)
        valid = jnp.pad(valid, ((0, 0), (0, spare))).reshape(batch, count, block)
        q, k, v = qkv
        if count > 1:
            k, v, valid = _with_previous(k, 3), _with_previous(v, 3), _with_previous(valid, 2)
        query = jnp.arange(block)[:, None] + (valid.shape[-1] - block)
        keys = jnp.arange(valid.shape[-1])
        past = (keys <= query) & (keys > query - (valid.shape[-1] + 1 if self.band is None else self.band))
        attended = (past & valid[:, :, None, None, :]) | (keys == query)
        logits = jnp.einsum("bnhqd,bnhkd->bnhqk", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
        weights = jax.nn.softmax(jnp.where(attended, logits, -jnp.inf)).astype(v.dtype)
        out = jnp.einsum("bnhqk,bnhkd->bnqhd", self.drop_weights(weights, fold(key, 0)), v)
        out = out.reshape(batch, count * block, width)[:, :length]
        return self.drop(self.proj(out), fold(key, 1))


def _with_previous(x: Array, axis: int) -> Array:
    """Prepend to each block of x (B, blocks, ...) the previous block along an axis, and zeros to the first."""
    previous = jnp.concatenate([jnp.zeros_like(x[:, :1]), x[:, :-1]], 1)
    return jnp.concatenate([previous, x], axis)


class Block(nnx.Module):
    """A pre-norm transformer block: causal attention, then a two-layer perceptron.

    Args:
        width: number of channels C.
        heads: number of attention heads.
        band: maximum number of frames attended to, the current one included; None is all of the past.
        expand: ratio of the perceptron's width to C.
        dropout: rate for each branch and for attention weights.
        dtype: in which the block computes.
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

    def __call__(self, x: Array, valid: Array, key: Array | None) -> Array:
        """Apply the block to x (B, T, C) with valid frames (B, T)."""
        x = x + self.attn(self.norm1(x), valid, fold(key, 0))
        return x + self.drop(self.narrow(gelu(self.widen(self.norm2(x)))), fold(key, 1))


class Stack(nnx.Module):
    """A sequence of `layers` blocks with the arguments of `Block`."""

    def __init__(self, layers: int, width: int, heads: int, band: int | None, expand: int, dropout: float, **options):
        self.blocks = nnx.List([Block(width, heads, band, expand, dropout, **options) for _ in range(layers)])

    def __call__(self, x: Array, valid: Array, key: Array | None) -> Array:
        """Apply the blocks to x (B, T, C) with valid frames (B, T)."""
        for number, block in enumerate(self.blocks):
            x = block(x, valid, fold(key, number))
        return x


class Embedded(Temporal):
    """Base of the causal transformers: linearly projected features plus sinusoidal positions.

    Args:
        inputs: length D of the features.
        width: number of channels of the projection.
        drop_inputs: dropout rate of the projection.
        dtype: in which the model computes.
        rngs: for the initial parameters.
    """

    def __init__(self, inputs: int, width: int, drop_inputs: float, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.project = dense(inputs, width, dtype=dtype, rngs=rngs)
        self.drop_inputs = Dropout(drop_inputs)
        self.norm = LayerNorm(width)
        self.width = width

    def embed(self, features: Array, mask: Array | None, key: Array | None) -> tuple[Array, Array]:
        """Return embedded frames (B, T, width) and which of them are valid (B, T)."""
        features, valid = zero_missing(features, mask)
        x = self.drop_inputs(self.project(features), fold(key, 0))
        return x + sinusoids(x.shape[1], self.width).astype(x.dtype), valid


class CausalTransformer(Embedded):
    """Causal self-attention over the embedded features of a video.

    Args:
        inputs: length D of the features.
        width: number of channels C.
        layers: number of blocks.
        heads: number of attention heads.
        band: maximum number of frames that a layer attends to, the current one included; None is all of the past.
        expand: ratio of the perceptrons' width to C.
        dropout: rate inside the blocks.
        drop_inputs: dropout rate of the projected features.
        dtype: in which the model computes.
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
        super().__init__(inputs, width, drop_inputs, dtype=dtype, rngs=rngs)
        self.stack = Stack(layers, width, heads, band, expand, dropout, dtype=dtype, rngs=rngs)

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Array:
        """See `Temporal`."""
        x, valid = self.embed(features, mask, key)
        return self.norm(self.stack(x, valid, fold(key, 1)))


def lapformer(inputs: int, *, layers: int = 2, band: int = 16, **options) -> CausalTransformer:
    """Build a model after LapFormer (Kondo 2021): a transformer over a short window of past frames.

    The abstract does not give its depth, heads and window; the defaults here are our choice. Options are those of
    `CausalTransformer`.
    """
    return CausalTransformer(inputs, layers=layers, band=band, **options)
