"""ConvNeXt (Liu et al. 2022) and ConvNeXt V2 (Woo et al. 2023), with the names of their published code."""

import itertools

from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.attention import dense, truncated_normal
from models.backbones.base import Backbone, Features
from models.backbones.depthwise import Depthwise
from models.backbones.layers import Dropout, LayerNorm, PatchConv, fold, gelu

#: Added to the variance in every normalization.
_EPSILON = 1e-6


class GlobalResponse(nnx.Module):
    """Global response normalization: channels compete by their norms over the image.

    Args:
        width: number of channels C.
    """

    def __init__(self, width: int):
        self.gamma = nnx.Param(jnp.zeros(width, jnp.float32))
        self.beta = nnx.Param(jnp.zeros(width, jnp.float32))

    def __call__(self, x: Array) -> Array:
        """Normalize x (N, H, W, C), with sums in float32."""
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
        # The sum of squares may be zero, where the square root has no derivative.
        norm = jnp.sqrt((wide * wide).sum((1, 2), keepdims=True) + 1e-12)
        relative = norm / (norm.mean(-1, keepdims=True) + _EPSILON)
        return (self.gamma[...] * (wide * relative) + self.beta[...] + wide).astype(x.dtype)


class Block(nnx.Module):
    """A depthwise convolution, then a two-layer perceptron on channels, as a residual branch with stochastic depth.

    Args:
        width: number of channels C.
        drop: probability of dropping the branch per sample.
        scale: initial scale of the branch; None for global response normalization instead (V2).
        fast: see `Depthwise`.
        dtype: in which the block computes.
        rngs: for the initial parameters.
    """

    def __init__(
        self, width: int, drop: float, scale: float | None, *, fast: bool | None, dtype: DTypeLike, rngs: nnx.Rngs
    ):
        self.dwconv = Depthwise(width, 7, fast=fast, dtype=dtype, rngs=rngs, kernel_init=truncated_normal)
        self.norm = LayerNorm(width, epsilon=_EPSILON)
        self.pwconv1 = dense(width, 4 * width, dtype=dtype, rngs=rngs)
        if scale is None:
            self.grn = GlobalResponse(4 * width)
        else:
            self.gamma = nnx.Param(jnp.full(width, scale, jnp.float32))
        self.pwconv2 = dense(4 * width, width, dtype=dtype, rngs=rngs)
        self.drop = Dropout(drop, samples=True)
        self.scaled = scale is not None

    def __call__(self, x: Array, key: Array | None) -> Array:
        """Apply the block to x (N, H, W, C)."""
        y = gelu(self.pwconv1(self.norm(self.dwconv(x))))
        y = self.pwconv2(y if self.scaled else self.grn(y))
        y = (y * self.gamma[...]).astype(x.dtype) if self.scaled else y
        return x + self.drop(y, key)


