"""Long short-term memories over a whole video, forward (the _L systems: MTRCNet, TMRNet's first stage) or both ways."""

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.layers import Dropout
from models.temporal.base import Temporal, zero_missing

_glorot = nnx.initializers.xavier_normal()


class LSTM(Temporal):
    """One LSTM layer with a ReLU on its output, as in MTRCNet.

    Args:
        inputs: length D of the features.
        width: length of the state; 512 in MTRCNet and TMRNet.
        relu: whether to apply a ReLU to the output.
        dropout: rate for the output. (MTRCNet's code sets 1 on a one-layer LSTM, which torch ignores, so it is 0.)
        dtype: in which the layer computes; the state is float32.
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
        # The gates are in torch's order: input, forget, cell, output.
        self.enter = nnx.Linear(inputs, 4 * width, kernel_init=_glorot, dtype=dtype, rngs=rngs)
        self.recur = nnx.Linear(width, 4 * width, use_bias=False, kernel_init=_glorot, dtype=dtype, rngs=rngs)
        self.dropout = Dropout(dropout)
        self.width = width
        self.relu = relu

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Array:
        """See `Temporal`. Missing frames leave the state unchanged."""
        features, valid = zero_missing(features, mask)
        driven = self.enter(features).astype(jnp.float32)
        kernel = self.recur.kernel[...].astype(self.recur.dtype)

        def step(state: tuple[Array, Array], now: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
            hidden, cell = state
            drive, is_valid = now
            gates = drive + (hidden.astype(kernel.dtype) @ kernel).astype(jnp.float32)
            enter, forget, new, leave = jnp.split(gates, 4, -1)
            changed = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
            shown = jax.nn.sigmoid(leave) * jnp.tanh(changed)
            state = jnp.where(is_valid[:, None], shown, hidden), jnp.where(is_valid[:, None], changed, cell)
            return state, state[0]

        start = jnp.zeros((2, len(features), self.width), jnp.float32)
        _, hidden = jax.lax.scan(step, (start[0], start[1]), (driven.swapaxes(0, 1), valid.T))
        hidden = hidden.swapaxes(0, 1)
        return self.dropout(jax.nn.relu(hidden) if self.relu else hidden, key)


class BiLSTM(Temporal):
    """Two LSTM layers, one forward and one backward in time, side by side (Graves & Schmidhuber 2005); not causal.

    Args:
        inputs: length D of the features.
        width: length of the state of each direction; the output is twice as long.
        dropout: rate for the output.
        dtype: in which the layers compute; the states are float32.
        rngs: for the initial parameters.
    """

    causal = False

    def __init__(
        self,
        inputs: int,
        *,
        width: int = 512,
        dropout: float = 0.0,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.earlier, self.later = (LSTM(inputs, width=width, relu=False, dtype=dtype, rngs=rngs) for _ in range(2))
        self.dropout = Dropout(dropout)
        self.width = 2 * width

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Array:
        """See `Temporal`. Missing frames leave both states unchanged."""
        # Backward in time, padding comes first and leaves the initial state of zeros.
        later = self.later(features[:, ::-1], None if mask is None else mask[:, ::-1])[:, ::-1]
        return self.dropout(jnp.concatenate([self.earlier(features, mask), later], -1), key)
