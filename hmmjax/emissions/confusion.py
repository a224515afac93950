"""Confusion emissions: the recognizer outputs a label (the paper's B and B~)."""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.categorical import dirichlet_log_prior, normalize_counts
from hmmjax._core.checks import check_array, check_rows
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float, Int
from hmmjax.emissions.anchor import Anchor, table_counts, table_divergence
from hmmjax.emissions.base import PhaseEmission, ToolEmission

MOST_SELECTED = 32
"""Labels up to which columns are selected and not gathered."""

FEWEST_FRAMES = 1024
"""Frames from which on they are: for fewer, a selection per label costs more calls than it saves."""


@pytree
class PhaseConfusion(PhaseEmission):
    """P(label m | phase p) = matrix[p, m].

    The M labels are usually the L phases, but a recognizer may have other classes.

    Attributes:
        matrix: (L, M) probabilities, rows sum to one.

    Pseudo-counts: a scalar, (L, M), or an `Anchor`.

    Source: B of the paper's phase model.
    """

    matrix: Array
    observes = "labels"
    accepts_anchor = True
    constraints = MappingProxyType({"matrix": "simplex"})

    @property
    def num_phases(self) -> int:
        """Number of phases L."""
        return self.matrix.shape[0]

    @property
    def num_symbols(self) -> int:
        """Number of labels M."""
        return self.matrix.shape[-1]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts broadcast to the matrix."""
        return self.matrix.shape

    @classmethod
    def default(cls, num_phases: int, num_symbols: int | None = None) -> Self:
        """Return a recognizer that is right in 80 % of frames, with its errors spread over the other labels.

        Args:
            num_phases: L.
            num_symbols: M, by default L. Phases without a label of their own have all labels with equal probability.
        """
        m = num_phases if num_symbols is None else num_symbols
        right = jnp.eye(num_phases, m, dtype=bool)
        matrix = jnp.where(right, 0.8 if m > 1 else 1.0, 0.2 / max(m - 1, 1))
        return cls(jnp.asarray(jnp.where(right.any(-1, keepdims=True), matrix, 1 / m), float))

    def log_prob(self, observations: Int[Array, "..."]) -> Float[Array, "... L"]:
        """Return the log-probability (..., L) of each label (...,) under each phase."""
        return _columns(num.log(jnp.asarray(self.matrix)), observations)

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw labels (...,) int32 for phases (...,)."""
        return jax.random.categorical(key, num.log(jnp.asarray(self.matrix))[states]).astype(jnp.int32)

    def statistics(self, observations: Int[Array, "..."], posterior: Float[Array, "... L"]) -> Array:
        """Return expected counts (L, M) of each phase with each label."""
        onehot = jax.nn.one_hot(observations, self.num_symbols, dtype=posterior.dtype)
        flat = posterior.reshape(-1, posterior.shape[-1])
        return num.einsum("np,nq->pq", flat, onehot.reshape(-1, onehot.shape[-1]))

    def maximize(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Return normalized counts; a phase that is never visited keeps its row."""
        return type(self)(normalize_counts(statistics, self.matrix, table_counts(pseudo_counts)))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the Dirichlet log-density of every row, without its constant."""
        if isinstance(pseudo_counts, Anchor):
            return table_divergence(pseudo_counts, self.matrix)
        return dirichlet_log_prior(self.matrix, pseudo_counts)

    def check(self) -> None:
        """Raise ValueError unless (L, M) with rows that are distributions."""
        _check_matrix("phases.emission.matrix", self.matrix, 2, "(L, M): one row per phase, one column per label")


@pytree
class ToolConfusion(ToolEmission):
    """P(label m | presence i of tool k) = matrix[k, i, m].

    The M labels of each tool are usually 0 (absent) and 1 (present), but a recognizer may have others.

    Attributes:
        matrix: (K, 2, M) probabilities, rows sum to one.

    Pseudo-counts: a scalar, (K, 2, M), or an `Anchor`.

    Source: B~ of the paper's tool model.
    """

    matrix: Array
    observes = "labels"
    accepts_anchor = True
    constraints = MappingProxyType({"matrix": "simplex"})

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.matrix.shape[0]

    @property
    def num_symbols(self) -> int:
        """Number of labels M."""
        return self.matrix.shape[-1]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts broadcast to the matrix."""
        return self.matrix.shape

    @classmethod
    def default(cls, num_tools: int, num_symbols: int | None = None) -> Self:
        """Return a recognizer that is right in 90 % of frames for absent tools and in 80 % for present ones.

        Args:
            num_tools: K.
            num_symbols: M, by default 2. Label 0 means absent; all others are equally probable for present tools.
        """
        m = 2 if num_symbols is None else num_symbols
        others = max(m - 1, 1)
        row = [[0.9, *[0.1 / others] * (m - 1)], [0.2, *[0.8 / others] * (m - 1)]] if m > 1 else [[1.0], [1.0]]
        return cls(jnp.broadcast_to(jnp.array(row), (num_tools, 2, m)))

    def log_prob(self, observations: Int[Array, "... K"]) -> Float[Array, "... K 2"]:
        """Return the log-probability (..., K, 2) of each tool's label (..., K) under absence and presence."""
        table = num.log(jnp.asarray(self.matrix))
        selected = jnp.broadcast_to(table[:, :, 0], (*observations.shape, 2))
        for symbol in range(1, self.num_symbols):
            selected = jnp.where(observations[..., None] == symbol, table[:, :, symbol], selected)
        return selected

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw labels (..., K) int32 for presence 0 or 1 (..., K)."""
        matrix = jnp.asarray(self.matrix)
        rows = jnp.where((states == 1)[..., None], matrix[:, 1], matrix[:, 0])
        if self.num_symbols == 2:
            return jax.random.bernoulli(key, rows[..., 1]).astype(jnp.int32)
        return jax.random.categorical(key, num.log(rows)).astype(jnp.int32)

    def statistics(self, observations: Int[Array, "... K"], posterior: Float[Array, "... K 2"]) -> Array:
        """Return expected counts (K, 2, M) of absence and presence with each label."""
        k, m = posterior.shape[-2], self.num_symbols
        onehot = jax.nn.one_hot(observations, m, dtype=posterior.dtype)
        return num.einsum("nki,nkj->kij", posterior.reshape(-1, k, 2), onehot.reshape(-1, k, m))

    def maximize(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Return normalized counts; a tool's state that is never visited keeps its row."""
        return type(self)(normalize_counts(statistics, self.matrix, table_counts(pseudo_counts)))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the Dirichlet log-density of every row, without its constant."""
        if isinstance(pseudo_counts, Anchor):
            return table_divergence(pseudo_counts, self.matrix)
        return dirichlet_log_prior(self.matrix, pseudo_counts)

    def check(self) -> None:
        """Raise ValueError unless (K, 2, M) with rows that are distributions."""
        _check_matrix(
            "tools.emission.matrix", self.matrix, 3, "(K, 2, M): for each tool one row for absent, one for present"
        )


@jax.custom_jvp
def _columns(table: Array, observations: Int[Array, "..."]) -> Array:
    """Return the columns (..., L) of a table (L, M) that observations name.

    A few are selected from: XLA would compute the logarithms of a table again for every number gathered from it.
    """
    last = table.shape[1] - 1
    if last >= MOST_SELECTED or observations.size < FEWEST_FRAMES:
        return jnp.moveaxis(table[:, observations], 0, -1)
    selected = jnp.broadcast_to(table[:, last], (*observations.shape, table.shape[0]))
    for symbol in range(last):
        selected = jnp.where(observations[..., None] == symbol, table[:, symbol], selected)
    return selected


@_columns.defjvp
def _(primals: tuple, tangents: tuple) -> tuple:
    # Gathered, for derivatives: those of selections are a sum over all frames per column.
    return _columns(*primals), jnp.moveaxis(tangents[0][:, primals[1]], 0, -1)


def _check_matrix(name: str, matrix: Any, axes: int, meaning: str) -> None:
    check_array(name, matrix)
    shape = tuple(matrix.shape)
    if len(shape) != axes or 0 in shape or (axes == 3 and shape[1] != 2):
        raise ValueError(f"{name} has shape {shape}, but must be {meaning}.")
    check_rows(name, matrix)
