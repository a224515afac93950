"""Logistic emissions: what is said of a tool depends on all the tools that are there (the paper's zeta)."""

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
    """P(recognizer says tool k | all tools) = sigmoid(weights[k, 0] + sum_j weights[k, 1 + j] * presence of tool j).

    weights[k, 1 + k] is how well tool k itself is recognized; weights[k, 1 + j] how far tool j hides it (below zero) or
    is taken for it (above). `hmmjax.odds_ratios` reports them with standard errors.

    Attributes:
        weights: (K, K + 1) nats of log-odds; K at most 10.

    Pseudo-counts are a ridge, in nats per unit squared: the precision of a normal prior of mean zero; a scalar, or what
    broadcasts to the weights (say, 0 for intercepts). Without one, what never happens takes weights to their cap of 20.

    Raises:
        ValueError: with more than 10 tools, wherever the table is needed.

    Source: zeta of the paper's second extension (docs/interactions.md).
    """

    weights: Array
    observes = "labels"
    is_joint = True
    constraints = MappingProxyType({"weights": "real"})

    @property
    def num_tools(self) -> int:
        """K."""
        return self.weights.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """A ridge broadcasts to the weights."""
        return self.weights.shape

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """`ToolConfusion.initial`, no tool of which has a say in another's recognition."""
        return cls.from_confusion(ToolConfusion.default(num_tools))

    @classmethod
    def from_confusion(cls, emission: ToolConfusion) -> Self:
        """The same recognizer as weights, all interactions zero: where to start EM from a plain model.

        Args:
            emission: of K tools. Probabilities beyond odds of 20 thousand are taken for that.

        Returns:
            Weights (K, K + 1), zero but for intercepts and each tool's own.
        """
        matrix = jnp.asarray(emission.matrix)
        return cls(logistic.from_probabilities(matrix[:, 0, 1], matrix[:, 1, 1]))

    def log_prob(self, observations: Int[Array, "... K"]) -> Float[Array, "... K C"]:
        """Log-probability of each tool's label (..., K) under every configuration (..., K, 2**K)."""
        table = logistic.log_probabilities(self.weights)
        return jnp.where(observations[..., None] == 1, table[..., 1], table[..., 0])

    def statistics(self, observations: Int[Array, "... K"], posterior: Float[Array, "... K C"]) -> Array:
        """Expected counts (K, 2**K, 2) of tool k called absent or present under each configuration."""
        flat = posterior.reshape(-1, *posterior.shape[-2:])
        said = (observations == 1).reshape(-1, flat.shape[1], 1)
        return jnp.stack([jnp.where(said, 0, flat).sum(0), jnp.where(said, flat, 0).sum(0)], -1)

    def maximize(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """A ridge-regularized logistic regression for each tool, by IRLS from the current weights."""
        return type(self)(logistic.fit(statistics, jnp.asarray(self.weights), pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Minus half the ridge times squared weights."""
        return logistic.log_prior(self.weights, pseudo_counts)

    def sample(self, key: jax.Array, states: Array) -> Array:
        """What the recognizer would say: 0/1 (..., K) for presence (..., K)."""
        weights = jnp.asarray(self.weights)
        odds = weights[:, 0] + num.einsum("...j,kj->...k", (states == 1).astype(weights.dtype), weights[:, 1:])
        return jax.random.bernoulli(key, jax.nn.sigmoid(odds)).astype(jnp.int32)

    def check(self) -> None:
        """Raise ValueError unless (K, K + 1), finite, of at most 10 tools."""
        logistic.check_weights("tools.emission.weights", self.weights, "(K, K + 1)")
