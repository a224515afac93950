"""Vision transformers (Dosovitskiy et al. 2021) for any input size, also as DINOv2 and DINOv3 have them.

Submodules have the names of DINOv2's published code.
"""

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.attention import dense, truncated_normal
from models.backbones.base import Backbone, Features
from models.backbones.bicubic import resize_grid
from models.backbones.layers import Dropout, LayerNorm, PatchConv, fold, gelu, torch_uniform
from models.backbones.self_attention import Attention, Rotation, rotation_of


class Perceptron(nnx.Module):
    """Two layers with a GELU in between."""

    def __init__(self, width: int, hidden: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.fc1 = dense(width, hidden, dtype=dtype, rngs=rngs)
        self.fc2 = dense(hidden, width, dtype=dtype, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Apply both layers to x (..., C)."""
        return self.fc2(gelu(self.fc1(x)))


class SwiGLU(nnx.Module):
    """Two layers, of which the first is gated by a SiLU (Shazeer 2020)."""

    def __init__(self, width: int, hidden: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.w12 = dense(width, 2 * hidden, dtype=dtype, rngs=rngs)
        self.w3 = dense(hidden, width, dtype=dtype, rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """Apply both layers to x (..., C)."""
        gate, value = jnp.split(self.w12(x), 2, -1)
        return self.w3(jax.nn.silu(gate) * value)


class LayerScale(nnx.Module):
    """A learned factor per channel."""

    def __init__(self, width: int, initial: float):
        self.gamma = nnx.Param(jnp.full(width, initial, jnp.float32))

    def __call__(self, x: Array) -> Array:
        """Scale x (..., C)."""
        return (x * self.gamma[...]).astype(x.dtype)


class Block(nnx.Module):
    """Attention, then a perceptron; each is a residual branch with stochastic depth.

    Args:
        width: number of channels C.
        heads: number of attention heads.
        drop: probability of dropping a branch per sample.
        scale: initial scale of the branches; None leaves them unscaled.
        swiglu: a gated perceptron.
        flash: see `Attention`.
        epsilon: added to the variance in normalizations.
        dtype: in which the block computes.
        rngs: for the initial parameters.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        drop: float,
        scale: float | None,
        *,
        swiglu: bool,
        flash: bool | None,
        epsilon: float,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        self.norm1 = LayerNorm(width, epsilon=epsilon)
        self.attn = Attention(width, heads, flash=flash, dtype=dtype, rngs=rngs)
        self.norm2 = LayerNorm(width, epsilon=epsilon)
        if swiglu:
            # Two thirds, so that the three matrices have as many numbers as the two of a perceptron.
            self.mlp = SwiGLU(width, (8 * width // 3 + 7) // 8 * 8, dtype=dtype, rngs=rngs)
        else:
            self.mlp = Perceptron(width, 4 * width, dtype=dtype, rngs=rngs)
        if scale is not None:
            self.ls1, self.ls2 = LayerScale(width, scale), LayerScale(width, scale)
        self.scaled = scale is not None
        self.drop = Dropout(drop, samples=True)

    def __call__(self, x: Array, rotation: Rotation | None, lengths: Array | None, key: Array | None) -> Array:
        """Apply the block to x (N, T, C); see `Attention`."""
        y = self.attn(self.norm1(x), rotation, lengths)
        x = x + self.drop(self.ls1(y) if self.scaled else y, fold(key, 0))
        y = self.mlp(self.norm2(x))
        return x + self.drop(self.ls2(y) if self.scaled else y, fold(key, 1))


class Patches(nnx.Module):
    """The layer that embeds patches."""

    def __init__(self, width: int, patch: int, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.proj = PatchConv(3, width, patch, dtype=dtype, rngs=rngs, kernel_init=torch_uniform)

    def __call__(self, images: Array) -> Array:
        """Embed the patches of images: (N, H, W, 3) to (N, H / patch, W / patch, C); incomplete ones are ignored."""
        return self.proj(images)


class ViT(Backbone):
    """A vision transformer.

    Args:
        width: number of channels C.
        depth: number of blocks.
        heads: number of attention heads.
        patch: side of a patch, in pixels.
        grid: side of the grid of learned positions, which is resized to the grid of patches of an image.
        registers: number of further tokens (Darcet et al. 2024).
        scale: initial scale of the residual branches; None leaves them unscaled.
        swiglu: gated perceptrons.
        rope: the longest period of rotary positions, as in DINOv3, instead of learned ones; None for learned ones.
        pool: the feature of an image: "class", the class token; "mean", the mean of the patches; "both", one after the
            other.
        epsilon: added to the variance in normalizations.
        drop_path: rate of stochastic depth at the last block; it grows linearly from 0.
        classes: number of classes of a classifier on the feature; None leaves it out.
        flash: see `Attention`.
        dtype: in which the network computes.
        remat: recompute each block in the backward pass instead of storing its activations.
        rngs: for the initial parameters.

    Raises:
        ValueError: for an unknown `pool`, and for a width that the heads do not divide.
    """

    head_name = "head"

    def __init__(
        self,
        width: int,
        depth: int,
        heads: int,
        *,
        patch: int = 16,
        grid: int = 14,
        registers: int = 0,
        scale: float | None = None,
        swiglu: bool = False,
        rope: float | None = None,
        pool: str = "class",
        epsilon: float = 1e-6,
        drop_path: float = 0.0,
        classes: int | None = None,
        flash: bool | None = None,
        dtype: DTypeLike = jnp.float32,
        remat: bool = False,
        rngs: nnx.Rngs,
    ):
        if pool not in ("class", "mean", "both"):
            raise ValueError(f"pool is {pool!r}: choose class, mean or both")
        if width % heads:
            raise ValueError(f"{width} channels cannot be divided among {heads} heads")
        self.patch_embed = Patches(width, patch, dtype=dtype, rngs=rngs)
        self.cls_token = nnx.Param(truncated_normal(rngs.params(), (1, 1, width), jnp.float32))
        if rope is None:
            places = truncated_normal(rngs.params(), (1, 1 + grid * grid, width), jnp.float32)
            self.pos_embed = nnx.Param(places)
        if registers:
            self.register_tokens = nnx.Param(truncated_normal(rngs.params(), (1, registers, width), jnp.float32))
        options = {"swiglu": swiglu, "flash": flash, "epsilon": epsilon, "dtype": dtype, "rngs": rngs}
        drops = [drop_path * i / max(depth - 1, 1) for i in range(depth)]
        self.blocks = nnx.List([Block(width, heads, drop, scale, **options) for drop in drops])
        self.norm = LayerNorm(width, epsilon=epsilon)
        self.width = 2 * width if pool == "both" else width
        if classes is not None:
            self.head = dense(self.width, classes, dtype=dtype, rngs=rngs)
        self.patch, self.grid, self.registers, self.rope, self.pool = patch, grid, registers, rope, pool
        self.dtype, self.remat = dtype, remat

    def __call__(self, images: Array, *, key: Array | None = None) -> Features:
        """See `Backbone`."""
        if min(images.shape[1:3]) < self.patch:
            raise ValueError(
                f"the images of {images.shape[1:3]} pixels are smaller than one patch of {self.patch}x{self.patch}. "
                "Fix: use larger images"
            )
        patches = self.patch_embed(images.astype(self.dtype))
        n, rows, columns, width = patches.shape
        x, first = patches.reshape(n, rows * columns, width), self.cls_token[...]
        rotation = None
        if self.rope is None:
            first, places = first + self.pos_embed[...][:, :1], self._places(rows, columns)
            x = (x + places).astype(self.dtype)
        else:
            rotation = rotation_of(rows, columns, width // self.blocks[0].attn.heads, self.rope)
        extra = [first, self.register_tokens[...]] if self.registers else [first]
        extra = [jnp.broadcast_to(token, (n, *token.shape[1:])).astype(self.dtype) for token in extra]
        x = jnp.concatenate([*extra, x], 1)
        count, lengths = x.shape[1], None
        if count % 2 and self.blocks[0].attn.fused():
            # JAX refuses cuDNN's attention for odd numbers of tokens in training: one more, to which none attends.
            x, lengths = jnp.pad(x, ((0, 0), (0, 1), (0, 0))), jnp.full(n, count, jnp.int32)
            if rotation is not None:
                rotation = (
                    np.pad(rotation[0], ((0, 1), (0, 0)), constant_values=1),
                    np.pad(rotation[1], ((0, 1), (0, 0))),
                )
        call = nnx.remat(Block.__call__) if self.remat else Block.__call__
        for number, block in enumerate(self.blocks):
            x = call(block, x, rotation, lengths, fold(key, number))
        x = self.norm(x[:, :count])
        token, maps = x[:, 0], x[:, 1 + self.registers :].reshape(n, rows, columns, width)
        mean = maps.mean((1, 2))
        pooled = {"class": token, "mean": mean, "both": jnp.concatenate([token, mean], -1)}[self.pool]
        return Features(pooled, {self.patch: maps})

    def _places(self, rows: int, columns: int) -> Array:
        """Return the positions (1, rows * columns, C), resized from the learned grid."""
        learned = self.pos_embed[...][0, 1:]
        if (rows, columns) == (self.grid, self.grid):
            return learned[None]
        grid = learned.reshape(self.grid, self.grid, -1)
        return resize_grid(grid, rows, columns).reshape(1, rows * columns, -1)


#: DINOv2's pretraining on pictures of 518 pixels, with scaled branches.
_DINOV2 = {"patch": 14, "grid": 37, "scale": 1.0}
#: DINOv3's rotary positions, registers and scaled branches.
_DINOV3 = {"patch": 16, "registers": 4, "scale": 1.0, "rope": 100.0, "epsilon": 1e-5}

_SIZES = {"small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16)}


def vit(size: str, kind: str = "", **options) -> ViT:
    """Build a vision transformer by its published size and kind.

    Args:
        size: "small", "base" or "large": 384, 768 or 1,024 features.
        kind: "" (16x16 patches, unscaled branches), "dinov2" or "dinov3".
        options: of `ViT`, such as `patch`, `registers`, `pool`.
    """
    known = {"": {}, "dinov2": _DINOV2, "dinov3": _DINOV3}[kind]
    return ViT(*_SIZES[size], **{**known, **options})
