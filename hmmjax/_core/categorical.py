"""M-step and prior of tables whose rows are categorical distributions."""

from typing import Any

import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array


def normalize_counts(counts: Array, previous: Array, pseudo_counts: Any = 0.0) -> Array:
    """Return rows (last axis) proportional to counts plus pseudo-counts, on the support of `previous`.

    An entry of exactly zero is structural and stays zero, with or without a prior. A row without counts keeps its
    previous value, so the result never contains NaN.

    Source: M-step of the paper's EM (expected counts, normalized), as a MAP estimate under Dirichlet priors.
    """
    previous = jnp.asarray(previous)
    counts = jnp.where(previous > 0, counts + pseudo_counts, 0).astype(previous.dtype)
    total = counts.sum(-1, keepdims=True)
    # Dividing by the largest count first keeps the digits of rows with tiny counts, which are denormal numbers.
    scale = jnp.max(counts, -1, keepdims=True)
    visited = total > 0
    counts = counts / jnp.where(visited, scale, 1)
    table = jnp.where(visited, counts / jnp.where(visited, counts.sum(-1, keepdims=True), 1), previous)
    # Denormal probabilities have lost their digits and have no finite reciprocal: they become zero.
    return jnp.where(table >= jnp.finfo(table.dtype).tiny, table, 0)


def dirichlet_log_prior(table: Array, pseudo_counts: Any = 0.0) -> Array:
    """Return the sum of pseudo_counts * log(table) over the support: a Dirichlet log-density, up to a constant."""
    table = jnp.asarray(table)
    pseudo_counts = jnp.broadcast_to(jnp.asarray(pseudo_counts, table.dtype), table.shape)
    used = (table > 0) & (pseudo_counts > 0)
    return jnp.sum(jnp.where(used, pseudo_counts * num.log(jnp.where(used, table, 1)), 0))
