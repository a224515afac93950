"""Numerics shared by families and messages: logarithms that keep zeros, sums that keep digits."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core.typing import Array

# Every product inside inference runs at full precision: on recent GPUs the default is TF32, which moves
# log-likelihoods by whole nats.
einsum = partial(jnp.einsum, precision=lax.Precision.HIGHEST)


@jax.custom_jvp
def log(x: Array) -> Array:
    """Natural logarithm, -inf at 0, where its derivative is taken as 0.

    A structural zero is a state that cannot be, not a small number: it takes no part in the gradient, and it must
    not turn the gradient of its neighbors into NaN.
    """
    return jnp.log(x)


@log.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    (x,), (dx,) = primals, tangents
    # The reciprocal of a denormal number overflows; below the smallest normal one is zero for this purpose.
    some = x >= jnp.finfo(x.dtype).tiny
    return jnp.log(x), jnp.where(some, dx / jnp.where(some, x, 1), 0)


def finite_max(x: Array, axis: int | Sequence[int], keepdims: bool = False) -> Array:
    """Maximum, or 0 where that is -inf: what may safely be subtracted before an exponential."""
    m = jnp.max(x, axis, keepdims=keepdims)
    return lax.stop_gradient(jnp.where(jnp.isfinite(m), m, 0))


def logsumexp(x: Array, axis: int, keepdims: bool = False) -> Array:
    """Log of the sum of exponentials; -inf, with zero gradient, where every entry is -inf."""
    m = finite_max(x, axis, keepdims=True)
    total = log(jnp.sum(jnp.exp(x - m), axis, keepdims=True)) + m
    return total if keepdims else jnp.squeeze(total, axis)


def accurate_sum(x: Array, axis: int = -1) -> Array:
    """Sum with a compensated binary tree: the error stays near one rounding however long the axis.

    Source: Knuth's two-sum, applied pairwise. -inf entries give -inf.
    """
    x = jnp.moveaxis(x, axis, -1)
    error = jnp.zeros_like(x)
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            pad = [(0, 0)] * (x.ndim - 1) + [(0, 1)]
            x, error = jnp.pad(x, pad), jnp.pad(error, pad)
        a, b = x[..., 0::2], x[..., 1::2]
        s = a + b
        z = s - a
        lost = (a - (s - z)) + (b - z)
        error = error[..., 0::2] + error[..., 1::2] + jnp.where(jnp.isfinite(lost), lost, 0)
        x = s
    if x.shape[-1] == 0:
        return jnp.zeros(x.shape[:-1], x.dtype)
    return x[..., 0] + error[..., 0]


def log_beta(a: Array, b: Array) -> Array:
    """Log B(a, b), accurate for large arguments in float32, where a difference of three log-gammas cancels."""
    small, large = jnp.minimum(a, b), jnp.maximum(a, b)
    total = small + large
    big = large > 8
    # Stirling's series for the two large log-gammas, whose leading terms cancel analytically.
    big_large, big_total = jnp.where(big, large, 9.0), jnp.where(big, total, 18.0)
    ratio = jnp.where(big, small / total, 0.5)
    difference = (
        (big_large - 0.5) * jnp.log1p(-ratio)
        - small * (jnp.log(big_total) - 1)
        + _stirling(big_large)
        - _stirling(big_total)
    )
    both = small > 8
    s = jnp.where(both, small, 9.0)
    # Both large: the small one's log-gamma joins the cancellation, log G(s) - s log(total) + s.
    leading = (s - 0.5) * jnp.log(jnp.where(both, ratio, 0.5)) - 0.5 * jnp.log(big_total) + _HALF_LOG_2PI + _stirling(s)
    joined = leading + (big_large - 0.5) * jnp.log1p(-ratio) + _stirling(big_large) - _stirling(big_total)
    direct = jax.lax.lgamma(small) + jax.lax.lgamma(large) - jax.lax.lgamma(total)
    return jnp.where(both, joined, jnp.where(big, jax.lax.lgamma(small) + difference, direct))


_HALF_LOG_2PI = 0.9189385332046727


def _stirling(x: Array) -> Array:
    """Correction term of Stirling's series, below float32 round-off for x > 8."""
    y = 1 / (x * x)
    return (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y / 1680))) / x
