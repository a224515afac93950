"""Maximum likelihood for Dirichlet concentrations, from mean log-probabilities."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import polygamma

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array, Float
from hmmjax.emissions.anchor import Anchor

OUTPUT_EPS = 1e-6
"""Recognizer outputs are clipped to [OUTPUT_EPS, 1 - OUTPUT_EPS]: a float32 softmax saturates to exactly 0 and 1, at
which a Dirichlet or Beta density is zero or infinite."""

MAX_CONCENTRATION = 1e4
"""Largest sum of a state's concentrations. The likelihood of identical outputs has no maximum (the density would be
infinite); the fit stops here, and `hmmjax.fit` warns."""

MIN_CONCENTRATION = 1e-3
"""Smallest concentration, for the opposite case: outputs that are all 0 or 1."""


def log_normalizer(concentration: Float[Array, "... n"]) -> Float[Array, "..."]:
    """Return the log of the multivariate Beta function, as a chain of two-argument ones, accurate in float32."""
    tail = jnp.cumsum(concentration[..., ::-1], -1)[..., ::-1]
    return jnp.sum(num.log_beta(concentration[..., :-1], tail[..., 1:]), -1)


def log_density(concentration: Float[Array, "... n"], log_y: Float[Array, "... n"]) -> Float[Array, "..."]:
    """Return the Dirichlet log-density of exp(log_y) with respect to its first n - 1 coordinates."""
    return jnp.sum((concentration - 1) * log_y, -1) - log_normalizer(concentration)


ANCHOR_FRAMES = 3e5
"""Labeled frames per state that outweigh a starting family. Densities of over-confident outputs are so steep that those
learned from a few videos are below the recognizer itself on others (MS-TCN's softmax: .53 to .64 against .73)."""


def pseudo_frames(pseudo_counts: Any, uniform: Array) -> tuple[Array, Array]:
    """Return the number of pseudo-frames per state, and their summed log-outputs with a further axis of classes.

    Args:
        pseudo_counts: frames per state with uniformly distributed outputs, or an `Anchor`.
        uniform: mean log-outputs under a uniform distribution, in the shape of the concentrations.
    """
    if isinstance(pseudo_counts, Anchor):
        frames, mean = jnp.asarray(pseudo_counts.frames), mean_log(pseudo_counts.family.concentration)
    else:
        frames, mean = jnp.asarray(pseudo_counts), uniform
    return frames, frames[..., None] * mean


def mean_log(concentration: Array) -> Array:
    """Return the mean logarithms of Dirichlet-distributed outputs."""
    concentration = jnp.asarray(concentration)
    return num.digamma_difference(concentration, concentration.sum(-1, keepdims=True))


def divergence(anchor: Anchor, concentration: Array) -> Array:
    """Return the log-prior of anchored concentrations: minus frames times the divergence of each state."""
    reference = jnp.asarray(anchor.family.concentration)
    mean = mean_log(reference)
    return jnp.sum(jnp.asarray(anchor.frames) * (log_density(concentration, mean) - log_density(reference, mean)))


def cap_warnings(track: str, concentration: Any) -> list[str]:
    """Return a warning if some state's concentrations are at `MAX_CONCENTRATION`."""
    if not (np.asarray(concentration).sum(-1) >= 0.99 * MAX_CONCENTRATION).any():
        return []
    return [
        f"{track}.emission: a state's concentrations reached their cap of {MAX_CONCENTRATION:g}, because the outputs "
        "observed in it are nearly identical. Its density is a spike; give pseudo-counts "
        f"(hmmjax.Priors({track[:-1]}_emission=1.0)) to keep it broad."
    ]


def maximize(
    concentration: Any, weight: Float[Array, "..."], total: Float[Array, "... n"], pseudo_counts: Any, uniform: Array
) -> Float[Array, "... n"]:
    """Return the M-step's concentrations; states of weight zero keep theirs.

    Args:
        concentration: the current ones, at which the search starts.
        weight: total weight per state.
        total: weighted sums of log-outputs.
        pseudo_counts: as in `pseudo_frames`, like `uniform`.
        uniform: mean log-outputs under a uniform distribution.
    """
    previous = jnp.asarray(concentration)
    frames, logs = pseudo_frames(pseudo_counts, uniform)
    weight = (weight + frames)[..., None]
    visited = weight > 0
    # A state without weight is at its optimum already.
    mean = jnp.where(visited, (total + logs) / jnp.where(visited, weight, 1), mean_log(previous))
    return jnp.where(visited, fit_concentration(mean, previous), previous)


@jax.custom_jvp
def fit_concentration(mean: Float[Array, "... n"], previous: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Return the concentrations of states that maximize the likelihood of mean log-outputs, from `previous`.

    Newton's method, whose Hessian is inverted in linear time (Minka, "Estimating a Dirichlet distribution"). Steps that
    leave the positive domain or lower the likelihood are shortened. It ends where the likelihood equations hold within
    rounding: the likelihood itself, which is flat there, would stop a thousandth away.
    """
    dtype = previous.dtype
    rounding = 2 * jnp.finfo(dtype).eps * (1 - mean)
    # Sixteen step lengths at once cost less than a loop; the best one is taken only if it is an improvement. States are
    # not mapped over: that would trace all of this three times.
    lengths = np.asarray(0.5 ** np.arange(16), dtype).reshape(-1, *[1] * previous.ndim)

    def newton(state: tuple) -> tuple:
        c, gradient, done, i = state
        new = jnp.maximum(c + _newton_step(c, gradient) * lengths, jnp.maximum(c / 16, MIN_CONCENTRATION))
        new = new * jnp.minimum(1, MAX_CONCENTRATION / new.sum(-1, keepdims=True))
        new_gradient = mean - mean_log(new)
        gains = _gain(c, new, gradient, new_gradient, mean)
        best = jnp.argmax(jnp.where(jnp.isnan(gains), -jnp.inf, gains), 0)[None]
        better = (jnp.take_along_axis(gains, best, 0)[0] > 0) & ~done
        c, gradient = (
            jnp.where(better[..., None], jnp.take_along_axis(x, best[..., None], 0)[0], y)
            for x, y in ((new, c), (new_gradient, gradient))
        )
        return c, gradient, ~better | (jnp.abs(gradient) <= rounding).all(-1), i + 1

    def unfinished(state: tuple) -> Array:
        return ~state[2].all() & (state[3] < 100)

    start = mean - mean_log(previous)
    at_optimum = (jnp.abs(start) <= rounding).all(-1)
    return lax.while_loop(unfinished, newton, (previous, start, at_optimum, jnp.array(0)))[0]


@fit_concentration.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    """By the implicit function theorem: the likelihood equations continue to hold. Bounds have no derivative."""
    mean, previous = primals
    fitted = fit_concentration(mean, previous)
    free = (fitted.sum(-1) < 0.99 * MAX_CONCENTRATION) & (fitted > MIN_CONCENTRATION).all(-1)
    return fitted, jnp.where(free[..., None], _newton_step(fitted, tangents[0]), 0)


def _newton_step(c: Array, gradient: Array) -> Array:
    """Return minus the inverse of the Hessian of the mean log-density at `c` (..., n), times a gradient (..., n)."""
    total = c.sum(-1, keepdims=True)
    reciprocal = _reciprocal_trigamma(c)
    # The inverse of the Hessian has the denominator 1 / trigamma(total) - sum(1 / trigamma(c)), whose leading terms,
    # total and c, cancel.
    shared = _reciprocal_trigamma(total) - jnp.sum(reciprocal, -1, keepdims=True)
    inverse = c + reciprocal  # 1 / trigamma(c)
    shared = jnp.where(shared > 0, shared, jnp.inf)  # a single class has no likelihood equation
    return inverse * (gradient + jnp.sum(gradient * inverse, -1, keepdims=True) / shared)


def _reciprocal_trigamma(x: Array) -> Array:
    """Return 1 / trigamma(x) - x, with all digits for large x too: between -1/2 and 0."""
    large = x > 8
    y = jnp.where(large, x, 9.0)
    square = 1 / (y * y)
    over = (0.5 + (1 / 6 - square * (1 / 30 - square * (1 / 42 - square / 30))) / y) / y  # y trigamma(y) - 1
    small = jnp.where(large, 1.0, x)
    return jnp.where(large, -y * over / (1 + over), 1 / polygamma(1, small) - small)


def _gain(c: Array, new: Array, gradient: Array, new_gradient: Array, mean: Array) -> Array:
    """Return the gain of the mean log-density by a move, for small moves without a difference of large numbers."""
    move = new - c
    near = (jnp.abs(move) < 0.1 * c).all(-1)
    small = jnp.sum((gradient + new_gradient) * move, -1) / 2
    return jnp.where(near, small, log_density(new, mean) - log_density(c, mean))
