"""Numerics shared by families and messages: logarithms of structural zeros, accurate sums, log-beta, digamma."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import digamma

from hmmjax._core.typing import Array

# Every product in inference runs at full precision: the default on recent GPUs is TF32, which changes log-likelihoods
# by several nats.
einsum = partial(jnp.einsum, precision=lax.Precision.HIGHEST)


@jax.custom_jvp
def log(x: Array) -> Array:
    """Compute the natural logarithm; -inf at 0, with a derivative of 0 there.

    A zero is structural (an impossible state), not a small number: it has no gradient, and must not turn the gradient
    of its neighbors into NaN.
    """
    return jnp.log(x)


@log.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    (x,), (dx,) = primals, tangents
    # The reciprocal of a denormal number overflows, so these have no gradient either.
    normal = x >= jnp.finfo(x.dtype).tiny
    # By `log` itself, for derivatives of this derivative.
    return log(x), jnp.where(normal, dx / jnp.where(normal, x, 1), 0)


def as_probability(x: Array) -> Array:
    """Return `x` with rounding below 0 and above 1 cut off."""
    return jnp.where(x > 1, 1, jnp.where(x < 0, 0, x))


def log_marginal(p: Array) -> Array:
    """Return the logarithm of marginals (last axis), with all digits of probabilities near one.

    The logarithm of the largest one is that of one minus the sum of the others. Probabilities below the smallest normal
    number of the dtype (1.2e-38 in float32) count as that number, so that the result is finite.
    """
    tiny = jnp.finfo(p.dtype).tiny
    largest = jnp.arange(p.shape[-1]) == jnp.argmax(p, -1)[..., None]
    others = jnp.sum(jnp.where(largest, 0, p), -1, keepdims=True)
    near_one = largest & (others < 0.5)
    return jnp.where(near_one, jnp.log1p(-jnp.where(near_one, others, 0)), jnp.log(jnp.maximum(p, tiny)))


def log_odds(p: Array) -> Array:
    """Return the log-odds (...,) of presence, from marginals of absence and presence (..., 2).

    Either may be as small as the smallest normal number of the dtype: log-odds are within 87.3 nats in float32.
    """
    logs = jnp.log(jnp.maximum(p, jnp.finfo(p.dtype).tiny))
    return logs[..., 1] - logs[..., 0]


def finite_max(x: Array, axis: int | Sequence[int], keepdims: bool = False) -> Array:
    """Return the maximum, or 0 if it is -inf: a constant that may be subtracted before an exponential."""
    m = jnp.max(x, axis, keepdims=keepdims)
    return lax.stop_gradient(jnp.where(jnp.isfinite(m), m, 0))


def relative(x: Array) -> tuple[Array, Array]:
    """Return log-likelihoods (..., n) less the largest of each row, and these (...).

    Only differences matter to messages, which float32 would round off when added to large numbers.
    """
    top = finite_max(x, -1)
    return x - top[..., None], top


def logsumexp(x: Array, axis: int, keepdims: bool = False) -> Array:
    """Return the log of the sum of exponentials; -inf, with zero gradient, if every entry is -inf."""
    m = finite_max(x, axis, keepdims=True)
    total = log(jnp.sum(jnp.exp(x - m), axis, keepdims=True)) + m
    return total if keepdims else jnp.squeeze(total, axis)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a + b and its rounding error, exactly (Knuth's two-sum)."""
    s = a + b
    z = s - a
    return s, (a - (s - z)) + (b - z)


def accurate_sum(x: Array, axis: int = -1) -> Array:
    """Sum along an axis with a compensated binary tree, with an error of about one rounding for any length.

    Source: Knuth's two-sum, applied pairwise. -inf entries give -inf.
    """
    x = jnp.moveaxis(x, axis, -1)
    error = jnp.zeros_like(x)
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            pad = [(0, 0)] * (x.ndim - 1) + [(0, 1)]
            x, error = jnp.pad(x, pad), jnp.pad(error, pad)
        x, lost = two_sum(x[..., 0::2], x[..., 1::2])
        error = error[..., 0::2] + error[..., 1::2] + jnp.where(jnp.isfinite(lost), lost, 0)
    if x.shape[-1] == 0:
        return jnp.zeros(x.shape[:-1], x.dtype)
    return x[..., 0] + error[..., 0]


# Jitted, here and below, so that JAX traces them once for all their uses in a program.
@jax.jit
def log_beta(a: Array, b: Array) -> Array:
    """Return log B(a, b), accurate in float32 for large arguments, for which a difference of log-gammas cancels."""
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
    # If both are large, the log-gamma of the smaller one cancels as well: log G(s) - s log(total) + s.
    leading = (s - 0.5) * jnp.log(jnp.where(both, ratio, 0.5)) - 0.5 * jnp.log(big_total) + _HALF_LOG_2PI + _stirling(s)
    joined = leading + (big_large - 0.5) * jnp.log1p(-ratio) + _stirling(big_large) - _stirling(big_total)
    direct = jax.lax.lgamma(small) + jax.lax.lgamma(large) - jax.lax.lgamma(total)
    return jnp.where(both, joined, jnp.where(big, jax.lax.lgamma(small) + difference, direct))


@jax.jit
def digamma_difference(a: Array, b: Array) -> Array:
    """Return digamma(a) - digamma(b) for a <= b, accurate in float32 for large arguments, whose logarithms cancel."""
    big = a > 8
    x, y = jnp.where(big, a, 9.0), jnp.where(big, b, 9.0)
    return jnp.where(big, jnp.log(x / y) + _digamma_tail(x) - _digamma_tail(y), digamma(a) - digamma(b))


def _digamma_tail(x: Array) -> Array:
    """Return digamma(x) - log(x), exact to float32 rounding for x > 8."""
    y = 1 / (x * x)
    return -0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y / 240)))


_HALF_LOG_2PI = 0.9189385332046727


def _stirling(x: Array) -> Array:
    """Return the correction term of Stirling's series, exact to float32 rounding for x > 8."""
    y = 1 / (x * x)
    return (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y / 1680))) / x
