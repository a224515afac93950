"""Systems built by name, or as a configuration describes them."""

import dataclasses
from collections.abc import Mapping
from functools import partial

from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.typing import DTypeLike

from hmmjax._core.interpreter import without_compiling
from models import temporal as sequences
from models import weights
from models.backbones import Backbone, build
from models.backbones.base import Cells, Features
from models.backbones.images import IMAGENET_MEAN, IMAGENET_STD
from models.backbones.maps import Flattened, map_cells
from models.detection.faster_rcnn import build_faster_rcnn
from models.settings import Config, Detection
from models.systems.base import System
from models.systems.network import ComposedSystem
from models.systems.specs import SYSTEMS, HeadSpec, SystemSpec
from models.systems.staged import StagedSystem
from models.temporal import Staged, Temporal


class Precomputed(Backbone):
    """A placeholder for a frozen backbone whose features are on disk; it has no parameters.

    Args:
        width: length D of the features.
        cells: rows, columns and channels if these features are a flattened map, else None.
    """

    def __init__(self, width: int, cells: Cells | None = None):
        self.width, self.cells = width, cells

    def __call__(self, images: Array, *, key: Array | None = None) -> Features:
        """Raise TypeError: there is no network to apply to images."""
        raise TypeError("this system reads features of its frozen backbone, not images. Fix: call decide on features")


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
    detection: Detection | None = None,
    size: tuple[int, int] = (224, 224),
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
    dtype: DTypeLike = jnp.float32,
    rngs: nnx.Rngs,
) -> System:
    """Build a system by name.

    Args:
        name: a key of `SYSTEMS`.
        backbone: a key of `models.backbones.BACKBONES`, or a network; None takes the system's default.
        options: of the backbone, such as `remat` and `drop_path`.
        phases: number of phases L.
        tools: number of tools K.
        pretrained: path of published weights for the backbone, see `models.weights`; what is left out is printed.
        temporal: a key of `models.temporal.TEMPORAL`, or a model; None takes the system's default, which may be none.
        temporal_options: of the temporal model, such as `width`.
        detection: sizes and thresholds of Faster R-CNN; None takes the defaults.
        size: (height, width) of images; only systems whose features are maps depend on it.
        mean: of RGB in [0, 1], subtracted from images.
        std: of RGB in [0, 1], by which images are divided.
        dtype: in which the backbone computes; parameters are always float32.
        rngs: for the initial parameters.

    Raises:
        ValueError: for an unknown name, and for a backbone or a temporal model that does not fit the system.
    """
    if name not in SYSTEMS:
        raise ValueError(f"unknown system {name!r}: choose one of {', '.join(SYSTEMS)}")
    spec = SYSTEMS[name]
    if spec.boxes:
        if temporal is not None or isinstance(backbone, Backbone):
            raise ValueError(
                f"{name} decides each frame alone, from its image. Fix: choose {name}_l or {name}_a, with frozen set "
                f"to a run of {name}"
            )
        return build_faster_rcnn(
            backbone=backbone,
            options=options,
            tools=tools,
            pretrained=pretrained,
            config=detection,
            mean=mean,
            std=std,
            dtype=dtype,
            rngs=rngs,
        )
    if not isinstance(backbone, Backbone):
        network = _build_backbone(name, spec, backbone, options or {}, size, dtype, rngs)
    else:
        network = backbone
        if spec.maps and network.cells is None:
            raise ValueError(
                f"{name} reads feature maps, but the given features are not a map. Fix: set frozen to a run of "
                f"{spec.frames}"
            )
    if pretrained is not None:
        weights.load_weights(network.network if isinstance(network, Flattened) else network, pretrained)
    sizes = {"phases": phases, "tools": tools}
    spec = _with_classes(name, spec, sizes)
    temporal = temporal or spec.temporal
    if isinstance(temporal, str):
        own = {track: sizes[track] for track in spec.heads}
        options = {**(spec.temporal_options if temporal == spec.temporal else {}), **(temporal_options or {})}
        temporal = sequences.build(temporal, network.width, cells=network.cells, sizes=own, rngs=rngs, **options)
    if isinstance(temporal, Staged):
        if spec.penalties or any(head != HeadSpec() for head in spec.heads.values()):
            raise ValueError(
                f"the temporal model computes the logits itself, but {name} has heads of its own. Fix: set system to "
                "mstcn, tecno or asformer for phases and tools, or to phasenet_l or toolnet_l for one of them"
            )
        return StagedSystem(network, temporal, mean=mean, std=std, rngs=rngs)
    penalties = {}
    if temporal is not None:
        own = {track: sizes[track] for track in spec.heads}
        penalties = {
            key: (sequences.PENALTIES[key](temporal.width, own, rngs=rngs), weight)
            for key, weight in spec.penalties.items()
        }
    return ComposedSystem(
        network, sizes, spec.heads, temporal=temporal, penalties=penalties, mean=mean, std=std, rngs=rngs
    )


