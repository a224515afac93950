"""AlexNet and VGG16: a sequence of convolutions, then two fully connected layers with dropout."""

import math
from collections.abc import Sequence

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.base import Backbone, Features
from models.backbones.layers import Dropout, conv, fold, he_normal, torch_uniform
from models.backbones.pooling import adaptive_average_pool, max_pool


class MaxPool(nnx.Module):
    """`max_pool` as a module."""

    def __init__(self, size: int, stride: int):
        self.size = size
        self.stride = stride

    def __call__(self, x: Array) -> Array:
        """Pool x (N, H, W, C) to (N, about H / stride, about W / stride, C)."""
        return max_pool(x, self.size, self.stride)


class PlainNet(Backbone):
    """A sequence of convolutions and two fully connected layers.

    Args:
        layers: the convolutional part, torchvision's ``features``; None stands for a ReLU.
        strides: cumulative stride after each of these layers.
        bins: side of the map that the fully connected layers read.
        channels: channels of that map.
        dropout_first: whether dropout comes before its layer (AlexNet) or after its ReLU (VGG).
        classes: number of classes of torchvision's classifier; None leaves it out.
        dtype: in which the network computes.
        remat: recompute the convolutional part in the backward pass instead of storing its activations.
        kernel_init: initializer of the fully connected layers.
        rngs: for the initial parameters.
    """

    width = 4096
    head_name = "classifier.6"

    def __init__(
        self,
        layers: Sequence[nnx.Module | None],
        strides: Sequence[int],
        *,
        bins: int,
        channels: int,
        dropout_first: bool,
        classes: int | None,
        dtype: DTypeLike,
        remat: bool,
        kernel_init,
        rngs: nnx.Rngs,
    ):
        def linear(inputs: int, outputs: int) -> nnx.Linear:
            return nnx.Linear(inputs, outputs, dtype=dtype, kernel_init=kernel_init, rngs=rngs)

        first, second = linear(bins * bins * channels, self.width), linear(self.width, self.width)
        drop = (Dropout(0.5), Dropout(0.5))
        order = (
            [drop[0], first, None, drop[1], second, None]
            if dropout_first
            else [first, None, drop[0], second, None, drop[1]]
        )
        self.features = nnx.List(layers)
        self.classifier = nnx.List(order if classes is None else [*order, linear(self.width, classes)])
        self.strides = tuple(strides)
        self.bins = bins
        self.channels = channels
        self.dtype = dtype
        self.remat = remat

    def __call__(self, images: Array, *, key: Array | None = None) -> Features:
        """See `Backbone`."""
        maps = self._maps(images)
        return Features(self.top(maps[self.strides[-1]], key=key), maps)

    def trunk(self, images: Array) -> Array:
        """See `Backbone`; without the last pooling, as in Faster R-CNN."""
        return self._maps(images)[self.stride]

    def top(self, maps: Array, *, key: Array | None = None) -> Array:
        """See `Backbone`: the fully connected layers."""
        x = adaptive_average_pool(maps, self.bins)
        x = x.transpose(0, 3, 1, 2).reshape(len(x), math.prod(x.shape[1:]))  # torch flattens channels first
        for i, layer in enumerate(list(self.classifier)[:6]):
            if isinstance(layer, Dropout):
                x = layer(x, fold(key, i))
            else:
                x = jax.nn.relu(x) if layer is None else layer(x)
        return x

    def _maps(self, images: Array) -> dict[int, Array]:
        convolve = nnx.remat(PlainNet._convolve) if self.remat else PlainNet._convolve
        return convolve(self, images.astype(self.dtype))

    def _convolve(self, x: Array) -> dict[int, Array]:
        maps = {}
        for layer, stride in zip(self.features, self.strides, strict=True):
            x = jax.nn.relu(x) if layer is None else layer(x)
            maps[stride] = x
        return maps


def alexnet(
    *, classes: int | None = None, dtype: DTypeLike = jnp.float32, remat: bool = False, rngs: nnx.Rngs
) -> PlainNet:
    """Build AlexNet as in torchvision (Krizhevsky 2014), with 4,096 features."""

    def layer(*shape: int) -> nnx.Conv:
        return conv(*shape, dtype=dtype, rngs=rngs, kernel_init=torch_uniform)

    layers = [
        *(layer(3, 64, 11, 4, 2), None, MaxPool(3, 2)),
        *(layer(64, 192, 5, 1, 2), None, MaxPool(3, 2)),
        *(layer(192, 384, 3, 1, 1), None, layer(384, 256, 3, 1, 1), None, layer(256, 256, 3, 1, 1), None),
        MaxPool(3, 2),
    ]
    strides = [4] * 2 + [8] * 3 + [16] * 7 + [32]
    return PlainNet(
        layers,
        strides,
        bins=6,
        channels=256,
        dropout_first=True,
        classes=classes,
        dtype=dtype,
        remat=remat,
        kernel_init=torch_uniform,
        rngs=rngs,
    )


def vgg16(
    *, classes: int | None = None, dtype: DTypeLike = jnp.float32, remat: bool = False, rngs: nnx.Rngs
) -> PlainNet:
    """Build VGG16 as in torchvision (configuration D, without batch normalization), with 4,096 features."""
    layers, strides, channels = [], [], 3
    for stage, (width, depth) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)]):
        for _ in range(depth):
            layers += [conv(channels, width, 3, 1, 1, dtype=dtype, rngs=rngs, kernel_init=he_normal), None]
            strides += [2**stage] * 2
            channels = width
        layers.append(MaxPool(2, 2))
        strides.append(2 ** (stage + 1))
    return PlainNet(
        layers,
        strides,
        bins=7,
        channels=512,
        dropout_first=False,
        classes=classes,
        dtype=dtype,
        remat=remat,
        kernel_init=nnx.initializers.normal(0.01),
        rngs=rngs,
    )
