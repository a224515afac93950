"""Where parameters live, and how to move them without leaving: what gradients and random starts share.

A field's space is "simplex" (probabilities, the last axis sums to one), "unit_interval" (between 0 and 1, each by itself),
"positive" or "real"; families and transition models say so in `spaces`. A "power" is positive too, but EM's objective
says nothing of its worth.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core.typing import Array
from hmmjax.emissions.base import Emission
from hmmjax.priors import BLOCKS
from hmmjax.types import Params


def apply_update(params: Params, theta: Array, frozen: frozenset[str]) -> Params:
    """The model with every parameter of the blocks that are not frozen moved by `theta`, in order, from its start."""
    at = 0

    def move(value: Any, space: str) -> Array:
        nonlocal at
        step = theta[at : at + np.size(value)].reshape(np.shape(value))
        at += np.size(value)
        value = jnp.asarray(value)
        value = value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(theta.dtype)
        return _MOVES[space](value, step.astype(value.dtype))

    for block in BLOCKS:
        if block not in frozen and (part := _part(params, block)) is not None:
            params = _replaced(params, block, _mapped(part, move))
    return params


def _simplex(p: Array, step: Array) -> Array:
    # Less the largest step that counts, so that nothing overflows.
    step = step - jnp.max(jnp.where(p > 0, step, -jnp.inf), -1, keepdims=True)
    new = p * jnp.exp(step)
    return new / new.sum(-1, keepdims=True)


def _unit_interval(p: Array, step: Array) -> Array:
    # Both sides scaled by the larger, and zero and one stay where they are.
    yes, no = p * jnp.exp(jnp.minimum(step, 0)), (1 - p) * jnp.exp(jnp.minimum(-step, 0))
    return yes / (yes + no)


_MOVES: dict[str, Callable[[Array, Array], Array]] = {
    "simplex": _simplex,
    "unit_interval": _unit_interval,
    "positive": lambda x, step: x * jnp.exp(step),
    "power": lambda x, step: x * jnp.exp(step),
    "real": lambda x, step: x + step,
}

_CHAIN_SPACES = {
    "phases.initial": "simplex",
    "phases.transition": "simplex",
    "tools.initial": "unit_interval",
}


def _part(params: Params, block: str) -> Any:
    """A block as what can be moved: a family, a transition model, or a bare table with its space; None if absent."""
    track, field = block.split(".")
    value = getattr(getattr(params, track), field, None)
    return value if value is None or block not in _CHAIN_SPACES else (value, _CHAIN_SPACES[block])


def _replaced(params: Params, block: str, part: Any) -> Params:
    track, field = block.split(".")
    return dataclasses.replace(params, **{track: dataclasses.replace(getattr(params, track), **{field: part})})


def _mapped(part: Any, move: Callable[[Any, str], Any]) -> Any:
    """`part` with every field that has a space replaced by ``move(value, space)``; families inside families too."""
    if isinstance(part, tuple) and len(part) == 2 and isinstance(part[1], str):
        return move(*part)
    if isinstance(part, tuple):
        return tuple(_mapped(p, move) for p in part)
    changed = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if (space := part.constraints.get(field.name)) is not None:
            changed[field.name] = move(value, space)
        elif isinstance(value, Emission | tuple):
            changed[field.name] = _mapped(value, move)
    return dataclasses.replace(part, **changed)


def fields(params: Params, frozen: frozenset[str] = frozenset()) -> list[tuple[Any, str]]:
    """Every parameter array of the blocks that are not frozen, with its space, in the order of `moved`."""
    found: list[tuple[Any, str]] = []

    def note(value: Any, space: str) -> Any:
        found.append((value, space))
        return value

    for block in BLOCKS:
        if block not in frozen and (part := _part(params, block)) is not None:
            _mapped(part, note)
    return found
