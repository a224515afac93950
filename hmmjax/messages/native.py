"""Forward-backward and Viterbi in C++ (`hmmjax.native`): the backend for CPUs.

Rows are doubles with a power of two per phase, kept in the processor's cache: a chunk of frames at a time. Videos are
spread over threads, and padding costs nothing. The derivatives of every potential come from one call. Results are exact
for all models and observations: where the range of doubles might not do, because tools cannot switch, every number gets
a power of its own.

Source: the recursions of the paper's Appendix S2.2 with its misprints corrected (docs/concepts/model.md).
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax import native
from hmmjax._core import numerics as num
from hmmjax._core.typing import Array
from hmmjax.messages import scan
from hmmjax.messages.backend import Backend, with_derivatives_of
from hmmjax.messages.potentials import Filtered, Path, Potentials

MAX_BLOCKS = 64
"""Largest number of blocks of the tools' transition (hmmjax/native/model.h)."""


def supports(potentials: Potentials) -> bool:
    """Return whether the compiled recursions are there, arrays live on a CPU, and blocks are few."""
    return len(potentials.blocks) <= MAX_BLOCKS and available()


def available() -> bool:
    """Return whether the compiled recursions are there and arrays live on a CPU."""
    return jax.default_backend() == "cpu" and native.is_loaded()


def log_normalizer(potentials: Potentials, save: str) -> tuple[Array, Any]:
    """Compute log-normalizers (B,), and their derivatives if asked for, which are the residuals.

    Those with respect to tables have size 0 if `save` is "frames": they take half of the time.
    """
    p, dtype = potentials, potentials.phases.dtype
    value = (p.lengths.shape, dtype)
    if not save:
        return _call("log_normalizer", p, value)[0], None
    operands = _operands(p)
    videos = p.lengths.shape[0]
    tables = [((videos, *x.shape) if save == "all" else (0,) * (x.ndim + 1), dtype) for x in operands[:3]]
    out = _call("gradient", p, value, *tables, *_shapes(operands[3:6]))
    return out[0], out[1:]


def pullback(potentials: Potentials, residuals: Any, cotangent: Array) -> Potentials:
    """Compute the derivative of sum(cotangent * log-normalizers) in every potential; cotangent is (B,)."""
    p = potentials
    shapes = [x.shape for x in _operands(p)[:3]]
    initial, transition, flat = (
        num.einsum("b,b...->...", cotangent, x) if x.size else jnp.zeros(shape, x.dtype)
        for x, shape in zip(residuals[:3], shapes, strict=True)
    )
    per_frame = cotangent[:, None]
    if p.packing is not None:
        per_frame = cotangent[p.packing.owner(p.phases.shape[1])][None]
    phases, tools, configs = (x * per_frame.reshape(*per_frame.shape, *[1] * (x.ndim - 2)) for x in residuals[3:])
    blocks, at = [], 0
    for block in p.blocks:
        size = block.shape[-1] ** 2
        blocks.append(flat[:, at : at + size].reshape(block.shape).astype(block.dtype))
        at += size
    return dataclasses.replace(
        p,
        initial=initial.astype(p.initial.dtype),
        transition=transition.astype(p.transition.dtype),
        blocks=tuple(blocks),
        phases=phases,
        configs=None if p.configs is None else configs,
        tools=None if p.tools is None else tools,
    )


def filter(potentials: Potentials) -> Filtered:
    """Compute each frame's marginals given that frame and all before it."""
    p, dtype = potentials, potentials.phases.dtype
    tools = (*p.phases.shape[:2], _num_tools(p), 2)
    value, phases, tools = _call("filter", p, (p.lengths.shape, dtype), (p.phases.shape, dtype), (tools, dtype))
    return Filtered(phases, tools, value)


def viterbi(potentials: Potentials) -> Path:
    """Compute the most probable paths (B, T)."""
    p = potentials
    path = (p.phases.shape[:2], jnp.int32)
    value, phases, configs = _call("viterbi", p, (p.lengths.shape, p.phases.dtype), path, path)
    return Path(phases, configs, value)


