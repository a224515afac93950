"""Run small programs with NumPy instead of compiling them.

Compiling a model's program takes seconds, and running it on a few videos milliseconds. `interpretable` replaces
`jax.jit` for functions that users call with arrays: small work is traced as ever, and the traced program is run by
NumPy, one call per equation. Longer work, repeated work, and everything inside `jax.jit`, `jax.vmap` or `jax.grad` is
compiled. Either way the same function is evaluated, in the same precision.

| module | contents |
|---|---|
| `program` | translates a traced program, runs it, and estimates its cost |
| `rules` | one NumPy function per primitive |
| `arrays`, `indexing`, `random`, `special` | the longer rules |
"""

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from hmmjax._core.checks import is_concrete
from hmmjax._core.interpreter.program import Program, to_numpy
from hmmjax._core.interpreter.rules import UnsupportedError

LARGEST_FRACTION = 1 / 8
"""A program is compiled at once if a run takes longer than this fraction of the time to compile it, as estimated."""

MAX_BYTES = 2**22
"""Size of inputs beyond which a program is compiled at once, without an estimate."""

_MAX_PROGRAMS = 512
_chosen: bool | None = None


def choose(on: bool | None) -> None:
    """Interpret whatever has rules (True), nothing (False), or small work without a folder of programs (None)."""
    global _chosen
    _chosen = on


def interpretable(function: Callable | None = None, *, static_argnames: Any = ()) -> Any:
    """Decorate a function as `jax.jit` does; small work is interpreted, see the module.

    Args:
        function: a function of trees of arrays that `jax.jit` can compile.
        static_argnames: names of arguments that are no arrays.
    """
    if function is None:
        return functools.partial(interpretable, static_argnames=static_argnames)
    return _Interpretable(function, static_argnames)


def _suits(leaves: list[Any]) -> bool:
    """Return whether inputs are few, known, and on a single CPU, and the user's settings of JAX allow interpretation.

    With a folder of compiled programs, compilation is paid once and not in every process.
    """
    config: Any = jax.config
    if not _is_allowed() or not is_concrete(leaves):
        return False
    if _chosen is None and (
        config.jax_compilation_cache_dir or sum(getattr(x, "nbytes", 8) for x in leaves) > MAX_BYTES
    ):
        return False
    on_one = all(len(x.sharding.device_set) == 1 for x in leaves if isinstance(x, jax.Array))
    return on_one and jax.default_backend() == "cpu"


def _is_allowed() -> bool:
    config: Any = jax.config
    return not (_chosen is False or config.jax_disable_jit or config.jax_debug_nans)


class _Run:
    """An interpreted program, and the time that its runs have taken, as estimated."""

    def __init__(self, jaxpr: Any) -> None:
        self.jaxpr = jaxpr  # keeps its id
        self.program: Program | None = None
        self.left = 0.0
        if not all(isinstance(aval.dtype, np.dtype) for aval in jaxpr.out_avals):
            return  # random keys
        try:
            program = Program(jaxpr)
        except UnsupportedError:
            return
        if _chosen or program.seconds <= LARGEST_FRACTION * program.compile_seconds:
            self.program, self.left = program, program.compile_seconds

    def take(self) -> Program | None:
        """Return the program, unless its runs together would take longer than compiling it."""
        if self.program is None or (self.left < self.program.seconds and not _chosen):
            return None
        self.left -= self.program.seconds
        return self.program


def without_compiling(function: Callable[[], Any]) -> Any | None:
    """Return the tree of arrays that a function without inputs computes; None if it is large or has no rule.

    Random initial values are an example: operation by operation, JAX compiles several programs per shape.
    """
    run = _Interpretable(function, ())
    program = _Run(run.compiled.trace().jaxpr).take() if _suits([]) else None
    return None if program is None else run.evaluate(program, run.compiled.trace(), [])


def without_jax(function: Callable, varying: tuple, fixed: tuple) -> Callable:
    """Return a function of trees like `varying` (and of nothing else) that computes `function(*varying, *fixed)`.

    It is interpreted whatever it costs, because calls of compiled programs take longer than a few numbers do; compiled
    if an operation has no rule, or if interpretation is switched off. What depends on `fixed` alone is computed once.

    Args:
        function: a function of trees of arrays.
        varying: arguments of the shapes and types that later calls will have.
        fixed: the other arguments.
    """
    compiled = jax.jit(function)
    if not _is_allowed():
        return lambda *inputs: compiled(*inputs, *fixed)
    traced = compiled.trace(*varying, *fixed)
    try:
        program = Program(traced.jaxpr).folded([to_numpy(x) for x in jax.tree.leaves(fixed)])
    except UnsupportedError:
        return lambda *inputs: compiled(*inputs, *fixed)

    def run(*inputs: Any) -> Any:
        with np.errstate(all="ignore"):
            return jax.tree.unflatten(traced.out_tree, program(jax.tree.leaves(inputs)))

    return run


class _Interpretable:
    """A function that is interpreted or compiled."""

    def __init__(self, function: Callable, static_argnames: Any) -> None:
        functools.update_wrapper(self, function)
        names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
        self._static_names = frozenset(names)
        parameters = list(inspect.signature(function).parameters)
        self._static_positions = frozenset(i for i, name in enumerate(parameters) if name in names)
        self.compiled = jax.jit(function, static_argnames=static_argnames)
        self._runs: OrderedDict[int, _Run] = OrderedDict()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        dynamic = (
            tuple(x for i, x in enumerate(args) if i not in self._static_positions),
            {name: x for name, x in kwargs.items() if name not in self._static_names},
        )
        leaves = jax.tree.leaves(dynamic)
        if not _suits(leaves):
            return self.compiled(*args, **kwargs)
        traced = self.compiled.trace(*args, **kwargs)
        # Tracing is cached, so that calls with inputs of the same shapes return the same object.
        run = self._runs.get(id(traced.jaxpr))
        if run is None:
            run = self._runs[id(traced.jaxpr)] = _Run(traced.jaxpr)
            if len(self._runs) > _MAX_PROGRAMS:
                self._runs.popitem(last=False)
        program = run.take()
        if program is None:
            return self.compiled(*args, **kwargs)
        return self.evaluate(program, traced, leaves)

    def evaluate(self, program: Program, traced: Any, leaves: list[Any]) -> Any:
        """Run a program; return its outputs in the function's tree."""
        with np.errstate(all="ignore"):
            outputs = program([to_numpy(x) for x in leaves])
        # Copies, because outputs may be views of inputs, which their owner may change.
        outputs = [
            jax.device_put(np.array(x, aval.dtype)) for x, aval in zip(outputs, traced.jaxpr.out_avals, strict=True)
        ]
        return jax.tree.unflatten(traced.out_tree, outputs)
