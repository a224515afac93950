"""Parts that the kernels share: launching, and the layout of their messages and of chunked frames.

A message is (P, C): phases padded to a power of two, configurations along the threads.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

from hmmjax._core.typing import Array

CHUNK = 1024
"""Number of frames whose counts are summed by one matrix product."""


def call(kernel: Any, warps: int, grid: tuple[int, ...], out_shape: Any, *operands: Array) -> Any:
    """Launch a kernel; without a GPU (in the tests) it is interpreted."""
    interpret = jax.default_backend() != "gpu"
    params = None if interpret else plgpu.CompilerParams(num_warps=warps, num_stages=1)
    return pl.pallas_call(kernel, grid=grid, out_shape=out_shape, interpret=interpret, compiler_params=params)(
        *operands
    )


def bits(num_bits: int) -> Array:
    """Return the presence (num_bits, C) of each tool in each configuration."""
    return (jnp.arange(2**num_bits) >> jnp.arange(num_bits - 1, -1, -1)[:, None]) & 1


def per_thread(blocks: tuple[Array, ...]) -> Array:
    """Return tables (num_bits, 2, P, C) from tool blocks (2, 2, P): entry [k, j, :, c] is from c's bit k to bit j."""
    own = bits(len(blocks))
    return jnp.stack([jnp.stack([jnp.moveaxis(b[own[k], j], -1, 0) for j in (0, 1)]) for k, b in enumerate(blocks)])


def push_bit(x: Array, tables: Any, k: int, num_bits: int, join: Callable[[Any, Any], Any]) -> Array:
    """Step bit k of a message: reduce join(x, tables[j]) over the old bit, for every new bit j.

    The reduction is a sum if `join` multiplies, a maximum if it adds.
    """
    # The shape in which bit k of the configuration has an axis of its own.
    right = 1 << (num_bits - 1 - k)
    split = x.shape[0], x.shape[1] // (2 * right), 2, right
    joined = [join(x, table).reshape(split) for table in tables]
    reduce = jnp.sum if join is jnp.multiply else jnp.max
    absent, present = (reduce(y, 2)[:, :, None, :] for y in joined)
    own = lax.broadcasted_iota(jnp.int32, split, 2)
    return jnp.where(own == 0, absent, present).reshape(x.shape)


def chunked_shape(videos: int, num_frames: int, num_phases: int, num_configs: int) -> tuple[int, int, int, int]:
    """Return the shape (P, videos * chunks, frames per chunk, C) of rows in chunks.

    There is room for one more frame than a video has, because a pair of frames is stored under the later one.
    """
    chunks = -(-(num_frames + 1) // CHUNK)
    return num_phases, videos * chunks, -(-(num_frames + 1) // chunks), num_configs


def chunk_index(x: Any, video: Any, t: Any, videos: int) -> tuple:
    """Return the index of frame t of a video in rows of `chunked_shape`."""
    return slice(None), video * (x.shape[1] // videos) + t // x.shape[2], t % x.shape[2]
