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
    """One LSTM layer.

    Args:
        inputs: length D of the features.
        width: length of the state; 512 in MTRCNet and TMRNet.
        relu: whether to apply a ReLU to the output, as MTRCNet-CL does and MTRCNet does not.
        window: number of frames, the current one included, on which a frame's output depends; None is all of the past.
            MTRCNet is trained and tested on windows of four frames.
        dropout: rate for the output. (MTRCNet's code sets 1 on a one-layer LSTM, which torch ignores, so it is 0.)
        dtype: in which the layer computes; the state is float32.
        rngs: for the initial parameters.

    Raises:
        ValueError: for a window below 1.
    """

    def __init__(
        self,
        inputs: int,
        *,
        width: int = 512,
        relu: bool = False,
        window: int | None = None,
        dropout: float = 0.0,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        if window is not None and window < 1:
            raise ValueError(f"window is {window} frames: give at least 1, the current frame, or None for all")
        # The gates are in torch's order: input, forget, cell, output.
        self.enter = nnx.Linear(inputs, 4 * width, kernel_init=_glorot, dtype=dtype, rngs=rngs)
        self.recur = nnx.Linear(width, 4 * width, use_bias=False, kernel_init=_glorot, dtype=dtype, rngs=rngs)
        self.dropout = Dropout(dropout)
        self.width, self.relu, self.window = width, relu, window

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Array:
        """See `Temporal`. Missing frames leave the state unchanged."""
        features, valid = zero_missing(features, mask)
        driven = self.enter(features).astype(jnp.float32)
        if self.window is None:
            start = jnp.zeros((2, len(features), self.width), jnp.float32)
            _, hidden = jax.lax.scan(self._step, (start[0], start[1]), (driven.swapaxes(0, 1), valid.T))
            hidden = hidden.swapaxes(0, 1)
        else:
            hidden = self._windows(driven, valid, self.window)
        return self.dropout(jax.nn.relu(hidden) if self.relu else hidden, key)

    def _windows(self, driven: Array, valid: Array, window: int) -> Array:
        """Compute hidden values (B, T, width), each from an empty state and the last `window` frames."""
        length = driven.shape[1]
        zeros = jnp.zeros((*driven.shape[:2], self.width), jnp.float32)
        state = zeros, zeros
        for lag in range(window - 1, -1, -1):
            lag = min(lag, length)
            past = jnp.pad(driven[:, : length - lag], ((0, 0), (lag, 0), (0, 0)))
            state, _ = self._step(state, (past, jnp.pad(valid[:, : length - lag], ((0, 0), (lag, 0)))))
        return state[0]

    def _step(self, state: tuple[Array, Array], now: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        """Read one frame: the gates' inputs (..., 4 * width), and whether it is valid (...)."""
        hidden, cell = state
        drive, is_valid = now
        kernel = self.recur.kernel[...].astype(self.recur.dtype)
        gates = drive + (hidden.astype(kernel.dtype) @ kernel).astype(jnp.float32)
        enter, forget, new, leave = jnp.split(gates, 4, -1)
        changed = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        shown = jax.nn.sigmoid(leave) * jnp.tanh(changed)
        kept = is_valid[..., None]
        state = jnp.where(kept, shown, hidden), jnp.where(kept, changed, cell)
        return state, state[0]


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
        self.earlier, self.later = (LSTM(inputs, width=width, dtype=dtype, rngs=rngs) for _ in range(2))
        self.dropout = Dropout(dropout)
        self.width = 2 * width

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Array:
        """See `Temporal`. Missing frames leave both states unchanged."""
        # Backward in time, padding comes first and leaves the initial state of zeros.
        later = self.later(features[:, ::-1], None if mask is None else mask[:, ::-1])[:, ::-1]
        return self.dropout(jnp.concatenate([self.earlier(features, mask), later], -1), key)
