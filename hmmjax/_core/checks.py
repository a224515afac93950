"""Checks of concrete arrays. Every message names the field, the cause and the fix."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from hmmjax._core.typing import Array


def is_concrete(*trees: Any) -> bool:
    """Whether no leaf is traced, so that values are available."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(trees))


def is_float(x: Any) -> bool:
    """Whether `x` holds floating point numbers (bfloat16 included)."""
    return jnp.issubdtype(x.dtype, jnp.floating)


def check_array(name: str, x: Any) -> None:
    """Raise TypeError unless `x` is an array."""
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        raise TypeError(f"{name} must be an array, got {type(x).__name__}. Wrap it: jnp.asarray(...).")


def check_shape(name: str, x: Any, shape: tuple[int, ...], meaning: str) -> None:
    """Raise ValueError unless `x` has the given shape."""
    check_array(name, x)
    if tuple(x.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)} but must be {shape}, {meaning}.")


def check_square(name: str, x: Any, axes: int) -> None:
    """Raise ValueError unless `x` has the given number of axes, the last two of equal, positive size."""
    check_array(name, x)
    if x.ndim != axes or x.shape[-1] != x.shape[-2] or 0 in x.shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)} but must have {axes} axes and be square (from, to).")


def check_probabilities(name: str, x: Any) -> None:
    """Raise ValueError unless every entry is in [0, 1]."""
    check_array(name, x)
    if not np.issubdtype(x.dtype, np.floating) and x.dtype.name != "bfloat16":
        raise TypeError(f"{name} must be floating point probabilities, got {x.dtype}.")
    x = np.asarray(x, np.float64)
    bad = ~((x >= 0) & (x <= 1 + 1e-5))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} must hold probabilities in [0, 1], but entry {where} is {x[where]!r}. "
            "Parameters are probabilities, not logs or counts: normalize counts, exponentiate logs."
        )


def check_rows(name: str, x: Any, square: bool = False) -> None:
    """Raise ValueError unless every row (last axis) is a distribution."""
    check_probabilities(name, x)
    if x.ndim < 1 or (square and (x.ndim < 2 or x.shape[-1] != x.shape[-2])):
        raise ValueError(f"{name} must be square in its last two axes (from state, to state), got shape {x.shape}.")
    total = np.asarray(x, np.float64).sum(-1)
    # The sum of n entries may be off by n roundings of their type; counts in float32 are within 1e-4.
    bad = np.abs(total - 1) > max(1e-4, x.shape[-1] * float(jnp.finfo(x.dtype).eps))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        row = f"row {where}" if where else "the row"
        raise ValueError(
            f"{name}: {row} sums to {total[where]:.6g}, but every row must sum to one. "
            "Divide by x.sum(-1, keepdims=True); rows are the current state, columns the next or observed one."
        )


def check_positive(name: str, x: Any) -> None:
    """Raise ValueError unless every entry is finite and positive."""
    check_array(name, x)
    values = np.asarray(x, np.float64)
    bad = ~(np.isfinite(values) & (values > 0))
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name} must be positive and finite, but entry {where} is {values[where]!r}.")


def check_mask(mask: Any) -> None:
    """Raise TypeError unless the mask is boolean."""
    if mask is None:
        return
    dtype = mask.dtype if hasattr(mask, "dtype") else np.asarray(mask).dtype
    if dtype != np.bool_:
        raise TypeError(f"mask must be bool (True = observed), got {dtype}. Write mask.astype(bool) or mask > 0.")


def check_label_dtype(name: str, x: Any) -> None:
    """Raise TypeError unless labels are integers or booleans."""
    if x is not None and (not hasattr(x, "dtype") or x.dtype.kind not in "biu"):
        kind = getattr(x, "dtype", type(x).__name__)
        raise TypeError(f"{name} must be integers (-1 = unknown), got {kind}. Replace NaN by -1, then x.astype(int).")


def no_log_prior(block: Any, pseudo_counts: Any) -> Array:
    """Return the log-prior of a block that has none: 0, or TypeError if some pseudo-count is not 0."""
    zero = (jnp.asarray(pseudo_counts) == 0).all()
    if is_concrete(zero) and not zero:
        raise TypeError(f"{type(block).__name__} has no prior: define log_prior, or leave its pseudo-counts at 0.")
    return jnp.where(zero, 0.0, jnp.nan)
