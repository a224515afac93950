"""Rules for primitives that move, select and contract the entries of arrays."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def broadcast(eqn: Any) -> Callable:
    """Return the rule of broadcast_in_dim."""
    shape, given = eqn.params["shape"], eqn.params["broadcast_dimensions"]
    shape = tuple(map(int, shape))
    sizes = dict(zip(map(int, given), eqn.invars[0].aval.shape, strict=True))
    middle = tuple(sizes.get(axis, 1) for axis in range(len(shape)))
    if middle == shape:
        return lambda x: np.reshape(x, shape)
    return lambda x: np.broadcast_to(np.reshape(x, middle), shape)


def concatenate(eqn: Any) -> Callable:
    """Return the rule of concatenate."""
    axis = eqn.params["dimension"]
    return lambda *parts: np.concatenate(parts, axis)


def stack(eqn: Any) -> Callable:
    """Return the rule of stack."""
    axis = eqn.params["axis"]
    return lambda *parts: np.stack(parts, axis)


def split(eqn: Any) -> Callable:
    """Return the rule of split."""
    axis, ends = eqn.params["axis"], np.cumsum(eqn.params["sizes"])[:-1]
    return lambda x: tuple(np.split(x, ends, axis))


def unstack(eqn: Any) -> Callable:
    """Return the rule of unstack."""
    axis = eqn.params["axis"]
    return lambda x: tuple(np.moveaxis(x, axis, 0))


def iota(eqn: Any) -> Callable:
    """Return the rule of iota."""
    shape, axis, dtype = eqn.params["shape"], eqn.params["dimension"], eqn.params["dtype"]
    numbers = np.arange(shape[axis], dtype=dtype).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    table = np.broadcast_to(numbers, shape)
    return lambda: table


def reshape(eqn: Any) -> Callable:
    """Return the rule of reshape."""
    shape, order = eqn.params["new_sizes"], eqn.params.get("dimensions")
    if order is None:
        return lambda x: np.reshape(x, shape)
    return lambda x: np.reshape(np.transpose(x, order), shape)


def reverse(eqn: Any) -> Callable:
    """Return the rule of rev."""
    axes = tuple(eqn.params["dimensions"])
    return lambda x: np.flip(x, axes)


def squeeze(eqn: Any) -> Callable:
    """Return the rule of squeeze."""
    shape = eqn.outvars[0].aval.shape
    return lambda x: np.reshape(x, shape)


def transpose(eqn: Any) -> Callable:
    """Return the rule of transpose."""
    order = eqn.params["permutation"]
    return lambda x: np.transpose(x, order)


def slice_of(eqn: Any) -> Callable:
    """Return the rule of slice."""
    starts, ends = eqn.params["start_indices"], eqn.params["limit_indices"]
    steps = eqn.params["strides"] or (1,) * len(starts)
    index = tuple(map(slice, starts, ends, steps))
    return lambda x: x[index]


def dynamic_slice(eqn: Any) -> Callable:
    """Return the rule of dynamic_slice: a start past the end is moved back."""
    sizes = eqn.params["slice_sizes"]
    last = [have - size for have, size in zip(eqn.invars[0].aval.shape, sizes, strict=True)]

    def run(x: Any, *starts: Any) -> Any:
        inside = [min(max(int(start), 0), most) for start, most in zip(starts, last, strict=True)]
        return x[tuple(slice(start, start + size) for start, size in zip(inside, sizes, strict=True))]

    return run


def pad(eqn: Any) -> Callable:
    """Return the rule of pad: negative amounts cut, and inner ones space entries out."""
    amounts, shape = eqn.params["padding_config"], eqn.outvars[0].aval.shape
    given = eqn.invars[0].aval.shape
    into, taken = [], []
    for (low, _, inner), size, total in zip(amounts, given, shape, strict=True):
        step = inner + 1
        first = max(0, -(low // step))  # the first entry that is not cut
        count = len(range(low + first * step, min(total, low + (size - 1) * step + 1), step))
        into.append(slice(low + first * step, low + (first + count) * step, step) if count > 0 else slice(0, 0))
        taken.append(slice(first, first + max(count, 0)))

    def run(x: Any, fill: Any) -> Any:
        out = np.full(shape, fill, x.dtype)
        out[tuple(into)] = x[tuple(taken)]
        return out

    return run


def dot_general(eqn: Any) -> Callable:
    """Return the rule of dot_general. Products of float32 are summed in doubles."""
    (left, right), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    x, y = (v.aval for v in eqn.invars)
    dtype, shape = eqn.outvars[0].aval.dtype, eqn.outvars[0].aval.shape
    left_free = [i for i in range(x.ndim) if i not in (*left, *left_batch)]
    right_free = [i for i in range(y.ndim) if i not in (*right, *right_batch)]
    left_order, right_order = (*left_batch, *left_free, *left), (*right_batch, *right, *right_free)
    batch = [x.shape[i] for i in left_batch]
    summed = math.prod(x.shape[i] for i in left)
    left_shape = (*batch, math.prod(x.shape[i] for i in left_free), summed)
    right_shape = (*batch, summed, math.prod(y.shape[i] for i in right_free))
    wide = np.float64 if dtype.kind == "f" else dtype

    def run(x: Any, y: Any) -> Any:
        x = np.transpose(x, left_order).astype(wide).reshape(left_shape)
        y = np.transpose(y, right_order).astype(wide).reshape(right_shape)
        return np.matmul(x, y).astype(dtype).reshape(shape)

    return run
