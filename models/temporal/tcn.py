"""Temporal convolutions in stages: MS-TCN (Farha & Gall 2019), and TeCNO (Czempiel et al. 2020), which is causal."""

from collections.abc import Mapping

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.layers import Dropout, fold
from models.temporal.base import zero_missing
from models.temporal.stages import DilatedStack, Logits, Staged, TimeConv


class DilatedResidual(nnx.Module):
    """A dilated convolution over three frames, ReLU and a dense layer, added to the input.

    Args:
        width: number of channels C.
        dilation: distance between the three frames.
        causal: read the frame itself and two earlier ones, instead of one on each side.
        dropout: rate after the dense layer.
        dtype: in which the layer computes.
        rngs: for the initial parameters.
    """

    def __init__(self, width: int, dilation: int, causal: bool, dropout: float, *, dtype: DTypeLike, rngs: nnx.Rngs):
        self.conv_dilated = TimeConv(width, width, 3, dilation, causal=causal, dtype=dtype, rngs=rngs)
        self.conv_1x1 = TimeConv(width, width, dtype=dtype, rngs=rngs)
        self.dropout = Dropout(dropout)

    def __call__(self, x: Array, valid: Array, key: Array | None) -> Array:
        """Apply the layer to x (B, T, C); the output is zero at frames that are not valid (B, T)."""
        change = self.dropout(self.conv_1x1(jax.nn.relu(self.conv_dilated(x))), key)
        return jnp.where(valid[..., None], x + change, 0)


class MSTCN(Staged):
    """A multi-stage temporal convolutional network over a whole video.

    The first stage reads the features, each further stage the probabilities of the previous one, of all tracks
    together. With phases alone it is the published network.

    Args:
        inputs: length D of the features.
        sizes: number of classes by track.
        width: number of channels.
        layers: number of layers of a stage; a stage sees ``2 ** layers - 1`` frames before and after.
        stages: number of stages.
        causal: read no later frames; twice as many earlier ones instead.
        smoothness: weight of `models.temporal.stages.smoothing_loss` in the loss of every stage.
        dropout: rate in each layer.
        dtype: in which the model computes; logits are float32.
        rngs: for the initial parameters.

    Raises:
        ValueError: for fewer than one layer or stage, and for a negative weight.
    """

    published_names = (("conv_out_classes.", "conv_out."),)

    def __init__(
        self,
        inputs: int,
        *,
        sizes: Mapping[str, int],
        width: int = 64,
        layers: int = 10,
        stages: int = 4,
        causal: bool = False,
        smoothness: float = 0.15,
        dropout: float = 0.5,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        if min(layers, stages) < 1:
            raise ValueError(f"layers is {layers} and stages is {stages}: give at least 1 of each")
        super().__init__(sizes, smoothness)

        def stage(inputs: int) -> DilatedStack:
            options = {"causal": causal, "dropout": dropout, "dtype": dtype, "rngs": rngs}
            return DilatedStack(DilatedResidual, inputs, self.classes, width, layers, **options)

        self.stage1 = stage(inputs)
        self.stages = nnx.List([stage(self.classes) for _ in range(stages - 1)])
        self.width, self.causal = width, causal

    def every_stage(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> list[Logits]:
        """See `Staged`."""
        features, valid = zero_missing(features, mask)
        found = [self.split(self.stage1(features, valid, fold(key, 0))[0])]
        for number, stage in enumerate(self.stages, 1):
            logits, _ = stage(self.next_inputs(found[-1], valid), valid, fold(key, number))
            found.append(self.split(logits))
        return found


def tecno(
    inputs: int, *, width: int = 32, layers: int = 8, stages: int = 2, smoothness: float = 0.0, **options
) -> MSTCN:
    """Build TeCNO: causal, with the sizes of its published configuration, and without a loss of smoothness.

    Options are those of `MSTCN`.
    """
    return MSTCN(inputs, width=width, layers=layers, stages=stages, smoothness=smoothness, causal=True, **options)
