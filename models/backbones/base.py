"""What every backbone answers."""

from typing import NamedTuple

from flax import nnx
from jax import Array

#: Rows, columns and channels of a map.
Cells = tuple[int, int, int]


class Features(NamedTuple):
    """A backbone's answer.

    Attributes:
        pooled: (N, D), what a classifier reads.
        maps: stride to the deepest feature map at that stride, (N, about H / stride, about W / stride, C). Under
            `jit` a map that nobody reads costs nothing.
    """

    pooled: Array
    maps: dict[int, Array]


class Backbone(nnx.Module):
    """A network called as ``backbone(images, key=None)`` on normalized images (N, H, W, 3), answering `Features`.

    The key is for dropout and stochastic depth, and only training needs it. Modules carry torchvision's names, so
    that the path of a parameter is its name in a torchvision state dict.

    Attributes:
        width: D, the length of a pooled feature.
        cells: rows, columns and channels where that feature is a map, written as a vector; None where it is not.
        head_name: torchvision's name of the layer that classifies; a backbone built without classes lacks it.
        channels: C of the map that `trunk` answers; None for a backbone that cannot be divided.
        stride: pixels from one cell of that map to the next.
        bins: side of the map of a box that `top` was made for.
    """

    width: int
    cells: Cells | None = None
    head_name: str
    channels: int | None = None
    stride: int = 16
    bins: int = 7

    def trunk(self, images: Array) -> Array:
        """The part that a detector shares between boxes: (N, H, W, 3) to a map (N, H / stride, W / stride, C)."""
        raise self.indivisible()

    def top(self, maps: Array, *, key: Array | None = None) -> Array:
        """The rest, on the map of each box: (R, bins, bins, C) to (R, D)."""
        raise self.indivisible()

    def indivisible(self) -> ValueError:
        """What to raise where a detector needs `trunk` and `top` and there are none."""
        return ValueError(f"{type(self).__name__} cannot be divided for a detector: choose a ResNet or VGG16")

    def classify(self, images: Array, *, key: Array | None = None) -> Array:
        """Logits (N, classes) of images (N, H, W, 3), by torchvision's own last layer."""
        layer = self
        for name in self.head_name.split("."):
            layer = layer[int(name)] if name.isdigit() else getattr(layer, name)
        return layer(self(images, key=key).pooled)