class ConvNeXt(Backbone):
    """A ConvNeXt for any input size.

    Args:
        widths: channels of each stage.
        depths: number of blocks in each stage.
        v2: global response normalization instead of scaled branches.
        drop_path: rate of stochastic depth at the last block; it grows linearly from 0.
        classes: number of classes of the published classifier; None leaves it out.
        fast: see `models.backbones.depthwise.Depthwise`.
        dtype: in which the network computes.
        remat: recompute each block in the backward pass instead of storing its activations.
        rngs: for the initial parameters.
    """

    head_name = "head"

    def __init__(
        self,
        widths: tuple[int, ...],
        depths: tuple[int, ...],
        *,
        v2: bool = False,
        drop_path: float = 0.0,
        classes: int | None = None,
        fast: bool | None = None,
        dtype: DTypeLike = jnp.float32,
        remat: bool = False,
        rngs: nnx.Rngs,
    ):
        options = {"dtype": dtype, "rngs": rngs, "kernel_init": truncated_normal}
        reduce = [nnx.List([PatchConv(3, widths[0], 4, **options), LayerNorm(widths[0], epsilon=_EPSILON)])]
        for before, after in itertools.pairwise(widths):
            reduce.append(nnx.List([LayerNorm(before, epsilon=_EPSILON), PatchConv(before, after, 2, **options)]))
        self.downsample_layers = nnx.List(reduce)
        stages, done = [], 0
        for width, depth in zip(widths, depths, strict=True):
            drops = [drop_path * (done + i) / max(sum(depths) - 1, 1) for i in range(depth)]
            done += depth
            stages.append(
                nnx.List(
                    [Block(width, drop, None if v2 else 1e-6, fast=fast, dtype=dtype, rngs=rngs) for drop in drops]
                )
            )
        self.stages = nnx.List(stages)
        self.norm = LayerNorm(widths[-1], epsilon=_EPSILON)
        if classes is not None:
            self.head = dense(widths[-1], classes, dtype=dtype, rngs=rngs)
        self.width = widths[-1]
        self.dtype = dtype
        self.remat = remat

    def __call__(self, images: Array, *, key: Array | None = None) -> Features:
        """See `Backbone`."""
        smallest = 2 ** (len(self.stages) + 1)
        if min(images.shape[1:3]) < smallest:
            raise ValueError(
                f"the images of {images.shape[1:3]} pixels are smaller than {smallest}x{smallest}. Fix: use larger "
                "images"
            )
        x, maps, stride, number = images.astype(self.dtype), {}, 2, 0
        call = nnx.remat(Block.__call__) if self.remat else Block.__call__
        for reduce, blocks in zip(self.downsample_layers, self.stages, strict=True):
            for layer in reduce:
                x = layer(x)
            for block in blocks:
                x = call(block, x, fold(key, number))
                number += 1
            stride *= 2
            maps[stride] = x
        return Features(self.norm(x.mean((1, 2))), maps)


_TINY, _DEEP = (3, 3, 9, 3), (3, 3, 27, 3)


def convnext_tiny(*, drop_path: float = 0.1, **options) -> ConvNeXt:
    """Build ConvNeXt-T, with 768 features; options are those of `ConvNeXt`."""
    return ConvNeXt((96, 192, 384, 768), _TINY, drop_path=drop_path, **options)


def convnext_small(*, drop_path: float = 0.4, **options) -> ConvNeXt:
    """Build ConvNeXt-S, with 768 features; options are those of `ConvNeXt`."""
    return ConvNeXt((96, 192, 384, 768), _DEEP, drop_path=drop_path, **options)


def convnext_base(*, drop_path: float = 0.5, **options) -> ConvNeXt:
    """Build ConvNeXt-B, with 1,024 features; options are those of `ConvNeXt`."""
    return ConvNeXt((128, 256, 512, 1024), _DEEP, drop_path=drop_path, **options)


def convnext_large(*, drop_path: float = 0.5, **options) -> ConvNeXt:
    """Build ConvNeXt-L, with 1,536 features; options are those of `ConvNeXt`."""
    return ConvNeXt((192, 384, 768, 1536), _DEEP, drop_path=drop_path, **options)


def convnextv2_tiny(*, drop_path: float = 0.2, **options) -> ConvNeXt:
    """Build ConvNeXt V2-T, with 768 features; options are those of `ConvNeXt`."""
    return ConvNeXt((96, 192, 384, 768), _TINY, v2=True, drop_path=drop_path, **options)


def convnextv2_base(*, drop_path: float = 0.1, **options) -> ConvNeXt:
    """Build ConvNeXt V2-B, with 1,024 features; options are those of `ConvNeXt`."""
    return ConvNeXt((128, 256, 512, 1024), _DEEP, v2=True, drop_path=drop_path, **options)


def convnextv2_large(*, drop_path: float = 0.1, **options) -> ConvNeXt:
    """Build ConvNeXt V2-L, with 1,536 features; options are those of `ConvNeXt`."""
    return ConvNeXt((192, 384, 768, 1536), _DEEP, v2=True, drop_path=drop_path, **options)
