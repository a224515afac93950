"""Products with a Kronecker product of small matrices, one set per phase, without forming the large matrix.

Blocks are (n, n, L), phases last, and so is what they multiply, (..., C, L): a processor's vector registers then hold
the phases of one configuration, whichever of its bits is processed. `push` and `gradients` are sums of products,
`push_max` and `log_column` their counterparts in logarithms for the most probable path.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array

DENSE = 128
"""Largest number of configurations whose transitions are counted by one matrix product per phase."""

GROUP = 16
"""Largest number of configurations of a group of tools, if not all tools are one group."""


def phases_last(blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    """Move the axis of phases of (L, n, n) blocks to the end."""
    return tuple(jnp.moveaxis(b, 0, -1) for b in blocks)


def group(blocks: tuple[Array, ...], limit: int) -> tuple[Array, ...]:
    """Multiply neighboring blocks into larger ones of even size, at most `limit`: fewer, larger products are faster."""
    bits = sum(math.log2(b.shape[0]) for b in blocks)
    parts = max(1, math.ceil(bits / math.log2(limit)))
    limit = 2 ** math.ceil(bits / parts)
    out: list[Array] = []
    for block in blocks:
        if out and out[-1].shape[0] * block.shape[0] <= limit:
            a, size = out[-1], out[-1].shape[0] * block.shape[0]
            out[-1] = (a[:, None, :, None] * block[None, :, None, :]).reshape(size, size, -1)
        else:
            out.append(block)
    return tuple(out)


def transposed(blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    """Transpose every block: pushing through these is the backward recursion's step."""
    return tuple(jnp.swapaxes(b, 0, 1) for b in blocks)


def push(x: Array, blocks: tuple[Array, ...]) -> Array:
    """Sum over old configurations: out[..., c, q] = sum_c* x[..., c*, q] prod_g blocks[g][c*_g, c_g, q].

    Work is L * C * (sum of block sizes).
    """
    sizes = [b.shape[0] for b in blocks]
    for g in range(len(blocks)):
        x = _push_one(x, blocks[g], *_split(sizes, g))
    return x


def gradients(u: Array, v: Array, blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    """Compute the derivative of sum_{t, q} v[t, :, q] . push(u[t])[:, q] in every block, for u, v (T, C, L).

    For block g, u is pushed through the blocks before it and v pulled back through those after it; both are then
    indexed by (new bits on the left, own bits, old bits on the right), and everything but the own bits is summed.

    Source: the exact pair counts of Appendix S2.2 without a joint matrix (prefix and suffix products).
    """
    sizes, back = [b.shape[0] for b in blocks], transposed(blocks)
    suffixes = [v]
    for g in range(len(blocks) - 1, 0, -1):
        suffixes.append(_push_one(suffixes[-1], back[g], *_split(sizes, g)))
    suffixes.reverse()
    out = []
    for g, n in enumerate(sizes):
        left, right = _split(sizes, g)
        shape = (-1, left, n, right, u.shape[-1])
        out.append(num.einsum("tlirq,tljrq->ijq", u.reshape(shape), suffixes[g].reshape(shape)))
        if g + 1 < len(blocks):
            u = _push_one(u, blocks[g], left, right)
    return tuple(out)


def _split(sizes: list[int], g: int) -> tuple[int, int]:
    """Return the numbers of configurations of the bits on the left and on the right of block g."""
    return math.prod(sizes[:g]), math.prod(sizes[g + 1 :])


def _push_one(x: Array, block: Array, left: int, right: int) -> Array:
    n = block.shape[0]
    y = x.reshape(*x.shape[:-2], left, n, right, x.shape[-1])
    if n == 2:
        # Two terms: a sum that fuses beats a matrix product.
        out = jnp.sum(y[..., :, None, :, :] * block[:, :, None, :], -4)
    else:
        out = num.einsum("...lirq,ijq->...ljrq", y, block)
    return out.reshape(x.shape)


def push_max(x: Array, log_blocks: tuple[Array, ...]) -> Array:
    """Maximize over old configurations: out[c, q] = max_c* (x[c*, q] + sum_g log_blocks[g][c*_g, c_g, q])."""
    left, right = 1, x.shape[0]
    for block in log_blocks:
        n = block.shape[0]
        right //= n
        y = x.reshape(left, n, 1, right, -1) + block[:, :, None, :]
        x, left = jnp.max(y, 1), left * n
    return x.reshape(-1, x.shape[-1])


def log_column(log_blocks: tuple[Array, ...], phase: Array, config: Array, dtype: Any) -> Array:
    """Return log P(config | c*, phase) for every old configuration c*, (C,)."""
    column, right = jnp.zeros((1,), dtype), math.prod(len(b) for b in log_blocks)
    for block in log_blocks:
        n = len(block)
        right //= n
        own = lax.dynamic_index_in_dim(block, (config // right) % n, 1, keepdims=False)
        own = lax.dynamic_index_in_dim(own, phase, 1, keepdims=False)
        column = (column[:, None] + own).reshape(-1)
    return column
