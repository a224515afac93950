"""LAST's second stage (Tao et al. 2023): a long memory for phases, a short one for tools."""

from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.attention import dense
from models.backbones.layers import Dropout, LayerNorm, fold
from models.temporal.attention import Stack, only_there
from models.temporal.base import Temporal, sinusoids


class Last(Temporal):
    """Two causal transformers on the same projected features, one a track.

    The transformer VAE that LAST trains beside it is `models.temporal.penalties.SequenceVAE`.

    Args:
        inputs: length D of the features; 1,024 from Swin-B.
        width: channels inside.
        layers: of each transformer.
        heads: of each.
        phase_band: frames that phases see, the present one included. (The source trains with 1,000 and 10; its
            inference script's defaults, 100 and 1,000, disagree.)
        tool_band: frames that tools see.
        drop_inputs: of the projected features.
        dropout: inside the blocks.
        dtype: of the computation.
        rngs: for the initial parameters.
    """

    def __init__(
        self,
        inputs: int,
        *,
        width: int = 512,
        layers: int = 6,
        heads: int = 4,
        phase_band: int = 1000,
        tool_band: int = 10,
        drop_inputs: float = 0.5,
        dropout: float = 0.1,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.project = dense(inputs, width, dtype=dtype, rngs=rngs)
        self.drop_inputs, self.drop = Dropout(drop_inputs), Dropout(dropout)
        self.phases = Stack(layers, width, heads, phase_band, 2, dropout, dtype=dtype, rngs=rngs)
        self.tools = Stack(layers, width, heads, tool_band, 2, dropout, dtype=dtype, rngs=rngs)
        self.norm = LayerNorm(width)
        self.width = width

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> dict[str, Array]:
        """See `Temporal`: a sequence for phases and one for tools."""
        features, there = only_there(features, mask)
        x = self.drop_inputs(self.project(features), fold(key, 0))
        x = self.drop(x + sinusoids(x.shape[1], self.width).astype(x.dtype), fold(key, 1))
        return {
            "phases": self.norm(self.phases(x, there, fold(key, 2))),
            "tools": self.norm(self.tools(x, there, fold(key, 3))),
        }
