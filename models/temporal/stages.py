"""Models that predict in stages, each refining the probabilities of the previous one; convolutions over time."""

from collections.abc import Callable, Mapping

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.layers import fold, torch_uniform
from models.temporal.base import Temporal

#: Logits (B, T, classes) by track, float32.
Logits = dict[str, Array]


class Staged(Temporal):
    """A temporal model that computes logits itself, in stages, each of which is trained on the labels.

    Args:
        sizes: number of classes by track, "phases" or "tools".
        smoothness: weight of `smoothing_loss` in the loss of every stage.
    """

    #: Parts of names in published state dicts, and their names here; see `models.weights.load_state`.
    published_names: tuple[tuple[str, str], ...] = ()

    def __init__(self, sizes: Mapping[str, int], smoothness: float):
        if smoothness < 0:
            raise ValueError(f"smoothness is {smoothness}: give a weight of at least 0")
        self.sizes = tuple(sizes.items())
        self.smoothness = smoothness

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Logits:
        """Compute the logits of the last stage, (B, T, classes) by track; see `Temporal`."""
        return self.every_stage(features, mask, key=key)[-1]

    def every_stage(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> list[Logits]:
        """Compute the logits of every stage, from the first to the last."""
        raise TypeError(f"{type(self).__name__} must define every_stage")

    @property
    def classes(self) -> int:
        """The number of classes of all tracks together."""
        return sum(size for _, size in self.sizes)

    def split(self, logits: Array) -> Logits:
        """Divide the logits of all tracks (B, T, classes) by track."""
        found, start = {}, 0
        for track, size in self.sizes:
            found[track] = logits[..., start : start + size].astype(jnp.float32)
            start += size
        return found

    def next_inputs(self, logits: Logits, valid: Array) -> Array:
        """Return the input of the next stage: probabilities (B, T, classes), zero at frames that are not valid."""
        each = [jax.nn.softmax(x) if track == "phases" else jax.nn.sigmoid(x) for track, x in logits.items()]
        return jnp.where(valid[..., None], jnp.concatenate(each, -1), 0)


def smoothing_loss(logits: Mapping[str, Array], mask: Array, limit: float = 4.0) -> Array:
    """Compute MS-TCN's truncated mean squared change of log-probabilities from each frame to the next.

    A tool has two classes, present and absent. Gradients reach the later frame only (Farha & Gall 2019).

    Args:
        logits: by track, (B, T, classes).
        mask: (B, T); pairs with a missing frame do not count.
        limit: largest change that counts, in nats.

    Returns:
        The sum over tracks of the mean over pairs of frames and classes, a scalar; 0 without any pair.
    """
    pairs = mask[:, 1:] & mask[:, :-1]
    total = jnp.zeros(())
    for track, x in logits.items():
        if track == "phases":
            logs = jax.nn.log_softmax(x)
        else:
            logs = jnp.concatenate([jax.nn.log_sigmoid(x), jax.nn.log_sigmoid(-x)], -1)
        change = jnp.minimum((logs[:, 1:] - jax.lax.stop_gradient(logs[:, :-1])) ** 2, limit**2).mean(-1)
        total += jnp.where(pairs, change, 0).sum() / jnp.maximum(pairs.sum(), 1)
    return total


class TimeConv(nnx.Module):
    """A convolution over time, as one product with the frames that it reads side by side.

    Args:
        inputs: number of input channels.
        outputs: number of output channels.
        size: number of frames that an output reads.
        dilation: distance between these frames.
        causal: read the frame itself and earlier ones, instead of frames around it.
        dtype: in which the layer computes.
        rngs: for the initial parameters.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int = 1,
        dilation: int = 1,
        *,
        causal: bool = False,
        dtype: DTypeLike,
        rngs: nnx.Rngs,
    ):
        self.kernel = nnx.Param(torch_uniform(rngs.params(), (size, inputs, outputs), jnp.float32))
        self.bias = nnx.Param(jnp.zeros(outputs, jnp.float32))
        self.dilation, self.causal, self.dtype = dilation, causal, dtype

    def __call__(self, x: Array) -> Array:
        """Convolve x (B, T, inputs), which is zero outside of the video; returns (B, T, outputs)."""
        kernel = self.kernel[...].astype(self.dtype)
        size, length = len(kernel), x.shape[1]
        span = self.dilation * (size - 1)
        before = span if self.causal else span // 2
        x = jnp.pad(x.astype(self.dtype), ((0, 0), (before, span - before), (0, 0)))
        read = [x[:, k * self.dilation : k * self.dilation + length] for k in range(size)]
        return jnp.concatenate(read, -1) @ kernel.reshape(-1, kernel.shape[-1]) + self.bias[...].astype(self.dtype)


class DilatedStack(nnx.Module):
    """Layers whose dilation doubles from one to the next, between two dense layers.

    Args:
        layer: builds a layer from the number of channels, the dilation and `options`.
        inputs: number of input channels.
        outputs: number of logits.
        width: number of channels C in between.
        layers: number of layers; the last has dilation ``2 ** (layers - 1)``.
        options: of the layers.
    """

    def __init__(
        self, layer: Callable, inputs: int, outputs: int, width: int, layers: int, *, dtype: DTypeLike, **options
    ):
        self.conv_1x1 = TimeConv(inputs, width, dtype=dtype, rngs=options["rngs"])
        self.layers = nnx.List([layer(width, 2**i, dtype=dtype, **options) for i in range(layers)])
        self.conv_out = TimeConv(width, outputs, dtype=jnp.float32, rngs=options["rngs"])

    def __call__(self, x: Array, valid: Array, key: Array | None, *values: Array | None) -> tuple[Array, Array]:
        """Compute logits (B, T, outputs) and frames (B, T, C) of x (B, T, inputs).

        Args:
            x: (B, T, inputs).
            valid: (B, T); frames that are not valid are zero.
            key: for dropout.
            values: what layers read besides.
        """
        # The references let the bias of the first layer leak from padding into the last frames; here it does not.
        x = jnp.where(valid[..., None], self.conv_1x1(x), 0)
        for number, layer in enumerate(self.layers):
            x = layer(x, *values, valid, fold(key, number))
        return self.conv_out(x), x