def _with_classes(name: str, spec: SystemSpec, sizes: Mapping[str, int]) -> SystemSpec:
    """Leave out the heads of tracks without classes, such as the tools of data with phases only.

    Raises:
        ValueError: if no head is left.
    """
    heads = {
        track: dataclasses.replace(head, also=tuple(other for other in head.also if sizes[other]))
        for track, head in spec.heads.items()
        if sizes[track]
    }
    if not heads:
        raise ValueError(
            f"{name} recognizes {' and '.join(spec.heads)}, and the data names none. Fix: choose another system"
        )
    return dataclasses.replace(spec, heads=heads)


def _build_backbone(
    name: str,
    spec: SystemSpec,
    backbone: str | None,
    options: Mapping[str, object],
    size: tuple[int, int],
    dtype: DTypeLike,
    rngs: nnx.Rngs,
) -> Backbone:
    if spec.backbone is None:
        raise ValueError(f"{name} reads the output of {spec.frames}. Fix: set frozen to a run of {spec.frames}")
    kind, settings = backbone or spec.backbone, {"dtype": dtype, **spec.options, **options}
    try:
        network = build(kind, rngs=rngs, **settings)
        return Flattened(network, map_cells(kind, settings, size)) if spec.maps else network
    except ValueError as error:
        if not spec.maps or options:
            raise
        raise ValueError(f"{name} on {kind}: {error}. Fix: choose a ResNet") from error


def make_system(
    config: Config,
    phases: int,
    tools: int,
    *,
    pretrained: bool = True,
    width: int | None = None,
    cells: Cells | None = None,
) -> System:
    """Build the system of a training run, with its initial parameters.

    Args:
        config: of the run.
        phases: number of phases L.
        tools: number of tools K.
        pretrained: load the weights in `config.pretrained`.
        width: length of a frozen backbone's features; None builds a backbone.
        cells: rows, columns and channels if these features are a flattened map, else None.

    Raises:
        ValueError: for a system that does not fit its backbone, its temporal model or the features.
    """
    weights_file = config.pretrained if pretrained and width is None else None
    make = partial(
        build_system,
        config.system,
        backbone=config.backbone if width is None else Precomputed(width, cells),
        options=config.options,
        phases=phases,
        tools=tools,
        pretrained=weights_file,
        temporal=config.temporal,
        temporal_options=config.temporal_options,
        detection=config.detection,
        size=config.size,
        mean=config.mean,
        std=config.std,
        dtype=jnp.dtype(config.dtype),
    )
    graphs = []

    def start() -> nnx.State:
        graph, state = nnx.split(make(rngs=nnx.Rngs(config.seed)))
        graphs.append(graph)
        return state

    # Initial parameters of small networks, without the seconds that it takes to compile their random numbers.
    state = None if weights_file is not None else without_compiling(start)
    return make(rngs=nnx.Rngs(config.seed)) if state is None else nnx.merge(graphs[-1], state)
