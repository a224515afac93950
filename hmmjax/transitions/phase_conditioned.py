"""Tools that follow the phase, each on its own (the paper's A~)."""

from types import MappingProxyType
from typing import Any, Self

import jax.numpy as jnp

from hmmjax._categorical import dirichlet_log_prior, normalise_counts
from hmmjax._checks import check_rows
from hmmjax._pytree import pytree
from hmmjax._typing import Array
from hmmjax.transitions.base import ToolTransition


@pytree
class PhaseConditioned(ToolTransition):
    """P(tool k goes i -> j | the new phase is q) = matrix[k, q, i, j].

    Attributes:
        matrix: (K, L, 2, 2) probabilities, rows sum to one; (K, 2, 2) in a model without phases.

    Pseudo-counts: scalar or the matrix's shape.
    """

    matrix: Array
    spaces = MappingProxyType({"matrix": "rows"})

    @property
    def num_tools(self) -> int:
        """K."""
        return self.matrix.shape[0]

    def tables(self) -> Array:
        """The matrix: a differentiable table whose gradient times itself is the expected count."""
        return jnp.asarray(self.matrix)

    @staticmethod
    def blocks(tables: Array) -> tuple[Array, ...]:
        """Kronecker factors (L, 2, 2) of the joint tool transition, one a tool, the first tool slowest."""
        return tuple(tables)

    def maximize(self, counts: Array, pseudo_counts: Any = 0.0) -> Self:
        """Normalised counts; a row never visited keeps its value."""
        return type(self)(normalise_counts(counts, self.matrix, pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Dirichlet log-density of every row, without its constant."""
        return dirichlet_log_prior(self.matrix, pseudo_counts)

    def check(self) -> None:
        """Raise ValueError unless rows are distributions."""
        check_rows("tools.transition.matrix", self.matrix, square=True)
