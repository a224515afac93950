"""Frozen dataclasses registered with JAX as pytrees."""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, dataclass_transform

import jax

from hmmjax._core.arrays import native

T = TypeVar("T")

_PLACES = {"Observations": "obs", "Labels": "labels", "PhaseChain": "phases", "ToolChains": "tools"}
"""Names of arguments in messages, by class."""


def static(default: Any = dataclasses.MISSING) -> Any:
    """Declare a field that is part of the tree's structure (hashable, compared by value), not a leaf.

    Args:
        default: default value of the field; without one the field is required.

    Returns:
        A `dataclasses.field`, for the body of a class that `pytree` decorates.
    """
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={"static": True})
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass registered with JAX; fields declared with `static()` are structure.

    The constructor turns arrays of other libraries and byte orders into native ones (see `hmmjax._core.arrays`).
    Rebuilding a tree bypasses ``__init__``, so that JAX may put anything (axis numbers, tracers, sentinels) at the
    leaves.

    Args:
        cls: a class with annotated fields.

    Returns:
        The class itself.
    """
    own = getattr(cls, "__post_init__", None)
    place = _PLACES.get(cls.__name__, cls.__name__)

    def normalize(tree: Any) -> None:
        for name in leaves:
            value = getattr(tree, name)
            if (new := native(f"{place}.{name}", value)) is not value:
                object.__setattr__(tree, name, new)
        if own is not None:
            own(tree)

    cls.__post_init__ = normalize  # type: ignore[attr-defined]
    cls = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    leaves = tuple(f.name for f in fields if not f.metadata.get("static"))
    structure = tuple(f.name for f in fields if f.metadata.get("static"))

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(tree, n) for n in leaves), tuple(getattr(tree, n) for n in structure)

    def flatten_with_keys(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children, aux = flatten(tree)
        keys = tuple(jax.tree_util.GetAttrKey(n) for n in leaves)
        return tuple(zip(keys, children, strict=True)), aux

    def unflatten(aux: tuple[Any, ...], children: Iterable[Any]) -> Any:
        tree = object.__new__(cls)
        for name, value in (*zip(leaves, children, strict=True), *zip(structure, aux, strict=True)):
            object.__setattr__(tree, name, value)
        return tree

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls
