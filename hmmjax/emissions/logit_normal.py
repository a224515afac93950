"""Logit-normal emissions: the log-odds of the recognizer's outputs are independent normals."""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core.checks import check_array, check_positive, check_shape
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float
from hmmjax.emissions._concentration import OUTPUT_EPS
from hmmjax.emissions.base import PhaseEmission, ToolEmission

MIN_SCALE = 1e-2
"""Smallest standard deviation, in nats: the density of identical outputs would otherwise be infinite."""

PRIOR_SCALE = 2.0
"""Standard deviation, in nats of log-odds, of the pseudo-frames of the prior; their mean is 0."""

_HALF_LOG_2PI = 0.5 * float(np.log(2 * np.pi))


@pytree
class PhaseLogitNormal(PhaseEmission):
    """log(pi_q / pi_last) given phase p is normal with mean[p, q] and standard deviation scale[p, q], for q < L - 1.

    Attributes:
        mean: (L, L - 1) nats.
        scale: (L, L - 1) positive, nats.

    Outputs are clipped to [1e-6, 1 - 1e-6] and renormalized. Pseudo-counts (scalar or (L,)): pseudo-frames per phase
    with log-odds of mean 0 and standard deviation 2.

    Source: Aitchison and Shen (1980), the logistic-normal distribution, with a diagonal covariance.
    """

    mean: Array
    scale: Array
    observes = "probabilities"
    constraints = MappingProxyType({"mean": "real", "scale": "positive"})

    @property
    def num_phases(self) -> int:
        """Number of phases L."""
        return self.mean.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (L,) or a scalar."""
        return (self.mean.shape[0],)

    @classmethod
    def default(cls, num_phases: int) -> Self:
        """Return a recognizer whose log-odds favor the right phase by about two nats."""
        lead = jnp.where(jnp.eye(num_phases, dtype=bool), 2.0, 0.3)[:, :-1]
        mean = jnp.where(jnp.arange(num_phases)[:, None] == num_phases - 1, -2.0, lead)
        return cls(jnp.asarray(mean, float), jnp.ones((num_phases, num_phases - 1)))

    def log_prob(self, observations: Float[Array, "... L"]) -> Float[Array, "... L"]:
        """Return the log-density (..., L), on the simplex, of each softmax output (..., L) under each phase."""
        ratios, jacobian = log_ratios(observations)
        return log_normal(ratios[..., None, :], self.mean, self.scale).sum(-1) + jacobian[..., None]

    def statistics(self, observations: Float[Array, "... L"], posterior: Float[Array, "... L"]) -> dict[str, Array]:
        """Return weights (L,), and weighted moments (L, L - 1) of log-odds about the current means."""
        n = posterior.shape[-1]
        flat = posterior.reshape(-1, n)
        ratios = log_ratios(observations)[0].reshape(len(flat), 1, n - 1)
        return {"weight": flat.sum(0), **moments(flat[..., None], ratios, self.mean)}

    def maximize(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Self:
        """Return weighted means and standard deviations."""
        return type(self)(*maximize_normal(self.mean, self.scale, statistics, pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the log-density of the pseudo-frames."""
        return normal_log_prior(self.mean, self.scale, jnp.asarray(pseudo_counts)[..., None])

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw softmax outputs (..., L) for phases (...,)."""
        mean, scale = jnp.asarray(self.mean)[states], jnp.asarray(self.scale)[states]
        drawn = mean + scale * jax.random.normal(key, mean.shape, mean.dtype)
        return jax.nn.softmax(jnp.concatenate([drawn, jnp.zeros_like(drawn[..., :1])], -1), -1)

    def check(self) -> None:
        """Raise ValueError unless shapes agree, means are finite and scales positive."""
        size = len(self.mean)
        check_shape("phases.emission.mean", self.mean, (size, size - 1), "(L, L - 1)")
        check_shape("phases.emission.scale", self.scale, (size, size - 1), "(L, L - 1)")
        check_values("phases", self.mean, self.scale)


@pytree
class ToolLogitNormal(ToolEmission):
    """log(pi_k / (1 - pi_k)) given presence d of tool k is normal with mean[k, d] and standard deviation scale[k, d].

    Attributes:
        mean: (K, 2) nats.
        scale: (K, 2) positive, nats.

    Outputs are clipped to [1e-6, 1 - 1e-6]. Pseudo-counts (scalar or (K, 2)): pseudo-frames per state with log-odds of
    mean 0 and standard deviation 2.

    Source: Aitchison and Shen (1980), the logistic-normal distribution.
    """

    mean: Array
    scale: Array
    observes = "probabilities"
    constraints = MappingProxyType({"mean": "real", "scale": "positive"})

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.mean.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (K, 2) or broadcast to it."""
        return self.mean.shape

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """Return log-odds of -2 nats for absent tools and 1 nat for present ones."""
        return cls(jnp.broadcast_to(jnp.array([-2.0, 1.0]), (num_tools, 2)), jnp.ones((num_tools, 2)))

    def log_prob(self, observations: Float[Array, "... K"]) -> Float[Array, "... K 2"]:
        """Return the log-density (..., K, 2) of each output (..., K) under absence and presence."""
        odds, jacobian = log_odds(observations)
        return log_normal(odds[..., None], self.mean, self.scale) + jacobian[..., None]

    def statistics(self, observations: Float[Array, "... K"], posterior: Float[Array, "... K 2"]) -> dict[str, Array]:
        """Return weights, and weighted moments of log-odds about the current means, each (K, 2)."""
        k = posterior.shape[-2]
        flat = posterior.reshape(-1, k, 2)
        odds = log_odds(observations)[0].reshape(-1, k, 1)
        return {"weight": flat.sum(0), **moments(flat, odds, self.mean)}

    def maximize(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Self:
        """Return weighted means and standard deviations."""
        return type(self)(*maximize_normal(self.mean, self.scale, statistics, pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the log-density of the pseudo-frames."""
        return normal_log_prior(self.mean, self.scale, pseudo_counts)

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw sigmoid outputs (..., K) for presence 0 or 1 (..., K)."""
        mean, scale = jnp.asarray(self.mean), jnp.asarray(self.scale)
        mean, scale = (jnp.where(states == 1, x[:, 1], x[:, 0]) for x in (mean, scale))
        return jax.nn.sigmoid(mean + scale * jax.random.normal(key, mean.shape, mean.dtype))

    def check(self) -> None:
        """Raise ValueError unless shapes agree, means are finite and scales positive."""
        check_shape("tools.emission.mean", self.mean, (len(self.mean), 2), "(K, 2)")
        check_shape("tools.emission.scale", self.scale, (len(self.mean), 2), "(K, 2)")
        check_values("tools", self.mean, self.scale)


def log_ratios(y: Array) -> tuple[Array, Array]:
    """Return log-odds against the last class (..., L - 1), and the log-Jacobian (...,) of that map."""
    y = jnp.clip(y, OUTPUT_EPS, 1 - OUTPUT_EPS)
    log_y = jnp.log(y) - jnp.log(y.sum(-1, keepdims=True))
    return log_y[..., :-1] - log_y[..., -1:], -log_y.sum(-1)


def log_odds(y: Array) -> tuple[Array, Array]:
    """Return log-odds (..., K), and the log-Jacobian of that map."""
    present = jnp.log(jnp.clip(y, OUTPUT_EPS, 1 - OUTPUT_EPS))
    absent = jnp.log(jnp.clip(1 - y, OUTPUT_EPS, 1 - OUTPUT_EPS))
    return present - absent, -present - absent


def log_normal(x: Array, mean: Any, scale: Any) -> Array:
    """Return log-densities of normals."""
    scale = jnp.asarray(scale)
    return -0.5 * ((x - jnp.asarray(mean)) / scale) ** 2 - jnp.log(scale) - _HALF_LOG_2PI


def moments(weight: Array, x: Array, mean: Any) -> dict[str, Array]:
    """Return weighted sums over frames, the first axis, of deviations from `mean` and of their squares.

    Squares about zero would cancel against that of a mean that is many standard deviations from zero.
    """
    away = x - jnp.asarray(mean)
    return {"first": (weight * away).sum(0), "second": (weight * away**2).sum(0)}


def maximize_normal(mean: Any, scale: Any, statistics: dict[str, Array], pseudo_counts: Any) -> tuple[Array, Array]:
    """Return the M-step's means and standard deviations; states of weight zero keep theirs.

    Args:
        mean: (L, L - 1) or (K, 2) current means, about which the moments are.
        scale: current standard deviations.
        statistics: weights, and `moments`.
        pseudo_counts: pseudo-frames per state.
    """
    mean, scale = jnp.asarray(mean), jnp.asarray(scale)
    pseudo = jnp.broadcast_to(jnp.asarray(pseudo_counts, mean.dtype), statistics["weight"].shape)
    weight = statistics["weight"] + pseudo
    if weight.ndim < mean.ndim:
        weight, pseudo = weight[:, None], pseudo[:, None]
    safe = jnp.where(weight > 0, weight, 1)
    shift = (statistics["first"] - pseudo * mean) / safe
    second = (statistics["second"] + pseudo * (mean**2 + PRIOR_SCALE**2)) / safe
    spread = jnp.sqrt(jnp.maximum(second - shift**2, MIN_SCALE**2))
    return jnp.where(weight > 0, mean + shift, mean), jnp.where(weight > 0, spread, scale)


def normal_log_prior(mean: Any, scale: Any, pseudo_counts: Any) -> Array:
    """Return the log-density of pseudo-frames with log-odds of mean 0 and standard deviation `PRIOR_SCALE`."""
    mean, scale = jnp.asarray(mean), jnp.asarray(scale)
    each = -0.5 * (mean**2 + PRIOR_SCALE**2) / scale**2 - jnp.log(scale)
    return jnp.sum(pseudo_counts * each)


def check_values(track: str, mean: Any, scale: Any) -> None:
    """Raise ValueError unless means are finite and scales positive."""
    check_array(f"{track}.emission.mean", mean)
    if not np.isfinite(np.asarray(mean, np.float64)).all():
        raise ValueError(f"{track}.emission.mean must be finite.")
    check_positive(f"{track}.emission.scale", scale)
