"""Logistic regressions on the configuration of K tools: tables, ridge-regularized IRLS, information.

A unit is one regression, of one tool's outcome (perhaps in one phase). Its weights are an intercept and one weight per
tool, in nats of log-odds; its data are counts of (no, yes) for every configuration of the K tools. These counts are
sufficient, so that the cost of learning does not depend on the length of the videos.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hmmjax._core import configurations
from hmmjax._core import numerics as num
from hmmjax._core.checks import check_array
from hmmjax._core.typing import Array, Float

MAX_TOOLS = 10
"""Maximum number of interacting tools, whose joint transition in each phase is a matrix of a million numbers."""

MAX_WEIGHT = 20.0
"""Largest size of a fitted weight, in nats of log-odds. Events that never occur have no maximum likelihood estimate
(their weights go to infinity); the fit stops here, at odds of one in 500 million."""

BEYOND = 1e4
"""Largest valid weight: float32 sums of larger ones over tools and frames would have no correct digits."""


def design(num_tools: int, dtype: Any = jnp.float32) -> Float[Array, "C M"]:
    """Return the design matrix (C, K + 1): a column of ones, then the presence of every tool in each configuration.

    Raises:
        ValueError: more than `MAX_TOOLS` tools.
    """
    check_size(num_tools)
    return jnp.concatenate([jnp.ones((2**num_tools, 1), jnp.int32), configurations.bits(num_tools)], 1).astype(dtype)


def check_size(num_tools: int) -> None:
    """Raise ValueError if there are more than `MAX_TOOLS` tools."""
    if num_tools > MAX_TOOLS:
        raise ValueError(
            f"{num_tools} tools cannot interact: exact inference needs tables over 2**{num_tools} configurations, and "
            f"supports at most {MAX_TOOLS} tools. Leave out rare tools, or use PhaseConditioned and "
            "ToolConfusion."
        )


def log_odds(weights: Any) -> Float[Array, "... C"]:
    """Return the log-odds of yes (..., C) in every configuration, from weights (..., K + 1)."""
    weights = jnp.asarray(weights)
    return num.einsum("...m,cm->...c", weights, design(weights.shape[-1] - 1, weights.dtype))


def log_probabilities(weights: Any) -> Float[Array, "... C 2"]:
    """Return the log-probabilities (..., C, 2) of no and yes."""
    odds = log_odds(weights)
    return jax.nn.log_sigmoid(jnp.stack([-odds, odds], -1))


def from_probabilities(absent: Any, present: Any) -> Float[Array, "... M"]:
    """Return weights of units that depend on their own tool only.

    Args:
        absent: (..., K) probability of yes if the unit's own tool is absent.
        present: (..., K) probability of yes if the unit's own tool is present.

    Returns:
        (..., K, K + 1); log-odds are clipped at half of `MAX_WEIGHT`, so that no difference exceeds it.
    """

    def odds(p: Any) -> Array:
        # log1p keeps the digits of the complement: 1 - 1e-9 is 1 in float32.
        p = jnp.asarray(p)
        return jnp.clip(jnp.log(p) - jnp.log1p(-p), -MAX_WEIGHT / 2, MAX_WEIGHT / 2)

    low, high = odds(absent), odds(present)
    own = (high - low)[..., None] * jnp.eye(low.shape[-1], dtype=low.dtype)
    return jnp.concatenate([low[..., None], own], -1)


def ridge(pseudo_counts: Any, weights: Array) -> Array:
    """Return the penalty of every weight, intercepts included."""
    return jnp.broadcast_to(jnp.asarray(pseudo_counts, weights.dtype), weights.shape)


def log_prior(weights: Any, pseudo_counts: Any) -> Array:
    """Return the log-density of normal weights with mean 0 and precision `ridge`, without its constant."""
    weights = jnp.asarray(weights)
    return -0.5 * jnp.sum(ridge(pseudo_counts, weights) * weights**2)


def fit(
    counts: Float[Array, "... C 2"], previous: Float[Array, "... M"], pseudo_counts: Any = 0.0
) -> Float[Array, "... M"]:
    """Return the weights that maximize sum(counts * log-probability) plus `log_prior`, bounded by `MAX_WEIGHT`.

    Args:
        counts: weights of (no, yes) in every configuration.
        previous: starting point; the result is never less likely. Weights without data (of a tool that is never present
            or a unit that is never visited) keep their value, except for the ridge.
        pseudo_counts: the ridge, in nats per unit squared; a scalar or an array that broadcasts to the weights.

    Newton's method, which for a logistic regression is iteratively reweighted least squares (McCullagh and Nelder
    1989, section 2.5; ridge by le Cessie and van Houwelingen 1992), shortening any step that lowers the likelihood.
    """
    size = previous.shape[-1]
    penalty = ridge(pseudo_counts, previous).reshape(-1, size)
    # Full precision, which is not the default of matrix products on GPUs.
    with jax.default_matmul_precision("highest"):
        fitted = jax.vmap(_fit_unit)(counts.reshape(-1, *counts.shape[-2:]), previous.reshape(-1, size), penalty)
    return fitted.reshape(previous.shape)


@jax.custom_jvp
def _fit_unit(counts: Float[Array, "C 2"], start: Float[Array, "M"], penalty: Float[Array, "M"]) -> Float[Array, "M"]:
    """Return the weights of one unit."""
    x = design(start.shape[-1] - 1, start.dtype)
    total, yes = counts.sum(-1), counts[..., 1]

    def newton(state: tuple) -> tuple:
        w, _, i = state
        odds = x @ w
        step = _solve(_information(x, total, odds) + jnp.diag(penalty), _gradient(x, counts, w, penalty))

        def attempt(j: Array) -> tuple[Array, Array]:
            new = jnp.clip(w + step * 0.5**j, -MAX_WEIGHT, MAX_WEIGHT)
            move = new - w
            return new, _gain(total, yes, odds, x @ move) - jnp.sum(penalty * move * (w + move / 2))

        # Sixteen step lengths at once cost less than a loop; the best one is taken only if it is an improvement.
        candidates, gains = jax.vmap(attempt)(jnp.arange(16.0, dtype=w.dtype))
        best = jnp.argmax(jnp.where(jnp.isnan(gains), -jnp.inf, gains))
        better = gains[best] > 0
        return jnp.where(better, candidates[best], w), ~better, i + 1

    def unfinished(state: tuple) -> Array:
        return ~state[1] & (state[2] < 50)

    return lax.while_loop(unfinished, newton, (start, jnp.array(False), jnp.array(0)))[0]


@_fit_unit.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    """By the implicit function theorem: the gradient remains zero. Weights at a bound, or without data, have none."""
    counts, start, penalty = primals
    fitted = _fit_unit(counts, start, penalty)
    x = design(fitted.shape[-1] - 1, fitted.dtype)
    information = _information(x, counts.sum(-1), x @ fitted) + jnp.diag(penalty)
    free = (jnp.abs(fitted) < MAX_WEIGHT) & (jnp.diagonal(information) > 0)
    information = jnp.where(free[:, None] & free, information, jnp.diag(jnp.ones_like(fitted)))
    moved = _gradient(x, tangents[0], fitted, tangents[2])  # linear in counts and in the ridge
    return fitted, jnp.where(free, _solve(information, jnp.where(free, moved, 0)), 0)


def _gradient(x: Array, counts: Array, w: Array, penalty: Array) -> Array:
    """Return the gradient (M,) of a unit's log-likelihood and log-prior."""
    return (counts[..., 1] - counts.sum(-1) * jax.nn.sigmoid(x @ w)) @ x - penalty * w


