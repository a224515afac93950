"""Autoregressive confusion: the recognizer's label depends on the state and on its own label in the frame before.

A network's errors last for many frames. A family without memory counts each of them as a new observation; this one
knows that a label which repeats the last one tells little, whatever the state.
"""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.categorical import dirichlet_log_prior, normalize_counts
from hmmjax._core.checks import check_array, check_rows
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float, Int
from hmmjax.emissions.base import PhaseEmission, ToolEmission
from hmmjax.emissions.confusion import PhaseConfusion, ToolConfusion
from hmmjax.emissions.past import Past

SHRINKAGE = 10.0
"""Strength, in frames, with which `from_counts` shrinks the row after each label towards the row without memory."""


@pytree
class PhaseAutoregressive(PhaseEmission):
    """P(label m | label n in the frame before, phase p) = after[p, n, m], and matrix[p, m] without a frame before.

    The M labels are usually the L phases, but a recognizer may have other classes.

    Attributes:
        matrix: (L, M) probabilities of labels whose previous label was not observed; rows sum to one.
        after: (L, M, M) probabilities of labels (last axis) given the previous label; rows sum to one.

    `from_counts`, and so `hmmjax.estimate`, shrinks rows of `after` towards `matrix` by `SHRINKAGE` frames.
    Pseudo-counts (a scalar or (L, M)) are added to the counts of `matrix`, and in EM to those of each row of `after`.

    Source: autoregressive (switching Markov) hidden Markov models, Hamilton (1989), over labels.
    """

    matrix: Array
    after: Array
    observes = "labels"
    lag = 1
    constraints = MappingProxyType({"matrix": "simplex", "after": "simplex"})

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
        """Pseudo-counts broadcast to (L, M)."""
        return self.matrix.shape

    @classmethod
    def default(cls, num_phases: int, num_symbols: int | None = None) -> Self:
        """Return `PhaseConfusion.default` after every label: no memory.

        Args:
            num_phases: L.
            num_symbols: M, by default L.
        """
        return cls.from_confusion(PhaseConfusion.default(num_phases, num_symbols))

    @classmethod
    def from_confusion(cls, emission: PhaseConfusion) -> Self:
        """Return the same recognizer, whose labels do not depend on the ones before: a start for EM.

        Args:
            emission: family with a matrix (L, M).

        Returns:
            A family whose `after` (L, M, M) is the matrix after every label.
        """
        matrix = jnp.asarray(emission.matrix)
        return cls(matrix, jnp.repeat(matrix[:, None], matrix.shape[-1], 1))

    def log_prob(self, observations: Int[Array, "..."], past: Past | None = None) -> Float[Array, "... L"]:
        """Return the log-probability (..., L) of each label (...,) under each phase, given the label before."""
        alone = jnp.moveaxis(num.log(jnp.asarray(self.matrix))[:, observations], 0, -1)
        if past is None:
            return alone
        after = jnp.moveaxis(num.log(jnp.asarray(self.after))[:, past.values[0], observations], 0, -1)
        return jnp.where(past.observed[0][..., None], after, alone)

    def sample(self, key: jax.Array, states: Array, past: Past | None = None) -> Array:
        """Draw labels (...,) int32 for phases (...,), given the labels before."""
        rows = jnp.asarray(self.matrix)[states]
        if past is not None:
            rows = jnp.where(past.observed[0][..., None], jnp.asarray(self.after)[states, past.values[0]], rows)
        return jax.random.categorical(key, num.log(rows)).astype(jnp.int32)

    def statistics(
        self, observations: Int[Array, "..."], posterior: Float[Array, "... L"], past: Past | None = None
    ) -> dict[str, Array]:
        """Return expected counts of labels per phase: (L, M) without and (L, M, M) with a label before."""
        m, flat = self.num_symbols, posterior.reshape(-1, posterior.shape[-1])
        onehot = jax.nn.one_hot(observations.reshape(-1), m, dtype=flat.dtype)
        if past is None:
            return {
                "matrix": num.einsum("np,nq->pq", flat, onehot),
                "after": jnp.zeros((self.num_phases, m, m), flat.dtype),
            }
        seen = past.observed[0].reshape(-1, 1)
        pair = jax.nn.one_hot(past.values[0].reshape(-1) * m + observations.reshape(-1), m * m, dtype=flat.dtype)
        after = num.einsum("np,nq->pq", jnp.where(seen, flat, 0), pair)
        return {
            "matrix": num.einsum("np,nq->pq", jnp.where(seen, 0, flat), onehot),
            "after": after.reshape(self.num_phases, m, m),
        }

    def maximize(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Self:
        """Return normalized counts; rows that are never visited keep their values."""
        return type(self)(*_maximize(self.matrix, self.after, statistics, pseudo_counts))

    def from_counts(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Self:
        """Return the matrix of all frames, and rows after each label, shrunk towards it by `SHRINKAGE` frames."""
        return type(self)(*_from_counts(self.matrix, statistics, pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the Dirichlet log-density of every row, without its constant."""
        return _log_prior(self.matrix, self.after, pseudo_counts)

    def check(self) -> None:
        """Raise ValueError unless (L, M) and (L, M, M), with rows that are distributions."""
        meaning = "(L, M): one row per phase, one column per label"
        _check_tables("phases", self.matrix, self.after, 2, meaning)


@pytree
class ToolAutoregressive(ToolEmission):
    """P(label m | label n of the frame before, presence i of tool k) = after[k, i, n, m], matrix[k, i, m] without it.

    The M labels of each tool are usually 0 (absent) and 1 (present), but a recognizer may have others.

    Attributes:
        matrix: (K, 2, M) probabilities of labels whose previous label was not observed; rows sum to one.
        after: (K, 2, M, M) probabilities of labels (last axis) given the tool's previous label; rows sum to one.

    Shrinkage and pseudo-counts (a scalar or (K, 2, M)) are those of `PhaseAutoregressive`.

    Source: autoregressive (switching Markov) hidden Markov models, Hamilton (1989), over labels.
    """

    matrix: Array
    after: Array
    observes = "labels"
    lag = 1
    constraints = MappingProxyType({"matrix": "simplex", "after": "simplex"})

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
        """Pseudo-counts broadcast to (K, 2, M)."""
        return self.matrix.shape

    @classmethod
    def default(cls, num_tools: int, num_symbols: int | None = None) -> Self:
        """Return `ToolConfusion.default` after every label: no memory.

        Args:
            num_tools: K.
            num_symbols: M, by default 2.
        """
        return cls.from_confusion(ToolConfusion.default(num_tools, num_symbols))

    @classmethod
    def from_confusion(cls, emission: ToolConfusion) -> Self:
        """Return the same recognizer, whose labels do not depend on the ones before: a start for EM.

        Args:
            emission: family with a matrix (K, 2, M).

        Returns:
            A family whose `after` (K, 2, M, M) is the matrix after every label.
        """
        matrix = jnp.asarray(emission.matrix)
        return cls(matrix, jnp.repeat(matrix[:, :, None], matrix.shape[-1], 2))

    def log_prob(self, observations: Int[Array, "... K"], past: Past | None = None) -> Float[Array, "... K 2"]:
        """Return the log-probability (..., K, 2) of each tool's label (..., K), given the tool's label before."""
        m, k = self.num_symbols, self.num_tools
        alone = _select(num.log(jnp.asarray(self.matrix)), observations)
        if past is None:
            return alone
        pairs = num.log(jnp.asarray(self.after)).reshape(k, 2, m * m)
        return jnp.where(past.observed[0][..., None], _select(pairs, past.values[0] * m + observations), alone)

    def sample(self, key: jax.Array, states: Array, past: Past | None = None) -> Array:
        """Draw labels (..., K) int32 for presence 0 or 1 (..., K), given the labels before."""
        tools = jnp.arange(self.num_tools)
        rows = jnp.asarray(self.matrix)[tools, states]
        if past is not None:
            after = jnp.asarray(self.after)[tools, states, past.values[0]]
            rows = jnp.where(past.observed[0][..., None], after, rows)
        return jax.random.categorical(key, num.log(rows)).astype(jnp.int32)

    def statistics(
        self, observations: Int[Array, "... K"], posterior: Float[Array, "... K 2"], past: Past | None = None
    ) -> dict[str, Array]:
        """Return expected counts of labels per state: (K, 2, M) without and (K, 2, M, M) with a label before."""
        k, m = self.num_tools, self.num_symbols
        flat, labels = posterior.reshape(-1, k, 2), observations.reshape(-1, k)
        onehot = jax.nn.one_hot(labels, m, dtype=flat.dtype)
        if past is None:
            return {"matrix": num.einsum("nki,nkj->kij", flat, onehot), "after": jnp.zeros((k, 2, m, m), flat.dtype)}
        seen = past.observed[0].reshape(-1, k, 1)
        pair = jax.nn.one_hot(past.values[0].reshape(-1, k) * m + labels, m * m, dtype=flat.dtype)
        after = num.einsum("nki,nkj->kij", jnp.where(seen, flat, 0), pair)
        return {
            "matrix": num.einsum("nki,nkj->kij", jnp.where(seen, 0, flat), onehot),
            "after": after.reshape(k, 2, m, m),
        }

    def maximize(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Self:
        """Return normalized counts; rows that are never visited keep their values."""
        return type(self)(*_maximize(self.matrix, self.after, statistics, pseudo_counts))

    def from_counts(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Self:
        """Return the matrix of all frames, and rows after each label, shrunk towards it by `SHRINKAGE` frames."""
        return type(self)(*_from_counts(self.matrix, statistics, pseudo_counts))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the Dirichlet log-density of every row, without its constant."""
        return _log_prior(self.matrix, self.after, pseudo_counts)

    def check(self) -> None:
        """Raise ValueError unless (K, 2, M) and (K, 2, M, M), with rows that are distributions."""
        meaning = "(K, 2, M): for each tool one row for absent, one for present"
        _check_tables("tools", self.matrix, self.after, 3, meaning)


def _select(table: Array, symbols: Array) -> Array:
    """Return the entries (..., K, 2) of table (K, 2, N) at symbols (..., K)."""
    chosen = jnp.broadcast_to(table[:, :, 0], (*symbols.shape, 2))
    for symbol in range(1, table.shape[-1]):
        chosen = jnp.where(symbols[..., None] == symbol, table[:, :, symbol], chosen)
    return chosen


def _maximize(matrix: Any, after: Any, statistics: dict[str, Array], pseudo_counts: Any) -> tuple[Array, Array]:
    pseudo = jnp.asarray(pseudo_counts)
    rows = pseudo[..., None, :] if pseudo.ndim else pseudo
    return normalize_counts(statistics["matrix"], matrix, pseudo), normalize_counts(statistics["after"], after, rows)


def _from_counts(matrix: Any, statistics: dict[str, Array], pseudo_counts: Any) -> tuple[Array, Array]:
    counts = statistics["after"]
    alone = normalize_counts(statistics["matrix"] + counts.sum(-2), matrix, pseudo_counts)
    shrunk = counts + SHRINKAGE * alone[..., None, :]
    return alone, shrunk / shrunk.sum(-1, keepdims=True)


def _log_prior(matrix: Any, after: Any, pseudo_counts: Any) -> Array:
    pseudo = jnp.asarray(pseudo_counts)
    rows = pseudo[..., None, :] if pseudo.ndim else pseudo
    return dirichlet_log_prior(matrix, pseudo) + dirichlet_log_prior(after, rows)


def _check_tables(track: str, matrix: Any, after: Any, axes: int, meaning: str) -> None:
    check_array(f"{track}.emission.matrix", matrix)
    check_array(f"{track}.emission.after", after)
    shape = tuple(matrix.shape)
    if len(shape) != axes or 0 in shape or (axes == 3 and shape[1] != 2):
        raise ValueError(f"{track}.emission.matrix has shape {shape}, but must be {meaning}.")
    if tuple(after.shape) != (*shape[:-1], shape[-1], shape[-1]):
        raise ValueError(
            f"{track}.emission.after has shape {tuple(after.shape)}, but must have a row for each previous label: "
            f"{(*shape[:-1], shape[-1], shape[-1])}."
        )
    check_rows(f"{track}.emission.matrix", matrix)
    check_rows(f"{track}.emission.after", after)
