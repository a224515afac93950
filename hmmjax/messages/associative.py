"""Chains of phases or tools alone (C = 1), all frames at once: products of L x L matrices by associative scans.

A frame is the matrix of log-probabilities of a transition into it and of its observations. Prefixes of the product of
all frames are filtered messages, suffixes backward ones. Work is L times that of the recursion, depth the logarithm of
the number of frames: the fastest on GPUs.

Source: Hassan, Sarkka & Garcia-Fernandez (2021), "Temporal parallelization of inference in hidden Markov models".
"""

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.messages.backend import Backend
from hmmjax.messages.potentials import VIDEOS, Filtered, Path, Potentials

LARGEST = 16
"""Largest number of phases for which this is the fastest backend on GPUs."""


@pytree
class _Product:
    """exp(high + low) * exp(matrix), where the largest entry of matrix is 0 and low is the rounding error of high."""

    matrix: Array  # (..., L, L)
    high: Array  # (...)
    low: Array  # (...)


def _normalize(matrix: Array, high: Array, low: Array) -> _Product:
    top = num.finite_max(matrix, (-1, -2))
    total, error = num.two_sum(high, top)
    return _Product(matrix - top[..., None, None], total, low + error)


def _multiply(a: _Product, b: _Product) -> _Product:
    matrix = num.logsumexp(a.matrix[..., :, :, None] + b.matrix[..., None, :, :], -2)
    high, error = num.two_sum(a.high, b.high)
    return _normalize(matrix, high, a.low + b.low + error)


def _multiply_reversed(b: _Product, a: _Product) -> _Product:
    return _multiply(a, b)


def _frame_matrices(p: Potentials) -> Array:
    """Return log M_t (T, L, L), where M_t[p, q] = A[p, q] e_t(q), and the largest e_t is one.

    Every row of the first matrix is the initial message; the matrix of a padded frame is the identity.
    """
    length, size = p.phases.shape
    into = jnp.broadcast_to(num.log(p.transition), (length, size, size)).at[0].set(num.log(p.initial[:, 0]))
    real = (jnp.arange(length) < p.lengths)[:, None, None]
    return jnp.where(real, into + _log_likelihood(p)[:, None, :], num.log(jnp.eye(size, dtype=into.dtype)))


def _log_likelihood(p: Potentials) -> Array:
    """Return log-likelihoods (T, L) of frames, relative to the largest of each frame."""
    return num.relative(p.phases + p.configs)[0]


def _removed(p: Potentials) -> Array:
    """Return the largest log-likelihood (T,) of each frame, 0 of a padded one."""
    return jnp.where(jnp.arange(len(p.phases)) < p.lengths, num.relative(p.phases + p.configs)[1], 0)


def _products(matrices: Array, reverse: bool) -> _Product:
    zero = jnp.zeros(matrices.shape[:1], matrices.dtype)
    multiply = _multiply_reversed if reverse else _multiply
    return lax.associative_scan(multiply, _normalize(matrices, zero, zero), reverse=reverse)


