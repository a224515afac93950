"""The system that a configuration describes."""

from typing import Any

from flax import nnx
from jax import Array
from jax import numpy as jnp

from models.backbones import Backbone
from models.backbones.base import Cells, Features
from models.detection.faster_rcnn import FasterRCNN, build_faster_rcnn
from models.settings import Config
from models.systems import SYSTEMS, System, build_system


class Precomputed(Backbone):
    """In the place of a frozen backbone whose features are on disk: it has no parameters and sees no image.

    Args:
        width: D of the features.
        cells: see `Backbone`.
    """

    def __init__(self, width: int, cells: Cells | None = None):
        self.width, self.cells = width, cells

    def __call__(self, images: Array, *, key: Array | None = None) -> Features:
        """Not possible.

        Raises:
            TypeError: always.
        """
        raise TypeError("this system reads features of its frozen backbone, not images: call decide")


def make_system(
    config: Config,
    phases: int,
    tools: int,
    *,
    pretrained: bool = True,
    width: int | None = None,
    cells: Cells | None = None,
) -> System | FasterRCNN:
    """The system with its initial parameters.

    Args:
        config: of the run.
        phases: number of phases L.
        tools: number of tools K.
        pretrained: load `config.pretrained`.
        width: length of a frozen backbone's features, for a system without a backbone of its own.
        cells: rows, columns and channels of these where they are maps.

    Raises:
        ValueError: for a system that does not fit its backbone, its temporal model or the features.
    """
    common: dict[str, Any] = dict(
        options=config.options,
        tools=tools,
        pretrained=config.pretrained if pretrained and width is None else None,
        mean=config.mean,
        std=config.std,
        dtype=jnp.dtype(config.dtype),
        rngs=nnx.Rngs(config.seed),
    )
    if config.system in SYSTEMS and SYSTEMS[config.system].boxes:
        if width is not None or config.temporal is not None:
            raise ValueError(
                f"{config.system} decides each frame alone, from its picture. Fix: choose {config.system}_l or"
                f" {config.system}_a, with frozen a run of {config.system}"
            )
        return build_faster_rcnn(backbone=config.backbone, config=config.detection, **common)
    return build_system(
        config.system,
        backbone=config.backbone if width is None else Precomputed(width, cells),
        phases=phases,
        temporal=config.temporal,
        temporal_options=config.temporal_options,
        size=config.size,
        **common,
    )
