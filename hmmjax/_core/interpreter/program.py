"""Programs as JAX traces them, turned into lists of NumPy calls."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# From jax 0.12 on, ClosedJaxpr is another name of Jaxpr, which jax does not declare as exported.
from jax.extend.core import ClosedJaxpr, Literal  # pyright: ignore[reportPrivateImportUsage]

from hmmjax._core.interpreter import random
from hmmjax._core.interpreter.rules import RULES, UnsupportedError

CALL_SECONDS = 3e-6
"""Rough cost of a NumPy call, whatever its size."""

ENTRY_SECONDS = 2e-9
"""Rough cost of an entry of an array, on average over primitives."""

COMPILE_SECONDS = 2.5e-3
"""Rough cost of compiling an equation; half of it on a fast machine."""

_SLOW = {"lgamma": 20, "digamma": 20, "polygamma": 40, "random_gamma": 500, "random_bits": 50, "random_split": 50}
"""Entries of these cost so many times as much."""

_WHILE_TURNS = 20
"""Turns of a loop of unknown length, for the estimate of its cost."""


class Program:
    """A traced function that NumPy can run.

    Attributes:
        seconds: estimated time of one run.
        compile_seconds: estimated time to compile it.
    """

    def __init__(self, jaxpr: ClosedJaxpr) -> None:
        """Translate a traced function.

        Raises:
            UnsupportedError: it has a primitive without a rule, or one that this version of JAX describes otherwise.
        """
        self.seconds = self.compile_seconds = 0.0
        self._calls: list[tuple[Callable, tuple[int, ...], Any]] = []
        self._start: list[Any] = []
        inputs = [self._slot(variable.aval) for variable in jaxpr.jaxpr.invars]
        self._inputs = range(len(inputs))
        slots = self._translate(jaxpr.jaxpr, [self._constant(x) for x in jaxpr.consts], inputs)
        self._outputs = slots
        self._drop_unused()

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs for these inputs, NumPy arrays or scalars. Outputs may be views of inputs."""
        values = self._start.copy()
        values[: len(self._inputs)] = inputs
        for function, taken, given in self._calls:
            result = function(*[values[i] for i in taken])
            if type(given) is int:
                values[given] = result
            else:
                for i, x in zip(given, result, strict=True):
                    values[i] = x
        return [values[i] for i in self._outputs]

    def folded(self, last: Sequence[Any]) -> "Program":
        """Return the program with the last inputs fixed; what depends on them alone is computed now."""
        out = copy.copy(self)
        out._inputs = range(len(self._inputs) - len(last))
        values = out._start = self._start.copy()
        values[len(out._inputs) : len(self._inputs)] = last
        known, out._calls = {i for i, x in enumerate(values) if x is not None}, []
        with np.errstate(all="ignore"):
            for function, taken, given in self._calls:
                if not known.issuperset(taken):
                    out._calls.append((function, taken, given))
                    continue
                result = function(*[values[i] for i in taken])
                for i, x in [(given, result)] if type(given) is int else zip(given, result, strict=True):
                    values[i] = x
                    known.add(i)
        return out

    def _slot(self, aval: Any) -> int:
        dtype = aval.dtype
        if not isinstance(dtype, np.dtype) and not random.is_supported(dtype):
            raise UnsupportedError(f"arrays of {dtype}")
        if (isinstance(dtype, np.dtype) and dtype.kind not in "biuf") or getattr(dtype, "itemsize", 4) == 2:
            raise UnsupportedError(f"arrays of {dtype}")
        self._start.append(None)
        return len(self._start) - 1

    def _constant(self, value: Any) -> int:
        self._start.append(to_numpy(value))
        return len(self._start) - 1

    def _translate(self, jaxpr: Any, constants: list[int], inputs: list[int]) -> list[int]:
        """Append the calls of a jaxpr whose inputs are in these slots; return the slots of its outputs."""
        at = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*constants, *inputs], strict=True))

        def slot(x: Any) -> int:
            if isinstance(x, Literal):
                aval: Any = x.aval
                self._start.append(np.asarray(x.val, aval.dtype)[()])
                return len(self._start) - 1
            return at[x]

        for eqn in jaxpr.eqns:
            taken = [slot(x) for x in eqn.invars]
            inner = _inlined(eqn)
            if inner is not None:
                given = self._translate(inner.jaxpr, [self._constant(x) for x in inner.consts], taken)
            else:
                given = [self._slot(x.aval) for x in eqn.outvars]
                self._append(eqn, taken, given)
            at.update(zip(eqn.outvars, given, strict=True))
        return [slot(x) for x in jaxpr.outvars]

    def _append(self, eqn: Any, taken: list[int], given: list[int]) -> None:
        name = eqn.primitive.name
        entries = sum(math.prod(x.aval.shape) for x in (*eqn.invars, *eqn.outvars))
        self.seconds += CALL_SECONDS + ENTRY_SECONDS * entries * _SLOW.get(name, 1)
        self.compile_seconds += COMPILE_SECONDS * (800 if name == "random_gamma" else 1)
        if name not in _CALLING and name not in RULES:
            raise UnsupportedError(name)
        try:
            if name in _CALLING:
                function, seconds, compile_seconds = _CALLING[name](eqn)
                self.seconds += seconds
                self.compile_seconds += compile_seconds
            else:
                function = RULES[name](eqn)
        except (KeyError, AttributeError) as error:
            # Parameters of primitives are JAX's own business, and change between its versions.
            raise UnsupportedError(f"{name}, whose parameters are others in this version of JAX") from error
        several = eqn.primitive.multiple_results
        self._calls.append((function, tuple(taken), tuple(given) if several else given[0]))

    def _drop_unused(self) -> None:
        """Keep the calls on which an output depends."""
        needed, kept = set(self._outputs), []
        for call in reversed(self._calls):
            given = {call[2]} if isinstance(call[2], int) else set(call[2])
            if given & needed:
                needed.update(call[1])
                kept.append(call)
        self._calls = kept[::-1]


