"""Recognition systems, each a value: a backbone, a temporal model or none, and heads.

ToolNet, PhaseNet, EndoNet and SwinNet differ in what they are made of and not in code: `SYSTEMS` says of what.
"""

import dataclasses
from collections.abc import Mapping

import jax
import numpy as np
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models import weights
from models.backbones import Backbone, build

#: Of ImageNet, as torchvision's weights expect; RGB in [0, 1].
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Logits = dict[str, Array]


@dataclasses.dataclass(frozen=True)
class HeadSpec:
    """What a head reads.

    Attributes:
        also: heads before it whose logits it reads beside the features, as EndoNet's phases read its tools.
        temporal: whether it reads the temporal model's features, where there is one, or the frame's own.
    """

    also: tuple[str, ...] = ()
    temporal: bool = True


@dataclasses.dataclass(frozen=True)
class SystemSpec:
    """What a system is made of.

    Attributes:
        backbone: the usual one.
        heads: by track, "phases" or "tools", in the order in which they are computed.
    """

    backbone: str
    heads: Mapping[str, HeadSpec]


SYSTEMS: dict[str, SystemSpec] = {
    "toolnet": SystemSpec("alexnet", {"tools": HeadSpec()}),
    "phasenet": SystemSpec("alexnet", {"phases": HeadSpec()}),
    "endonet": SystemSpec("alexnet", {"tools": HeadSpec(temporal=False), "phases": HeadSpec(also=("tools",))}),
    "swinnet": SystemSpec("swin_b", {"phases": HeadSpec(), "tools": HeadSpec()}),
}


class System(nnx.Module):
    """Images to logits of phases and tools.

    Args:
        backbone: images (N, H, W, 3) to features.
        sizes: number of classes of each head.
        heads: see `SystemSpec`.
        temporal: called as ``temporal(features, key=key)`` on sequences (B, T, D), with an attribute `width`, the
            length of its own features; it never sees images. None decides each frame alone.
        mean: of RGB in [0, 1], subtracted from images.
        std: by which they are divided.
        rngs: for the initial parameters of the heads.
    """

    def __init__(
        self,
        backbone: Backbone,
        sizes: Mapping[str, int],
        heads: Mapping[str, HeadSpec],
        *,
        temporal: nnx.Module | None = None,
        mean: tuple[float, ...] = IMAGENET_MEAN,
        std: tuple[float, ...] = IMAGENET_STD,
        rngs: nnx.Rngs,
    ):
        self.backbone = backbone
        self.temporal = temporal
        self.heads = nnx.Dict()
        for name, spec in heads.items():
            read = temporal if temporal is not None and spec.temporal else backbone
            width = read.width + sum(sizes[other] for other in spec.also)
            init = nnx.initializers.normal(0.01)
            # Logits are few: float32 costs nothing here.
            self.heads[name] = nnx.Linear(width, sizes[name], kernel_init=init, dtype=jnp.float32, rngs=rngs)
        self.specs = tuple(heads.items())
        self.mean = tuple(mean)
        self.std = tuple(std)

    def __call__(self, images: Array, *, key: Array | None = None) -> Logits:
        """Logits of every head.

        Args:
            images: (N, H, W, 3) frames, or (B, T, H, W, 3) sequences where there is a temporal model; uint8, or
                floats in [0, 1].
            key: for dropout and the like; only training needs it.

        Returns:
            Track to logits (N, classes) or (B, T, classes), float32.
        """
        return self.decide(self.features(images, key=key), key=key)

    def features(self, images: Array, *, key: Array | None = None) -> Array:
        """The backbone's pooled features (..., D) of images (..., H, W, 3)."""
        leading = images.shape[:-3]
        pooled = self.backbone(normalise(images, self.mean, self.std).reshape(-1, *images.shape[-3:]), key=key).pooled
        return pooled.reshape(*leading, -1)

    def decide(self, features: Array, *, key: Array | None = None) -> Logits:
        """Logits from features (N, D), or (B, T, D) where there is a temporal model."""
        sequence = features
        if self.temporal is not None:
            # Layers of the backbone count up from 0; this number is none of theirs.
            sequence = self.temporal(features, key=None if key is None else jax.random.fold_in(key, 1_000_000))
        logits: Logits = {}
        for name, spec in self.specs:
            read = [sequence if spec.temporal else features, *(logits[other] for other in spec.also)]
            logits[name] = self.heads[name](jnp.concatenate([part.astype(jnp.float32) for part in read], -1))
        return logits


def normalise(images: Array, mean: tuple[float, ...], std: tuple[float, ...]) -> Array:
    """Images (..., 3), uint8 or floats in [0, 1], to the scale that a network was trained on."""
    if images.dtype == jnp.uint8:
        images = images.astype(jnp.float32) / 255
    return (images - np.asarray(mean, np.float32)) / np.asarray(std, np.float32)


def probabilities(logits: Logits) -> dict[str, Array]:
    """Phases (..., L) that sum to one, and presence of each tool (..., K)."""
    return {name: jax.nn.softmax(x) if name == "phases" else jax.nn.sigmoid(x) for name, x in logits.items()}


def build_system(
    name: str,
    *,
    backbone: str | None = None,
    options: Mapping[str, object] | None = None,
    phases: int = 7,
    tools: int = 7,
    pretrained: str | None = None,
    temporal: nnx.Module | None = None,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
    dtype: DTypeLike = jnp.float32,
    rngs: nnx.Rngs,
) -> System:
    """A system by name.

    Args:
        name: a key of `SYSTEMS`.
        backbone: a key of `models.backbones.BACKBONES`; the system's usual one when left out.
        options: of the backbone, such as `remat` and `drop_path`.
        phases: number of phases L.
        tools: number of tools K.
        pretrained: a torchvision state dict for the backbone, ``.pth`` or ``.safetensors``.
        temporal: see `System`.
        mean: see `System`.
        std: see `System`.
        dtype: of the backbone's computation; parameters are float32 whatever it is.
        rngs: for the initial parameters.

    Raises:
        ValueError: for an unknown name.
    """
    if name not in SYSTEMS:
        raise ValueError(f"unknown system {name!r}: choose one of {', '.join(SYSTEMS)}")
    spec = SYSTEMS[name]
    network = build(backbone or spec.backbone, dtype=dtype, rngs=rngs, **(options or {}))
    if pretrained is not None:
        weights.load_weights(network, pretrained)
    sizes = {"phases": phases, "tools": tools}
    return System(network, sizes, spec.heads, temporal=temporal, mean=mean, std=std, rngs=rngs)
