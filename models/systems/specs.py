"""The named systems as values: which backbone, temporal model, heads and penalties each consists of."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class HeadSpec:
    """The inputs and the form of a head.

    Attributes:
        also: earlier heads whose logits are inputs too, as the phases of EndoNet read its tools.
        temporal: read the output of the temporal model, if there is one, instead of the frame's own features.
        hidden: width of a hidden ReLU layer; 0 for none.
        minimum_weight: for a head that pools maps, the weight of the minimum; see `models.backbones.maps.MapHead`.
    """

    also: tuple[str, ...] = ()
    temporal: bool = True
    hidden: int = 0
    minimum_weight: float | None = None


@dataclasses.dataclass(frozen=True)
class SystemSpec:
    """The parts of a system.

    Attributes:
        backbone: the default backbone; None for a system that always reads features of a frozen one.
        heads: by track, "phases" or "tools", in the order in which they are computed.
        temporal: a key of `models.temporal.TEMPORAL`, or None to decide each frame alone.
        penalties: weights of the terms added to the loss, by key of `models.temporal.PENALTIES`.
        frames: the frame-wise system whose backbone this one reads when that is trained first and then frozen.
        maps: the features are the backbone's last map, flattened, instead of pooled features.
        options: default options of the backbone.
        boxes: it learns from boxes: `models.detection.faster_rcnn.FasterRCNN`.
        locates: it can return boxes of tools, see `models.detect`.
        temporal_options: default options of the temporal model.
        tool_reduction: over the tools of a frame in the loss, "mean" or "sum" as in the system's source, which decides
            how much tools weigh against phases: EndoNet and MTRCNet sum, LAST averages.
    """

    backbone: str | None
    heads: Mapping[str, HeadSpec]
    temporal: str | None = None
    penalties: Mapping[str, float] = dataclasses.field(default_factory=dict)
    frames: str | None = None
    maps: bool = False
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)
    boxes: bool = False
    locates: bool = False
    temporal_options: Mapping[str, object] = dataclasses.field(default_factory=dict)
    tool_reduction: str = "mean"


# Stride 1 in the late stages of a ResNet keeps its last map fine.
_FINE = {"maps": True, "options": {"strides": (1, 2, 1, 1)}}
_POOLED = {"tools": HeadSpec(minimum_weight=0.6)}
_TOOLS, _PHASES = {"tools": HeadSpec()}, {"phases": HeadSpec()}
_MTRCNET = {"tools": HeadSpec(temporal=False), "phases": HeadSpec()}
_ENDONET = {"tools": HeadSpec(temporal=False), "phases": HeadSpec(also=("tools",))}

SYSTEMS: dict[str, SystemSpec] = {
    "toolnet": SystemSpec("alexnet", _TOOLS, tool_reduction="sum"),
    "toolnet_l": SystemSpec("resnet18", _TOOLS, "lstm", frames="toolnet"),
    "toolnet_a": SystemSpec("resnet50", _TOOLS, "lapformer", frames="toolnet"),
    "phasenet": SystemSpec("alexnet", _PHASES),
    "phasenet_l": SystemSpec("resnet50", _PHASES, "lstm", frames="phasenet"),
    "phasenet_a": SystemSpec("resnet50", _PHASES, "lapformer", frames="phasenet"),
    "endonet": SystemSpec("alexnet", _ENDONET, tool_reduction="sum"),
    "endonet_l": SystemSpec("resnet50", _MTRCNET, "lstm", frames="endonet", tool_reduction="sum"),
    "endonet_cl": SystemSpec(
        "resnet50",
        {"tools": HeadSpec(temporal=False, hidden=512), "phases": HeadSpec()},
        "lstm",
        {"correlation": 1.0},
        frames="endonet",
        temporal_options={"relu": True},
        tool_reduction="sum",
    ),
    # The paper's row is LAST on a ResNet50.
    "endonet_a": SystemSpec("resnet50", _PHASES | _TOOLS, "last", {"vae": 100.0}, frames="endonet"),
    "swinnet": SystemSpec("swin_b", _PHASES | _TOOLS),
    "swinnet_l": SystemSpec("swin_b", _PHASES | _TOOLS, "lstm", frames="swinnet"),
    "swinnet_a": SystemSpec("swin_b", _PHASES | _TOOLS, "last", {"vae": 100.0}, frames="swinnet"),
    "fcn": SystemSpec("resnet18", _POOLED, locates=True, **_FINE),
    "fcn_l": SystemSpec("resnet18", _POOLED, "conv_lstm", frames="fcn", locates=True, **_FINE),
    "fcn_a": SystemSpec("resnet18", _TOOLS, "map_attention", frames="fcn", **_FINE),
    "frcnn": SystemSpec("resnet50", _TOOLS, boxes=True, locates=True),
    "frcnn_l": SystemSpec(None, _TOOLS, "lstm", frames="frcnn"),
    "frcnn_a": SystemSpec(None, _TOOLS, "lapformer", frames="frcnn"),
    # On features of any frozen run, with EndoNet's weight of tools; all but tecno also read later frames.
    "bilstm": SystemSpec(None, _PHASES | _TOOLS, "bilstm", frames="endonet", tool_reduction="sum"),
    "mstcn": SystemSpec(None, _PHASES | _TOOLS, "mstcn", frames="endonet", tool_reduction="sum"),
    "tecno": SystemSpec(None, _PHASES | _TOOLS, "tecno", frames="endonet", tool_reduction="sum"),
    "asformer": SystemSpec(None, _PHASES | _TOOLS, "asformer", frames="endonet", tool_reduction="sum"),
}
