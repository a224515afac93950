"""NumPy functions for JAX's primitives, one entry per primitive of the programs that are interpreted.

A rule takes an equation's parameters and returns a function of its inputs, so that whatever depends on shapes alone is
computed once per program. Arrays are never changed in place: results may be views of inputs.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hmmjax._core.interpreter import arrays, indexing, random, special


class UnsupportedError(Exception):
    """A primitive, or a form of one, that has no rule: the program is compiled instead."""


def _fixed(function: Callable) -> Callable:
    """Return the rule of a primitive without parameters."""
    return lambda eqn: function


def _reduction(function: Callable, **options: Any) -> Callable:
    def rule(eqn: Any) -> Callable:
        axes = tuple(int(axis) for axis in eqn.params["axes"])
        return lambda x: function(x, axis=axes, **options)

    return rule


def _sum(eqn: Any) -> Callable:
    axes, dtype = tuple(int(axis) for axis in eqn.params["axes"]), eqn.outvars[0].aval.dtype
    wide = np.float64 if dtype.kind == "f" else dtype
    return lambda x: np.sum(x, axis=axes, dtype=wide).astype(dtype)


def _extreme(function: Callable, sign: int) -> Callable:
    def rule(eqn: Any) -> Callable:
        axes, dtype = tuple(int(axis) for axis in eqn.params["axes"]), eqn.invars[0].aval.dtype
        if dtype.kind == "f":
            least: Any = dtype.type(sign * math.inf)
        elif dtype.kind in "iu":
            least = np.iinfo(dtype).max if sign > 0 else np.iinfo(dtype).min
        else:
            raise UnsupportedError(f"extreme of {dtype}")
        return lambda x: function(x, axis=axes, initial=least)

    return rule


def _argmax(eqn: Any) -> Callable:
    (axis,), dtype = eqn.params["axes"], eqn.params["index_dtype"]
    return lambda x: np.argmax(x, axis=int(axis)).astype(dtype)


def _cumulative(function: Callable) -> Callable:
    def rule(eqn: Any) -> Callable:
        axis, backwards = eqn.params["axis"], eqn.params["reverse"]
        if backwards:
            return lambda x: np.flip(function(np.flip(x, axis), axis=axis), axis)
        return lambda x: function(x, axis=axis)

    return rule


def _integer_power(eqn: Any) -> Callable:
    power = eqn.params["y"]
    if power == 2:
        return lambda x: x * x
    return lambda x: x**power


def _convert(eqn: Any) -> Callable:
    dtype = np.dtype(eqn.params["new_dtype"])
    source = eqn.invars[0].aval.dtype
    if source.kind == "f" and dtype.kind in "iu":
        # XLA saturates, NumPy does not.
        lowest, highest = np.iinfo(dtype).min, np.iinfo(dtype).max
        return lambda x: np.nan_to_num(np.clip(np.asarray(x, np.float64), lowest, highest)).astype(dtype)
    return lambda x: np.asarray(x).astype(dtype)


def _bitcast(eqn: Any) -> Callable:
    dtype = np.dtype(eqn.params["new_dtype"])
    if dtype.itemsize != eqn.invars[0].aval.dtype.itemsize:
        raise UnsupportedError("bitcast to another size")
    return lambda x: np.asarray(x).view(dtype)


def _logical_shift(eqn: Any) -> Callable:
    if eqn.invars[0].aval.dtype.kind != "u":
        raise UnsupportedError("logical shift of signed integers")
    return np.right_shift


def _arithmetic_shift(eqn: Any) -> Callable:
    if eqn.invars[0].aval.dtype.kind != "i":
        raise UnsupportedError("arithmetic shift of unsigned integers")
    return np.right_shift


def _select(eqn: Any) -> Callable:
    if eqn.invars[0].aval.dtype != np.bool_:
        return lambda which, *cases: np.choose(which, cases)
    return lambda which, no, yes: np.where(which, yes, no)


def _divide(eqn: Any) -> Callable:
    if eqn.outvars[0].aval.dtype.kind != "f":
        raise UnsupportedError("division of integers")
    return np.true_divide


def _polygamma(order: Any, x: Any) -> Any:
    return special.polygamma(order, x)


RULES: dict[str, Callable[[Any], Callable]] = {
    "abs": _fixed(np.abs),
    "add": _fixed(np.add),
    "add_any": _fixed(np.add),
    "and": _fixed(np.bitwise_and),
    "argmax": _argmax,
    "bitcast_convert_type": _bitcast,
    "broadcast_in_dim": arrays.broadcast,
    "clamp": _fixed(lambda low, x, high: np.minimum(np.maximum(x, low), high)),
    "concatenate": arrays.concatenate,
    "convert_element_type": _convert,
    "copy": _fixed(np.asarray),
    "copy_p": _fixed(np.asarray),
    "cummax": _cumulative(np.maximum.accumulate),
    "cumsum": _cumulative(lambda x, axis: np.cumsum(x, axis=axis, dtype=x.dtype)),
    "digamma": _fixed(special.digamma),
    "div": _divide,
    "dot_general": arrays.dot_general,
    "dynamic_slice": arrays.dynamic_slice,
    "eq": _fixed(np.equal),
    "erf": _fixed(special.erf),
    "erf_inv": _fixed(special.erf_inv),
    "exp": _fixed(np.exp),
    "expm1": _fixed(np.expm1),
    "gather": indexing.gather,
    "ge": _fixed(np.greater_equal),
    "gt": _fixed(np.greater),
    "integer_pow": _integer_power,
    "iota": arrays.iota,
    "is_finite": _fixed(np.isfinite),
    "le": _fixed(np.less_equal),
    "lgamma": _fixed(special.lgamma),
    "log": _fixed(np.log),
    "log1p": _fixed(np.log1p),
    "logistic": _fixed(special.logistic),
    "lt": _fixed(np.less),
    "max": _fixed(np.maximum),
    "min": _fixed(np.minimum),
    "mul": _fixed(np.multiply),
    "ne": _fixed(np.not_equal),
    "neg": _fixed(np.negative),
    "not": _fixed(np.invert),
    "or": _fixed(np.bitwise_or),
    "pad": arrays.pad,
    "polygamma": _fixed(_polygamma),
    "pow": _fixed(np.power),
    "random_bits": random.bits,
    "random_fold_in": random.fold_in,
    "random_gamma": random.gamma,
    "random_seed": random.seed,
    "random_split": random.split,
    "random_unwrap": random.unwrap,
    "random_wrap": random.wrap,
    "reduce_and": _reduction(np.all),
    "reduce_max": _extreme(np.max, -1),
    "reduce_min": _extreme(np.min, 1),
    "reduce_or": _reduction(np.any),
    "reduce_sum": _sum,
    "rem": _fixed(np.fmod),
    "reshape": arrays.reshape,
    "rev": arrays.reverse,
    "scatter": indexing.scatter,
    "scatter-add": indexing.scatter_add,
    "select_n": _select,
    "shift_right_arithmetic": _arithmetic_shift,
    "shift_right_logical": _logical_shift,
    "sign": _fixed(np.sign),
    "slice": arrays.slice_of,
    "split": arrays.split,
    "sqrt": _fixed(np.sqrt),
    "square": _fixed(np.square),
    "squeeze": arrays.squeeze,
    "stack": arrays.stack,
    "stop_gradient": _fixed(np.asarray),
    "sub": _fixed(np.subtract),
    "transpose": arrays.transpose,
    "unstack": arrays.unstack,
}
"""Rules by the primitive's name. `hmmjax._core.interpreter.program` runs those that call other programs."""
