"""The second stage of LAST (Tao et al. 2023): long-range attention for phases, short-range attention for tools."""

from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.layers import Dropout, fold
from models.temporal.attention import Embedded, Stack


class Last(Embedded):
    """Two causal transformers on the same embedded features, one per track.

    LAST also trains a transformer VAE, which is `models.temporal.penalties.SequenceVAE`.

    Args:
        inputs: length D of the features; 1,024 for Swin-B.
        width: number of channels C.
        layers: number of blocks of each transformer.
        heads: number of attention heads of each transformer.
        phase_band: maximum number of frames that phases attend to, the current one included. (The published code
            trains with 1,000 and 10; the defaults of its inference script, 100 and 1,000, disagree.)
        tool_band: maximum number of frames that tools attend to, the current one included.
        drop_inputs: dropout rate of the projected features.
        dropout: rate inside the blocks.
        dtype: in which the model computes.
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
        super().__init__(inputs, width, drop_inputs, dtype=dtype, rngs=rngs)
        self.drop = Dropout(dropout)
        self.phases = Stack(layers, width, heads, phase_band, 2, dropout, dtype=dtype, rngs=rngs)
        self.tools = Stack(layers, width, heads, tool_band, 2, dropout, dtype=dtype, rngs=rngs)

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> dict[str, Array]:
        """See `Temporal`; returns "phases" (B, T, C) and "tools" (B, T, C)."""
        x, valid = self.embed(features, mask, key)
        x = self.drop(x, fold(key, 1))
        return {
            "phases": self.norm(self.phases(x, valid, fold(key, 2))),
            "tools": self.norm(self.tools(x, valid, fold(key, 3))),
        }
