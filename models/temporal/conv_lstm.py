"""Models of sequences of maps: FCN_L (Nwoye et al. 2019) and FCN_A."""

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models.backbones.base import Cells
from models.temporal.attention import lapformer, only_there
from models.temporal.base import Temporal

#: Hidden values and cells (B, rows, columns, channels), float32.
State = tuple[Array, Array]


class ConvLSTM(Temporal):
    """A recurrent cell whose gates are convolutions (Shi et al. 2015), over maps written as vectors.

    Args:
        inputs: rows * columns * channels.
        cells: rows, columns and channels of the maps; the state has as many.
        size: side of the convolutions.
        residual: add what comes in to what comes out ("R+CL+C"), so that training starts from the frame alone.
        dtype: of the convolutions; the state is float32.
        rngs: for the initial parameters.
    """

    carries = True

    def __init__(
        self,
        inputs: int,
        *,
        cells: Cells,
        size: int = 3,
        residual: bool = True,
        dtype: DTypeLike = jnp.float32,
        rngs: nnx.Rngs,
    ):
        def gates(bias: bool) -> nnx.Conv:
            init = nnx.initializers.lecun_normal()
            width, kernel = cells[2], (size, size)
            return nnx.Conv(width, 4 * width, kernel, use_bias=bias, kernel_init=init, dtype=dtype, rngs=rngs)

        self.of_input, self.of_state = gates(True), gates(False)
        self.width, self.cells, self.residual = inputs, cells, residual

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Array:
        """See `Temporal`. The state passes unchanged over frames that are not there."""
        del key
        return self.run(features, mask, self.start(len(features)))[0]

    def start(self, batch: int) -> State:
        """See `Temporal`."""
        nothing = jnp.zeros((batch, *self.cells), jnp.float32)
        return nothing, nothing

    def run(self, features: Array, mask: Array | None, state: State) -> tuple[Array, State]:
        """See `Temporal`."""
        features, there = only_there(features, mask)
        batch, length = there.shape
        maps = features.reshape(batch, length, *self.cells)
        # What frames say is known for all of them at once; only the state has to wait.
        said = self.of_input(maps.reshape(-1, *self.cells)).reshape(*maps.shape[:-1], 4 * self.cells[2])
        graph, weights = nnx.split(self.of_state)

        def step(state: State, now: tuple[Array, Array]) -> tuple[State, Array]:
            hidden, cell = state
            said, here = now
            gates = (said + nnx.merge(graph, weights)(hidden)).astype(jnp.float32)
            write, forget, candidate, show = jnp.split(gates, 4, -1)
            # Remembering is the rule at first.
            changed = jax.nn.sigmoid(forget + 1) * cell + jax.nn.sigmoid(write) * jnp.tanh(candidate)
            shown = jax.nn.sigmoid(show) * jnp.tanh(changed)
            here = here[:, None, None, None]
            state = jnp.where(here, shown, hidden), jnp.where(here, changed, cell)
            return state, state[0]

        state, hidden = jax.lax.scan(step, state, (said.swapaxes(0, 1), there.T))
        hidden = hidden.swapaxes(0, 1).reshape(features.shape).astype(features.dtype)
        return (features + hidden if self.residual else hidden), state


class MapAttention(Temporal):
    """A causal transformer over what is left of maps by pooling: the greatest and the mean value of each channel.

    Args:
        inputs: rows * columns * channels.
        cells: rows, columns and channels of the maps.
        options: of `models.temporal.attention.lapformer`.
    """

    def __init__(self, inputs: int, *, cells: Cells, **options):
        del inputs
        self.transformer = lapformer(2 * cells[2], **options)
        self.width, self.shape = self.transformer.width, cells

    def __call__(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Array:
        """See `Temporal`."""
        features, mask = only_there(features, mask)
        maps = features.reshape(*features.shape[:2], *self.shape)
        pooled = jnp.concatenate([maps.max((2, 3)), maps.mean((2, 3))], -1)
        return self.transformer(pooled, mask, key=key)
