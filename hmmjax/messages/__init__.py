"""Messages along the chain: one file per backend, all behind the functions below.

A backend is a module with `forward`, `backward` and `filter` (see `scan`, the reference) that takes
`Potentials`. What `log_normalizer` adds is the derivative rule that joins the two sweeps, and the fall back to
logarithms for videos that underflow.
"""

from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from hmmjax._typing import Array
from hmmjax.messages import logspace, scan
from hmmjax.messages.potentials import Filtered, Path, Potentials

BACKENDS: dict[str, ModuleType] = {"scan": scan}
"""Backends by name; "auto" chooses among them by hardware and shape."""


def choose(backend: str) -> str:
    """The backend that "auto" stands for; ValueError for an unknown name."""
    if backend == "auto":
        return "scan"
    if backend not in BACKENDS:
        raise ValueError(f"backend {backend!r} is unknown; choose from {', '.join(['auto', *BACKENDS])}.")
    return backend


def block_sizes(num_tools: int, backend: str) -> tuple[int, ...]:
    """How many tools each Kronecker factor joins: few large products beat many small ones."""
    del backend
    if num_tools <= 4:
        return (num_tools,) if num_tools else ()
    parts = -(-num_tools // 4)
    base, extra = divmod(num_tools, parts)
    return tuple(base + (i < extra) for i in range(parts))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def log_normalizer(potentials: Potentials, backend: str) -> Array:
    """Log-probability (B,) of each video's evidence; its gradient costs one backward sweep.

    A video that is impossible has -inf and a gradient of zero. Source: model.md's identity, Eisner (2016).
    """
    value, _ = BACKENDS[backend].forward(potentials, keep=False)
    return _rescue(value, potentials)


def _forward(potentials: Potentials, backend: str) -> tuple[Array, tuple]:
    scaled, kept = BACKENDS[backend].forward(potentials, keep=True)
    return _rescue(scaled, potentials), (potentials, kept, scaled)


def _backward(backend: str, residuals: tuple, cotangent: Array) -> tuple[Any]:
    potentials, kept, scaled = residuals
    lost = scaled == -jnp.inf
    grads = BACKENDS[backend].backward(potentials, kept, jnp.where(lost, 0, cotangent))

    def rescue(grads: Potentials) -> Potentials:
        value, vjp = jax.vjp(logspace.log_normalizer, potentials)
        extra = vjp(jnp.where(lost & jnp.isfinite(value), cotangent, 0))[0]
        extra = jax.tree.map(lambda g, x: g if _is_integer(x) else g + x, grads, extra)
        return extra

    grads = lax.cond(jnp.any(lost), rescue, lambda grads: grads, grads)
    return (jax.tree.map(lambda g: np.zeros(g.shape, jax.dtypes.float0) if _is_integer(g) else g, grads),)


def _is_integer(x: Any) -> bool:
    return x.dtype == jax.dtypes.float0 or jnp.issubdtype(x.dtype, jnp.integer)


log_normalizer.defvjp(_forward, _backward)


def _rescue(value: Array, potentials: Potentials) -> Array:
    lost = value == -jnp.inf
    return lax.cond(jnp.any(lost), lambda: jnp.where(lost, logspace.log_normalizer(potentials), value), lambda: value)


def filter(potentials: Potentials, backend: str) -> Filtered:
    """Marginals given the past; zero throughout for an impossible video."""
    scaled = BACKENDS[backend].filter(potentials)
    lost = scaled.log_normalizer == -jnp.inf

    def rescue() -> Filtered:
        slow = logspace.filter(potentials)
        return jax.tree.map(lambda a, b: jnp.where(lost.reshape(-1, *[1] * (a.ndim - 1)), a, b), slow, scaled)

    return lax.cond(jnp.any(lost), rescue, lambda: scaled)


viterbi = logspace.viterbi

__all__ = ["BACKENDS", "Filtered", "Path", "Potentials", "block_sizes", "choose", "filter", "log_normalizer", "viterbi"]