def _softmax(x: Array, axis: int | tuple[int, ...]) -> Array:
    weights = jnp.exp(x - num.finite_max(x, axis, keepdims=True))
    total = jnp.sum(weights, axis, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def _forward(p: Potentials) -> tuple[Array, Array]:
    """Compute one video's log-normalizer and its filtered log-messages (T, L), unnormalized and at most 0."""
    prefix = _products(_frame_matrices(p), False)
    last = jax.tree.map(lambda x: x[-1], prefix)
    value = num.logsumexp(last.matrix[0], -1) + last.low + last.high + num.accurate_sum(_removed(p))
    return jnp.where(p.lengths > 0, value, 0), prefix.matrix[:, 0]


def _backward(p: Potentials, alpha: Array, cotangent: Array) -> Potentials:
    """Compute one video's gradient from its filtered log-messages (T, L)."""
    steps = _frame_matrices(p)
    # The backward message of frame t sums the product of the matrices of frames t + 1, ..., T over the last state.
    after = jnp.concatenate([steps[1:], num.log(jnp.eye(steps.shape[-1], dtype=steps.dtype))[None]])
    beta = num.logsumexp(_products(after, True).matrix, -1)
    frames = jnp.arange(len(steps))
    marginals = jnp.where((frames < p.lengths)[:, None], _softmax(alpha + beta, -1), 0) * cotangent
    future = (_log_likelihood(p) + beta)[1:]
    joint = alpha[:-1, :, None] + future[:, None, :]
    top = num.finite_max(joint + num.log(p.transition), (-1, -2), keepdims=True)
    weights = jnp.exp(joint - top)
    total = jnp.sum(weights * p.transition, (-1, -2), keepdims=True)
    real = (frames[1:] < p.lengths)[:, None, None] & (total > 0)
    weights = jnp.where(real, weights / jnp.where(total > 0, total, 1), 0).sum(0) * cotangent
    first = _log_likelihood(p)[0] + beta[0]
    top = num.finite_max(first + num.log(p.initial[:, 0]), 0)
    start = jnp.exp(first - top)
    total = jnp.sum(start * p.initial[:, 0])
    start = jnp.where((p.lengths > 0) & (total > 0), start / jnp.where(total > 0, total, 1), 0) * cotangent
    return Potentials(start[:, None], weights, (), marginals, marginals.sum(-1, keepdims=True), ())


def _viterbi(p: Potentials) -> Path:
    """Compute one video's most probable path by prefixes of (max, +) matrix products."""

    def multiply_max(a: Array, b: Array) -> Array:
        product = jnp.max(a[..., :, :, None] + b[..., None, :, :], -2)
        return product - num.finite_max(product, (-1, -2), keepdims=True)

    steps = _frame_matrices(p)
    score = lax.associative_scan(multiply_max, steps)[:, 0]
    # The best state before each state; after the end a state comes from itself.
    before = jnp.argmax(score[:-1, :, None] + steps[1:], -2)
    end = jnp.argmax(score[-1])

    def compose(later: Array, earlier: Array) -> Array:
        return jnp.take_along_axis(earlier, later, -1)

    states = end[None]
    if len(before):
        states = jnp.concatenate([lax.associative_scan(compose, before, reverse=True)[:, end], end[None]])
    transitions = steps[jnp.arange(1, len(steps)), states[:-1], states[1:]]
    log_prob = num.accurate_sum(jnp.concatenate([steps[0, 0, states[:1]], transitions]) + _removed(p))
    states = states.astype(jnp.int32)
    return Path(states, jnp.zeros_like(states), jnp.where(p.lengths > 0, log_prob, 0))


# The backend: batches of videos. ------------------------------------------------------------------------------------


def supports(potentials: Potentials) -> bool:
    """Return whether this is a chain of phases or of one tool alone."""
    return potentials.num_configs == 1


def is_fastest(potentials: Potentials) -> bool:
    """Return whether there is a GPU and the chain has few enough states."""
    return jax.default_backend() == "gpu" and supports(potentials) and potentials.phases.shape[-1] <= LARGEST


def log_normalizer(potentials: Potentials, save: bool) -> tuple[Array, Array | None]:
    """Compute log-normalizers (B,), and with `save` the filtered messages (B, T, L)."""
    value, alpha = jax.vmap(_forward, (VIDEOS,))(potentials)
    return value, alpha if save else None


def pullback(potentials: Potentials, residuals: Array, cotangent: Array) -> Potentials:
    """Compute the derivative of sum(cotangent * log-normalizers) in every potential; cotangent is (B,)."""
    grads = jax.vmap(_backward, (VIDEOS, 0, 0))(potentials, residuals, cotangent)
    return Potentials(
        grads.initial.sum(0), grads.transition.sum(0), (), grads.phases, grads.configs, potentials.lengths
    )


def filter(potentials: Potentials) -> Filtered:
    """Compute each frame's marginals given that frame and all before it."""
    value, alpha = jax.vmap(_forward, (VIDEOS,))(potentials)
    phases = _softmax(alpha, -1)
    return Filtered.of_configs(phases, phases.sum(-1, keepdims=True), value)


def viterbi(potentials: Potentials) -> Path:
    """Compute the most probable paths; among tied paths it returns one path, not a mixture of several."""
    return jax.vmap(_viterbi, (VIDEOS,))(potentials)


BACKEND = Backend("parallel", supports, is_fastest, log_normalizer, pullback, filter, viterbi)
