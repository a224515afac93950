"""Systems that say where tools are: Faster R-CNN learns from boxes, FCN from the tools of frames alone."""

from collections.abc import Mapping

from flax import nnx
from jax import numpy as jnp
from jax.typing import DTypeLike

from models import weights
from models.backbones import build
from models.detection.faster_rcnn import FasterRCNN
from models.detection.fcn import FCN
from models.systems import IMAGENET_MEAN, IMAGENET_STD
from models.training.config import Detection

Detector = FasterRCNN | FCN

#: The usual backbone of each.
DETECTORS = {"frcnn": "resnet50", "fcn": "resnet18"}


def build_detector(
    name: str,
    *,
    backbone: str | None = None,
    options: Mapping[str, object] | None = None,
    tools: int = 7,
    pretrained: str | None = None,
    config: Detection | None = None,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
    dtype: DTypeLike = jnp.float32,
    rngs: nnx.Rngs,
) -> Detector:
    """A detector by name.

    Args:
        name: a key of `DETECTORS`.
        backbone: a key of `models.backbones.BACKBONES`; the usual one when left out.
        options: of the backbone, such as `remat`.
        tools: number of tools K.
        pretrained: a torchvision state dict for the backbone, ``.pth`` or ``.safetensors``.
        config: of Faster R-CNN.
        mean: of RGB in [0, 1], subtracted from pictures.
        std: by which they are divided.
        dtype: of the backbone's computation; parameters are float32 whatever it is.
        rngs: for the initial parameters.

    Raises:
        ValueError: for an unknown name, and for a backbone that does not fit.
    """
    if name not in DETECTORS:
        raise ValueError(f"unknown detector {name!r}: choose one of {', '.join(DETECTORS)}")
    # Late stages at stride 1 keep FCN's maps fine.
    settings = {"strides": (1, 2, 1, 1), **(options or {})} if name == "fcn" else dict(options or {})
    try:
        network = build(backbone or DETECTORS[name], dtype=dtype, rngs=rngs, **settings)
    except TypeError as error:
        raise ValueError(f"{name} on {backbone}: {error}. Fix: choose a ResNet") from error
    if pretrained is not None:
        weights.load_weights(network, pretrained)
    if name == "fcn":
        return FCN(network, tools, mean=mean, std=std, rngs=rngs)
    return FasterRCNN(network, tools, config or Detection(), mean=mean, std=std, rngs=rngs)


__all__ = ["DETECTORS", "FCN", "Detector", "FasterRCNN", "build_detector"]
