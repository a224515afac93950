"""Parts that the kernels share: launching, and the layout of messages.

A message is (R, P, W), or (R, P, F, W) of F frames at once: configuration r * W + w in phase p, with phases padded to
a power of two. Triton gives the lanes of a warp the last axis, warps frames and phases, and registers the first axis:
only the phase transition crosses warps, and bits of a configuration are exchanged between lanes or not at all.
Transpositions, axes of length one inside, and wide loads and stores would suggest other layouts, in which every step is
several times slower: the kernels have none of the first two, and indices are opaque to the compiler (`opaque`).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from hmmjax._core.packing import Packing
from hmmjax._core.typing import Array

LANES = 32
"""Threads of a warp."""

ONE = 127 << 23
"""The bits of 1."""

NEVER = -(2**28)
"""The exponent of zero: sums of three stay in range of int32."""


def call(kernel: Any, warps: int, grid: tuple[int, ...], out_shape: Any, *operands: Array) -> Any:
    """Launch a kernel; without a GPU (in the tests) it is interpreted."""
    interpret = jax.default_backend() != "gpu"
    params = None if interpret else plgpu.CompilerParams(num_warps=warps, num_stages=1)
    return pl.pallas_call(kernel, grid=grid, out_shape=out_shape, interpret=interpret, compiler_params=params)(
        *operands
    )


def starts(packing: Packing, num_frames: int) -> Array:
    """Return the position (B,) of each video's first frame; of a video without frames, one that exists."""
    return jnp.minimum(packing.starts, num_frames - 1)


def rows(num_configs: int) -> tuple[int, int]:
    """Return (R, W), the axes of configurations."""
    width = min(num_configs, LANES)
    return num_configs // width, width


def messages(x: Array) -> Array:
    """Reshape (..., P, C) to (..., R, P, W)."""
    return jnp.moveaxis(x.reshape(*x.shape[:-1], *rows(x.shape[-1])), -3, -2)


def indices(num_phases: int, num_configs: int) -> Array:
    """Return the operand from which `opaque` reads."""
    return jnp.repeat(jnp.arange(max(num_phases, *rows(num_configs)), dtype=jnp.int32), 2)


def opaque(index: Any, shape: tuple[int, ...], axis: int) -> Any:
    """Return the indices along an axis, in a form from which the compiler does not see that they are consecutive."""
    return index[2 * lax.broadcasted_iota(jnp.int32, shape, axis)]


def place(index: Any, shape: tuple[int, ...]) -> tuple:
    """Return indices of rows, phases and lanes into an array (R, P, W), of a message's shape, or with 1 for R."""
    return lax.broadcasted_iota(jnp.int32, shape, 0), opaque(index, shape, 1), opaque(index, shape, len(shape) - 1)


def bits(num_bits: int) -> Array:
    """Return the presence (num_bits, C) of each tool in each configuration."""
    return (jnp.arange(2**num_bits) >> jnp.arange(num_bits - 1, -1, -1)[:, None]) & 1


def tables(blocks: tuple[Array, ...]) -> Array:
    """Return tables (num_bits, 2, R, P, W) from tool blocks (2, 2, P).

    Of each element's own state of a tool: the entries of staying in it, and of coming to it from the other.
    """
    pairs = [(b, own) for b, own in zip(blocks, bits(len(blocks)), strict=True)]
    return jnp.stack([jnp.stack([messages(b[old, own].T) for old in (own, 1 - own)]) for b, own in pairs])


def load_tables(tables: Any, index: Any, *frames: int) -> list[tuple]:
    """Load every bit's tables, in shapes that broadcast against messages."""
    num_bits, _, num_rows, num_phases, width = tables.shape
    out = []
    for k in range(num_bits):
        right = (1 << (num_bits - 1 - k)) // width
        row, phase, lane = place(index, (2 if right else 1, num_phases, *frames, width))
        loaded = (tables[k, j, right * row, phase, lane] for j in (0, 1))
        if right:
            # Equal for rows that agree in this bit: one register for all of them.
            split = num_rows // (2 * right), 2, right, *row.shape[1:]
            loaded = (jnp.broadcast_to(x[None, :, None], split).reshape(num_rows, *row.shape[1:]) for x in loaded)
        out.append(tuple(loaded))
    return out


