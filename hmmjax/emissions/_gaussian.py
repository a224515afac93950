"""Gaussian densities, moments and M-steps of S states, shared by the families of both tracks.

Means are (*G, S, D), with S states, D features and groups G of states: () for phases, (K,) for tools.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from hmmjax._core import numerics as num
from hmmjax._core.checks import check_positive, check_shape
from hmmjax._core.typing import Array

COVARIANCES = ("full", "diagonal", "tied")
"""Structures of the covariance."""

MIN_RELATIVE_VARIANCE = 1e-4
"""Smallest variance of a state in any direction, relative to the variance of all frames: the likelihood of a state that
explains identical frames has no maximum. The bound is relative, so that it does not depend on the unit of a feature."""

_HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))


def constraints(structure: str) -> Mapping[str, str]:
    """Return the constraint of each field, for `hmmjax.refine`."""
    return {"mean": "real", "covariance": "positive" if structure == "diagonal" else "positive_definite"}


def spread_means(num_states: int, num_features: int) -> Array:
    """Return (S, D) distinct points in [-1, 1]: columns of a discrete cosine transform."""
    angle = np.pi * (np.arange(num_states)[:, None] + 0.5) * np.arange(1, num_features + 1) / num_states
    return jnp.asarray(np.cos(angle), jnp.result_type(float))


def feature_scale(observations: Any, mask: Any, event_axes: int) -> tuple[Array, Array]:
    """Return mean and standard deviation of each feature over the observed frames; 1 for a constant feature."""
    if isinstance(observations, list):
        observations = np.concatenate([np.asarray(video) for video in observations])
    if isinstance(mask, list):
        mask = np.concatenate([np.asarray(video) for video in mask])
    frames = np.asarray(observations, np.float64)
    lead, event = np.split(np.array(frames.shape, int), [frames.ndim - event_axes])
    frames = frames.reshape(-1, *event)
    if mask is not None:
        if np.shape(mask) != tuple(lead):
            raise ValueError(f"mask has shape {np.shape(mask)} but observations have {tuple(lead.tolist())} frames.")
        frames = frames[np.asarray(mask, bool).reshape(-1)]
    if not len(frames) or not np.isfinite(frames).all():
        raise ValueError(
            "observations must hold at least one observed frame, all of whose features are finite: set mask to False "
            "in other frames."
        )
    spread = frames.std(0)
    dtype = jnp.result_type(float)
    return jnp.asarray(frames.mean(0), dtype), jnp.asarray(np.where(spread > 0, spread, 1), dtype)


def structured(variance: Array, structure: str) -> Array:
    """Return covariances in the given structure from variances (*G, S, D)."""
    if structure not in COVARIANCES:
        raise ValueError(f"structure={structure!r} is unknown; choose {' or '.join(map(repr, COVARIANCES))}.")
    if structure == "diagonal":
        return variance
    full = variance[..., None] * jnp.eye(variance.shape[-1], dtype=variance.dtype)
    return full if structure == "full" else full[..., 0, :, :]


def _whitening(covariance: Array, structure: str) -> Array:
    """Return the inverse of the Cholesky factor of each state's covariance, (*G, S, D, D) or (*G, 1, D, D)."""
    factor = jnp.linalg.cholesky(covariance)
    identity = jnp.broadcast_to(jnp.eye(factor.shape[-1], dtype=factor.dtype), factor.shape)
    inverse = solve_triangular(factor, identity, lower=True)
    return inverse if structure == "full" else inverse[..., None, :, :]


def log_prob(x: Array, mean: Array, covariance: Array, structure: str) -> Array:
    """Return log-densities (..., *G, S) of features x (..., *G, D)."""
    away = x[..., None, :] - mean
    if structure == "diagonal":
        return jnp.sum(-0.5 * away**2 / covariance - 0.5 * jnp.log(covariance) - _HALF_LOG_2PI, -1)
    whitening = _whitening(covariance, structure)
    white = num.einsum("...de,...e->...d", jnp.broadcast_to(whitening, (*mean.shape, mean.shape[-1])), away)
    log_det = jnp.sum(jnp.log(jnp.diagonal(whitening, axis1=-2, axis2=-1)), -1)
    return -0.5 * jnp.sum(white**2, -1) + log_det - mean.shape[-1] * _HALF_LOG_2PI


