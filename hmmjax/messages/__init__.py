"""Messages along the chain: one file per backend, all behind the functions below.

A backend is a module with `forward`, `backward` and `filter` (see `scan`, the reference) that takes
`Potentials`; `log_normalizer` adds the derivative rule that joins the two sweeps.
"""

import dataclasses
from functools import partial
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._typing import Array
from hmmjax.messages import logspace, scan
from hmmjax.messages.potentials import Filtered, Path, Potentials

BACKENDS: dict[str, ModuleType] = {"scan": scan, "logspace": logspace}
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
    return BACKENDS[backend].forward(potentials, keep=False)[0]


def _forward(potentials: Potentials, backend: str) -> tuple[Array, tuple]:
    value, kept = BACKENDS[backend].forward(potentials, keep=True)
    return value, (potentials, kept, value)


def _backward(backend: str, residuals: tuple, cotangent: Array) -> tuple[Any]:
    potentials, kept, value = residuals
    cotangent = jnp.where(jnp.isfinite(value), cotangent, 0)
    grads = BACKENDS[backend].backward(potentials, kept, cotangent)
    nothing = np.zeros(potentials.lengths.shape, jax.dtypes.float0)
    return (dataclasses.replace(grads, lengths=nothing),)


log_normalizer.defvjp(_forward, _backward)


def filter(potentials: Potentials, backend: str) -> Filtered:
    """Marginals given the past."""
    return BACKENDS[backend].filter(potentials)


viterbi = logspace.viterbi

__all__ = ["BACKENDS", "Filtered", "Path", "Potentials", "block_sizes", "choose", "filter", "log_normalizer", "viterbi"]
