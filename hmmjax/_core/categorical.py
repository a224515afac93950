"""M-step and prior of tables whose rows are distributions."""

from typing import Any

import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array


def normalize_counts(counts: Array, previous: Array, pseudo_counts: Any = 0.0) -> Array:
    """Rows (last axis) proportional to counts plus pseudo-counts, on the support of `previous`.

    An entry that is exactly zero is structural and stays zero, prior or not; a row with no counts at all keeps its
    previous value, so no NaN is ever born.

    Source: M-step of the paper's EM (expected counts, normalized), as a MAP estimate under Dirichlet priors.
    """
    previous = jnp.asarray(previous)
    counts = jnp.where(previous > 0, counts + pseudo_counts, 0).astype(previous.dtype)
    total = counts.sum(-1, keepdims=True)
    # Dividing by the largest first keeps rows of tiny counts from losing their digits to denormals.
    scale = jnp.max(counts, -1, keepdims=True)
    visited = total > 0
    counts = counts / jnp.where(visited, scale, 1)
    table = jnp.where(visited, counts / jnp.where(visited, counts.sum(-1, keepdims=True), 1), previous)
    # What has sunk below the smallest normal number is zero: it has no digits and no finite reciprocal.
    return jnp.where(table >= jnp.finfo(table.dtype).tiny, table, 0)


def dirichlet_log_prior(table: Array, pseudo_counts: Any = 0.0) -> Array:
    """Sum of pseudo_counts * log(table) over the support: the Dirichlet log-density without its constant."""
    table = jnp.asarray(table)
    pseudo_counts = jnp.broadcast_to(jnp.asarray(pseudo_counts, table.dtype), table.shape)
    used = (table > 0) & (pseudo_counts > 0)
    return jnp.sum(jnp.where(used, pseudo_counts * num.log(jnp.where(used, table, 1)), 0))
