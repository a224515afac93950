"""Tool transitions with pairwise interactions (logistic; the paper's eta)."""

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
    """P(tool k present | tools before, next phase q) = sigmoid(w[q, k, 0] + sum_j w[q, k, 1 + j] * tool j before).

    w[q, k, 1 + k] measures how strongly the tool itself persists, and w[q, k, 1 + j] how strongly tool j favors its
    presence (if positive) or its absence (if negative). `hmmjax.odds_ratios` reports them with standard errors. One
    frame costs L * 4**K products. If the probability of some joint transition is below e^-70, the "auto" backend
    computes in logarithms, a hundred times slower; a ridge prevents that.

    Attributes:
        weights: (L, K, K + 1) nats of log-odds, (K, K + 1) in a model without phases; K at most 10.

    Pseudo-counts are a ridge, in nats per unit squared: the precision of a normal prior of mean zero; a scalar, or an
    array that broadcasts to the weights (for example, with 0 for intercepts). Without a ridge, the weights of
    transitions that never occur go to their cap of 20.

    Raises:
        ValueError: with more than 10 tools, when the table over configurations is needed.

    Source: eta of the paper's second extension (docs/how-to/interacting-tools.md).
    """

    weights: Array
    is_joint = True
    constraints = MappingProxyType({"weights": "real"})

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.weights.shape[-2]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """The ridge broadcasts to the weights."""
        return self.weights.shape

    @classmethod
    def from_phase_conditioned(cls, transition: PhaseConditioned) -> Self:
        """Return the same chains as weights, all interactions zero: a start for EM.

        Args:
            transition: model of K tools. Odds are capped at 20 thousand to one.

        Returns:
            A model whose weights (L, K, K + 1), or (K, K + 1) without phases, are zero except for intercepts and each
            tool's own.
        """
        matrix = jnp.moveaxis(jnp.asarray(transition.matrix), 0, -3)
        return cls(logistic.from_probabilities(matrix[..., 0, 1], matrix[..., 1, 1]))

    def tables(self) -> Array:
        """Return (L, K, 2**K, 2) probabilities of absence and presence of each tool given all tools before."""
        return jnp.exp(logistic.log_probabilities(self.weights))

    @staticmethod
    def blocks(tables: Array) -> tuple[Array, ...]:
        """Return one block (L, 2**K, 2**K): the tools are independent given all tools before."""
        return (configurations.multiply_over_tools(jnp.swapaxes(tables, -3, -2)),)

    def count(self, before: Array, after: Array, phases: Any) -> Array:
        """Return counts (L, K, 2**K, 2) of labeled transitions before which all tools are known."""
        configs = configurations.multiply_over_tools(before)
        if phases is None:
            return num.einsum("btc,btkj->kcj", configs, after)
        return num.einsum("btc,btkj,btq->qkcj", configs, after, phases)

    def maximize(self, counts: Array, pseudo_counts: Any = 0.0) -> Self:
        """Return ridge-regularized logistic regressions, one per phase and tool, by IRLS from the current weights."""
        return type(self)(logistic.fit(counts, jnp.asarray(self.weights), pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return minus half the ridge times squared weights."""
        return logistic.log_prior(self.weights, pseudo_counts)

    def min_log_prob(self) -> np.ndarray:
        """Return the log-probability of the least probable joint transition into each phase, (L,)."""
        table = np.asarray(logistic.log_probabilities(self.weights), np.float64)
        return np.asarray(table.min(-1).sum(-2).min(-1))

    def check(self) -> None:
        """Raise ValueError unless weights are (L, K, K + 1) or (K, K + 1), finite and of at most 10 tools."""
        logistic.check_weights("tools.transition.weights", self.weights, "(L, K, K + 1), or (K, K + 1) without phases")

    def check_size(self, num_tools: int, num_phases: int | None) -> None:
        """Raise ValueError unless weights are of K tools and L phases."""
        shape, meaning = (num_tools, num_tools + 1), "(K, K + 1) in a model without phases"
        if num_phases is not None:
            shape, meaning = (num_phases, *shape), "(L, K, K + 1)"
        check_shape("tools.transition.weights", self.weights, shape, meaning)
