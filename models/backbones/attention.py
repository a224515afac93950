"""Self-attention inside shifted windows, with a learned bias per relative position (Swin)."""

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

#: Added by torchvision to the logits between tokens that only the cyclic shift made neighbors.
MASK_LOGIT = -100.0

truncated_normal = nnx.initializers.truncated_normal(0.02)


def dense(inputs: int, outputs: int, *, bias: bool = True, dtype: DTypeLike, rngs: nnx.Rngs) -> nnx.Linear:
    """Build a dense layer with Swin's initialization."""
    return nnx.Linear(inputs, outputs, use_bias=bias, dtype=dtype, kernel_init=truncated_normal, rngs=rngs)


class WindowAttention(nnx.Module):
    """Multi-head self-attention inside windows of a feature map.

    Args:
        width: number of channels C.
        heads: number of heads.
        window: side of a window, in tokens.
        shift: offset of the windows against the grid, in tokens; no shift along an axis with a single window.
        align: multiple to which a window's tokens are padded inside the two batched products, which run faster on
            matrix units when their sides are multiples of 8; the result is the same.
        dtype: in which the layer computes; the softmax is in float32.
        rngs: for the initial parameters.
    """

    def __init__(
        self, width: int, heads: int, window: int, shift: int, *, align: int = 1, dtype: DTypeLike, rngs: nnx.Rngs
    ):
        self.qkv = dense(width, 3 * width, dtype=dtype, rngs=rngs)
        self.proj = dense(width, width, dtype=dtype, rngs=rngs)
        table = truncated_normal(rngs.params(), ((2 * window - 1) ** 2, heads), jnp.float32)
        self.relative_position_bias_table = nnx.Param(table)
        self.heads = heads
        self.window = window
        self.shift = shift
        self.align = align
        self.dtype = dtype

    def __call__(self, x: Array) -> Array:
        """Apply attention to x (N, H, W, C)."""
        n, height, width, channels = x.shape
        heads, side = self.heads, self.window
        rows, columns = -(-height // side), -(-width // side)
        down, right = (self.shift if count > 1 else 0 for count in (rows, columns))
        x = jnp.pad(x, ((0, 0), (0, rows * side - height), (0, columns * side - width), (0, 0)))
        qkv = self.qkv(x)
        if down or right:
            qkv = jnp.roll(qkv, (-down, -right), (1, 2))
        # One transpose splits into windows and heads: (3, N, windows, heads, tokens, channels per head).
        qkv = qkv.reshape(n, rows, side, columns, side, 3, heads, channels // heads).transpose(5, 0, 1, 3, 6, 2, 4, 7)
        q, k, v = qkv.reshape(3, n, rows * columns, heads, side * side, channels // heads)
        out = self._attend(q, k, v, window_regions(rows, columns, side, (down, right)) if down or right else None)
        out = out.reshape(n, rows, columns, heads, side, side, channels // heads).transpose(0, 1, 4, 2, 5, 3, 6)
        out = out.reshape(n, rows * side, columns * side, channels)
        if down or right:
            out = jnp.roll(out, (down, right), (1, 2))
        return self.proj(out[:, :height, :width])

    def _attend(self, q: Array, k: Array, v: Array, regions: np.ndarray | None) -> Array:
        """Attend within (N, windows, heads, tokens, d); only tokens of one region (windows, tokens) interact."""
        tokens = q.shape[-2]
        spare = -tokens % self.align
        q, k, v = (jnp.pad(a, ((0, 0),) * 3 + ((0, spare), (0, 0))) for a in (q, k, v))
        bias = jnp.pad(self._bias(), ((0, 0), (0, spare), (0, spare)))
        bias = jnp.where(jnp.arange(tokens + spare) < tokens, bias, -jnp.inf)
        if regions is not None:
            origin = np.pad(regions, ((0, 0), (0, spare)))
            bias = bias + jnp.where(origin[:, None, :, None] == origin[:, None, None, :], 0, MASK_LOGIT)
        logits = jnp.einsum("nwhqd,nwhkd->nwhqk", q, k).astype(bias.dtype)
        weights = softmax(logits * q.shape[-1] ** -0.5 + bias, self.dtype)
        return jnp.einsum("nwhqk,nwhkd->nwhqd", weights, v)[..., :tokens, :]

    def _bias(self) -> Array:
        """Return the bias (heads, tokens, tokens), by a one-hot product: a gather's gradient is unordered on a GPU."""
        table = self.relative_position_bias_table[...]
        index = relative_position_index(self.window)
        rows = jax.nn.one_hot(index.reshape(-1), len(table), dtype=table.dtype)
        bias = jnp.matmul(rows, table, precision=jax.lax.Precision.HIGHEST)
        return bias.reshape(*index.shape, self.heads).transpose(2, 0, 1)


def _softmax_primal(logits: Array, dtype: DTypeLike) -> Array:
    return jax.nn.softmax(logits, axis=-1).astype(dtype)


def _softmax_forward(logits, dtype):
    weights = _softmax_primal(logits, dtype)
    return weights, weights


def _softmax_backward(dtype, weights, grad):
    weights, grad = weights.astype(jnp.float32), grad.astype(jnp.float32)
    return (weights * (grad - (weights * grad).sum(-1, keepdims=True)),)


_softmax = jax.custom_vjp(_softmax_primal, nondiff_argnums=(1,))
_softmax.defvjp(_softmax_forward, _softmax_backward)


def softmax(logits: Array, dtype: DTypeLike) -> Array:
    """Compute the softmax over the last axis, storing only its output in `dtype` for the backward pass.

    Args:
        logits: (..., n), float32.
        dtype: of the output.

    Returns:
        (..., n).
    """
    return _softmax(logits, dtype)


def relative_position_index(window: int) -> np.ndarray:
    """Return the row of the bias table for each pair of tokens of a window: (window ** 2, window ** 2)."""
    y, x = np.divmod(np.arange(window * window), window)
    return (y[:, None] - y + window - 1) * (2 * window - 1) + (x[:, None] - x + window - 1)


def window_regions(rows: int, columns: int, side: int, shift: tuple[int, int]) -> np.ndarray:
    """Return the region of the map that each token of a shifted window comes from: (rows * columns, side ** 2).

    The shift is cyclic, so windows at the lower and right edges hold tokens from opposite ends of the map.
    """

    def bands(count: int, by: int) -> np.ndarray:
        position = np.arange(count * side)
        return (position >= (count - 1) * side).astype(np.int32) + ((position >= count * side - by) if by else 0)

    labels = 3 * bands(rows, shift[0])[:, None] + bands(columns, shift[1])
    return labels.reshape(rows, side, columns, side).transpose(0, 2, 1, 3).reshape(rows * columns, side * side)
