"""The interface of a backbone."""

from typing import Any, NamedTuple

from flax import nnx
from jax import Array
from jax.typing import DTypeLike

#: Rows, columns and channels of a feature map.
Cells = tuple[int, int, int]


class Features(NamedTuple):
    """The output of a backbone.

    Attributes:
        pooled: (N, D), the input of a classifier.
        maps: stride to the deepest feature map at that stride, (N, about H / stride, about W / stride, C). Under
            `jit` an unused map costs nothing.
    """

    pooled: Array
    maps: dict[int, Array]


class Backbone(nnx.Module):
    """A network called as ``backbone(images, key=None)`` on normalized images (N, H, W, 3); returns `Features`.

    The key is for dropout and stochastic depth, and is needed only in training mode. Submodules have torchvision's
    names, so the path of a parameter is its name in a torchvision state dict.

    Attributes:
        width: length D of a pooled feature.
        cells: rows, columns and channels if that feature is a flattened map, else None.
        head_name: torchvision's name of the classification layer; absent from a backbone built without classes.
        channels: number of channels C of the map that `trunk` returns; None if the backbone cannot be divided.
        dtype: in which the layers of `trunk` and `top` compute; of a backbone that can be divided.
        stride: pixels from one cell of that map to the next.
        bins: side of the region's map that `top` expects.
    """

    width: int
    cells: Cells | None = None
    head_name: str
    channels: int | None = None
    dtype: DTypeLike
    stride: int = 16
    bins: int = 7

    def trunk(self, images: Array) -> Array:
        """Compute the map (N, H / stride, W / stride, C) of images (N, H, W, 3) that a detector's regions share."""
        raise self.indivisible()

    def top(self, maps: Array, *, key: Array | None = None) -> Array:
        """Compute features (R, D) of regions from their maps (R, bins, bins, C) with the layers after `trunk`."""
        raise self.indivisible()

    def indivisible(self) -> ValueError:
        """Return the error of a backbone without `trunk` and `top`."""
        return ValueError(f"{type(self).__name__} cannot be divided for a detector. Fix: choose a ResNet or VGG16")

    def classify(self, images: Array, *, key: Array | None = None) -> Array:
        """Compute logits (N, classes) of images (N, H, W, 3) with torchvision's classification layer."""
        layer: Any = self
        for name in self.head_name.split("."):
            layer = layer[int(name)] if name.isdigit() else getattr(layer, name)
        return layer(self(images, key=key).pooled)
