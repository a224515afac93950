"""Feature maps in place of pooled features, for FCN's head and its ConvLSTM.

A system passes features on as vectors, so that whole videos can be cached and any temporal model can follow. Here the
vector is the backbone's last map, flattened row by row.
"""

from collections.abc import Mapping

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from models.backbones import Backbone, build
from models.backbones.base import Cells, Features
from models.backbones.pooling import spatial_max


def map_cells(backbone: str, options: Mapping[str, object], size: tuple[int, int]) -> Cells:
    """Return the shape of a backbone's last feature map for images of a size (height, width), without computing it."""

    def last() -> Array:
        maps = build(backbone, rngs=nnx.Rngs(0), **options)(jnp.zeros((1, *size, 3)), key=jax.random.key(0)).maps
        return maps[max(maps)]

    _, *cells = nnx.eval_shape(last).shape
    return cells[0], cells[1], cells[2]


class Flattened(Backbone):
    """A backbone whose pooled feature is its last map, flattened.

    Args:
        network: any backbone; build a ResNet with stride 1 in its late stages, which keeps the map fine.
        cells: rows, columns and channels of that map.
    """

    def __init__(self, network: Backbone, cells: Cells):
        self.network, self.cells = network, cells
        self.width = cells[0] * cells[1] * cells[2]

    def __call__(self, images: Array, *, key: Array | None = None) -> Features:
        """See `Backbone`."""
        maps = self.network(images, key=key).maps
        return Features(maps[max(maps)].reshape(len(images), self.width), maps)


class MapHead(nnx.Module):
    """A head that pools a map of logits per class: its maximum plus a weighted minimum.

    Vardazaryan et al. 2018 localize tools in this way from labels of frames alone (Durand et al. 2017, "Wildcat",
    with one cell of either kind).

    Args:
        cells: rows, columns and channels of the input map.
        classes: number of classes K.
        minimum_weight: weight of the minimum.
        rngs: for the initial parameters.
    """

    def __init__(self, cells: Cells, classes: int, minimum_weight: float, *, rngs: nnx.Rngs):
        init = nnx.initializers.normal(0.01)
        self.localize = nnx.Linear(cells[2], classes, kernel_init=init, dtype=jnp.float32, rngs=rngs)
        self.cells, self.minimum_weight = cells, minimum_weight

    def __call__(self, features: Array) -> Array:
        """Compute logits (..., K) from flattened maps (..., rows * columns * channels)."""
        maps = self.maps(features)
        return spatial_max(maps) - self.minimum_weight * spatial_max(-maps)

    def maps(self, features: Array) -> Array:
        """Compute logits of every cell (..., rows, columns, K) from flattened maps (..., rows * columns * channels)."""
        return self.localize(features.reshape(*features.shape[:-1], *self.cells))
