"""Temporal models over feature maps: FCN_L (Nwoye et al. 2019) and FCN_A."""

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.base import Cells
from models.backbones.pooling import spatial_max
from models.temporal.attention import lapformer
from models.temporal.base import Temporal, zero_missing

#: Hidden values and cells (B, rows, columns, channels), float32.
State = tuple[Array, Array]


class ConvLSTM(Temporal):
    """A convolutional LSTM (Shi et al. 2015) over flattened maps.

    Args:
        inputs: length of a flattened map, rows * columns * channels.
        cells: rows, columns and channels of the maps and of the state.
        size: side of the convolution kernels.
        residual: add the input to the output ("R+CL+C").
        normalize: scale the gates and the cell of each frame to unit length over its whole map, and normalize the
            output by batch statistics before the input is added, as the published code does. Without it, training with
            `residual` starts from the frame alone.
        dtype: of the convolutions; the state is float32.
        rngs: for the initial parameters.
    """

    cells: Cells
    carries = True

    def __init__(
        self,
        inputs: int,
        *,
        cells: Cells,
        size: int = 3,
        residual: bool = True,
        normalize: bool = True,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        def gates(bias: bool) -> nnx.Conv:
            init = nnx.initializers.lecun_normal()
            width, kernel = cells[2], (size, size)
            return nnx.Conv(width, 4 * width, kernel, use_bias=bias, kernel_init=init, dtype=dtype, rngs=rngs)

        self.of_input, self.of_state = gates(True), gates(False)
        self.norm = MaskedBatchNorm(cells[2]) if normalize else None
        self.width, self.cells, self.residual = inputs, cells, residual

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Array:
        """See `Temporal`. Missing frames leave the state unchanged."""
        del key
        return self.run(features, mask, self.start(len(features)))[0]

    def start(self, batch: int) -> State:
        """See `Temporal`."""
        zeros = jnp.zeros((batch, *self.cells), jnp.float32)
        return zeros, zeros

    def run(self, features: Array, mask: Array | None, state: State) -> tuple[Array, State]:
        """See `Temporal`."""
        features, valid = zero_missing(features, mask)
        batch, length = valid.shape
        maps = features.reshape(batch, length, *self.cells)
        # The convolutions of the inputs run for all frames at once; only those of the state are sequential.
        driven = self.of_input(maps.reshape(-1, *self.cells)).reshape(*maps.shape[:-1], 4 * self.cells[2])
        graph, weights = nnx.split(self.of_state)
        scale = _unit if self.norm is not None else lambda x: x

        def step(state: State, now: tuple[Array, Array]) -> tuple[State, Array]:
            hidden, cell = state
            drive, is_valid = now
            gates = (drive + nnx.merge(graph, weights)(hidden)).astype(jnp.float32)
            write, forget, candidate, show = (scale(x) for x in jnp.split(gates, 4, -1))
            # A forget bias of one keeps the state at the start of training.
            changed = scale(jax.nn.sigmoid(forget + 1) * cell + jax.nn.sigmoid(write) * jnp.tanh(candidate))
            shown = jax.nn.sigmoid(show) * jnp.tanh(changed)
            is_valid = is_valid[:, None, None, None]
            state = jnp.where(is_valid, shown, hidden), jnp.where(is_valid, changed, cell)
            return state, state[0]

        state, hidden = jax.lax.scan(step, state, (driven.swapaxes(0, 1), valid.T))
        hidden = hidden.swapaxes(0, 1)
        if self.norm is not None:
            hidden = self.norm(hidden, valid)
        hidden = hidden.reshape(features.shape).astype(features.dtype)
        return (features + hidden if self.residual else hidden), state


def _unit(x: Array) -> Array:
    """Scale maps (B, rows, columns, channels) to unit length, each as one vector."""
    return x * jax.lax.rsqrt(jnp.maximum((x * x).sum((1, 2, 3), keepdims=True), 1e-12))


class MaskedBatchNorm(nnx.Module):
    """Batch normalization of maps over the frames that are present; causal in evaluation mode.

    Args:
        features: number of channels C.
        momentum: weight of the new batch in the running statistics.
        epsilon: added to the variance.
    """

    def __init__(self, features: int, *, momentum: float = 0.1, epsilon: float = 1e-5):
        self.scale = nnx.Param(jnp.ones(features, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(features, jnp.float32))
        self.mean = nnx.BatchStat(jnp.zeros(features, jnp.float32))
        self.var = nnx.BatchStat(jnp.ones(features, jnp.float32))
        self.momentum, self.epsilon = momentum, epsilon
        self.use_running_average = False

    def __call__(self, x: Array, valid: Array) -> Array:
        """Normalize maps (B, T, rows, columns, C), float32; the statistics are those of valid frames (B, T)."""
        mean, var = self.mean[...], self.var[...]
        if not self.use_running_average:
            weight = valid[..., None, None, None].astype(x.dtype)
            count = jnp.maximum(weight.sum() * x.shape[2] * x.shape[3], 1)
            mean = (x * weight).sum((0, 1, 2, 3)) / count
            var = (weight * (x - mean) ** 2).sum((0, 1, 2, 3)) / count
            self.mean[...] += self.momentum * jax.lax.stop_gradient(mean - self.mean[...])
            self.var[...] += self.momentum * jax.lax.stop_gradient(var - self.var[...])
        return (x - mean) * (self.scale[...] * jax.lax.rsqrt(var + self.epsilon)) + self.bias[...]

    def set_view(self, use_running_average: bool | None = None) -> None:
        """Set the mode; ``nnx.view``, `train` and `eval` call this."""
        if use_running_average is not None:
            self.use_running_average = use_running_average


class MapAttention(Temporal):
    """A causal transformer over pooled maps: the maximum and the mean of each channel.

    Args:
        inputs: length of a flattened map, rows * columns * channels.
        cells: rows, columns and channels of the maps.
        options: of `models.temporal.attention.lapformer`.
    """

    def __init__(self, inputs: int, *, cells: Cells, **options):
        del inputs
        self.transformer = lapformer(2 * cells[2], **options)
        self.width, self.shape = self.transformer.width, cells

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Array:
        """See `Temporal`."""
        features, valid = zero_missing(features, mask)
        maps = features.reshape(*features.shape[:2], *self.shape)
        pooled = jnp.concatenate([spatial_max(maps), maps.mean((2, 3))], -1)
        return self.transformer(pooled, valid, key=key)
