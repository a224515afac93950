"""Recognition systems, each a value: a backbone, a temporal model or none, and heads.

ToolNet, PhaseNet, EndoNet, SwinNet and FCN, with a memory (_l) or attention (_a) behind them or without, differ in what
they are made of and not in code: `SYSTEMS` says of what. Faster R-CNN alone is a class of its own.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from models import temporal as sequences
from models import weights
from models.backbones import Backbone, build
from models.backbones.images import IMAGENET_MEAN, IMAGENET_STD, normalize
from models.backbones.maps import Flattened, MapHead, map_cells
from models.temporal import Temporal

Logits = dict[str, Array]


class Answer(NamedTuple):
    """What a system says of features, and from what.

    Attributes:
        logits: track to (N, classes) or (B, T, classes), float32.
        sequences: what each track's head read, without other heads' logits: (..., width).
    """

    logits: Logits
    sequences: dict[str, Array]


@dataclasses.dataclass(frozen=True)
class HeadSpec:
    """What a head reads.

    Attributes:
        also: heads before it whose logits it reads beside the features, as EndoNet's phases read its tools.
        temporal: whether it reads the temporal model's features, where there is one, or the frame's own.
        hidden: width of a rectified layer before the last; 0 for none.
        least: for a head that pools maps, the share of the least value; see `models.backbones.maps.MapHead`.
    """

    also: tuple[str, ...] = ()
    temporal: bool = True
    hidden: int = 0
    least: float | None = None


@dataclasses.dataclass(frozen=True)
class SystemSpec:
    """What a system is made of.

    Attributes:
        backbone: the usual one; None for a system that only ever reads features of a frozen one.
        heads: by track, "phases" or "tools", in the order in which they are computed.
        temporal: a key of `models.temporal.TEMPORAL`, or None to decide each frame alone.
        penalties: what is added to the losses, by key of `models.temporal.PENALTIES`, and its weight.
        frames: the system whose backbone it takes when that is trained first and frozen.
        maps: its features are the backbone's last map, and not pooled.
        options: of the backbone, unless others are given.
        boxes: it learns from boxes, and is a class of its own, `models.detection.faster_rcnn.FasterRCNN`.
    """

    backbone: str | None
    heads: Mapping[str, HeadSpec]
    temporal: str | None = None
    penalties: Mapping[str, float] = dataclasses.field(default_factory=dict)
    frames: str | None = None
    maps: bool = False
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)
    boxes: bool = False


# Late stages at stride 1 keep maps fine.
_FINE = {"maps": True, "options": {"strides": (1, 2, 1, 1)}}
_POOLED = {"tools": HeadSpec(least=0.6)}
_TOOLS, _PHASES = {"tools": HeadSpec()}, {"phases": HeadSpec()}
_MTRCNET = {"tools": HeadSpec(temporal=False), "phases": HeadSpec()}
_ENDONET = {"tools": HeadSpec(temporal=False), "phases": HeadSpec(also=("tools",))}

SYSTEMS: dict[str, SystemSpec] = {
    "toolnet": SystemSpec("alexnet", _TOOLS),
    "toolnet_l": SystemSpec("resnet18", _TOOLS, "lstm", frames="toolnet"),
    "toolnet_a": SystemSpec("resnet50", _TOOLS, "lapformer", frames="toolnet"),
    "phasenet": SystemSpec("alexnet", _PHASES),
    "phasenet_l": SystemSpec("resnet50", _PHASES, "lstm", frames="phasenet"),
    "phasenet_a": SystemSpec("resnet50", _PHASES, "lapformer", frames="phasenet"),
    "endonet": SystemSpec("alexnet", _ENDONET),
    "endonet_l": SystemSpec("resnet50", _MTRCNET, "lstm", frames="endonet"),
    "endonet_cl": SystemSpec(
        "resnet50",
        {"tools": HeadSpec(temporal=False, hidden=512), "phases": HeadSpec()},
        "lstm",
        {"correlation": 1.0},
        frames="endonet",
    ),
    "endonet_a": SystemSpec("resnet50", _ENDONET, "lapformer", frames="endonet"),
    "swinnet": SystemSpec("swin_b", _PHASES | _TOOLS),
    "swinnet_l": SystemSpec("swin_b", _PHASES | _TOOLS, "lstm", frames="swinnet"),
    "swinnet_a": SystemSpec("swin_b", _PHASES | _TOOLS, "last", {"vae": 100.0}, frames="swinnet"),
    "fcn": SystemSpec("resnet18", _POOLED, **_FINE),
    "fcn_l": SystemSpec("resnet18", _POOLED, "conv_lstm", frames="fcn", **_FINE),
    "fcn_a": SystemSpec("resnet18", _TOOLS, "map_attention", frames="fcn", **_FINE),
    "frcnn": SystemSpec("resnet50", _TOOLS, boxes=True),
    "frcnn_l": SystemSpec(None, _TOOLS, "lstm", frames="frcnn"),
    "frcnn_a": SystemSpec(None, _TOOLS, "lapformer", frames="frcnn"),
}


class Head(nnx.Module):
    """A rectified layer and the logits behind it."""

    def __init__(self, inputs: int, hidden: int, classes: int, *, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(inputs, hidden, kernel_init=nnx.initializers.xavier_uniform(), rngs=rngs)
        self.out = nnx.Linear(hidden, classes, kernel_init=nnx.initializers.xavier_uniform(), rngs=rngs)

    def __call__(self, x: Array) -> Array:
        """(..., inputs) to (..., classes)."""
        return self.out(jax.nn.relu(self.hidden(x)))


class System(nnx.Module):
    """Images to logits of phases and tools.

    Args:
        backbone: images (N, H, W, 3) to features.
        sizes: number of classes of each head.
        heads: see `SystemSpec`.
        temporal: a model of sequences (B, T, D), which never sees images. None decides each frame alone.
        penalties: modules of `models.temporal.penalties` by name, and their weights.
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
        temporal: Temporal | None = None,
        penalties: Mapping[str, tuple[nnx.Module, float]] | None = None,
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
            if spec.least is not None and read.cells is not None:
                self.heads[name] = MapHead(read.cells, sizes[name], spec.least, rngs=rngs)
                continue
            if spec.hidden:
                self.heads[name] = Head(width, spec.hidden, sizes[name], rngs=rngs)
                continue
            init = nnx.initializers.normal(0.01)
            # Logits are few: float32 costs nothing here.
            self.heads[name] = nnx.Linear(width, sizes[name], kernel_init=init, dtype=jnp.float32, rngs=rngs)
        if penalties:
            self.penalties = nnx.Dict({name: module for name, (module, _) in penalties.items()})
        self.penalty_weights = tuple((name, weight) for name, (_, weight) in (penalties or {}).items())
        self.specs = tuple(heads.items())
        self.width, self.cells = backbone.width, backbone.cells
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
        pooled = self.backbone(normalize(images, self.mean, self.std).reshape(-1, *images.shape[-3:]), key=key).pooled
        return pooled.reshape(*leading, pooled.shape[-1])

    def maps(self, answer: Answer) -> Array:
        """Logits of tools in every cell (..., rows, columns, K), where their head pools maps."""
        return self.heads["tools"].maps(answer.sequences["tools"].astype(jnp.float32))

    def decide(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Logits:
        """Logits from features (N, D), or (B, T, D) where there is a temporal model."""
        return self.answer(features, mask, key=key).logits

    def answer(self, features: Array, mask: Array | None = None, *, key: Array | None = None) -> Answer:
        """Logits and what they were read from; `mask` (B, T) is False at frames that are not there."""
        found: Any = features
        if self.temporal is not None:
            # Layers of the backbone count up from 0; this number is none of theirs.
            found = self.temporal(features, mask, key=None if key is None else jax.random.fold_in(key, 1_000_000))
        return self._read(features, found)

    def run(self, features: Array, mask: Array | None, state: Any) -> tuple[Answer, Any]:
        """As `answer`, on the next frames of videos; see `models.temporal.Temporal.run`."""
        found, state = self.temporal.run(features, mask, state)
        return self._read(features, found), state

    def _read(self, features: Array, found: Any) -> Answer:
        logits: Logits = {}
        read: dict[str, Array] = {}
        for name, spec in self.specs:
            read[name] = (found[name] if isinstance(found, dict) else found) if spec.temporal else features
            parts = [read[name], *(logits[other] for other in spec.also)]
            logits[name] = self.heads[name](jnp.concatenate([part.astype(jnp.float32) for part in parts], -1))
        return Answer(logits, read)

    def penalty(
        self, answer: Answer, labels: Mapping[str, Array], mask: Array, *, key: Array | None = None
    ) -> dict[str, Array]:
        """Weighted penalties by name, scalars; of sequences (B, T, ...) only."""
        found = {}
        for number, (name, weight) in enumerate(self.penalty_weights):
            own = None if key is None else jax.random.fold_in(key, 2_000_000 + number)
            found[name] = weight * self.penalties[name](answer.logits, answer.sequences, labels, mask, key=own)
        return found


def probabilities(logits: Logits) -> dict[str, Array]:
    """Phases (..., L) that sum to one, and presence of each tool (..., K)."""
    return {name: jax.nn.softmax(x) if name == "phases" else jax.nn.sigmoid(x) for name, x in logits.items()}


def build_system(
    name: str,
    *,
    backbone: str | Backbone | None = None,
    options: Mapping[str, object] | None = None,
    phases: int = 7,
    tools: int = 7,
    pretrained: str | None = None,
    temporal: str | Temporal | None = None,
    temporal_options: Mapping[str, object] | None = None,
    size: tuple[int, int] = (224, 224),
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
    dtype: DTypeLike = jnp.float32,
    rngs: nnx.Rngs,
) -> System:
    """A system by name.

    Args:
        name: a key of `SYSTEMS`.
        backbone: a key of `models.backbones.BACKBONES`, or a network; the system's usual one when left out.
        options: of the backbone, such as `remat` and `drop_path`.
        phases: number of phases L.
        tools: number of tools K.
        pretrained: a torchvision state dict for the backbone, ``.pth`` or ``.safetensors``.
        temporal: a key of `models.temporal.TEMPORAL`, or a model; the system's usual one, or none, when left out.
        temporal_options: of the temporal model, such as `width`.
        size: (height, width) of images; only systems whose features are maps depend on it.
        mean: see `System`.
        std: see `System`.
        dtype: of the backbone's computation; parameters are float32 whatever it is.
        rngs: for the initial parameters.

    Raises:
        ValueError: for an unknown name, and for a backbone or a temporal model that does not fit.
    """
    if name not in SYSTEMS:
        raise ValueError(f"unknown system {name!r}: choose one of {', '.join(SYSTEMS)}")
    spec = SYSTEMS[name]
    if spec.boxes:
        raise ValueError(f"{name} learns from boxes. Fix: build it with models.detection.faster_rcnn.build_faster_rcnn")
    network, cells = backbone, None
    if not isinstance(network, Backbone):
        if spec.backbone is None:
            raise ValueError(
                f"{name} reads what {spec.frames} says of frames. Fix: set frozen to a run of {spec.frames}"
            )
        kind, settings = network or spec.backbone, {"dtype": dtype, **spec.options, **(options or {})}
        try:
            network = build(kind, rngs=rngs, **settings)
            cells = map_cells(kind, settings, size) if spec.maps else None
        except ValueError as error:
            if not spec.maps or options:
                raise
            raise ValueError(f"{name} on {kind}: {error}. Fix: choose a ResNet") from error
    elif spec.maps and network.cells is None:
        raise ValueError(f"{name} reads maps, and these features are none. Fix: set frozen to a run of {spec.frames}")
    if pretrained is not None:
        weights.load_weights(network, pretrained)
    if cells is not None:
        network = Flattened(network, cells)
    sizes = {"phases": phases, "tools": tools}
    temporal = temporal or spec.temporal
    if isinstance(temporal, str):
        options = dict(temporal_options or {})
        temporal = sequences.build(temporal, network.width, cells=network.cells, rngs=rngs, **options)
    penalties = {}
    if temporal is not None:
        own = {track: sizes[track] for track in spec.heads}
        penalties = {
            key: (sequences.PENALTIES[key](temporal.width, own, rngs=rngs), weight)
            for key, weight in spec.penalties.items()
        }
    return System(network, sizes, spec.heads, temporal=temporal, penalties=penalties, mean=mean, std=std, rngs=rngs)