def can_train(p: Potentials) -> bool:
    """Return whether `marginals` takes potentials of these shapes: chains without configurations of tools."""
    return p.packing is None and p.tools is None and p.configs is None and p.initial.shape[-1] == 1 and available()


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def marginals(past_only: bool, p: Potentials) -> Filtered:
    """Compute marginals given all frames, or with `past_only` given each frame and all before it, for training.

    The gradient in initial, transition and phases is compiled too. It exists in reverse mode, and is that of the
    marginals alone: `log_normalizer` counts as a constant. See `can_train` for what it takes. Higher derivatives are
    those of the scan.

    Source: the derivative of smoothed marginals by tangents of the recursions, as second derivatives of the
    log-normalizer are symmetric; that of filtered ones by the adjoint of the forward recursion.
    """
    if past_only:
        return filter(p)
    value, residuals = log_normalizer(p, "frames")
    return Filtered(residuals[3], jnp.zeros((*p.phases.shape[:2], 0, 2), p.phases.dtype), value)


def _marginals_forward(past_only: bool, p: Potentials) -> tuple[Filtered, Potentials]:
    return marginals(past_only, p), p


def _marginals_backward(past_only: bool, p: Potentials, cotangent: Filtered) -> tuple[Potentials]:
    run, reference = partial(_gradient, past_only), partial(_gradient_of_scan, past_only)
    initial, transition, phases = with_derivatives_of(reference, run)(p, cotangent.phases)
    lengths = np.zeros(p.lengths.shape, jax.dtypes.float0)
    return (dataclasses.replace(p, initial=initial, transition=transition, phases=phases, lengths=lengths),)


def _gradient(past_only: bool, p: Potentials, cotangent: Array) -> tuple[Array, Array, Array]:
    """Return the gradient of sum(cotangent * marginals) in initial, transition and phases."""
    dtype, (videos, _, num_phases) = p.phases.dtype, p.phases.shape
    shapes = (videos, num_phases), (videos, num_phases, num_phases), p.phases.shape
    call = jax.ffi.ffi_call(
        "hmmjax_filter_vjp" if past_only else "hmmjax_smoother_vjp",
        [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes],
        vmap_method="sequential",
    )
    lengths = p.lengths.astype(jnp.int32)
    initial, transition, phases = call(
        p.initial[:, 0].astype(dtype), p.transition.astype(dtype), p.phases, lengths, cotangent
    )
    return initial.sum(0)[:, None].astype(p.initial.dtype), transition.sum(0).astype(p.transition.dtype), phases


def _gradient_of_scan(past_only: bool, p: Potentials, cotangent: Array) -> tuple[Array, Array, Array]:
    """Do what `_gradient` does, in a form that JAX can differentiate."""

    def marginals_of(initial: Array, transition: Array, phases: Array) -> Array:
        given = dataclasses.replace(p, initial=initial, transition=transition, phases=phases)
        taken = scan.REFERENCE.takes(given)
        if past_only:
            return scan.REFERENCE.filter(taken).phases
        value, residuals = scan.REFERENCE.log_normalizer(taken, True)
        return scan.REFERENCE.pullback(taken, residuals, jnp.ones_like(value)).phases

    return jax.vjp(marginals_of, p.initial, p.transition, p.phases)[1](cotangent)


marginals.defvjp(_marginals_forward, _marginals_backward)


BACKEND = Backend(
    "native",
    supports,
    supports,
    log_normalizer,
    pullback,
    filter,
    viterbi,
    derivatives_from=scan.REFERENCE,
    sums_tools=True,
    skips_tables=True,
    packs=True,
)


def _num_tools(p: Potentials) -> int:
    return p.num_configs.bit_length() - 1


def _operands(p: Potentials) -> tuple[Array, ...]:
    """Return the arrays of the C++ functions; absent log-likelihoods are of size 0."""
    rows, num_frames, num_phases = p.phases.shape
    dtype = p.phases.dtype
    flat = jnp.concatenate([jnp.zeros((num_phases, 0)), *[b.reshape(num_phases, -1) for b in p.blocks]], -1)
    tools = jnp.zeros((rows, num_frames, 0, 2), dtype) if p.tools is None else p.tools
    configs = jnp.zeros((rows, num_frames, 0), dtype) if p.configs is None else p.configs
    tables = (p.initial.astype(dtype), p.transition.astype(dtype), flat.astype(dtype))
    return (*tables, p.phases, tools.astype(dtype), configs.astype(dtype), p.lengths.astype(jnp.int32))


def _shapes(arrays: tuple[Array, ...]) -> list[tuple]:
    return [(x.shape, x.dtype) for x in arrays]


def _call(name: str, p: Potentials, *results: tuple) -> Any:
    call = jax.ffi.ffi_call(f"hmmjax_{name}", [jax.ShapeDtypeStruct(*x) for x in results], vmap_method="expand_dims")
    return call(*_operands(p), sizes=np.array([b.shape[-1] for b in p.blocks], np.int64))
