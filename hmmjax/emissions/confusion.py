"""Confusion emissions: the recognizer says a label (the paper's B and B~)."""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.categorical import dirichlet_log_prior, normalize_counts
from hmmjax._core.checks import check_rows, check_shape, check_square
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float, Int
from hmmjax.emissions.base import PhaseEmission, ToolEmission


@pytree
class PhaseConfusion(PhaseEmission):
    """P(recognizer says q | phase p) = matrix[p, q].

    Attributes:
        matrix: (L, L) probabilities, rows sum to one.

    Source: B of the paper's phase model. Pseudo-counts: scalar or (L, L).
    """

    matrix: Array
    observes = "labels"
    constraints = MappingProxyType({"matrix": "simplex"})

    @property
    def num_phases(self) -> int:
        """L."""
        return self.matrix.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts broadcast to the matrix."""
        return self.matrix.shape

    @classmethod
    def default(cls, num_phases: int) -> Self:
        """Right four times in five, otherwise any other phase alike."""
        off = 0.2 / max(num_phases - 1, 1)
        matrix = jnp.full((num_phases, num_phases), off)
        return cls(jnp.where(jnp.eye(num_phases, dtype=bool), 0.8 if num_phases > 1 else 1.0, matrix))

    def log_prob(self, observations: Int[Array, "..."]) -> Float[Array, "... L"]:
        """Column of the matrix that each label selects, in logs: int (...,) to (..., L)."""
        return jnp.moveaxis(num.log(jnp.asarray(self.matrix))[:, observations], 0, -1)

    def statistics(self, observations: Int[Array, "..."], posterior: Float[Array, "... L"]) -> Array:
        """Expected counts (L, L) of phase p called q."""
        said = jax.nn.one_hot(observations, self.matrix.shape[1], dtype=posterior.dtype)
        return num.einsum("np,nq->pq", posterior.reshape(-1, posterior.shape[-1]), said.reshape(-1, said.shape[-1]))

    def maximize(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Normalized counts; a phase never visited keeps its row."""
        return type(self)(normalize_counts(statistics, self.matrix, pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Dirichlet log-density of every row, without its constant."""
        return dirichlet_log_prior(self.matrix, pseudo_counts)

    def sample(self, key: jax.Array, states: Array) -> Array:
        """What the recognizer would say: int (...,) for phases (...,)."""
        return jax.random.categorical(key, num.log(jnp.asarray(self.matrix))[states]).astype(jnp.int32)

    def check(self) -> None:
        """Raise ValueError unless square with rows that are distributions."""
        check_square("phases.emission.matrix", self.matrix, 2)
        check_rows("phases.emission.matrix", self.matrix, square=True)


@pytree
class ToolConfusion(ToolEmission):
    """P(recognizer says j | presence i of tool k) = matrix[k, i, j].

    Attributes:
        matrix: (K, 2, 2) probabilities, rows sum to one.

    Source: B~ of the paper's tool model. Pseudo-counts: scalar or (K, 2, 2).
    """

    matrix: Array
    observes = "labels"
    constraints = MappingProxyType({"matrix": "simplex"})

    @property
    def num_tools(self) -> int:
        """K."""
        return self.matrix.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts broadcast to the matrix."""
        return self.matrix.shape

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """Right nine times in ten when the tool is absent, eight when it is present."""
        return cls(jnp.broadcast_to(jnp.array([[0.9, 0.1], [0.2, 0.8]]), (num_tools, 2, 2)))

    def log_prob(self, observations: Int[Array, "... K"]) -> Float[Array, "... K 2"]:
        """Column of each tool's matrix that its label selects, in logs: int (..., K) to (..., K, 2)."""
        table = num.log(jnp.asarray(self.matrix))
        return jnp.where(observations[..., None] == 1, table[:, :, 1], table[:, :, 0])

    def statistics(self, observations: Int[Array, "... K"], posterior: Float[Array, "... K 2"]) -> Array:
        """Expected counts (K, 2, 2) of presence i called j."""
        said = jax.nn.one_hot(observations, 2, dtype=posterior.dtype)
        k = posterior.shape[-2]
        return num.einsum("nki,nkj->kij", posterior.reshape(-1, k, 2), said.reshape(-1, k, 2))

    def maximize(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Normalized counts; a tool state never visited keeps its row."""
        return type(self)(normalize_counts(statistics, self.matrix, pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Dirichlet log-density of every row, without its constant."""
        return dirichlet_log_prior(self.matrix, pseudo_counts)

    def sample(self, key: jax.Array, states: Array) -> Array:
        """What the recognizer would say: 0/1 (..., K) for presence (..., K)."""
        matrix = jnp.asarray(self.matrix)
        present = jnp.where(states == 1, matrix[:, 1, 1], matrix[:, 0, 1])
        return jax.random.bernoulli(key, present).astype(jnp.int32)

    def check(self) -> None:
        """Raise ValueError unless (K, 2, 2) with rows that are distributions."""
        check_shape("tools.emission.matrix", self.matrix, (len(self.matrix), 2, 2), "(K, 2, 2)")
        check_rows("tools.emission.matrix", self.matrix, square=True)
