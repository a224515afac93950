"""Rules for random numbers: the bits that JAX draws from a key, and gamma variables.

Key arrays are arrays of records, two 32-bit words each, so that the rules of `arrays` apply to them as well.

Source: Salmon et al. (2011), parallel random numbers (Threefry-2x32), counted as `jax.random` does.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from hmmjax._core.interpreter.special import erf_inv

KEY = np.dtype([("high", np.uint32), ("low", np.uint32)])
"""The record of one key."""

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def is_supported(dtype: Any) -> bool:
    """Return whether keys of this JAX dtype are Threefry's, counted over all 64 bits (JAX's default)."""
    return str(dtype) == "key<fry>" and bool(getattr(jax.config, "jax_threefry_partitionable", False))


def to_records(words: Any) -> np.ndarray:
    """Return (...) keys from (..., 2) words."""
    return np.ascontiguousarray(words, np.uint32).view(KEY)[..., 0]


def split(eqn: Any) -> Callable:
    """Return the rule of random_split."""
    shape = eqn.params["shape"]
    return lambda keys: _split(keys, shape)


def seed(eqn: Any) -> Callable:
    """Return the rule of random_seed."""

    def run(seeds: Any) -> Any:
        return _records(*_words(seeds))

    return run


def fold_in(eqn: Any) -> Callable:
    """Return the rule of random_fold_in."""
    return lambda keys, data: _records(*_threefry(keys["high"], keys["low"], *_words(data)))


def bits(eqn: Any) -> Callable:
    """Return the rule of random_bits."""
    width, shape = eqn.params["bit_width"], eqn.params["shape"]

    def run(keys: Any) -> Any:
        high, low = _blocks(keys, shape)
        if width == 64:
            return (high.astype(np.uint64) << np.uint64(32)) | low
        return (high ^ low).astype(f"uint{width}")

    return run


def wrap(eqn: Any) -> Callable:
    """Return the rule of random_wrap."""
    return to_records


def unwrap(eqn: Any) -> Callable:
    """Return the rule of random_unwrap."""
    return lambda keys: np.stack([keys["high"], keys["low"]], -1)


def gamma(eqn: Any) -> Callable:
    """Return the rule of random_gamma."""
    in_logs, dtype = eqn.params["log_space"], eqn.outvars[0].aval.dtype

    def run(keys: Any, shapes: Any) -> Any:
        count = math.prod(shapes.shape[np.ndim(keys) :])
        each = _split(np.ravel(keys), (count,)).ravel()
        return _gamma(each, np.ravel(shapes), in_logs, dtype).reshape(shapes.shape)

    return run


def _gamma(keys: np.ndarray, shapes: np.ndarray, in_logs: bool, dtype: Any) -> np.ndarray:
    """Draw gamma variables (n,), or their logarithms, one per key.

    Source: Marsaglia and Tsang (2000), a simple method for generating gamma variables; the keys are split as
    `jax.random.gamma` does, so that the draws are the same.
    """
    one, boosted = dtype.type(1), shapes < 1
    d = np.where(boosted, shapes + one, shapes) - dtype.type(1 / 3)
    c = dtype.type(1 / 3) / np.sqrt(d)
    keys, last = _split(keys, (2,)).T
    drawn = np.empty(shapes.shape, dtype)
    todo = np.arange(len(shapes))
    while len(todo):
        keys, normal_keys, uniform_keys = _split(keys, (3,)).T
        x, v = _normal_above(normal_keys, c[todo], dtype)
        square, v, u = x * x, v * v * v, _uniform(uniform_keys, dtype)
        again = (u >= one - dtype.type(0.0331) * (square * square)) & (
            np.log(u) >= square * dtype.type(0.5) + d[todo] * ((one - v) + np.log(v))
        )
        drawn[todo] = v
        todo, keys = todo[again], keys[again]
    u = _uniform(last, dtype)
    if in_logs:
        logs = np.log1p(-u)
        boost = np.where(~boosted | (logs == 0), dtype.type(0), logs * (one / shapes))
        return (np.log(d) + np.log(drawn)) + boost
    return (d * drawn) * np.where(boosted, (one - u) ** (one / shapes), one)


def _normal_above(keys: np.ndarray, c: np.ndarray, dtype: Any) -> tuple[Any, Any]:
    """Draw normal variables x (n,) for which v = 1 + c x is positive; return x and v."""
    low = np.nextafter(dtype.type(-1), dtype.type(0))
    x, v = np.empty(len(keys), dtype), np.empty(len(keys), dtype)
    todo = np.arange(len(keys))
    while len(todo):
        keys, used = _split(keys, (2,)).T
        u = np.maximum(low, _uniform(used, dtype) * (dtype.type(1) - low) + low)
        x[todo] = dtype.type(math.sqrt(2)) * erf_inv(u)
        v[todo] = dtype.type(1) + x[todo] * c[todo]
        outside = v[todo] <= 0
        todo, keys = todo[outside], keys[outside]
    return x, v


def _uniform(keys: np.ndarray, dtype: Any) -> np.ndarray:
    """Draw from [0, 1), one number per key."""
    high, low = _blocks(keys, ())
    if dtype.itemsize == 4:
        return (((high ^ low) >> np.uint32(9)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)
    both = (high.astype(np.uint64) << np.uint64(32)) | low
    return ((both >> np.uint64(12)) | np.uint64(0x3FF0000000000000)).view(np.float64) - 1.0


def _split(keys: Any, shape: tuple[int, ...]) -> Any:
    return _records(*_blocks(keys, shape))


def _records(high: Any, low: Any) -> np.ndarray:
    out = np.empty(np.shape(high), KEY)
    out["high"], out["low"] = high, low
    return out


def _words(integers: Any) -> tuple[Any, Any]:
    """Return the high and the low half of 64-bit integers; shorter ones have no high half."""
    integers = np.asarray(integers)
    wide = integers.astype(np.int64 if integers.dtype.itemsize == 8 else np.uint32).astype(np.uint64)
    return (wide >> np.uint64(32)).astype(np.uint32), wide.astype(np.uint32)


def _blocks(keys: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return the two words (..., *shape) of Threefry-2x32, which count 0, 1, ... under every key (...)."""
    count = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    lead = (*np.shape(keys), *[1] * len(shape))
    return _threefry(np.reshape(keys["high"], lead), np.reshape(keys["low"], lead), *_words(count))


def _threefry(first: Any, second: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Return Threefry-2x32 of the words x and y under keys of two words."""
    schedule = (first, second, first ^ second ^ np.uint32(0x1BD11BDA))
    x, y = x + first, y + second
    for turn in range(5):
        for distance in _ROTATIONS[turn % 2]:
            x = x + y
            y = ((y << np.uint32(distance)) | (y >> np.uint32(32 - distance))) ^ x
        x, y = x + schedule[(turn + 1) % 3], y + schedule[(turn + 2) % 3] + np.uint32(turn + 1)
    return x, y
