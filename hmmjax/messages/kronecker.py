"""Products with a Kronecker product of small matrices, one set per phase, that is never formed."""

import jax.numpy as jnp

from hmmjax import _numerics as num
from hmmjax._typing import Array


def push(x: Array, blocks: tuple[Array, ...]) -> Array:
    """Sum over old configurations: out[..., q, c] = sum_c* x[..., q, c*] prod_g blocks[g][q, c*_g, c_g].

    x is (..., L, C). Work is L * C * (sum of block sizes).
    """
    right = x.shape[-1]
    shape = x.shape
    for block in blocks:
        n = block.shape[-1]
        right //= n
        x = num.einsum("...qlir,qij->...qljr", x.reshape(*shape[:-1], -1, n, right), block)
    return x.reshape(shape)


def pull(x: Array, blocks: tuple[Array, ...]) -> Array:
    """Sum over new configurations: out[..., q, c*] = sum_c prod_g blocks[g][q, c*_g, c_g] x[..., q, c]."""
    return push(x, tuple(jnp.swapaxes(b, -1, -2) for b in blocks))


def gradients(u: Array, v: Array, blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    """Derivative of sum_{t, q} v[t, q] . push(u[t, q]) with respect to every block, for u, v (T, L, C).

    For block g, u is pushed through the blocks before it and v pulled back through those after it; both are then
    indexed by (new bits on the left, own bits, old bits on the right), and everything but the own bits is summed.

    Source: the exact pair counts of model without a joint matrix (prefix and suffix products).
    """
    sizes = [b.shape[-1] for b in blocks]
    suffixes = [v]
    for g in range(len(blocks) - 1, 0, -1):
        suffixes.append(_one(suffixes[-1], jnp.swapaxes(blocks[g], -1, -2), sizes, g))
    suffixes.reverse()
    out = []
    for g, n in enumerate(sizes):
        left, right = _split(sizes, g)
        shape = (*u.shape[:-1], left, n, right)
        out.append(num.einsum("tqlir,tqljr->qij", u.reshape(shape), suffixes[g].reshape(shape)))
        if g + 1 < len(blocks):
            u = _one(u, blocks[g], sizes, g)
    return tuple(out)


def _split(sizes: list[int], g: int) -> tuple[int, int]:
    left = right = 1
    for s in sizes[:g]:
        left *= s
    for s in sizes[g + 1 :]:
        right *= s
    return left, right


def _one(x: Array, block: Array, sizes: list[int], g: int) -> Array:
    left, right = _split(sizes, g)
    y = x.reshape(*x.shape[:-1], left, sizes[g], right)
    return num.einsum("...qlir,qij->...qljr", y, block).reshape(x.shape)
