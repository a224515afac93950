"""Checks of concrete observations against a family's domain, and detection of missing observations."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core.checks import is_float

AXES = ("video", "frame", "class")


def check_kind(name: str, values: Any, family: str, observes: str) -> None:
    """Raise TypeError unless labels are integers, and probabilities or reals are floating point."""
    if observes == "labels" and is_float(values):
        raise TypeError(
            f"{name} holds {values.dtype} probabilities but {family} observes integer labels. "
            "Call obs.discretize(), or use a probability family (PhaseDirichlet, ToolBeta)."
        )
    if observes == "probabilities" and not is_float(values):
        raise TypeError(
            f"{name} holds {values.dtype} labels but {family} observes probabilities. Pass the recognizer's softmax "
            "or sigmoid outputs, or use a confusion family (obs.discretize() turns probabilities into labels)."
        )
    if observes == "reals" and not is_float(values):
        raise TypeError(f"{name} holds {values.dtype} but {family} observes real features: pass x.astype(np.float32).")


def check_event_shape(name: str, values: Any, family: str, track: str, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless the axes after (B, T) have the family's event shape."""
    given = tuple(values.shape[2:])
    if given == shape:
        return
    if len(given) == len(shape) == 1:
        raise ValueError(
            f"{name} has {given[0]} entries in its last axis, but {family} observes {shape[0]} per frame. Pass "
            f"({', '.join(('B', 'T', *map(str, shape)))}), or a model of as many classes or features."
        )
    needed = ", ".join(("B", "T", *map(str, shape)))
    raise ValueError(
        f"{name} has shape {tuple(values.shape)}, but {family} observes {shape} per frame: pass ({needed})."
    )


def check_symbols(name: str, values: Any, observed: np.ndarray, num_symbols: int) -> None:
    """Raise ValueError if an observed label is not one of 0, ..., num_symbols - 1."""
    values = np.asarray(values)
    if (at := first(over_events(observed, values) & ((values < 0) | (values >= num_symbols)))) is not None:
        raise ValueError(
            f"{name} is {int(values[at])} at {place(at)}, but its symbols are 0..{num_symbols - 1}. "
            "Renumber the classes, or mark the frame unobserved in mask."
        )


def check_probabilities(name: str, values: Any, observed: np.ndarray, sum_to_one: bool) -> None:
    """Raise ValueError if an observed probability is NaN or outside [0, 1], or a softmax does not sum to one."""
    values = np.asarray(values).astype(np.float64)
    where = over_events(observed, values)
    _check_not_nan(name, values, where)
    if (at := first(where & ~((values >= 0) & (values <= 1 + 1e-5)))) is not None:
        raise ValueError(
            f"{name} is {values[at]:.6g} at {place(at)}, outside [0, 1]. Logits must be turned into probabilities "
            "first: softmax for phases, sigmoid for tools."
        )
    if not sum_to_one:
        return
    total = values.sum(-1)
    if (at := first(observed & (np.abs(total - 1) > 0.05))) is not None:
        raise ValueError(f"{name} sums to {total[at]:.4g} at {place(at)}; a softmax output sums to one.")


def check_reals(name: str, values: Any, observed: np.ndarray, axes: Sequence[str]) -> None:
    """Raise ValueError if an observed number is NaN or infinite, or too large for the precision of JAX."""
    values = np.asarray(values).astype(np.float64)
    with np.errstate(over="ignore"):
        values = values.astype(jax.dtypes.canonicalize_dtype(np.float64))
    where = over_events(observed, values)
    _check_not_nan(name, values, where, axes)
    if (at := first(where & np.isinf(values))) is not None:
        raise ValueError(
            f"{name} is {values[at]} at {place(at, axes)}, but features must be finite. Clip them, or mark the frame "
            "unobserved in mask."
        )


def _check_not_nan(name: str, values: np.ndarray, where: np.ndarray, axes: Sequence[str] = AXES) -> None:
    if (at := first(where & np.isnan(values))) is not None:
        raise ValueError(
            f"{name} is NaN at {place(at, axes)}, an observed frame. Set mask to False in frames without an "
            "observation."
        )


def present(values: Any, event_axes: int) -> Any:
    """Return which observations are not marked missing, over all axes but the last `event_axes`.

    A missing observation is NaN in all its classes or features, or -1 if it is a label.
    """
    xp: Any = np if isinstance(values, np.ndarray) else jnp
    if not is_float(values):
        return values >= 0
    return ~xp.isnan(values).any(tuple(range(values.ndim - event_axes, values.ndim)))


def check_missing(name: str, values: np.ndarray, observed: np.ndarray, event_axes: int) -> None:
    """Raise ValueError if an observed entry is neither complete nor clearly marked missing.

    Args:
        name: name of the source in messages.
        values: (B, T, ...) observations of one fused source.
        observed: (B, T) bool.
        event_axes: trailing axes that make up one observation (classes, features) and must be NaN together.
    """
    if is_float(values):
        missing = np.isnan(values if values.dtype.kind == "f" else values.astype(np.float32))
        axes = tuple(range(values.ndim - event_axes, values.ndim))
        partly = missing.any(axes) & ~missing.all(axes)
        if (at := first(over_events(observed, partly) & partly)) is not None:
            raise ValueError(
                f"{name} is NaN in some classes at {place(at)}: make all of them NaN if the output is missing."
            )
    elif (at := first(over_events(observed, values) & (values < -1))) is not None:
        raise ValueError(f"{name} is {int(values[at])} at {place(at)}; only -1 marks a missing label.")


def over_events(observed: Any, values: Any) -> Any:
    """Return `observed` with trailing axes of size one, so that it broadcasts to `values`."""
    return observed.reshape(*observed.shape, *[1] * (values.ndim - observed.ndim))


def first(bad: np.ndarray) -> tuple[int, ...] | None:
    """Return the position of the first True entry, or None."""
    return tuple(int(i) for i in np.argwhere(bad)[0]) if bad.any() else None


def place(at: Sequence[int], axes: Sequence[str] = AXES) -> str:
    """Return a position in words: "video 0, frame 3, class 1"."""
    return ", ".join(f"{n} {i}" for n, i in zip(axes, at, strict=False))
