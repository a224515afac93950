"""Independent tool transitions given the phase (the paper's A~)."""

from types import MappingProxyType
from typing import Any, Self

import jax.numpy as jnp
import numpy as np

from hmmjax._core import numerics as num
from hmmjax._core.categorical import dirichlet_log_prior, normalize_counts
from hmmjax._core.checks import check_rows, check_shape
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.transitions.base import ToolTransition


@pytree
class PhaseConditioned(ToolTransition):
    """P(tool k goes i -> j | next phase q) = matrix[k, q, i, j].

    Attributes:
        matrix: (K, L, 2, 2) probabilities, rows sum to one; (K, 2, 2) in a model without phases.

    Pseudo-counts: a scalar or an array that broadcasts to the matrix.

    Source: A~ of the paper's tool model.
    """

    matrix: Array
    constraints = MappingProxyType({"matrix": "simplex"})

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.matrix.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts broadcast to the matrix."""
        return self.matrix.shape

    def tables(self) -> Array:
        """Return the matrix."""
        return jnp.asarray(self.matrix)

    @staticmethod
    def blocks(tables: Array) -> tuple[Array, ...]:
        """Return Kronecker factors (L, 2, 2) of the joint tool transition, one per tool, the first tool slowest."""
        # Not slices, whose derivatives are padded and added, in one kernel each.
        return tuple(jnp.squeeze(block, 0) for block in jnp.split(tables, len(tables)))

    def count(self, before: Array, after: Array, phases: Any) -> Array:
        """Return counts (K, L, 2, 2) of labeled transitions, for each tool from pairs of frames with both known."""
        if phases is None:
            return num.einsum("btki,btkj->kij", before, after)
        return num.einsum("btki,btkj,btq->kqij", before, after, phases)

    def maximize(self, counts: Array, pseudo_counts: Any = 0.0) -> Self:
        """Return normalized counts; a row that is never visited keeps its value."""
        return type(self)(normalize_counts(counts, self.matrix, pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the Dirichlet log-density of every row, without its constant."""
        return dirichlet_log_prior(self.matrix, pseudo_counts)

    def min_log_prob(self) -> np.ndarray:
        """Return the log-probability of the least probable joint transition into each phase, (L,)."""
        table = np.asarray(self.matrix, np.float64).min((-1, -2))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(table, 0)).sum(0))

    def check(self) -> None:
        """Raise ValueError unless rows are distributions."""
        check_rows("tools.transition.matrix", self.matrix, square=True)

    def check_size(self, num_tools: int, num_phases: int | None) -> None:
        """Raise ValueError unless the matrix is of K tools and L phases."""
        shape, meaning = (num_tools, 2, 2), "(K, 2, 2), in a model without phases"
        if num_phases is not None:
            shape, meaning = (num_tools, num_phases, 2, 2), "(K, L, 2, 2)"
        check_shape("tools.transition.matrix", self.matrix, shape, meaning)
