"""ResNet18, ResNet34 and ResNet50 (He et al. 2015), with the stride on the 3x3 convolution as in torchvision."""

import math

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.base import Backbone, Features
from models.backbones.layers import BatchNorm, conv, torch_uniform
from models.backbones.pooling import max_pool


class Block(nnx.Module):
    """A residual block: two 3x3 convolutions, or a 3x3 between two 1x1 (a bottleneck).

    Args:
        inputs: number of input channels.
        width: channels of the 3x3 convolutions.
        stride: of the block.
        bottleneck: whether it is a bottleneck, which has four times `width` output channels.
        dtype: in which the block computes.
        rngs: for the initial parameters.
    """

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool, *, dtype: DTypeLike, rngs: nnx.Rngs):
        def layer(*shape: int) -> nnx.Conv:
            return conv(*shape, bias=False, dtype=dtype, rngs=rngs)

        outputs = 4 * width if bottleneck else width
        if bottleneck:
            self.conv1 = layer(inputs, width, 1)
            self.conv2 = layer(width, width, 3, stride, 1)
            self.conv3 = layer(width, outputs, 1)
            self.bn3 = BatchNorm(outputs)
        else:
            self.conv1 = layer(inputs, width, 3, stride, 1)
            self.conv2 = layer(width, width, 3, 1, 1)
        self.bn1 = BatchNorm(width)
        self.bn2 = BatchNorm(width)
        if stride != 1 or inputs != outputs:
            self.downsample = nnx.List([layer(inputs, outputs, 1, stride), BatchNorm(outputs)])
        self.bottleneck = bottleneck
        self.projects = stride != 1 or inputs != outputs

    def __call__(self, x: Array) -> Array:
        """Apply the block to x (N, H, W, inputs): (N, H / stride, W / stride, outputs)."""
        residual = x
        if self.projects:
            reduce, normalize = self.downsample
            residual = normalize(reduce(x))
        x = self.bn1(self.conv1(x), relu=True)
        if not self.bottleneck:
            return self.bn2(self.conv2(x), residual, relu=True)
        x = self.bn2(self.conv2(x), relu=True)
        return self.bn3(self.conv3(x), residual, relu=True)


