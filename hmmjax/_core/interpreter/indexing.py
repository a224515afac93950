"""Rules for gather and scatter, by NumPy's indexing with arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode


def gather(eqn: Any) -> Callable:
    """Return the rule of gather."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    kept = [size for d, size in enumerate(sizes) if d not in dropped]
    dtype, dims, drops = eqn.outvars[0].aval.dtype, eqn.outvars[0].aval.ndim, _drops(eqn)
    index_of = _indexer(
        eqn.invars[0].aval.shape,
        sizes,
        numbers.start_index_map,
        numbers.operand_batching_dims,
        numbers.start_indices_batching_dims,
    )
    fill = eqn.params["fill_value"]
    if fill is None:
        fill = {"f": np.nan, "b": True}.get(dtype.kind)
        fill = (np.iinfo(dtype).min or np.iinfo(dtype).max) if fill is None else fill
    order = np.argsort([*(i for i in range(dims) if i not in numbers.offset_dims), *numbers.offset_dims])
    places, shape = numbers.start_index_map, eqn.invars[0].aval.shape
    whole = kept == [size for d, size in enumerate(shape) if d not in places]
    if whole and not drops and len(places) == 1 and dropped == set(places):
        return _take(places[0], order)

    def run(x: Any, at: Any) -> Any:
        lead = at.shape[:-1]
        index, inside = index_of(at)
        out = x[index].reshape(*lead, *kept)
        if drops:
            out = np.where(inside.reshape(*lead, *[1] * len(kept)), out, dtype.type(fill))
        return np.transpose(out, order)

    return run


def _take(axis: int, order: np.ndarray) -> Callable:
    """Return the rule of a gather of whole slices along one axis, moved into bounds: the usual one, and fast."""

    def run(x: Any, at: Any) -> Any:
        return np.moveaxis(x, axis, 0).take(at[..., 0], 0, mode="clip").transpose(order)

    return run


def scatter(eqn: Any) -> Callable:
    """Return the rule of scatter."""

    def put(out: Any, index: Any, values: Any) -> None:
        out[index] = values

    return _scatter(eqn, put)


def scatter_add(eqn: Any) -> Callable:
    """Return the rule of scatter-add."""
    return _scatter(eqn, np.add.at)


def _scatter(eqn: Any, put: Callable) -> Callable:
    numbers, updates = eqn.params["dimension_numbers"], eqn.invars[2].aval
    shape = eqn.invars[0].aval.shape
    inserted = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    windows = iter(numbers.update_window_dims)
    sizes = [1 if d in inserted else updates.shape[next(windows)] for d in range(len(shape))]
    drops = _drops(eqn)
    index_of = _indexer(
        shape,
        sizes,
        numbers.scatter_dims_to_operand_dims,
        numbers.operand_batching_dims,
        numbers.scatter_indices_batching_dims,
    )
    window = numbers.update_window_dims
    order = [*(i for i in range(updates.ndim) if i not in window), *window]

    def run(x: Any, at: Any, added: Any) -> Any:
        lead = at.shape[:-1]
        index, inside = index_of(at)
        added = np.transpose(added, order).reshape(*lead, *sizes)
        if drops:
            kept = np.broadcast_to(inside.reshape(*lead, *[1] * len(sizes)), added.shape)
            index, added = tuple(i[kept] for i in index), added[kept]
        out = np.array(x)
        put(out, index, added)
        return out

    return run


def _drops(eqn: Any) -> bool:
    """Return whether indices out of bounds are dropped, rather than moved inside."""
    return eqn.params["mode"] == GatherScatterMode.FILL_OR_DROP


def _indexer(shape: Any, sizes: Any, places: Any, batching: Any, at_batching: Any) -> Callable:
    """Return a function from starts (*lead, n) to indices (*lead, *sizes) per axis, and which starts are in bounds.

    Args:
        shape: of the array that is indexed, like the others a sequence of integers.
        sizes: of a slice.
        places: the n axes that starts are of.
        batching: axes of the array that run along axes of starts.
        at_batching: these axes of starts.
    """
    count = len(sizes)
    steps = [np.arange(size).reshape([-1 if i == d else 1 for i in range(count)]) for d, size in enumerate(sizes)]

    def index_of(at: Any) -> tuple[tuple, np.ndarray]:
        lead = at.shape[:-1]
        inside = np.ones(lead, bool)
        index = []
        for d, size in enumerate(sizes):
            start: Any = 0
            if d in places:
                start = at[..., places.index(d)]
                inside &= (start >= 0) & (start <= shape[d] - size)
                start = np.clip(start, 0, shape[d] - size).reshape(*lead, *[1] * count)
            elif d in batching:
                axis = at_batching[batching.index(d)]
                start = np.arange(shape[d]).reshape([-1 if i == axis else 1 for i in range(len(lead) + count)])
            index.append(np.broadcast_to(start + steps[d], (*lead, *sizes)))
        return tuple(index), inside

    return index_of
