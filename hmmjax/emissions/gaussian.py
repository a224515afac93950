"""Gaussian emissions over real features, such as a network's embeddings or measured signals.

This is the worked example of a family whose observations are neither labels nor probabilities: it declares
``observes = "reals"`` and its `event_shape`, and everything else in the library works with it.
"""

from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp

from hmmjax._core.checks import check_array
from hmmjax._core.pytree import pytree, static
from hmmjax._core.typing import Array, Float
from hmmjax.emissions import _gaussian as gaussian
from hmmjax.emissions.base import PhaseEmission, ToolEmission


@pytree
class PhaseGaussian(PhaseEmission):
    """D features per frame, given phase p normal with mean[p] and a covariance.

    Start EM from `default` for standardized features, or from `from_data` for features of any scale:

        start = emissions.PhaseGaussian.from_data(features, num_phases=7, mask=mask)
        params = hmmjax.Params(hmmjax.PhaseChain(initial, transition, start))
        hmmjax.fit(params, hmmjax.Observations(phases=features), mask)

    Attributes:
        mean: (L, D).
        covariance: (L, D, D) if "full", (L, D) variances if "diagonal", (D, D) shared by all phases if "tied".
        structure: "full", "diagonal" or "tied".

    The M-step bounds the variance of each state in every direction from below, at 1e-4 of the variance of all frames.
    Pseudo-counts (scalar or (L,)): pseudo-frames per phase with mean 0 and covariance the identity, which suits
    standardized features.

    Source: Baum et al. (1970); Rabiner (1989), section IV, with one component per state.
    """

    mean: Array
    covariance: Array
    structure: str = static(default="full")
    observes = "reals"

    @property
    def constraints(self) -> Mapping[str, str]:  # type: ignore[override]
        """Means are real, variances positive, covariance matrices positive definite."""
        return gaussian.constraints(self.structure)

    @property
    def num_phases(self) -> int:
        """Number of phases L."""
        return self.mean.shape[0]

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one frame's observation, (D,)."""
        return (self.mean.shape[-1],)

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (L,) or a scalar."""
        return self.mean.shape[:1]

    @classmethod
    def default(cls, num_phases: int, num_features: int = 1, structure: str = "full") -> Self:
        """Return distinct means within one standard deviation of 0 and identity covariances.

        Args:
            num_phases: L.
            num_features: D.
            structure: "full", "diagonal" or "tied".
        """
        mean = gaussian.spread_means(num_phases, num_features)
        return cls(mean, gaussian.structured(jnp.ones_like(mean), structure), structure)

    @classmethod
    def from_data(cls, observations: Any, num_phases: int, *, mask: Any = None, structure: str = "full") -> Self:
        """Return `default` moved and scaled to the mean and standard deviation of each feature.

        Args:
            observations: (..., D) features, or a list of (T_i, D) arrays.
            num_phases: L.
            mask: (...,) bool, True where observed, or a list of (T_i,) arrays.
            structure: "full", "diagonal" or "tied".
        """
        center, spread = gaussian.feature_scale(observations, mask, 1)
        mean = center + spread * gaussian.spread_means(num_phases, spread.shape[-1])
        return cls(mean, gaussian.structured(jnp.broadcast_to(spread**2, mean.shape), structure), structure)

    def log_prob(self, observations: Float[Array, "... D"]) -> Float[Array, "... L"]:
        """Return the log-density of each frame's features under each phase."""
        return gaussian.log_prob(observations, jnp.asarray(self.mean), jnp.asarray(self.covariance), self.structure)

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw features (..., D) for phases (...,)."""
        mean, covariance = jnp.asarray(self.mean), jnp.asarray(self.covariance)
        return gaussian.sample(
            key, mean[states], covariance if self.structure == "tied" else covariance[states], self.structure
        )

    def statistics(self, observations: Float[Array, "... D"], posterior: Float[Array, "... L"]) -> dict[str, Array]:
        """Return weights (L,), and weighted first and second moments about the current means."""
        flat = posterior.reshape(-1, posterior.shape[-1])
        return gaussian.moments(observations.reshape(len(flat), -1), flat, jnp.asarray(self.mean), self.structure)

    def maximize(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Self:
        """Return weighted means and covariances; phases of weight zero keep theirs."""
        mean, covariance = jnp.asarray(self.mean), jnp.asarray(self.covariance)
        return type(self)(
            *gaussian.maximize(statistics, mean, covariance, pseudo_counts, self.structure), self.structure
        )

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the expected log-density of the pseudo-frames, up to a constant."""
        return gaussian.log_prior(jnp.asarray(self.mean), jnp.asarray(self.covariance), pseudo_counts, self.structure)

    def check(self) -> None:
        """Raise ValueError unless shapes agree, means are finite and covariances positive definite."""
        check_array("phases.emission.mean", self.mean)
        if self.mean.ndim != 2 or 0 in self.mean.shape:
            raise ValueError(f"phases.emission.mean has shape {tuple(self.mean.shape)}, but must be (L, D).")
        gaussian.check("phases", self.mean, self.covariance, self.structure, ("L",))


