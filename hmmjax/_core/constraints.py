"""Parameter constraints and constraint-preserving updates, used by `refine` and by random restarts.

Each field of a model has a constraint, declared in the `constraints` of its family or transition model:

    simplex            probabilities; the last axis sums to one, and zeros stay zero
    unit_interval      each entry between 0 and 1
    positive           each entry positive
    positive_definite  the last two axes form symmetric positive definite matrices
    real               no constraint
    power              positive; the weight of an emission, which EM cannot learn

A field without a constraint is never moved.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array
from hmmjax.emissions.base import Emission
from hmmjax.priors import BLOCKS
from hmmjax.types import Params


def fields(params: Params, frozen: frozenset[str] = frozenset()) -> list[tuple[Any, str]]:
    """Return every parameter array of the blocks that are not frozen, with its constraint, in a fixed order."""
    found: list[tuple[Any, str]] = []

    def note(value: Any, constraint: str) -> Any:
        found.append((value, constraint))
        return value

    _map_blocks(params, frozen, note)
    return found


def apply_update(params: Params, theta: Array, frozen: frozenset[str]) -> Params:
    """Move every parameter of the blocks that are not frozen by an unconstrained step.

    Args:
        params: the model before the step.
        theta: (n,) steps of all parameter arrays, flattened, in the order of `fields`. A step of zero changes nothing.
        frozen: names of blocks to leave unchanged.
    """
    at = 0

    def move(value: Any, constraint: str) -> Array:
        nonlocal at
        step = theta[at : at + np.size(value)].reshape(np.shape(value))
        at += np.size(value)
        value = jnp.asarray(value)
        value = value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(theta.dtype)
        return _UPDATES[constraint](value, step.astype(value.dtype))

    return _map_blocks(params, frozen, move)


def _simplex(p: Array, step: Array) -> Array:
    # The largest step of a possible state is subtracted, so that nothing overflows.
    step = step - jnp.max(jnp.where(p > 0, step, -jnp.inf), -1, keepdims=True)
    new = p * jnp.exp(step)
    return new / new.sum(-1, keepdims=True)


def _unit_interval(p: Array, step: Array) -> Array:
    # Odds times exp(step), with both sides scaled by the larger; zero and one stay.
    yes, no = p * jnp.exp(jnp.minimum(step, 0)), (1 - p) * jnp.exp(jnp.minimum(-step, 0))
    return yes / (yes + no)


def _positive(x: Array, step: Array) -> Array:
    return x * jnp.exp(step)


def _positive_definite(x: Array, step: Array) -> Array:
    # The Cholesky factor C becomes C T, with T lower triangular and its diagonal positive; the upper half is unused.
    diagonal = jnp.exp(jnp.diagonal(step, axis1=-2, axis2=-1) / 2)
    moved = jnp.tril(step, -1) + diagonal[..., None] * jnp.eye(step.shape[-1], dtype=step.dtype)
    factor = num.einsum("...ij,...jk->...ik", jnp.linalg.cholesky(x), moved)
    return num.einsum("...ij,...kj->...ik", factor, factor)


def _real(x: Array, step: Array) -> Array:
    return x + step


_UPDATES: dict[str, Callable[[Array, Array], Array]] = {
    "simplex": _simplex,
    "unit_interval": _unit_interval,
    "positive": _positive,
    "positive_definite": _positive_definite,
    "real": _real,
    "power": _positive,
}

_CHAIN_CONSTRAINTS = {
    "phases.initial": "simplex",
    "phases.transition": "simplex",
    "tools.initial": "unit_interval",
}


def _map_blocks(params: Params, frozen: frozenset[str], function: Callable[[Any, str], Any]) -> Params:
    """Return the model with ``function(value, constraint)`` in place of every parameter that may move."""
    for block in BLOCKS:
        track, field = block.split(".")
        chain = getattr(params, track)
        if block in frozen or chain is None:
            continue
        value = getattr(chain, field)
        if value is None:
            continue
        if block in _CHAIN_CONSTRAINTS:
            new = function(value, _CHAIN_CONSTRAINTS[block])
        else:
            new = _map_fields(value, function)
        params = dataclasses.replace(params, **{track: dataclasses.replace(chain, **{field: new})})
    return params


def _map_fields(part: Any, function: Callable[[Any, str], Any]) -> Any:
    """Return a family or transition model, or a tuple of them, with its constrained fields replaced."""
    if isinstance(part, tuple):
        return tuple(_map_fields(p, function) for p in part)
    changed = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if (constraint := part.constraints.get(field.name)) is not None:
            changed[field.name] = function(value, constraint)
        elif isinstance(value, Emission | tuple):
            changed[field.name] = _map_fields(value, function)
    return dataclasses.replace(part, **changed)
