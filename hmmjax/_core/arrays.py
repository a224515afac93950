"""Normalize arrays of any library, byte order and memory layout to arrays that JAX reads correctly.

A compiled program takes host arrays as they are. It would read a byte order other than the machine's as other numbers,
and ignore the mask of a masked array. Every input therefore passes through `native` before it is used. This module
must not import JAX: metrics and plots use it too.
"""

import sys
from typing import Any

import numpy as np

_HALF = ("bfloat16", "float8")


def native(name: str, x: Any) -> Any:
    """Return `x` as an array that JAX and NumPy read correctly.

    Arrays of JAX and native arrays of NumPy are returned unchanged. Arrays of other byte orders, masked arrays,
    subclasses, and objects of other libraries (pandas, PyTorch, xarray; anything with ``__array__`` or ``__dlpack__``)
    become native NumPy arrays. Missing entries, masked or None or pandas.NA, become NaN, -1 or False. Tuples and lists
    are normalized item by item. Anything else, such as None, a number or a pytree, is returned unchanged.

    Args:
        name: name of the argument in messages.
        x: the input.

    Raises:
        TypeError: an array of text, dates, complex numbers or objects, or one that cannot be converted.
    """
    if x is None or type(x) is float or type(x) is int or _is_native(x):
        return x
    if type(x) in (list, tuple):
        # Items that are no arrays, such as plain numbers, are left to the checks that follow.
        items = [native(f"{name}[{i}]", item) for i, item in enumerate(x)]
        changed = any(new is not old for new, old in zip(items, x, strict=True))
        return type(x)(items) if changed else x
    if not _is_array_like(x):
        return x
    return _native_dtype(name, _masked_filled(name, x) if isinstance(x, np.ma.MaskedArray) else _convert(name, x))


def as_floats(name: str, x: Any) -> np.ndarray:
    """Return `x` as a float64 array on the host; missing entries become NaN."""
    return np.asarray(native(name, x), float)


def _is_native(x: Any) -> bool:
    """Whether `x` is an array of JAX, or an array of NumPy that needs no conversion."""
    if type(x) is np.ndarray:
        # Kind V are types that JAX adds: half precision, and the gradients of integers.
        return x.dtype.isnative and (x.dtype.kind in "biuV" or (x.dtype.kind == "f" and x.dtype.itemsize <= 8))
    jax = sys.modules.get("jax")
    return isinstance(x, np.generic) or (jax is not None and isinstance(x, jax.Array))


def _is_half(dtype: np.dtype) -> bool:
    return dtype.name.startswith(_HALF)


def _is_array_like(x: Any) -> bool:
    """Whether `x` converts to an array; classes themselves do not."""
    return not isinstance(x, type) and (hasattr(x, "__array__") or hasattr(x, "__dlpack__"))


def _masked_filled(name: str, x: np.ma.MaskedArray) -> np.ndarray:
    """Return the data of a masked array, with what marks missing entries in place of masked ones."""
    data, mask = np.asarray(x.data), np.ma.getmaskarray(x)
    if not mask.any():
        return data
    if data.dtype.kind == "u":
        data = data.astype(np.int64)
    fill = {"b": False, "i": -1, "f": np.nan}.get(data.dtype.kind)
    if fill is None:
        raise TypeError(f"{name} is a masked array of {data.dtype}. Pass numbers, with NaN or -1 for missing entries.")
    return np.where(mask, np.asarray(fill, data.dtype), data)


def _convert(name: str, x: Any) -> np.ndarray:
    """Return an object of another library as an array of NumPy."""
    if type(x).__module__.partition(".")[0] == "torch":
        x = x.detach().cpu()
        x = x.float() if "bfloat16" in str(x.dtype) else x
    try:
        if getattr(getattr(x, "dtype", None), "na_value", None) is not None and hasattr(x, "to_numpy"):
            # NumPy would turn nullable integers with missing entries into floats.
            return np.asarray(x.to_numpy(dtype=object))
        if hasattr(x, "__array__"):
            return np.asarray(x)
        return np.from_dlpack(x)
    except Exception as error:
        # Other libraries raise all kinds of errors, for instance about memory of another device.
        kind = f"{type(x).__module__.partition('.')[0]}.{type(x).__name__}"
        raise TypeError(
            f"{name} is a {kind} that does not convert to a NumPy array ({error}). Copy it to the host and pass a "
            "NumPy array."
        ) from None


def _native_dtype(name: str, x: np.ndarray) -> np.ndarray:
    """Return an array of a number type of this machine."""
    kind = x.dtype.kind
    if kind == "O":
        return _from_objects(name, x)
    if kind in "biu" or _is_half(x.dtype):
        return np.asarray(x, x.dtype.newbyteorder("="))
    if kind == "f":
        return np.asarray(x, np.float64 if x.dtype.itemsize > 8 else x.dtype.newbyteorder("="))
    raise TypeError(f"{name} has dtype {x.dtype}. Pass an array of integers, booleans or floating-point numbers.")


def _from_objects(name: str, x: np.ndarray) -> np.ndarray:
    """Return an array of Python numbers as an array of numbers; None and pandas.NA become -1 or NaN."""
    values = x.ravel().tolist()
    missing = [v is None or type(v).__name__ == "NAType" for v in values]
    present = [v for v, gone in zip(values, missing, strict=True) if not gone]
    if not all(isinstance(v, bool | int | float | np.number | np.bool_) for v in present):
        kinds = sorted({type(v).__name__ for v in present if not isinstance(v, bool | int | float | np.number)})
        raise TypeError(f"{name} holds Python objects ({', '.join(kinds)}). Pass an array of numbers.")
    if present and all(isinstance(v, bool | np.bool_) for v in present) and not any(missing):
        return np.array(values, bool).reshape(x.shape)
    whole = all(isinstance(v, bool | int | np.integer | np.bool_) for v in present)
    filled = [(-1 if whole else np.nan) if gone else v for v, gone in zip(values, missing, strict=True)]
    try:
        return np.array(filled, np.int64 if whole else np.float64).reshape(x.shape)
    except OverflowError:
        raise TypeError(f"{name} holds integers of more than 64 bits. Pass smaller numbers.") from None