@pytree
class ToolGaussian(ToolEmission):
    """D features per tool and frame, given the presence d of tool k normal with mean[k, d] and a covariance.

    Observations are (..., K, D): each tool has features of its own. Start EM from `default` for standardized features,
    or from `from_data` for features of any scale; see `PhaseGaussian` for an example.

    Attributes:
        mean: (K, 2, D), absent and present.
        covariance: (K, 2, D, D) if "full", (K, 2, D) variances if "diagonal", (K, D, D) shared by absence and presence
            if "tied".
        structure: "full", "diagonal" or "tied".

    The M-step bounds the variance of each state in every direction from below, at 1e-4 of the variance of all of the
    tool's frames. Pseudo-counts (scalar or (K, 2)): pseudo-frames per state with mean 0 and covariance the identity,
    which suits standardized features.

    Source: Baum et al. (1970); Rabiner (1989), section IV, with one component per state.
    """

    mean: Array
    covariance: Array
    structure: str = static(default="full")
    observes = "reals"

    @property
    def constraints(self) -> Mapping[str, str]:  # type: ignore[override]
        """Means are real, variances positive, covariance matrices positive definite."""
        return gaussian.constraints(self.structure)

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.mean.shape[0]

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one frame's observation, (K, D)."""
        return (self.mean.shape[0], self.mean.shape[-1])

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (K, 2) or broadcast to it."""
        return self.mean.shape[:2]

    @classmethod
    def default(cls, num_tools: int, num_features: int = 1, structure: str = "full") -> Self:
        """Return lower means for absent tools than for present ones, and identity covariances.

        Args:
            num_tools: K.
            num_features: D.
            structure: "full", "diagonal" or "tied".
        """
        mean = jnp.broadcast_to(-gaussian.spread_means(2, num_features), (num_tools, 2, num_features))
        return cls(mean, gaussian.structured(jnp.ones_like(mean), structure), structure)

    @classmethod
    def from_data(cls, observations: Any, *, mask: Any = None, structure: str = "full") -> Self:
        """Return `default` moved and scaled to the mean and standard deviation of each tool's features.

        Args:
            observations: (..., K, D) features, or a list of (T_i, K, D) arrays.
            mask: (...,) bool, True where observed, or a list of (T_i,) arrays.
            structure: "full", "diagonal" or "tied".
        """
        center, spread = gaussian.feature_scale(observations, mask, 2)
        mean = center[:, None] - spread[:, None] * gaussian.spread_means(2, spread.shape[-1])
        variance = jnp.broadcast_to(spread[:, None] ** 2, mean.shape)
        return cls(mean, gaussian.structured(variance, structure), structure)

    def log_prob(self, observations: Float[Array, "... K D"]) -> Float[Array, "... K 2"]:
        """Return the log-density of each tool's features under absence and presence."""
        return gaussian.log_prob(observations, jnp.asarray(self.mean), jnp.asarray(self.covariance), self.structure)

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw features (..., K, D) for presence 0 or 1 (..., K)."""
        mean, covariance = jnp.asarray(self.mean), jnp.asarray(self.covariance)
        tools = jnp.arange(mean.shape[0])
        chosen = covariance if self.structure == "tied" else covariance[tools, states]
        return gaussian.sample(key, mean[tools, states], chosen, self.structure)

    def statistics(self, observations: Float[Array, "... K D"], posterior: Float[Array, "... K 2"]) -> dict[str, Array]:
        """Return weights (K, 2), and weighted first and second moments about the current means."""
        flat = posterior.reshape(-1, *posterior.shape[-2:])
        features = observations.reshape(len(flat), flat.shape[1], -1)
        return gaussian.moments(features, flat, jnp.asarray(self.mean), self.structure)

    def maximize(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Self:
        """Return weighted means and covariances; states of weight zero keep theirs."""
        mean, covariance = jnp.asarray(self.mean), jnp.asarray(self.covariance)
        return type(self)(
            *gaussian.maximize(statistics, mean, covariance, pseudo_counts, self.structure), self.structure
        )

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the expected log-density of the pseudo-frames, up to a constant."""
        return gaussian.log_prior(jnp.asarray(self.mean), jnp.asarray(self.covariance), pseudo_counts, self.structure)

    def check(self) -> None:
        """Raise ValueError unless shapes agree, means are finite and covariances positive definite."""
        check_array("tools.emission.mean", self.mean)
        if self.mean.ndim != 3 or self.mean.shape[1] != 2 or 0 in self.mean.shape:
            raise ValueError(f"tools.emission.mean has shape {tuple(self.mean.shape)}, but must be (K, 2, D).")
        gaussian.check("tools", self.mean, self.covariance, self.structure, ("K", "2"))
