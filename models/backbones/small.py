"""A small network for CPUs and small images, quick to compile and to train."""

from collections.abc import Sequence

from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.base import Backbone, Features
from models.backbones.layers import BatchNorm, conv
from models.backbones.pooling import spatial_max


class SmallNet(Backbone):
    """Convolutions of stride 2, each with batch normalization and ReLU; pooled by mean and by maximum.

    The maximum responds to small objects, such as the tip of an instrument. torchvision has no such network.

    Args:
        channels: channels of each convolution; the first is 5x5, the others 3x3.
        dtype: in which the network computes.
        rngs: for the initial parameters.
    """

    def __init__(self, channels: Sequence[int] = (16, 32, 64, 96), *, dtype: DTypeLike = jnp.float32, rngs: nnx.Rngs):
        self.convs, self.norms = nnx.List(), nnx.List()
        inputs = 3
        for stage, outputs in enumerate(channels):
            size = 3 if stage else 5
            self.convs.append(conv(inputs, outputs, size, 2, size // 2, bias=False, dtype=dtype, rngs=rngs))
            self.norms.append(BatchNorm(outputs))
            inputs = outputs
        self.width = 2 * inputs
        self.dtype = dtype

    def __call__(self, images: Array, *, key: Array | None = None) -> Features:
        """See `Backbone`; the key is not used."""
        del key
        x, maps = images.astype(self.dtype), {}
        for stage, (convolve, normalize) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = normalize(convolve(x), relu=True)
            maps[2 ** (stage + 1)] = x
        return Features(jnp.concatenate([x.mean((1, 2)), spatial_max(x)], -1), maps)