class ResNet(Backbone):
    """A residual network.

    Args:
        depths: number of blocks in each of the four stages.
        bottleneck: whether the blocks are bottlenecks.
        strides: of the four stages. Localization networks keep the late stages at stride 1: ``(1, 2, 1, 1)``.
        classes: number of classes of torchvision's classifier; None leaves it out.
        dtype: in which the network computes.
        remat: recompute each block in the backward pass instead of storing its activations.
        fold_stem: compute the 7x7 convolution of stride 2 as a 4x4 one of stride 1 on 2x2 pixels folded into
            channels: the same result, in a shape that suits matrix units better. None does so in bfloat16 only.
        frozen_norm: keep batch normalization as it is, statistics and factors, also in training: the rule for
            detectors, which see few images per update. Needs pretrained weights to make sense.
        rngs: for the initial parameters.
    """

    head_name = "fc"
    bins = 14

    def __init__(
        self,
        depths: tuple[int, int, int, int],
        bottleneck: bool,
        *,
        strides: tuple[int, int, int, int] = (1, 2, 2, 2),
        classes: int | None = None,
        dtype: DTypeLike = jnp.float32,
        remat: bool = False,
        fold_stem: bool | None = None,
        frozen_norm: bool = False,
        rngs: nnx.Rngs,
    ):
        self.conv1 = conv(3, 64, 7, 2, 3, bias=False, dtype=dtype, rngs=rngs)
        self.bn1 = BatchNorm(64)
        channels = 64
        for stage, (depth, stride) in enumerate(zip(depths, strides, strict=True)):
            width = 64 * 2**stage
            blocks = []
            for i in range(depth):
                blocks.append(Block(channels, width, stride if i == 0 else 1, bottleneck, dtype=dtype, rngs=rngs))
                channels = 4 * width if bottleneck else width
            setattr(self, f"layer{stage + 1}", nnx.List(blocks))
            if stage == 2:
                self.channels = channels
        self.width = channels
        if classes is not None:
            self.fc = nnx.Linear(channels, classes, dtype=dtype, kernel_init=torch_uniform, rngs=rngs)
        # A stage without blocks is the identity.
        self.strides = tuple(stride if depth else 1 for stride, depth in zip(strides, depths, strict=True))
        self.stride = 4 * math.prod(self.strides[:3])
        self.dtype = dtype
        self.remat = remat
        self.fold_stem = jnp.dtype(dtype) == jnp.bfloat16 if fold_stem is None else fold_stem
        for _, module in nnx.iter_modules(self):
            if isinstance(module, BatchNorm):
                module.frozen = frozen_norm

    def __call__(self, images: Array, *, key: Array | None = None) -> Features:
        """See `Backbone`; the key is not used."""
        del key
        x = self._stem(images)
        maps = {2: x}
        x = max_pool(x, 3, 2, 1)
        reached = 4
        for stage, stride in enumerate(self.strides):
            x = self._stage(stage, x)
            reached *= stride
            maps[reached] = x
        return Features(x.mean((1, 2)), maps)

    def trunk(self, images: Array) -> Array:
        """See `Backbone`: all but the last stage, the division "C4" of He et al. 2015."""
        x = max_pool(self._stem(images), 3, 2, 1)
        for stage in range(3):
            x = self._stage(stage, x)
        return x

    def top(self, maps: Array, *, key: Array | None = None) -> Array:
        """See `Backbone`: the last stage, averaged over its map."""
        del key
        return self._stage(3, maps).mean((1, 2))

    def _stem(self, images: Array) -> Array:
        x = images.astype(self.dtype)
        x = folded_stem(x, self.conv1.kernel[...].astype(self.dtype)) if self.fold_stem else self.conv1(x)
        return self.bn1(x, relu=True)

    def _stage(self, stage: int, x: Array) -> Array:
        call = nnx.remat(Block.__call__) if self.remat else Block.__call__
        for block in getattr(self, f"layer{stage + 1}"):
            x = call(block, x)
        return x


def folded_stem(x: Array, kernel: Array) -> Array:
    """Compute a 7x7 convolution of stride 2 and padding 3 as a 4x4 one of stride 1 on folded pixels.

    Args:
        x: (N, H, W, C).
        kernel: (7, 7, C, D).

    Returns:
        (N, ceil(H / 2), ceil(W / 2), D).
    """
    n, height, width, channels = x.shape
    rows, columns = -(-height // 2), -(-width // 2)
    # An eighth row and column of zeros make the window a multiple of the 2x2 blocks.
    kernel = jnp.pad(kernel, ((0, 1), (0, 1), (0, 0), (0, 0)))
    x = jnp.pad(x, ((0, 0), (3, 2 * rows + 3 - height), (3, 2 * columns + 3 - width), (0, 0)))
    x = x.reshape(n, rows + 3, 2, columns + 3, 2, channels).transpose(0, 1, 3, 2, 4, 5)
    kernel = kernel.reshape(4, 2, 4, 2, channels, -1).transpose(0, 2, 1, 3, 4, 5)
    return jax.lax.conv_general_dilated(
        x.reshape(n, rows + 3, columns + 3, 4 * channels),
        kernel.reshape(4, 4, 4 * channels, -1),
        (1, 1),
        "VALID",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def resnet18(**options) -> ResNet:
    """Build ResNet18, with 512 features; options are those of `ResNet`."""
    return ResNet((2, 2, 2, 2), False, **options)


def resnet34(**options) -> ResNet:
    """Build ResNet34, with 512 features; options are those of `ResNet`."""
    return ResNet((3, 4, 6, 3), False, **options)


def resnet50(**options) -> ResNet:
    """Build ResNet50, with 2,048 features; options are those of `ResNet`."""
    return ResNet((3, 4, 6, 3), True, **options)
