"""Tools that make each other come and go (the paper's eta)."""

from types import MappingProxyType
from typing import Any, Self

import jax.numpy as jnp
import numpy as np

from hmmjax._core import configurations, logistic
from hmmjax._core import numerics as num
from hmmjax._core.checks import check_shape
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.transitions.base import ToolTransition
from hmmjax.transitions.phase_conditioned import PhaseConditioned


@pytree
class Interacting(ToolTransition):
    """P(tool k present | tools before, new phase q) = sigmoid(w[q, k, 0] + sum_j w[q, k, 1 + j] * tool j before).

    w[q, k, 1 + k] is how much the tool stays of its own accord; w[q, k, 1 + j] how far tool j brings it in (above zero)
    or keeps it out (below). `hmmjax.odds_ratios` reports them with standard errors. One frame costs L * 4**K products,
    and a hundred times that in logarithms, which "auto" takes where some joint move is rarer than e^-70: give a ridge.

    Attributes:
        weights: (L, K, K + 1) nats of log-odds, (K, K + 1) in a model without phases; K at most 10.

    Pseudo-counts are a ridge, in nats per unit squared: the precision of a normal prior of mean zero; a scalar, or what
    broadcasts to the weights (say, 0 for intercepts). Without one, what never happens takes weights to their cap of 20.

    Raises:
        ValueError: with more than 10 tools, wherever the table is needed.

    Source: eta of the paper's second extension (docs/interactions.md).
    """

    weights: Array
    is_joint = True
    constraints = MappingProxyType({"weights": "real"})

    @property
    def num_tools(self) -> int:
        """K."""
        return self.weights.shape[-2]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """A ridge broadcasts to the weights."""
        return self.weights.shape

    @classmethod
    def from_phase_conditioned(cls, transition: PhaseConditioned) -> Self:
        """The same chains as weights, all interactions zero: where to start EM from a plain model.

        Args:
            transition: of K tools. Probabilities beyond odds of 20 thousand are taken for that.

        Returns:
            Weights (L, K, K + 1), or (K, K + 1) without phases, zero but for intercepts and each tool's own.
        """
        matrix = jnp.moveaxis(jnp.asarray(transition.matrix), 0, -3)
        return cls(logistic.from_probabilities(matrix[..., 0, 1], matrix[..., 1, 1]))

    def tables(self) -> Array:
        """(L, K, 2**K, 2) probability of absence and presence given all tools before; gradients of it are counts."""
        return jnp.exp(logistic.log_probabilities(self.weights))

    @staticmethod
    def blocks(tables: Array) -> tuple[Array, ...]:
        """The one block (L, 2**K, 2**K): given the tools before, the tools now are independent."""
        return (configurations.multiply_over_tools(jnp.swapaxes(tables, -3, -2)),)

    def count(self, before: Array, after: Array, phases: Any) -> Array:
        """Counts (L, K, 2**K, 2) of labeled moves; all tools before must be known."""
        configs = configurations.multiply_over_tools(before)
        if phases is None:
            return num.einsum("btc,btkj->kcj", configs, after)
        return num.einsum("btc,btkj,btq->qkcj", configs, after, phases)

    def maximize(self, counts: Array, pseudo_counts: Any = 0.0) -> Self:
        """A ridge-regularized logistic regression for each phase and tool, by IRLS from the current weights."""
        return type(self)(logistic.fit(counts, jnp.asarray(self.weights), pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Minus half the ridge times squared weights."""
        return logistic.log_prior(self.weights, pseudo_counts)

    def min_log_prob(self) -> np.ndarray:
        """Log-probability of the least probable joint move into each phase, (L,), or of all without phases."""
        table = np.asarray(logistic.log_probabilities(self.weights), np.float64)
        return np.asarray(table.min(-1).sum(-2).min(-1))

    def check(self) -> None:
        """Raise ValueError unless (L, K, K + 1) or (K, K + 1), finite, of at most 10 tools."""
        logistic.check_weights("tools.transition.weights", self.weights, "(L, K, K + 1), or (K, K + 1) without phases")

    def check_size(self, num_tools: int, num_phases: int | None) -> None:
        """Raise ValueError unless over so many tools and phases."""
        shape, meaning = (num_tools, num_tools + 1), "(K, K + 1) in a model without phases"
        if num_phases is not None:
            shape, meaning = (num_phases, *shape), "(L, K, K + 1)"
        check_shape("tools.transition.weights", self.weights, shape, meaning)
