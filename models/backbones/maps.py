"""Maps of features in the place of pooled features: what FCN's head and its ConvLSTM read.

A system hands features on as vectors, so that whole videos can be cached and any temporal model can follow. Here the
vector is the backbone's last map, row by row.
"""

from collections.abc import Mapping

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from models.backbones import Backbone, build
from models.backbones.base import Cells, Features


def map_cells(backbone: str, options: Mapping[str, object], size: tuple[int, int]) -> Cells:
    """The shape of a backbone's last map of pictures of a size (height, width); nothing is computed."""

    def last() -> Array:
        maps = build(backbone, rngs=nnx.Rngs(0), **options)(jnp.zeros((1, *size, 3)), key=jax.random.key(0)).maps
        return maps[max(maps)]

    _, *cells = nnx.eval_shape(last).shape
    return cells[0], cells[1], cells[2]


class Flattened(Backbone):
    """A backbone that answers with its last map in the place of pooled features.

    Args:
        network: any backbone; give a ResNet late stages at stride 1.
        cells: the shape of that map.
    """

    def __init__(self, network: Backbone, cells: Cells):
        self.network, self.cells = network, cells
        self.width = cells[0] * cells[1] * cells[2]

    def __call__(self, images: Array, *, key: Array | None = None) -> Features:
        """See `Backbone`."""
        maps = self.network(images, key=key).maps
        return Features(maps[max(maps)].reshape(len(images), self.width), maps)


class MapHead(nnx.Module):
    """A map of logits for each class, pooled: its greatest value plus a share of its least.

    Vardazaryan et al. 2018 learn where tools are from the tools of frames alone in this way (Durand et al. 2017,
    "Wildcat", with one cell of either kind).

    Args:
        cells: shape of the maps that it reads.
        classes: number of classes K.
        share: of the least value.
        rngs: for the initial parameters.
    """

    def __init__(self, cells: Cells, classes: int, share: float, *, rngs: nnx.Rngs):
        init = nnx.initializers.normal(0.01)
        self.localize = nnx.Linear(cells[2], classes, kernel_init=init, dtype=jnp.float32, rngs=rngs)
        self.cells, self.share = cells, share

    def __call__(self, features: Array) -> Array:
        """(..., rows * columns * channels) to logits (..., K)."""
        maps = self.maps(features)
        return maps.max((-3, -2)) + self.share * maps.min((-3, -2))

    def maps(self, features: Array) -> Array:
        """(..., rows * columns * channels) to logits of every cell (..., rows, columns, K)."""
        return self.localize(features.reshape(*features.shape[:-1], *self.cells))
