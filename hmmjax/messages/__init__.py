"""Message passing along the chain: one module (or package) per backend, all called by the functions below.

| backend | module | runs |
|---|---|---|
| `native` | `messages.native` | everything on CPUs, in C++ (`hmmjax.native`), if it was compiled |
| `scan` | `messages.scan` | everything, by scaled recursions as `lax.scan`s: the readable reference |
| `gpu` | `messages.gpu` | tools that do not interact, in float32, by the same recursions as Pallas kernels |
| `parallel` | `messages.associative` | phases or independent tools alone, by associative scans |
| `logspace` | `messages.logspace` | everything, in logarithms: the slowest and the simplest; read it first |

Shared parts: `potentials` (what all take and return), `scaled` (messages as numbers near one and powers of two),
`kronecker` (products with the tools' joint transition), `batching` (chunks of frames, groups of videos). `online` has
the recursions of single frames, for streaming and for sampling paths.

**Range.** `native` and `logspace` are exact for all models. `scan` and `gpu` lose numbers that matter if tools cannot
switch, or start in one state only (`hmmjax._core.lowering.scaled_is_exact`): without compiled recursions "auto" then
takes `logspace`. It cannot see that of traced parameters, inside a user's `jax.jit`: name the backend there.

**Adding a backend** takes one module that ends in ``BACKEND = Backend("name", ...)`` (`messages.backend.Backend` says
what each function takes and returns) and one line in `BACKENDS`. tests/test_backends.py then compares it with the
oracles.

**Derivatives.** `log_normalizer` carries its own derivative, by the backend's `pullback`. Derivatives of that
derivative, and those of `filter`, are JAX's own if the backend can be differentiated; otherwise they are those of
`Backend.derivatives_from`. The derivative of a most probable path is that of its log-probability.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hmmjax._core.typing import Array
from hmmjax.messages import associative, gpu, logspace, native, scaled, scan
from hmmjax.messages.backend import Backend, with_derivatives_of
from hmmjax.messages.potentials import Filtered, Path, Potentials, log_prob

BACKENDS: dict[str, Backend] = {
    module.BACKEND.name: module.BACKEND for module in (native, associative, gpu, scan, logspace)
}
"""Backends by name, in the order in which "auto" tries them."""


def choose(name: str) -> str:
    """Return `name`; raise ValueError unless it is "auto" or the name of a backend."""
    if name not in ("auto", *BACKENDS):
        raise ValueError(f"backend {name!r} is unknown; choose from {', '.join(['auto', *BACKENDS])}.")
    return name


def select(name: str, potentials: Potentials) -> Backend:
    """Return the backend to run: for "auto" the first that `is_fastest`; `scan` if the named one lacks support."""
    if name == "auto":
        return next(backend for backend in BACKENDS.values() if backend.is_fastest(potentials))
    return BACKENDS[name] if BACKENDS[name].supports(potentials) else scan.BACKEND


def packs(name: str) -> bool:
    """Return whether the backend takes packed videos; of "auto", whether the one for coupled models does."""
    if name != "auto":
        return BACKENDS[name].packs
    if jax.default_backend() == "gpu":
        return gpu.BACKEND.packs
    return native.available() and native.BACKEND.packs


def log_normalizer(potentials: Potentials, backend: str) -> Array:
    """Compute the log-probability (B,) of each video's observations; its gradient costs one backward pass.

    An impossible video has -inf and a gradient of zero. Source: Eisner (2016), see docs/concepts/model.md.
    """
    selected = select(backend, potentials)
    return _differentiable(selected.takes(potentials), selected.name)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _differentiable(potentials: Potentials, backend: str) -> Array:
    return _log_normalizer(potentials, backend, "")[0]


def _forward(given: Potentials, backend: str) -> tuple[Array, tuple]:
    potentials = jax.custom_derivatives.custom_vjp_primal_tree_values(given)
    tables = (given.initial, given.transition, *given.blocks)
    save = "all" if any(table.perturbed for table in tables) else "frames"
    value, residuals = _log_normalizer(potentials, backend, save)
    return value, (potentials, residuals, value)


def _backward(backend: str, saved: tuple, cotangent: Any) -> tuple[Any]:
    potentials, residuals, value = saved
    if isinstance(cotangent, jax.custom_derivatives.SymbolicZero):
        cotangent = jnp.zeros_like(value)
    cotangent = jnp.where(jnp.isfinite(value), cotangent, 0)
    gradient = _pullback(potentials, residuals, cotangent, backend)
    return (dataclasses.replace(gradient, **_no_gradient(potentials)),)


# Symbolic zeros tell what the caller differentiates with respect to.
_differentiable.defvjp(_forward, _backward, symbolic_zeros=True)


def _no_gradient(potentials: Potentials) -> dict[str, Any]:
    """Return the cotangents of integers."""
    integers = {"lengths": potentials.lengths, "packing": potentials.packing}
    return jax.tree.map(lambda x: np.zeros(x.shape, jax.dtypes.float0), integers)


def _log_normalizer(potentials: Potentials, name: str, save: str) -> tuple[Array, Any]:
    backend = select(name, potentials)
    reference = backend.derivatives_from

    def run(potentials: Potentials) -> tuple[Array, Any]:
        return backend.log_normalizer(potentials, save if backend.skips_tables else bool(save))

    if reference is None:
        return run(potentials)

    def recompute(potentials: Potentials) -> tuple[Array, Any]:
        # Residuals carry no tangents: higher derivatives are recomputed from the potentials.
        residuals = jax.tree.map(jnp.zeros_like, jax.eval_shape(run, potentials)[1])
        return reference.log_normalizer(reference.takes(potentials), False)[0], residuals

    return with_derivatives_of(recompute, run)(potentials)


def _pullback(potentials: Potentials, residuals: Any, cotangent: Array, name: str) -> Potentials:
    backend = select(name, potentials)
    reference = backend.derivatives_from
    if reference is None:
        return backend.pullback(potentials, residuals, cotangent)

    def recompute(potentials: Potentials, _: Any, cotangent: Array) -> Potentials:
        taken, give = jax.vjp(reference.takes, potentials)
        gradient = reference.pullback(taken, reference.log_normalizer(taken, True)[1], cotangent)
        (gradient,) = give(dataclasses.replace(gradient, **_no_gradient(taken)))
        return dataclasses.replace(gradient, lengths=potentials.lengths, packing=potentials.packing)

    return with_derivatives_of(recompute, backend.pullback)(potentials, residuals, cotangent)


def filter(potentials: Potentials, backend: str) -> Filtered:
    """Compute the marginals of each frame's state given that frame and all before it."""
    selected = select(backend, potentials)
    reference = selected.derivatives_from
    if reference is None:
        return _filter(selected, potentials)
    return with_derivatives_of(partial(_filter, reference), partial(_filter, selected))(potentials)


def _filter(backend: Backend, potentials: Potentials) -> Filtered:
    out = backend.filter(backend.takes(potentials))
    return out if backend.packs else potentials.pack_like(out)


def viterbi(potentials: Potentials, backend: str) -> Path:
    """Compute the jointly most probable path."""
    selected = select(backend, potentials)
    if selected.derivatives_from is None:
        return _viterbi(selected, potentials)

    def recompute(potentials: Potentials) -> Path:
        # Only the path's log-probability has a derivative.
        path = _viterbi(selected, lax.stop_gradient(potentials))
        return dataclasses.replace(path, log_prob=log_prob(potentials.joined(), path.phases, path.configs))

    return with_derivatives_of(recompute, partial(_viterbi, selected))(potentials)


def _viterbi(backend: Backend, potentials: Potentials) -> Path:
    path = backend.viterbi(backend.takes(potentials))
    return path if backend.packs else potentials.pack_like(path)


__all__ = [
    "BACKENDS",
    "Backend",
    "Filtered",
    "Path",
    "Potentials",
    "choose",
    "filter",
    "log_normalizer",
    "native",
    "packs",
    "scaled",
    "select",
    "viterbi",
]
