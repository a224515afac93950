"""Logistic emissions: each tool's label depends on the presence of all tools (the paper's zeta)."""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp

from hmmjax._core import logistic
from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float, Int
from hmmjax.emissions.base import ToolEmission
from hmmjax.emissions.confusion import ToolConfusion


@pytree
class ToolLogistic(ToolEmission):
    """P(label 1 of tool k | all tools) = sigmoid(weights[k, 0] + sum_j weights[k, 1 + j] * presence of tool j).

    weights[k, 1 + k] measures how well tool k itself is recognized; weights[k, 1 + j] how much tool j hides it (if
    negative) or is mistaken for it (if positive). `hmmjax.odds_ratios` reports them with standard errors.

    Attributes:
        weights: (K, K + 1) nats of log-odds; K at most 10.

    Pseudo-counts are a ridge, in nats per unit squared: the precision of a normal prior of mean zero; a scalar, or an
    array that broadcasts to the weights (for example, with 0 for intercepts). Without a ridge, the weights of events
    that never occur go to their cap of 20.

    Raises:
        ValueError: with more than 10 tools, when the table over configurations is needed.

    Source: zeta of the paper's second extension (docs/how-to/interacting-tools.md).
    """

    weights: Array
    observes = "labels"
    is_joint = True
    constraints = MappingProxyType({"weights": "real"})

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.weights.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """The ridge broadcasts to the weights."""
        return self.weights.shape

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """Return `ToolConfusion.default` as weights: no tool affects the recognition of another."""
        return cls.from_confusion(ToolConfusion.default(num_tools))

    @classmethod
    def from_confusion(cls, emission: ToolConfusion) -> Self:
        """Return the same recognizer as weights, all interactions zero: a start for EM.

        Args:
            emission: family over K tools, with the labels 0 and 1. Odds are capped at 20 thousand to one.

        Returns:
            A family whose weights (K, K + 1) are zero except for intercepts and each tool's own.
        """
        matrix = jnp.asarray(emission.matrix)
        return cls(logistic.from_probabilities(matrix[:, 0, 1], matrix[:, 1, 1]))

    def log_prob(self, observations: Int[Array, "... K"]) -> Float[Array, "... K C"]:
        """Return the log-probability (..., K, 2**K) of each tool's label (..., K) under every configuration."""
        table = logistic.log_probabilities(self.weights)
        return jnp.where(observations[..., None] == 1, table[..., 1], table[..., 0])

    def statistics(self, observations: Int[Array, "... K"], posterior: Float[Array, "... K C"]) -> Array:
        """Return expected counts (K, 2**K, 2) of the labels 0 and 1 of each tool under each configuration."""
        flat = posterior.reshape(-1, *posterior.shape[-2:])
        present = (observations == 1).reshape(-1, flat.shape[1], 1)
        return jnp.stack([jnp.where(present, 0, flat).sum(0), jnp.where(present, flat, 0).sum(0)], -1)

    def maximize(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Return ridge-regularized logistic regressions, one per tool, by IRLS from the current weights."""
        return type(self)(logistic.fit(statistics, jnp.asarray(self.weights), pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return minus half the ridge times squared weights."""
        return logistic.log_prior(self.weights, pseudo_counts)

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw labels 0 or 1 (..., K) for presence 0 or 1 (..., K)."""
        weights = jnp.asarray(self.weights)
        odds = weights[:, 0] + num.einsum("...j,kj->...k", (states == 1).astype(weights.dtype), weights[:, 1:])
        return jax.random.bernoulli(key, jax.nn.sigmoid(odds)).astype(jnp.int32)

    def check(self) -> None:
        """Raise ValueError unless weights are (K, K + 1), finite and of at most 10 tools."""
        logistic.check_weights("tools.emission.weights", self.weights, "(K, K + 1)")
