"""Depthwise convolutions of stride one, with kernels of their own on NVIDIA GPUs.

A depthwise convolution does little arithmetic for each number that it reads, so that general convolution kernels, made
for matrix units, are slow: with XLA's, an update of a ConvNeXt-B takes twice as long (docs/results/training.md). Here
each program multiplies a tile of pixels and channels by one tap of the filter after the other, read through the cache;
the gradient with respect to the input is the same convolution with the flipped filter.
"""

from functools import partial

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.experimental import pallas as pl
from jax.typing import DTypeLike

from models.backbones.self_attention import on_nvidia

#: Pixels and channels of a program's tile.
PIXELS, CHANNELS = 32, 64
#: Number of programs that a GPU's multiprocessors share, in the gradient of the filter.
_PROGRAMS = 1024


class Depthwise(nnx.Conv):
    """A depthwise convolution with a square filter of odd side, stride one, and an output of the input's size.

    Args:
        channels: number of channels C.
        size: side of the filter.
        fast: use the kernels of this module; None uses them in half precision on NVIDIA GPUs, if the number of channels
            is a multiple of `CHANNELS`.
        dtype: in which the layer computes.
        rngs: for the initial parameters.
        kernel_init: of the filter.
    """

    def __init__(
        self, channels: int, size: int, *, fast: bool | None = None, dtype: DTypeLike, rngs: nnx.Rngs, kernel_init
    ):
        options = {"dtype": dtype, "kernel_init": kernel_init, "rngs": rngs, "feature_group_count": channels}
        super().__init__(channels, channels, (size, size), padding=((size // 2, size // 2),) * 2, **options)
        self.fast, self.form = fast, jnp.dtype(dtype)

    def __call__(self, x: Array) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Convolve x (N, H, W, C).

        Raises:
            ValueError: the kernels are asked for, and the number of channels is no multiple of `CHANNELS`.
        """
        fast = on_nvidia(self.form) and x.shape[-1] % CHANNELS == 0 if self.fast is None else self.fast
        if not fast:
            return super().__call__(x)
        if x.shape[-1] % CHANNELS:
            raise ValueError(
                f"{x.shape[-1]} channels are no multiple of {CHANNELS}. Fix: leave fast out, or set it to False"
            )
        assert self.bias is not None
        kernel = self.kernel[...].astype(self.form)[:, :, 0]
        return convolve(x.astype(self.form), kernel) + self.bias[...].astype(self.form)


@jax.custom_vjp
def convolve(x: Array, kernel: Array) -> Array:
    """Convolve each channel of x (N, H, W, C) with its own filter of kernel (size, size, C), with sums in float32.

    Args:
        x: the input, padded by zeros at the edges; C is a multiple of `CHANNELS`.
        kernel: the filters, of odd side.

    Returns:
        (N, H, W, C) in x's dtype.
    """
    return _apply(x, kernel)


def _forward(x, kernel):
    return _apply(x, kernel), (x, kernel)


def _backward(residuals, grad):
    x, kernel = residuals
    return _apply(grad, kernel[::-1, ::-1]), _filter_gradient(x, grad, kernel.shape[0]).astype(kernel.dtype)


convolve.defvjp(_forward, _backward)


def _load(ref, rows, channels, mask):
    """Load a tile (pixels, channels) in float32; zero where `mask` (pixels,) is False."""
    from jax.experimental.pallas import triton

    shape = (rows.shape[0], channels.shape[0])
    at = jnp.broadcast_to(jnp.where(mask, rows, 0)[:, None], shape), jnp.broadcast_to(channels[None], shape)
    tile = triton.load(ref.at[at], mask=jnp.broadcast_to(mask[:, None], shape), other=0)
    return tile.astype(jnp.float32)


def _places(pixels, height: int, width: int):
    """Return the row and column of pixels, which are numbered through all images."""
    # These divisions truncate, which is cheaper; no pixel is negative.
    rest = jax.lax.div(pixels, jnp.full_like(pixels, width))
    return jax.lax.rem(rest, jnp.full_like(pixels, height)), pixels - rest * width


def _apply_kernel(x_ref, kernel_ref, out_ref, *, height: int, width: int, total: int, size: int):
    from jax.experimental.pallas import triton

    pixels = pl.program_id(0) * PIXELS + jnp.arange(PIXELS)
    channels = pl.program_id(1) * CHANNELS + jnp.arange(CHANNELS)
    row, column = _places(pixels, height, width)
    sums = jnp.zeros((PIXELS, CHANNELS), jnp.float32)
    for i in range(size):
        for j in range(size):
            down, right = i - size // 2, j - size // 2
            inside = (row + down >= 0) & (row + down < height) & (column + right >= 0) & (column + right < width)
            tile = _load(x_ref, pixels + down * width + right, channels, inside & (pixels < total))
            tap = triton.load(kernel_ref.at[jnp.full(CHANNELS, i * size + j), channels]).astype(jnp.float32)
            sums += tile * tap[None]
    shape = (PIXELS, CHANNELS)
    at = jnp.broadcast_to(pixels[:, None], shape), jnp.broadcast_to(channels[None], shape)
    triton.store(out_ref.at[at], sums.astype(out_ref.dtype), mask=jnp.broadcast_to((pixels < total)[:, None], shape))


@jax.jit
def _apply(x: Array, kernel: Array) -> Array:
    n, height, width, count = x.shape
    total, size = n * height * width, kernel.shape[0]
    body = partial(_apply_kernel, height=height, width=width, total=total, size=size)
    out = _call(body, (pl.cdiv(total, PIXELS), count // CHANNELS), jax.ShapeDtypeStruct((total, count), x.dtype))(
        x.reshape(total, count), kernel.reshape(size * size, count)
    )
    return out.reshape(x.shape)


def _filter_kernel(x_ref, grad_ref, out_ref, *, height: int, width: int, total: int, size: int, tiles: int):
    from jax.experimental.pallas import triton

    i, chunk = pl.program_id(0), pl.program_id(2)
    channels = pl.program_id(1) * CHANNELS + jnp.arange(CHANNELS)
    down = i - size // 2

    def add(tile, sums):
        pixels = (chunk * tiles + tile) * PIXELS + jnp.arange(PIXELS)
        row, column = _places(pixels, height, width)
        there = (pixels < total) & (row + down >= 0) & (row + down < height)
        grad = _load(grad_ref, pixels, channels, there)
        added = []
        for j in range(size):
            right = j - size // 2
            inside = there & (column + right >= 0) & (column + right < width)
            added.append(sums[j] + grad * _load(x_ref, pixels + down * width + right, channels, inside))
        return tuple(added)

    zeros = jnp.zeros((PIXELS, CHANNELS), jnp.float32)
    sums = jax.lax.fori_loop(0, tiles, add, (zeros,) * size)
    for j in range(size):
        at = jnp.full(CHANNELS, chunk * size * size + i * size + j), channels
        triton.store(out_ref.at[at], sums[j].sum(0))


@partial(jax.jit, static_argnums=2)
def _filter_gradient(x: Array, grad: Array, size: int) -> Array:
    """Return the gradient (size, size, C) of the filter, float32."""
    n, height, width, count = x.shape
    total = n * height * width
    groups = count // CHANNELS
    chunks = min(pl.cdiv(_PROGRAMS, size * groups), pl.cdiv(total, PIXELS))
    tiles = pl.cdiv(pl.cdiv(total, PIXELS), chunks)
    body = partial(_filter_kernel, height=height, width=width, total=total, size=size, tiles=tiles)
    shape = jax.ShapeDtypeStruct((chunks * size * size, count), jnp.float32)
    parts = _call(body, (size, groups, chunks), shape)(x.reshape(total, count), grad.reshape(total, count))
    return parts.reshape(chunks, size, size, count).sum(0)


def _call(body, grid: tuple[int, ...], out: jax.ShapeDtypeStruct):
    """Return a Triton kernel; interpreted, and slow, where there is no GPU."""
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        body,
        out,
        grid=grid,
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        interpret=jax.default_backend() != "gpu",
    )
