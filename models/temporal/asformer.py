"""ASFormer (Yi et al. 2021): dilated convolutions and windowed attention, in an encoder and refining decoders."""

import math
from collections.abc import Mapping

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.layers import Dropout, fold
from models.temporal.base import zero_missing
from models.temporal.stages import DilatedStack, Logits, Staged, TimeConv

#: Smallest number of frames in a block of `WindowAttention`, a power of two; several smaller windows share a block.
_BLOCK = 64


class WindowAttention(nnx.Module):
    """Attention of frames to those around them, with one head.

    Time is cut into stretches of w frames, and each frame attends to its own stretch, to the w // 2 frames before that
    and to the w // 2 - 1 after. (ASFormer's text describes a window of w frames that slides with the frame; its code
    fills every row of the window's mask alike, with this result.)

    Args:
        width: number of channels C; queries, keys and values have half as many.
        window: number of frames w, a power of two.
        dtype: in which the layer computes; the softmax is in float32.
        rngs: for the initial parameters.
    """

    def __init__(self, width: int, window: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        def dense(inputs: int, outputs: int) -> TimeConv:
            return TimeConv(inputs, outputs, dtype=dtype, rngs=rngs)

        self.query_conv, self.key_conv = dense(width, width // 2), dense(width, width // 2)
        self.value_conv, self.conv_out = dense(width, width // 2), dense(width // 2, width)
        self.window = window

    def __call__(self, x: Array, values: Array, valid: Array) -> Array:
        """Attend from x (B, T, C) to x and read `values` (B, T, C), at valid (B, T) frames of the window."""
        batch, length, _ = x.shape
        # A block holds whole stretches; the frames next to them lie in the neighboring blocks.
        block = min(max(self.window, _BLOCK), length)
        reach = min(self.window // 2, block)
        spare = -length % block

        def blocks(a: Array) -> Array:
            a = jnp.pad(a, ((0, 0), (0, spare), *((0, 0),) * (a.ndim - 2)))
            return a.reshape(batch, -1, block, *a.shape[2:])

        query = blocks(self.query_conv(x))
        near = (self.key_conv(x), self.value_conv(values), valid)
        key, value, there = (_with_neighbors(blocks(a), reach) for a in near)
        frame, read = jnp.arange(block)[:, None], jnp.arange(block + 2 * reach) - reach
        first = frame // self.window * self.window - self.window // 2
        attended = (read >= first) & (read < first + 2 * self.window - 1) & there[:, :, None, :]
        # A missing frame without valid frames around it attends to itself, so that no softmax is empty.
        attended |= read == frame
        logits = jnp.einsum("bnqd,bnkd->bnqk", query, key).astype(jnp.float32) * query.shape[-1] ** -0.5
        weights = jax.nn.softmax(jnp.where(attended, logits, -jnp.inf)).astype(value.dtype)
        found = jnp.einsum("bnqk,bnkd->bnqd", weights, value).reshape(batch, length + spare, -1)[:, :length]
        return self.conv_out(jax.nn.relu(found))


def _with_neighbors(x: Array, reach: int) -> Array:
    """Add to each block of x (B, blocks, frames, ...) the nearest frames of its neighbors; zeros beyond the ends."""
    if reach == 0:
        return x
    zeros = jnp.zeros_like(x[:, :1, :reach])
    before = jnp.concatenate([zeros, x[:, :-1, -reach:]], 1)
    return jnp.concatenate([before, x, jnp.concatenate([x[:, 1:, :reach], zeros], 1)], 2)


def _standardize(x: Array, valid: Array) -> Array:
    """Give each channel of x (B, T, C) mean zero and variance one over the valid frames (B, T) of each video."""
    x, weight = x.astype(jnp.float32), valid[..., None]
    count = jnp.maximum(weight.sum(1, keepdims=True), 1)
    centered = x - jnp.where(weight, x, 0).sum(1, keepdims=True) / count
    variance = jnp.where(weight, centered**2, 0).sum(1, keepdims=True) / count
    return centered * jax.lax.rsqrt(variance + 1e-5)


class AttentionLayer(nnx.Module):
    """A dilated convolution over three frames, then attention in windows as wide as its dilation.

    Args:
        width: number of channels C.
        dilation: of the convolution, and the window of the attention, in frames.
        scale: of what the attention adds.
        dropout: rate at the end.
        dtype: in which the layer computes; normalization is in float32.
        rngs: for the initial parameters.
    """

    def __init__(self, width: int, dilation: int, scale: float, dropout: float, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.feed_forward = TimeConv(width, width, 3, dilation, dtype=dtype, rngs=rngs)
        self.att_layer = WindowAttention(width, dilation, dtype=dtype, rngs=rngs)
        self.conv_1x1 = TimeConv(width, width, dtype=dtype, rngs=rngs)
        self.dropout = Dropout(dropout)
        self.scale = scale

    def __call__(self, x: Array, values: Array | None, valid: Array, key: Array | None) -> Array:
        """Apply the layer to x (B, T, C).

        Args:
            x: (B, T, C).
            values: (B, T, C), read by the attention; None for the layer's own normalized frames.
            valid: (B, T); the output is zero at frames that are not valid.
            key: for dropout.
        """
        found = jax.nn.relu(self.feed_forward(x))
        normal = _standardize(found, valid).astype(found.dtype)
        found = self.scale * self.att_layer(normal, normal if values is None else values, valid) + found
        return jnp.where(valid[..., None], x + self.dropout(self.conv_1x1(found), key), 0)


class ASFormer(Staged):
    """A transformer for action segmentation over a whole video.

    The encoder reads the features. Each decoder reads the probabilities of the previous stage, of all tracks together,
    and its attention the frames of the previous stage. With phases alone it is the published network.

    Args:
        inputs: length D of the features.
        sizes: number of classes by track.
        width: number of channels, even.
        layers: number of layers of the encoder and of each decoder.
        decoders: number of decoders; the attention of the n-th, from zero, is scaled by ``exp(-3 n)``.
        smoothness: weight of `models.temporal.stages.smoothing_loss` in the loss of every stage.
        drop_inputs: rate at which whole channels of the features are dropped.
        dropout: rate in each layer.
        dtype: in which the model computes; logits are float32.
        rngs: for the initial parameters.

    Raises:
        ValueError: for fewer than one layer, fewer than no decoders, an odd width, and a negative weight.
    """

    causal = False
    published_names = ((".feed_forward.layer.0.", ".feed_forward."),)

    def __init__(
        self,
        inputs: int,
        *,
        sizes: Mapping[str, int],
        width: int = 64,
        layers: int = 10,
        decoders: int = 3,
        smoothness: float = 0.15,
        drop_inputs: float = 0.3,
        dropout: float = 0.5,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        if layers < 1 or decoders < 0:
            raise ValueError(f"layers is {layers} and decoders is {decoders}: give at least 1 and 0")
        if width % 2:
            raise ValueError(f"width is {width}: give an even number, which the attention halves")
        super().__init__(sizes, smoothness)

        def coder(inputs: int, scale: float) -> DilatedStack:
            options = {"scale": scale, "dropout": dropout, "dtype": dtype, "rngs": rngs}
            return DilatedStack(AttentionLayer, inputs, self.classes, width, layers, **options)

        self.encoder = coder(inputs, 1.0)
        self.decoders = nnx.List([coder(self.classes, math.exp(-3 * number)) for number in range(decoders)])
        self.drop_inputs = Dropout(drop_inputs)
        self.width = width

    def every_stage(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> list[Logits]:
        """See `Staged`."""
        features, valid = zero_missing(features, mask)
        features = features * self.drop_inputs(jnp.ones_like(features[:, :1]), fold(key, 0))
        logits, frames = self.encoder(features, valid, fold(key, 1), None)
        found = [self.split(logits)]
        for number, decoder in enumerate(self.decoders, 2):
            logits, frames = decoder(self.next_inputs(found[-1], valid), valid, fold(key, number), frames)
            found.append(self.split(logits))
        return found
