"""Chains without tools in each state (C = 1), all frames at once: products of L x L matrices by associative scans.

A frame is the matrix of log-probabilities of moving and seeing; prefixes of their product are filtered messages,
suffixes smoothed ones. Work is L times that of the recursion, depth the logarithm of the number of frames, so it is
what a GPU wants, and a CPU too where L is 2 (tools on their own).

Source: Hassan, Sarkka & Garcia-Fernandez (2021), "Temporal parallelization of inference in hidden Markov models".
"""

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.messages.potentials import Filtered, Path, Potentials


def fits(num_phases: int, num_configs: int) -> bool:
    """Whether this is such a chain, and short enough a sum to be worth it on this hardware."""
    return num_configs == 1 and num_phases <= (16 if jax.default_backend() == "gpu" else 3)


@pytree
class _Product:
    """exp(high + low) * exp(matrix): the largest entry of matrix is 0, its scale a sum with its rounding beside it."""

    matrix: Array  # (..., L, L)
    high: Array  # (...)
    low: Array  # (...)


def _normal(matrix: Array, high: Array, low: Array) -> _Product:
    top = num.finite_max(matrix, (-1, -2))
    total, lost = _two_sum(high, top)
    return _Product(matrix - top[..., None, None], total, low + lost)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    z = s - a
    return s, (a - (s - z)) + (b - z)


def _times(a: _Product, b: _Product) -> _Product:
    matrix = num.logsumexp(a.matrix[..., :, :, None] + b.matrix[..., None, :, :], -2)
    high, lost = _two_sum(a.high, b.high)
    return _normal(matrix, high, a.low + b.low + lost)


def _then(b: _Product, a: _Product) -> _Product:
    return _times(a, b)


def _steps(p: Potentials) -> Array:
    """(T, L, L) log-matrix into each frame; the first holds the initial message in every row, padding the identity."""
    length, size = p.phases.shape
    into = jnp.broadcast_to(num.log(p.transition), (length, size, size)).at[0].set(num.log(p.initial[:, 0]))
    real = (jnp.arange(length) < p.lengths)[:, None, None]
    return jnp.where(real, into + _evidence(p)[:, None, :], num.log(jnp.eye(size, dtype=into.dtype)))


def _evidence(p: Potentials) -> Array:
    return p.phases + p.configs


def _products(matrices: Array, reverse: bool) -> _Product:
    zero = jnp.zeros(matrices.shape[:1], matrices.dtype)
    return lax.associative_scan(_then if reverse else _times, _normal(matrices, zero, zero), reverse=reverse)


def _value(p: Potentials, prefix: _Product) -> Array:
    last = jax.tree.map(lambda x: x[-1], prefix)
    value = num.logsumexp(last.matrix[0], -1) + last.low + last.high
    return jnp.where(p.lengths > 0, value, 0)


def _softmax(x: Array, axis: int | tuple[int, ...]) -> Array:
    weights = jnp.exp(x - num.finite_max(x, axis, keepdims=True))
    total = jnp.sum(weights, axis, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def _forward(p: Potentials) -> tuple[Array, Array]:
    """Log-normalizer, and log-messages (T, L) each with its largest 0 or less."""
    prefix = _products(_steps(p), False)
    return _value(p, prefix), prefix.matrix[:, 0]


def _backward(p: Potentials, alpha: Array, cotangent: Array) -> Potentials:
    steps = _steps(p)
    # What comes after frame t: the product of the steps into t + 1 and on.
    after = jnp.concatenate([steps[1:], num.log(jnp.eye(steps.shape[-1], dtype=steps.dtype))[None]])
    beta = num.logsumexp(_products(after, True).matrix, -1)
    frames = jnp.arange(len(steps))
    marginals = jnp.where((frames < p.lengths)[:, None], _softmax(alpha + beta, -1), 0) * cotangent
    seen = (_evidence(p) + beta)[1:]
    joint = alpha[:-1, :, None] + seen[:, None, :]
    top = num.finite_max(joint + num.log(p.transition), (-1, -2), keepdims=True)
    weights = jnp.exp(joint - top)
    total = jnp.sum(weights * p.transition, (-1, -2), keepdims=True)
    real = (frames[1:] < p.lengths)[:, None, None] & (total > 0)
    weights = jnp.where(real, weights / jnp.where(total > 0, total, 1), 0).sum(0) * cotangent
    first = _evidence(p)[0] + beta[0]
    top = num.finite_max(first + num.log(p.initial[:, 0]), 0)
    start = jnp.exp(first - top)
    total = jnp.sum(start * p.initial[:, 0])
    start = jnp.where((p.lengths > 0) & (total > 0), start / jnp.where(total > 0, total, 1), 0) * cotangent
    return Potentials(start[:, None], weights, (), marginals, marginals.sum(-1, keepdims=True), ())


_AXES = Potentials(None, None, None, 0, 0, 0)


def forward(potentials: Potentials, keep: bool) -> tuple[Array, Array | None]:
    """Log-normalizers (B,), and with `keep` the filtered messages (B, T, L)."""
    value, alpha = jax.vmap(_forward, (_AXES,))(potentials)
    return value, alpha if keep else None


def backward(potentials: Potentials, kept: Array, cotangent: Array) -> Potentials:
    """Derivative of sum(cotangent * log-normalizers) with respect to every potential; cotangent is (B,)."""
    grads = jax.vmap(_backward, (_AXES, 0, 0))(potentials, kept, cotangent)
    return Potentials(
        grads.initial.sum(0), grads.transition.sum(0), (), grads.phases, grads.configs, potentials.lengths
    )


def filter(potentials: Potentials) -> Filtered:
    """Marginals given the past."""
    value, alpha = jax.vmap(_forward, (_AXES,))(potentials)
    phases = _softmax(alpha, -1)
    return Filtered(phases, phases.sum(-1, keepdims=True), value)


def _viterbi(p: Potentials) -> Path:
    def best(a: Array, b: Array) -> Array:
        product = jnp.max(a[..., :, :, None] + b[..., None, :, :], -2)
        return product - num.finite_max(product, (-1, -2), keepdims=True)

    steps = _steps(p)
    score = lax.associative_scan(best, steps)[:, 0]
    # The best state before each state; after the end a state comes from itself.
    before = jnp.argmax(score[:-1, :, None] + steps[1:], -2)
    end = jnp.argmax(score[-1])

    def compose(later: Array, earlier: Array) -> Array:
        return jnp.take_along_axis(earlier, later, -1)

    states = end[None]
    if len(before):
        states = jnp.concatenate([lax.associative_scan(compose, before, reverse=True)[:, end], end[None]])
    moves = steps[jnp.arange(1, len(steps)), states[:-1], states[1:]]
    log_prob = num.accurate_sum(jnp.concatenate([steps[0, 0, states[:1]], moves]))
    states = states.astype(jnp.int32)
    return Path(states, jnp.zeros_like(states), jnp.where(p.lengths > 0, log_prob, 0))


def viterbi(potentials: Potentials) -> Path:
    """Most probable paths. Ties are broken one way along the whole path."""
    return jax.vmap(_viterbi, (_AXES,))(potentials)
