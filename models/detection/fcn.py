"""A fully convolutional network whose maps say where each tool is, learnt from the tools of frames alone.

Vardazaryan et al. 2018 pool each tool's map to one logit, its greatest value plus a share of its least (Durand et al.
2017, "Wildcat"). Nwoye et al. 2019 let a ConvLSTM see the frames before ("R+CL+C").
"""

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from models.backbones import Backbone
from models.systems import IMAGENET_MEAN, IMAGENET_STD, Logits, normalise


class FCN(nnx.Module):
    """Pictures to maps of tools.

    Args:
        backbone: its last map is read; give a ResNet late stages at stride 1.
        tools: number of tools K.
        temporal: called on sequences of maps (B, T, h, w, C), answers the same shape, and has an attribute `width`, its
            channels; None decides each frame alone.
        share: of the least value of a map in its tool's logit.
        mean: of RGB in [0, 1], subtracted from pictures.
        std: by which they are divided.
        rngs: for the initial parameters of the last layer.
    """

    def __init__(
        self,
        backbone: Backbone,
        tools: int,
        *,
        temporal: nnx.Module | None = None,
        share: float = 0.6,
        mean: tuple[float, ...] = IMAGENET_MEAN,
        std: tuple[float, ...] = IMAGENET_STD,
        rngs: nnx.Rngs,
    ):
        width = backbone.width if temporal is None else temporal.width
        self.backbone, self.temporal = backbone, temporal
        init = nnx.initializers.normal(0.01)
        self.localise = nnx.Linear(width, tools, kernel_init=init, dtype=jnp.float32, rngs=rngs)
        self.share = share
        self.mean, self.std = tuple(mean), tuple(std)

    def __call__(self, images: Array, *, key: Array | None = None) -> Logits:
        """Tools of frames.

        Args:
            images: (N, H, W, 3) frames, or (B, T, H, W, 3) sequences where there is a temporal model; uint8, or
                floats in [0, 1].
            key: unused; nothing here is random.

        Returns:
            "tools" (N, K) or (B, T, K) logits.
        """
        return {"tools": self.pool(self.maps(images))}

    def maps(self, images: Array) -> Array:
        """Logits of tools in every cell (..., h, w, K) of pictures (..., H, W, 3)."""
        return self.decide(self.features(images))

    def features(self, images: Array) -> Array:
        """The backbone's last map (..., h, w, C) of pictures (..., H, W, 3)."""
        maps = self.backbone(normalise(images, self.mean, self.std).reshape(-1, *images.shape[-3:])).maps
        last = maps[max(maps)]
        return last.reshape(*images.shape[:-3], *last.shape[1:])

    def decide(self, features: Array) -> Array:
        """Maps of tools from maps of features (N, h, w, C), or (B, T, h, w, C) where there is a temporal model."""
        if self.temporal is not None:
            features = self.temporal(features)
        return self.localise(features.astype(jnp.float32))

    def pool(self, maps: Array) -> Array:
        """Maps (..., h, w, K) to logits (..., K)."""
        return maps.max((-3, -2)) + self.share * maps.min((-3, -2))


class ConvLSTM(nnx.Module):
    """A recurrent cell whose gates are convolutions, over maps of features (Shi et al. 2015).

    Args:
        width: channels C of the maps and of the state.
        size: side of the convolutions.
        residual: add what comes in to what comes out, so that training starts from the frame alone.
        dtype: of the convolutions; the state is float32.
        rngs: for the initial parameters.
    """

    def __init__(self, width: int = 512, size: int = 3, *, residual: bool = True, dtype=jnp.float32, rngs: nnx.Rngs):
        def gates(bias: bool) -> nnx.Conv:
            init = nnx.initializers.lecun_normal()
            kernel = (size, size)
            return nnx.Conv(width, 4 * width, kernel, use_bias=bias, kernel_init=init, dtype=dtype, rngs=rngs)

        self.of_input, self.of_state = gates(True), gates(False)
        self.width, self.residual = width, residual

    def __call__(self, maps: Array, *, first: Array | None = None, state: tuple[Array, Array] | None = None) -> Array:
        """Maps that know of the past.

        Args:
            maps: (B, T, h, w, C) consecutive frames.
            first: (B, T) bool, True where a video begins: nothing before it is remembered. None where only the
                sequence itself begins one.
            state: from `run`, of the frames before; None forgets.

        Returns:
            (B, T, h, w, C).
        """
        return self.run(maps, first=first, state=state)[0]

    def run(
        self, maps: Array, *, first: Array | None = None, state: tuple[Array, Array] | None = None
    ) -> tuple[Array, tuple[Array, Array]]:
        """As the call, and the state (hidden, cell), each (B, h, w, C), to go on from."""
        batch, length = maps.shape[:2]
        if first is None:
            first = jnp.zeros((batch, length), bool)
        if state is None:
            nothing = jnp.zeros((batch, *maps.shape[2:]), jnp.float32)
            state = (nothing, nothing)
        # What frames say is known for all of them at once; only the state has to wait.
        said = self.of_input(maps.reshape(-1, *maps.shape[2:])).reshape(*maps.shape[:-1], -1)
        graph, weights = nnx.split(self.of_state)

        def step(state: tuple[Array, Array], now: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
            said, begins = now
            hidden, cell = (jnp.where(begins[:, None, None, None], 0, x) for x in state)
            gates = said + nnx.merge(graph, weights)(hidden)
            write, forget, candidate, show = jnp.split(gates.astype(jnp.float32), 4, -1)
            # Remembering is the rule at first.
            cell = jax.nn.sigmoid(forget + 1) * cell + jax.nn.sigmoid(write) * jnp.tanh(candidate)
            hidden = jax.nn.sigmoid(show) * jnp.tanh(cell)
            return (hidden, cell), hidden

        state, hidden = jax.lax.scan(step, state, (said.swapaxes(0, 1), first.swapaxes(0, 1)))
        hidden = hidden.swapaxes(0, 1).astype(maps.dtype)
        return (maps + hidden if self.residual else hidden), state
