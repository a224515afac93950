"""Networks that compute features of frames; `build` makes one by name."""

from collections.abc import Callable
from functools import partial

from flax import nnx

from models.backbones import convnext
from models.backbones.base import Backbone, Features
from models.backbones.plain import alexnet, vgg16
from models.backbones.resnet import resnet18, resnet34, resnet50
from models.backbones.small import SmallNet
from models.backbones.swin import swin_b, swin_s, swin_t
from models.backbones.vit import vit

BACKBONES: dict[str, Callable[..., Backbone]] = {
    "alexnet": alexnet,
    "vgg16": vgg16,
    "small": SmallNet,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "resnet50": resnet50,
    "swin_t": swin_t,
    "swin_s": swin_s,
    "swin_b": swin_b,
    "convnext_tiny": convnext.convnext_tiny,
    "convnext_small": convnext.convnext_small,
    "convnext_base": convnext.convnext_base,
    "convnext_large": convnext.convnext_large,
    "convnextv2_tiny": convnext.convnextv2_tiny,
    "convnextv2_base": convnext.convnextv2_base,
    "convnextv2_large": convnext.convnextv2_large,
    "vit_small": partial(vit, "small"),
    "vit_base": partial(vit, "base"),
    "vit_large": partial(vit, "large"),
    "dinov2_small": partial(vit, "small", "dinov2"),
    "dinov2_base": partial(vit, "base", "dinov2"),
    "dinov2_large": partial(vit, "large", "dinov2"),
    "dinov3_small": partial(vit, "small", "dinov3"),
    "dinov3_base": partial(vit, "base", "dinov3"),
    "dinov3_large": partial(vit, "large", "dinov3"),
}


def build(name: str, *, rngs: nnx.Rngs, **options) -> Backbone:
    """Build a backbone by its torchvision name.

    Args:
        name: a key of `BACKBONES`.
        rngs: for the initial parameters.
        options: of the network: `classes`, `dtype`, `remat` and others.

    Raises:
        ValueError: for an unknown name, and for options that the network does not take.
    """
    if name not in BACKBONES:
        raise ValueError(f"unknown backbone {name!r}: choose one of {', '.join(BACKBONES)}")
    try:
        return BACKBONES[name](rngs=rngs, **options)
    except TypeError as error:
        raise ValueError(f"{name} cannot be built with the options {', '.join(options)}: {error}") from error


__all__ = ["BACKBONES", "Backbone", "Features", "build"]