def _solve(matrix: Array, right: Array) -> Array:
    """Solve a system with a positive semidefinite matrix."""
    # Makes it invertible if some direction has no information; far below the error of a Newton step.
    damping = 1e-6 * jnp.max(jnp.diagonal(matrix)) + jnp.finfo(matrix.dtype).tiny
    factor = jax.scipy.linalg.cho_factor(matrix + damping * jnp.eye(len(matrix), dtype=matrix.dtype))
    return jax.scipy.linalg.cho_solve(factor, right)


def _information(x: Array, total: Array, odds: Array) -> Array:
    """Return X' diag(n p (1 - p)) X of one unit."""
    weight = total * jax.nn.sigmoid(odds) * jax.nn.sigmoid(-odds)
    return (x * weight[:, None]).T @ x


def _gain(total: Array, yes: Array, odds: Array, move: Array) -> Array:
    """Return the gain of the log-likelihood if log-odds move, without a difference of large sums."""
    near = jnp.abs(move) < 1
    small = jnp.where(near, move, 0)
    # softplus(odds + move) - softplus(odds)
    rise = jnp.where(
        near,
        jnp.log1p(jax.nn.sigmoid(odds) * jnp.expm1(small)),
        jax.nn.softplus(odds + move) - jax.nn.softplus(odds),
    )
    return jnp.sum(jnp.where(total > 0, yes * move - total * rise, 0))


def standard_errors(weights: np.ndarray, counts: np.ndarray, penalty: np.ndarray) -> Float[np.ndarray, "... M"]:
    """Return square roots of the diagonal of the inverse of X' diag(n p (1 - p)) X + diag(ridge), in float64.

    n are the counts of each configuration and p its probability of yes under `weights`. A weight without data has an
    infinite error.
    """
    size = weights.shape[-1]
    x = np.asarray(design(size - 1), np.float64)
    odds = np.asarray(weights, np.float64) @ x.T
    variance = np.asarray(counts, np.float64).sum(-1) / (2 + 2 * np.cosh(odds))  # n p (1 - p)
    information = np.einsum("...c,cm,cn->...mn", variance, x, x) + penalty[..., None] * np.eye(size)
    values, vectors = np.linalg.eigh(information)
    values = np.where(values <= 1e-9 * values[..., -1:], 0, values)
    squared = np.where(vectors**2 > 1e-9, vectors**2, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(squared > 0, squared / values[..., None, :], 0)
    return np.sqrt(terms.sum(-1))


def check_weights(name: str, weights: Any, meaning: str) -> None:
    """Raise ValueError unless weights are (..., K, K + 1), finite and of at most `MAX_TOOLS` tools."""
    check_array(name, weights)
    shape = tuple(weights.shape)
    if len(shape) < 2 or shape[-1] != shape[-2] + 1 or shape[-2] == 0:
        raise ValueError(
            f"{name} has shape {shape} but must be {meaning}: for each tool an intercept, then one weight per tool."
        )
    check_size(shape[-2])
    if np.dtype(weights.dtype).kind not in "iuf" and not jnp.issubdtype(weights.dtype, jnp.floating):
        raise TypeError(f"{name} must be log-odds, real numbers, got {weights.dtype}.")
    values = np.asarray(weights, np.float64)
    if not np.isfinite(values).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ValueError(
            f"{name} must be finite log-odds, but entry {where} is {values[where]!r}. "
            f"For events that never occur use {-MAX_WEIGHT:g}, odds of one in 500 million."
        )
    if np.abs(values).max() > BEYOND:
        raise ValueError(
            f"{name} holds {np.abs(values).max():.3g} nats of log-odds, too large for float32. For events that never "
            f"occur use {-MAX_WEIGHT:g}, odds of one in 500 million."
        )