def to_numpy(x: Any) -> Any:
    """Return an array, or keys as records, on the host."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return random.to_records(jax.random.key_data(x))
    return np.asarray(x)


def _inlined(eqn: Any) -> ClosedJaxpr | None:
    """Return the program that an equation calls once, with its own inputs; None for other equations."""
    if eqn.primitive.name not in ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call", "remat"):
        return None
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        if name in eqn.params:
            inner = eqn.params[name]
            return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
    raise UnsupportedError(eqn.primitive.name)


def _while(eqn: Any) -> tuple[Callable, float, float]:
    p = eqn.params
    condition, body = Program(p["cond_jaxpr"]), Program(p["body_jaxpr"])
    first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]

    def run(*inputs: Any) -> list[Any]:
        fixed, moving, state = inputs[:first], inputs[first:second], list(inputs[second:])
        while np.any(going := condition([*fixed, *state])[0]):
            following = body([*moving, *state])
            # Under vmap, each element stops by itself.
            state = [_where(going, new, old) for new, old in zip(following, state, strict=True)]
        return state

    seconds = _WHILE_TURNS * (condition.seconds + body.seconds)
    return run, seconds, condition.compile_seconds + body.compile_seconds


def _where(going: Any, new: Any, old: Any) -> Any:
    """Return `new` where (the leading axes of) `going` is True."""
    if np.ndim(going) == 0:
        return new
    return np.where(np.reshape(going, (*np.shape(going), *[1] * (np.ndim(new) - np.ndim(going)))), new, old)


def _scan(eqn: Any) -> tuple[Callable, float, float]:
    p = eqn.params
    body, length = Program(p["jaxpr"]), p["length"]
    # Versions of JAX name these counts differently; rows and stacked outputs have one axis more than in the body.
    rows = sum(x.aval.ndim > y.ndim for x, y in zip(eqn.invars, p["jaxpr"].in_avals, strict=True))
    carried = sum(x.aval.ndim == y.ndim for x, y in zip(eqn.outvars, p["jaxpr"].out_avals, strict=True))
    constants = len(eqn.invars) - carried - rows
    order = range(length)[:: -1 if p["reverse"] else 1]
    stacked = [(x.aval.shape, _numpy_dtype(x.aval.dtype)) for x in eqn.outvars[carried:]]

    def run(*inputs: Any) -> list[Any]:
        fixed, state, rows = inputs[:constants], inputs[constants : constants + carried], inputs[constants + carried :]
        out = [np.empty(*x) for x in stacked]
        for i in order:
            result = body([*fixed, *state, *[x[i] for x in rows]])
            state = result[:carried]
            for x, row in zip(out, result[carried:], strict=True):
                x[i] = row
        return [*state, *out]

    return run, length * body.seconds, body.compile_seconds


def _cond(eqn: Any) -> tuple[Callable, float, float]:
    branches = [Program(branch) for branch in eqn.params["branches"]]

    def run(which: Any, *inputs: Any) -> list[Any]:
        return branches[min(max(int(which), 0), len(branches) - 1)](inputs)

    return run, max(b.seconds for b in branches), sum(b.compile_seconds for b in branches)


def _foreign(eqn: Any) -> tuple[Callable, float, float]:
    """Return a call of compiled code: a program of this one equation, which has next to nothing to compile."""
    primitive, params = eqn.primitive, eqn.params
    call = jax.jit(lambda *inputs: primitive.bind(*inputs, **params))

    def run(*inputs: Any) -> list[Any]:
        return [np.asarray(x) for x in call(*map(np.ascontiguousarray, inputs))]

    return run, 0.0, 0.0


def _numpy_dtype(dtype: Any) -> np.dtype:
    return dtype if isinstance(dtype, np.dtype) else random.KEY


_CALLING = {"while": _while, "scan": _scan, "cond": _cond, "ffi_call": _foreign}
"""Primitives that run other programs; each returns its function and estimates of its cost."""
