"""A long short-term memory over a whole video (the _L systems: MTRCNet, TMRNet's first stage)."""

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.layers import Dropout
from models.temporal.base import Temporal

_glorot = nnx.initializers.xavier_normal()


class LSTM(Temporal):
    """One layer of LSTM; rectified, as MTRCNet's heads read it.

    Args:
        inputs: length D of the features.
        width: of the state; MTRCNet and TMRNet have 512.
        relu: rectify what the heads read.
        dropout: of what the heads read. (MTRCNet's source sets 1 on a one-layer LSTM, which torch ignores: 0.)
        dtype: of the computation; the state is float32.
        rngs: for the initial parameters.
    """

    def __init__(
        self,
        inputs: int,
        *,
        width: int = 512,
        relu: bool = True,
        dropout: float = 0.0,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        # Input, forget, cell and output gate, in torch's order.
        self.enter = nnx.Linear(inputs, 4 * width, kernel_init=_glorot, dtype=dtype, rngs=rngs)
        self.recur = nnx.Linear(width, 4 * width, use_bias=False, kernel_init=_glorot, dtype=dtype, rngs=rngs)
        self.dropout = Dropout(dropout)
        self.width = width
        self.relu = relu

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Array:
        """See `Temporal`. The state passes unchanged over frames that are not there."""
        there = jnp.ones(features.shape[:2], bool) if mask is None else mask
        # Padding may hold anything; 0 times NaN would reach the gradient.
        driven = self.enter(jnp.where(there[..., None], features, 0)).astype(jnp.float32)
        kernel = self.recur.kernel[...].astype(self.recur.dtype)

        def step(state: tuple[Array, Array], now: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
            hidden, cell = state
            drive, here = now
            gates = drive + (hidden.astype(kernel.dtype) @ kernel).astype(jnp.float32)
            enter, forget, new, leave = jnp.split(gates, 4, -1)
            changed = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
            shown = jax.nn.sigmoid(leave) * jnp.tanh(changed)
            state = jnp.where(here[:, None], shown, hidden), jnp.where(here[:, None], changed, cell)
            return state, state[0]

        start = jnp.zeros((2, len(features), self.width), jnp.float32)
        _, hidden = jax.lax.scan(step, (start[0], start[1]), (driven.swapaxes(0, 1), there.T))
        hidden = hidden.swapaxes(0, 1)
        return self.dropout(jax.nn.relu(hidden) if self.relu else hidden, key)