def sample(key: jax.Array, mean: Array, covariance: Array, structure: str) -> Array:
    """Draw features with the given means (..., D) and covariances."""
    noise = jax.random.normal(key, mean.shape, mean.dtype)
    if structure == "diagonal":
        return mean + jnp.sqrt(covariance) * noise
    factor = jnp.linalg.cholesky(covariance)
    return mean + num.einsum("...de,...e->...d", jnp.broadcast_to(factor, (*mean.shape, mean.shape[-1])), noise)


def moments(x: Array, weights: Array, mean: Array, structure: str) -> dict[str, Array]:
    """Return weights (*G, S) and weighted moments about `mean`; second moments of tied states are added."""
    # About the current means, because differences of large sums would lose their digits.
    away = x[..., None, :] - mean
    weighted = weights[..., None] * away
    if structure == "diagonal":
        second = (weighted * away).sum(0)
    else:
        axes = "n...sd,n...se->...de" if structure == "tied" else "n...sd,n...se->...sde"
        second = num.einsum(axes, weighted, away)
    return {"weight": weights.sum(0), "first": weighted.sum(0), "second": second}


def maximize(
    statistics: dict[str, Array], mean: Array, covariance: Array, pseudo_counts: Any, structure: str
) -> tuple[Array, Array]:
    """Return means and covariances that maximize expected log-density plus `log_prior`."""
    pseudo = jnp.broadcast_to(jnp.asarray(pseudo_counts, mean.dtype), mean.shape[:-1])
    weight, tied = statistics["weight"] + pseudo, structure == "tied"
    visited = weight > 0
    safe = jnp.where(visited, weight, 1)[..., None]
    shift = (statistics["first"] - pseudo[..., None] * mean) / safe  # from the current means to the new ones

    def outer(a: Array) -> Array:
        return a**2 if structure == "diagonal" else a[..., :, None] * a[..., None, :]

    def over(w: Array) -> Array:
        return w[..., None] if structure == "diagonal" else w[..., None, None]

    # Scatter of the frames, and of pseudo-frames with mean 0 and covariance the identity, about the new means.
    unit = jnp.ones_like(mean) if structure == "diagonal" else jnp.eye(mean.shape[-1], dtype=mean.dtype)
    moved = over(pseudo) * (outer(mean) + unit) - over(weight) * outer(shift)
    scatter = statistics["second"] + (moved.sum(-3) if tied else moved)
    total = weight.sum(-1) if tied else weight
    found = scatter / over(jnp.where(total > 0, total, 1))
    variance, constant = _overall_variance(weight, mean, shift, scatter, covariance, structure)
    if not tied:
        variance, constant = variance[..., None, :], constant[..., None, :]
    found = _bounded(found, variance, constant, structure)
    new_mean = jnp.where(visited[..., None], mean + shift, mean)
    return new_mean, jnp.where(over(total > 0), found, covariance)


def _overall_variance(
    weight: Array, mean: Array, shift: Array, scatter: Array, previous: Array, structure: str
) -> tuple[Array, Array]:
    """Return each feature's variance (*G, D) over all frames of a group, and whether the feature is constant.

    The variance is that within states plus that between them; for a constant feature it is the previous one.
    """
    if structure != "diagonal":
        scatter, previous = (jnp.diagonal(x, axis1=-2, axis2=-1) for x in (scatter, previous))
    if structure != "tied":
        scatter, previous = scatter.sum(-2), previous.mean(-2)
    total = weight.sum(-1)[..., None]
    safe = jnp.where(total > 0, total, 1)
    mean = mean + shift
    center = (weight[..., None] * mean).sum(-2) / safe
    between = (weight[..., None] * (mean - center[..., None, :]) ** 2).sum(-2)
    variance = jnp.maximum(scatter + between, 0) / safe
    # A smaller variance is a rounding error of moments about the previous means, or of the features themselves.
    eps = 4 * jnp.finfo(mean.dtype).eps
    constant = variance <= eps * jnp.max(shift**2, -2) + (eps * center) ** 2
    return jnp.where(constant, previous, variance), constant


