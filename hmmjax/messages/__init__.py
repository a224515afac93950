"""Messages along the chain: one file per backend, all behind the functions below.

A backend is a module with `forward`, `backward` and `filter` that takes `Potentials`; `log_normalizer` adds the
derivative rule that joins the two sweeps. `logspace` is the plain one to read first; `scan` and `gpu` are the fast
ones, on the arithmetic of `scaled` (`paths` is `scan`'s best path, `batching` how both go through a batch);
`parallel` is for phases or tools alone.

The fast ones stop at each video's end or are kernels, neither of which JAX differentiates: derivatives of posteriors,
filters and gradients are those of `scan` run to the end of the padding, and a best path's is its log-probability's.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hmmjax._core.typing import Array
from hmmjax.messages import associative, gpu, logspace, scan
from hmmjax.messages import viterbi as best_path
from hmmjax.messages.potentials import Filtered, Path, Potentials, log_prob

BACKENDS: dict[str, ModuleType] = {"scan": scan, "parallel": associative, "gpu": gpu, "logspace": logspace}
"""Backends by name; "auto" chooses among them by hardware and model."""


def choose(backend: str) -> str:
    """`backend`, or ValueError for an unknown name."""
    if backend not in ("auto", *BACKENDS):
        raise ValueError(f"backend {backend!r} is unknown; choose from {', '.join(['auto', *BACKENDS])}.")
    return backend


def _module(backend: str, p: Potentials) -> ModuleType:
    """The backend that runs this chain: "auto" by measurement, and `scan` for what a named one cannot run."""
    num_phases, num_configs = p.phases.shape[-1], p.configs.shape[-1]
    if backend in ("auto", "parallel") and associative.fits(num_phases, num_configs):
        return associative
    if backend == "gpu" or (backend == "auto" and jax.default_backend() == "gpu"):
        return gpu if gpu.fits(num_phases, p.blocks, p.phases.dtype) else scan
    if backend == "parallel":
        return associative if num_configs == 1 else scan
    return scan if backend == "auto" else BACKENDS[backend]


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def log_normalizer(potentials: Potentials, backend: str) -> Array:
    """Log-probability (B,) of each video's evidence; its gradient costs one backward sweep.

    A video that is impossible has -inf and a gradient of zero. Source: Eisner (2016), see docs/maths.md.
    """
    return _sweep(potentials, backend, False)[0]


def _forward(potentials: Potentials, backend: str) -> tuple[Array, tuple]:
    value, kept = _sweep(potentials, backend, True)
    return value, (potentials, kept, value)


def _backward(backend: str, residuals: tuple, cotangent: Array) -> tuple[Any]:
    potentials, kept, value = residuals
    cotangent = jnp.where(jnp.isfinite(value), cotangent, 0)
    grads = _sweep_back(potentials, kept, cotangent, backend)
    nothing = np.zeros(potentials.lengths.shape, jax.dtypes.float0)
    return (dataclasses.replace(grads, lengths=nothing),)


log_normalizer.defvjp(_forward, _backward)


def _sweep(potentials: Potentials, backend: str, keep: bool) -> tuple[Array, Any]:
    module = _module(backend, potentials)
    run = partial(module.forward, keep=keep)
    if module not in (scan, gpu):
        return run(potentials)

    def again(potentials: Potentials) -> tuple[Array, Any]:
        # Whoever is differentiated with respect to what was kept starts from the potentials.
        kept = jax.tree.map(jnp.zeros_like, jax.eval_shape(run, potentials)[1])
        return scan.forward(potentials, keep=False, whole=True)[0], kept

    return _differentiated_as(run, again)(potentials)


def _sweep_back(potentials: Potentials, kept: Any, cotangent: Array, backend: str) -> Potentials:
    module = _module(backend, potentials)
    if module not in (scan, gpu):
        return module.backward(potentials, kept, cotangent)

    def again(potentials: Potentials, _: Any, cotangent: Array) -> Potentials:
        return scan.backward(potentials, scan.forward(potentials, keep=True, whole=True)[1], cotangent, whole=True)

    return _differentiated_as(module.backward, again)(potentials, kept, cotangent)


def _differentiated_as(run: Callable, again: Callable) -> Callable:
    """`run`, whose derivatives are those of `again`."""
    function = jax.custom_jvp(lambda *inputs: run(*inputs))  # (whose defaults are no inputs)
    function.defjvp(lambda primals, tangents: (run(*primals), jax.jvp(again, primals, tangents)[1]))
    return function


def filter(potentials: Potentials, backend: str) -> Filtered:
    """Marginals given the past."""
    module = _module(backend, potentials)
    if module not in (scan, gpu):
        return module.filter(potentials)
    return _differentiated_as(module.filter, partial(scan.filter, whole=True))(potentials)


def viterbi(potentials: Potentials, backend: str) -> Path:
    """The jointly most probable path."""
    module = _module(backend, potentials)
    if module not in (scan, gpu):
        return module.viterbi(potentials)
    run = best_path.viterbi if module is scan else gpu.viterbi

    def again(potentials: Potentials) -> Path:
        # A path has no derivative; its log-probability has.
        path = run(lax.stop_gradient(potentials))
        return dataclasses.replace(path, log_prob=log_prob(potentials, path.phases, path.configs))

    return _differentiated_as(run, again)(potentials)


__all__ = ["BACKENDS", "Filtered", "Path", "Potentials", "choose", "filter", "log_normalizer", "viterbi"]
