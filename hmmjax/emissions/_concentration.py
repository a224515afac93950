"""Maximum likelihood for Dirichlet concentrations, from mean log-probabilities."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import digamma, polygamma

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
    return digamma(concentration) - digamma(concentration.sum(-1, keepdims=True))


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


def fit_concentration(
    mean_log: Float[Array, "... n"], weight: Float[Array, "..."], previous: Float[Array, "... n"]
) -> Float[Array, "... n"]:
    """Return the concentrations that maximize the weighted Dirichlet likelihood; unvisited states keep `previous`.

    Args:
        mean_log: weighted mean of log-probabilities per state.
        weight: total weight per state.
        previous: starting point; the result is never less likely.

    Newton's method in the form that inverts the Hessian in linear time (Minka, "Estimating a Dirichlet
    distribution"), halving any step that leaves the positive domain or lowers the likelihood.
    """
    n = mean_log.shape[-1]
    shape = previous.shape
    mean_log, start = mean_log.reshape(-1, n), previous.reshape(-1, n)

    def objective(c: Array, m: Array) -> Array:
        return log_density(c, m)

    def one(m: Array, c0: Array) -> Array:
        def newton(state: tuple) -> tuple:
            c, value, _, i = state
            total = c.sum()
            gradient = digamma(total) - digamma(c) + m
            q = -polygamma(1, c)
            z = polygamma(1, total)
            b = jnp.sum(gradient / q) / (1 / z + jnp.sum(1 / q))
            step = (gradient - b) / q

            def attempt(j: Array) -> tuple[Array, Array]:
                new = jnp.maximum(c - step * 0.5**j, jnp.maximum(c / 16, MIN_CONCENTRATION))
                new = new * jnp.minimum(1, MAX_CONCENTRATION / new.sum())
                return new, objective(new, m)

            # Sixteen step lengths at once cost less than a loop; the best one is taken only if it is an improvement.
            candidates, values = jax.vmap(attempt)(jnp.arange(16.0, dtype=c.dtype))
            best = jnp.argmax(jnp.where(jnp.isnan(values), -jnp.inf, values))
            better = values[best] > value
            c = jnp.where(better, candidates[best], c)
            return c, jnp.where(better, values[best], value), ~better, i + 1

        def unfinished(state: tuple) -> Array:
            return ~state[2] & (state[3] < 100)

        start = (c0, objective(c0, m), jnp.array(False), jnp.array(0))
        return lax.while_loop(unfinished, newton, start)[0]

    fitted = jax.vmap(one)(mean_log, start).reshape(shape)
    return jnp.where((weight > 0)[..., None], fitted, previous)
