"""M-step and prior of tables whose rows are categorical distributions."""

from typing import Any

import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array

SCALE = 2.0**40
"""Factor of counts, as floats from 1e-45 to 1e25, before they are normalized."""


def normalize_counts(counts: Array, previous: Array, pseudo_counts: Any = 0.0) -> Array:
    """Return rows (last axis) proportional to counts plus pseudo-counts, on the support of `previous`.

    An entry of exactly zero is structural and stays zero, with or without a prior. A row without counts keeps its
    previous value, so the result never contains NaN.

    Source: M-step of the paper's EM (expected counts, normalized), as a MAP estimate under Dirichlet priors.
    """
    previous = jnp.asarray(previous)
    is_free = previous > 0
    counts = jnp.where(is_free, counts + pseudo_counts, 0)
    # Scaled so that sums of tiny counts, which are denormal numbers, keep their digits.
    scaled = counts.astype(jnp.promote_types(previous.dtype, jnp.float32)) * SCALE
    total = scaled.sum(-1, keepdims=True)
    visited = total > 0
    # By a divisor per entry: of one per row, XLA computes the reciprocals, in a further kernel.
    table = jnp.where(visited, scaled / jnp.where(visited & is_free, total, 1), previous).astype(previous.dtype)
    # Denormal probabilities have lost their digits and have no finite reciprocal: they become zero.
    return jnp.where(table >= jnp.finfo(table.dtype).tiny, table, 0)


def dirichlet_log_prior(table: Array, pseudo_counts: Any = 0.0) -> Array:
    """Return the sum of pseudo_counts * log(table) over the support: a Dirichlet log-density, up to a constant."""
    table = jnp.asarray(table)
    pseudo_counts = jnp.broadcast_to(jnp.asarray(pseudo_counts, table.dtype), table.shape)
    used = (table > 0) & (pseudo_counts > 0)
    return jnp.sum(jnp.where(used, pseudo_counts * num.log(jnp.where(used, table, 1)), 0))