def _bounded(covariance: Array, variance: Array, constant: Array, structure: str) -> Array:
    """Return the covariance with no direction's variance below `MIN_RELATIVE_VARIANCE` of `variance` (..., D).

    Eigenvalues in units of `variance` are raised to the bound, which maximizes the likelihood under it. A constant
    feature keeps `variance`.
    """
    if structure == "diagonal":
        return jnp.where(constant, variance, jnp.maximum(covariance, MIN_RELATIVE_VARIANCE * variance))
    scale = jnp.sqrt(variance)
    unit = scale[..., :, None] * scale[..., None, :]
    relative = covariance / unit
    relative = (relative + jnp.swapaxes(relative, -1, -2)) / 2
    either, same = constant[..., :, None] | constant[..., None, :], jnp.eye(scale.shape[-1], dtype=relative.dtype)
    relative = jnp.where(either, same, relative)
    values, vectors = jnp.linalg.eigh(relative)
    bounded = jnp.maximum(values, MIN_RELATIVE_VARIANCE)
    raised = num.einsum("...dk,...ek->...de", vectors * bounded[..., None, :], vectors)
    low = (values < MIN_RELATIVE_VARIANCE).any(-1)[..., None, None]
    return jnp.where(low, raised, relative) * unit


def log_prior(mean: Array, covariance: Array, pseudo_counts: Any, structure: str) -> Array:
    """Return the expected log-density of pseudo-frames with mean 0 and unit covariance, up to a constant."""
    pseudo = jnp.asarray(pseudo_counts, mean.dtype)
    if structure == "diagonal":
        each = jnp.sum(-0.5 * (mean**2 + 1) / covariance - 0.5 * jnp.log(covariance), -1)
    else:
        whitening = jnp.broadcast_to(_whitening(covariance, structure), (*mean.shape, mean.shape[-1]))
        white = num.einsum("...de,...e->...d", whitening, mean)
        log_det = jnp.sum(jnp.log(jnp.diagonal(whitening, axis1=-2, axis2=-1)), -1)
        each = -0.5 * (jnp.sum(white**2, -1) + jnp.sum(whitening**2, (-1, -2))) + log_det
    return jnp.sum(pseudo * each)


def check(track: str, mean: Any, covariance: Any, structure: str, states: tuple[str, ...]) -> None:
    """Raise ValueError unless means are finite, and covariances of the right shape and positive definite."""
    name = f"{track}.emission.covariance"
    if not np.isfinite(np.asarray(mean, np.float64)).all():
        raise ValueError(f"{track}.emission.mean must be finite.")
    if structure not in COVARIANCES:
        raise ValueError(f"{track}.emission.structure is {structure!r}; choose {' or '.join(map(repr, COVARIANCES))}.")
    lead = mean.shape[:-2] if structure == "tied" else mean.shape[:-1]
    size = mean.shape[-1:] * (1 if structure == "diagonal" else 2)
    letters = (*(states[:-1] if structure == "tied" else states), *["D"] * len(size))
    check_shape(name, covariance, (*lead, *size), f"({', '.join(letters)}) as structure is {structure!r}")
    if structure == "diagonal":
        check_positive(name, covariance)
        return
    values = np.asarray(covariance, np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite.")
    size = np.abs(values).max((-1, -2), keepdims=True)
    if (np.abs(values - np.swapaxes(values, -1, -2)) > 1e-4 * size).any():
        raise ValueError(f"{name} must be symmetric: pass (C + C.T) / 2 for each state.")
    lowest = np.linalg.eigvalsh(values / size)[..., 0]
    if (lowest <= 0).any():
        at = tuple(int(i) for i in np.argwhere(lowest <= 0)[0])
        raise ValueError(
            f"{name} must be positive definite, but that of state {at} is not: add a small multiple of the identity, "
            "or use structure='diagonal'."
        )
