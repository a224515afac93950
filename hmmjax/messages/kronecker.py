"""Products with a Kronecker product of small matrices, one set per phase, that is never formed.

Blocks are (n, n, L), phases last, and so is what they multiply, (..., C, L): a processor's vector registers then hold
the phases of one configuration, whatever bit of it is worked on.
"""

import math

import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array


def group(blocks: tuple[Array, ...], limit: int) -> tuple[Array, ...]:
    """Neighboring blocks multiplied out, evenly, as far as sizes stay within `limit`: few large products for many."""
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
    """Blocks that pull back what `blocks` push forwards."""
    return tuple(jnp.swapaxes(b, 0, 1) for b in blocks)


def push(x: Array, blocks: tuple[Array, ...]) -> Array:
    """Sum over old configurations: out[..., c, q] = sum_c* x[..., c*, q] prod_g blocks[g][c*_g, c_g, q].

    Work is L * C * (sum of block sizes).
    """
    sizes = [b.shape[0] for b in blocks]
    for g in range(len(blocks)):
        x = _one(x, blocks[g], *_split(sizes, g))
    return x


def gradients(u: Array, v: Array, blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    """Derivative of sum_{t, q} v[t, :, q] . push(u[t])[:, q] with respect to every block, for u, v (T, C, L).

    For block g, u is pushed through the blocks before it and v pulled back through those after it; both are then
    indexed by (new bits on the left, own bits, old bits on the right), and everything but the own bits is summed.

    Source: the exact pair counts of Appendix S2.2 without a joint matrix (prefix and suffix products).
    """
    sizes, back = [b.shape[0] for b in blocks], transposed(blocks)
    suffixes = [v]
    for g in range(len(blocks) - 1, 0, -1):
        suffixes.append(_one(suffixes[-1], back[g], *_split(sizes, g)))
    suffixes.reverse()
    out = []
    for g, n in enumerate(sizes):
        left, right = _split(sizes, g)
        shape = (-1, left, n, right, u.shape[-1])
        out.append(num.einsum("tlirq,tljrq->ijq", u.reshape(shape), suffixes[g].reshape(shape)))
        if g + 1 < len(blocks):
            u = _one(u, blocks[g], left, right)
    return tuple(out)


def _split(sizes: list[int], g: int) -> tuple[int, int]:
    """Configurations of the bits left and right of block g."""
    left = right = 1
    for s in sizes[:g]:
        left *= s
    for s in sizes[g + 1 :]:
        right *= s
    return left, right


def _one(x: Array, block: Array, left: int, right: int) -> Array:
    n = block.shape[0]
    y = x.reshape(*x.shape[:-2], left, n, right, x.shape[-1])
    if n == 2:
        # Two terms: a sum that fuses beats a matrix product.
        out = jnp.sum(y[..., :, None, :, :] * block[:, :, None, :], -4)
    else:
        out = num.einsum("...lirq,ijq->...ljrq", y, block)
    return out.reshape(x.shape)