def split_bit(x: Array, k: int, num_bits: int) -> tuple[Array, int]:
    """Reshape a message so that bit k of the configuration has an axis of its own; return that axis too."""
    *others, width = x.shape
    right = 1 << (num_bits - 1 - k)
    if right < width:
        return x.reshape(*others, width // (2 * right), 2, right), len(others) + 1
    right //= width
    return x.reshape(others[0] // (2 * right), 2, right, *x.shape[1:]), 1


def flip(x: Array, k: int, num_bits: int) -> Array:
    """Return the message with bit k of the configuration flipped."""
    # The sum of the two, as integers that may wrap around, less the element itself: the compiler sees the exchange.
    own, axis = split_bit(as_bits(x), k, num_bits)
    return as_float((jnp.sum(own, axis, keepdims=True) - own).reshape(x.shape))


def push(x: Array, tables: list[tuple]) -> Array:
    """Push a message through the tools' transition, one bit at a time."""
    for k, (stay, come) in enumerate(tables):
        x = x * stay + flip(x, k, len(tables)) * come
    return x


def pull(x: Array, tables: list[tuple]) -> list[Array]:
    """Pull a message back through the tools' transition; return it as it is before each bit, and at last as it came."""
    out = [x]
    for k, (stay, come) in reversed(list(enumerate(tables))):
        out.insert(0, out[0] * stay + flip(out[0] * come, k, len(tables)))
    return out


def predict(x: Array, scale: Array, mantissas: Array, exponents: Array) -> tuple[Array, Array]:
    """Apply the phase transition, as `scaled.predict_phases`, in integers.

    Args:
        x: (R, P, 1, F, W) message.
        scale: (1, P, P, F, W) its scale, the same for every new phase.
        mantissas: (1, P, P, F, W) mantissas, as bits.
        exponents: (1, P, P, F, W) exponents.

    Returns:
        The message (R, P, F, W) and its scale (1, P, F, W): at least `NEVER` / 2, that of a phase without predecessors.
    """
    shifts = scale + exponents
    top = jnp.maximum(jnp.max(shifts, 1), NEVER // 2)
    return jnp.sum(scaled(mantissas, shifts - top[:, None]) * x, 1), top


def from_phases(x: Array) -> Array:
    """Return (R, P, F, W) as (R, P, 1, F, W), the phases from which a transition starts."""
    return x[:, :, None]


def total(x: Array) -> Array:
    """Sum a message over configurations: (1, P, F, W), the same in every lane."""
    total = jnp.sum(jnp.sum(x, 0, keepdims=True), x.ndim - 1, keepdims=True)
    return total + jnp.zeros((1, *x.shape[1:]), x.dtype)


def as_bits(x: Array) -> Array:
    """Return the bits of float32 numbers as int32."""
    return lax.bitcast_convert_type(x, jnp.int32)


def as_float(x: Array) -> Array:
    """Return float32 numbers of these bits."""
    return lax.bitcast_convert_type(x, jnp.float32)


def exponent(x: Array) -> Array:
    """Return floor(log2(x)) of positive normal numbers as int32, and `NEVER` for zero and denormals."""
    biased = as_bits(x) >> 23
    return jnp.where(biased > 0, biased - 127, NEVER)


def scaled(bits: Any, shift: Array) -> Array:
    """Return 2**shift times numbers in [1, 2) that are given by their bits; 0 below the normal range."""
    return jnp.where(shift >= -126, as_float(bits + (shift << 23)), 0.0)


def integers(table: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return `scaled.split`'s mantissas as bits, those of 1 for zero, and exponents as int32, `NEVER` for zero."""
    mantissas, exponents = table
    return as_bits(jnp.where(mantissas > 0, mantissas, 1)), jnp.where(mantissas > 0, exponents, NEVER).astype(jnp.int32)
