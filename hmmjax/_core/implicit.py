"""Differentiate fixed points of iterations by the implicit function theorem."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from hmmjax._core.typing import Array

MAX_DIRECTIONS = 100
"""Directions that the solver of linear systems may take: EM's derivative has few eigenvalues near one."""


def fixed_point_tangent(step: Callable, point: Any, inputs: Any, start_tangent: Any, input_tangents: Any) -> Any:
    """Return the derivative of the point at which an iteration ends, linear in the tangents and transposable.

    At the fixed point theta = step(theta, inputs), so that (1 - J) d theta = d step / d inputs, where J is the
    derivative of the step with respect to theta. Whatever the step does not change keeps the tangent of the start.

    Args:
        step: a function of a point and of inputs that returns the next point.
        point: the fixed point, a tree of floating-point arrays of one dtype.
        inputs: any tree.
        start_tangent: tangent of the point at which the iteration started.
        input_tangents: tangents of `inputs`.

    Source: the implicit function theorem.
    """
    flat, unravel = ravel_pytree(point)
    _, full = jax.linearize(step, point, inputs)
    still = jax.tree.map(_zero_tangent, inputs)

    def linear(v: Any) -> Any:
        return ravel_pytree(full(unravel(v), still))[0]

    # Rows of J for what the step leaves alone (frozen blocks, unvisited states) are those of the identity.
    direction = jnp.asarray(np.random.default_rng(0).normal(size=flat.shape), flat.dtype)
    kept = linear(direction) == direction

    def remaining(v: Any) -> Any:
        return v - jnp.where(kept, 0, linear(v))

    start, moved = (ravel_pytree(x)[0] for x in (start_tangent, full(start_tangent, input_tangents)))
    right = jnp.where(kept, 0, moved - start)
    # One flat system, because every entry of the right-hand side must depend on the tangents.
    return unravel(start + lax.custom_linear_solve(remaining, right, solve, transpose_solve=solve))


def solve(matvec: Callable, right: Array) -> Array:
    """Solve a linear system (n,) to about the rounding of its numbers, by products with its matrix alone.

    Source: GMRES (Saad and Schultz 1986), without restarts; the product is compiled once.
    """
    dtype, size, most = right.dtype, len(right), min(len(right), MAX_DIRECTIONS)
    norm = jnp.linalg.norm(right)
    target = jnp.zeros(most + 1, dtype).at[0].set(norm)

    def extend(state: tuple) -> tuple:
        basis, hessenberg, _, _, k = state
        new, along = matvec(basis[k]), jnp.zeros(most + 1, dtype)
        for _ in range(2):  # once leaves the directions orthogonal only to the square root of rounding
            overlap = basis @ new
            new, along = new - overlap @ basis, along + overlap
        length = jnp.linalg.norm(new)
        hessenberg = hessenberg.at[:, k].set(along.at[k + 1].set(length))
        basis = basis.at[k + 1].set(new / jnp.where(length > 0, length, 1))
        weights = jnp.linalg.lstsq(hessenberg, target)[0]
        return basis, hessenberg, weights, jnp.linalg.norm(hessenberg @ weights - target), k + 1

    def unfinished(state: tuple) -> Array:
        return (state[4] < most) & (state[3] > 10 * jnp.finfo(dtype).eps * norm)

    basis = jnp.zeros((most + 1, size), dtype).at[0].set(right / jnp.where(norm > 0, norm, 1))
    start = (basis, jnp.zeros((most + 1, most), dtype), jnp.zeros(most, dtype), norm, jnp.array(0))
    with jax.default_matmul_precision("highest"):
        basis, _, weights, *_ = lax.while_loop(unfinished, extend, start)
        return weights @ basis[:-1]


def _zero_tangent(x: Any) -> Any:
    """Return the tangent of a constant; integers have no other."""
    floating = jnp.issubdtype(jnp.result_type(x), jnp.floating)
    return jnp.zeros_like(x) if floating else np.zeros(jnp.shape(x), jax.dtypes.float0)
