"""Swin transformers (Liu et al. 2021) for any input size, with torchvision's padding."""

from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.attention import WindowAttention, dense
from models.backbones.base import Backbone, Features
from models.backbones.layers import Dropout, LayerNorm, conv, fold, gelu, torch_uniform


class Block(nnx.Module):
    """Windowed attention, then a two-layer perceptron; each is a residual branch with stochastic depth.

    Args:
        width: number of channels C.
        heads: number of attention heads.
        window: side of a window, in tokens.
        shift: offset of the windows against the grid, in tokens.
        drop: probability of dropping a branch per sample.
        align: multiple to which a window's tokens are padded, see `WindowAttention`.
        dtype: in which the block computes.
        rngs: for the initial parameters.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        window: int,
        shift: int,
        drop: float,
        *,
        align: int,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        self.norm1 = LayerNorm(width)
        self.attn = WindowAttention(width, heads, window, shift, align=align, dtype=dtype, rngs=rngs)
        self.stochastic_depth = Dropout(drop, samples=True)
        self.norm2 = LayerNorm(width)
        # None keeps the indices of torchvision's GELU and dropout, which have no parameters.
        hidden = 4 * width
        self.mlp = nnx.List(
            [
                dense(width, hidden, dtype=dtype, rngs=rngs),
                None,
                None,
                dense(hidden, width, dtype=dtype, rngs=rngs),
            ]
        )

    def __call__(self, x: Array, key: Array | None) -> Array:
        """Apply the block to x (N, H, W, C)."""
        x = x + self.stochastic_depth(self.attn(self.norm1(x)), fold(key, 0))
        widen, narrow = (layer for layer in self.mlp if layer is not None)
        return x + self.stochastic_depth(narrow(gelu(widen(self.norm2(x)))), fold(key, 1))


class PatchMerging(nnx.Module):
    """A layer that merges 2x2 neighboring tokens into one of twice the width.

    Args:
        width: number of channels C.
        dtype: in which the layer computes.
        rngs: for the initial parameters.
    """

    def __init__(self, width: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.reduction = dense(4 * width, 2 * width, bias=False, dtype=dtype, rngs=rngs)
        self.norm = LayerNorm(4 * width)

    def __call__(self, x: Array) -> Array:
        """Merge x (N, H, W, C) to (N, ceil(H / 2), ceil(W / 2), 2 C)."""
        n, height, width, channels = x.shape
        x = jnp.pad(x, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)))
        x = x.reshape(n, -(-height // 2), 2, -(-width // 2), 2, channels).transpose(0, 1, 3, 4, 2, 5)
        return self.reduction(self.norm(x.reshape(*x.shape[:3], 4 * channels)))


class Swin(Backbone):
    """A Swin transformer with 7x7 windows and 4x4 patches.

    Args:
        width: channels of the first stage; each later stage doubles them.
        depths: number of blocks in each of the four stages.
        heads: number of attention heads in each stage.
        drop_path: rate of stochastic depth at the last block; it grows linearly from 0.
        classes: number of classes of torchvision's classifier; None leaves it out.
        dtype: in which the network computes.
        remat: recompute each block in the backward pass instead of storing its activations.
        align: multiple to which a window's tokens are padded, see `WindowAttention`.
        rngs: for the initial parameters.
    """

    head_name = "head"
    window = 7
    patch = 4

    def __init__(
        self,
        width: int,
        depths: tuple[int, int, int, int],
        heads: tuple[int, int, int, int],
        *,
        drop_path: float,
        classes: int | None = None,
        dtype: DTypeLike = jnp.float32,
        remat: bool = False,
        align: int = 1,
        rngs: nnx.Rngs,
    ):
        patches = conv(3, width, self.patch, self.patch, dtype=dtype, rngs=rngs, kernel_init=torch_uniform)
        layers: list[PatchMerging | nnx.List] = [nnx.List([patches, None, LayerNorm(width)])]
        done, total = 0, sum(depths)
        for stage, depth in enumerate(depths):
            if stage > 0:
                layers.append(PatchMerging(width, dtype=dtype, rngs=rngs))
                width *= 2
            blocks = []
            for i in range(depth):
                shift, drop = (i % 2) * (self.window // 2), drop_path * done / (total - 1)
                blocks.append(Block(width, heads[stage], self.window, shift, drop, align=align, dtype=dtype, rngs=rngs))
                done += 1
            layers.append(nnx.List(blocks))
        self.features = nnx.List(layers)
        self.norm = LayerNorm(width)
        self.width = width
        if classes is not None:
            self.head = dense(width, classes, dtype=dtype, rngs=rngs)
        self.dtype = dtype
        self.remat = remat

    def __call__(self, images: Array, *, key: Array | None = None) -> Features:
        """See `Backbone`."""
        if min(images.shape[1:3]) < self.patch:
            size = f"{self.patch}x{self.patch}"
            raise ValueError(
                f"the images of {images.shape[1:3]} pixels are smaller than one patch of {size}. Fix: use larger images"
            )
        # The convolution ignores an incomplete patch at the border, as torch's does.
        embed, *layers = self.features
        assert isinstance(embed, nnx.List)
        patches, _, norm = embed
        x = norm(patches(images.astype(self.dtype)))
        call = nnx.remat(Block.__call__) if self.remat else Block.__call__
        maps, stride, number = {}, self.patch, 0
        for layer in layers:
            if isinstance(layer, PatchMerging):
                x, stride = layer(x), 2 * stride
                continue
            for block in layer:
                x = call(block, x, fold(key, number))
                number += 1
            maps[stride] = x
        return Features(self.norm(x).mean((1, 2)), maps)


def swin_t(*, drop_path: float = 0.2, **options) -> Swin:
    """Build Swin-T, with 768 features; options are those of `Swin`."""
    return Swin(96, (2, 2, 6, 2), (3, 6, 12, 24), drop_path=drop_path, **options)


def swin_s(*, drop_path: float = 0.3, **options) -> Swin:
    """Build Swin-S, with 768 features; options are those of `Swin`."""
    return Swin(96, (2, 2, 18, 2), (3, 6, 12, 24), drop_path=drop_path, **options)


def swin_b(*, drop_path: float = 0.5, **options) -> Swin:
    """Build Swin-B, with 1,024 features; options are those of `Swin`."""
    return Swin(128, (2, 2, 18, 2), (4, 8, 16, 32), drop_path=drop_path, **options)
