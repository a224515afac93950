"""What a training run is told, from a YAML or Python file and the command line."""

import dataclasses
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from models.detection.config import Detection
from models.settings import check_bounds
from models.training.parse import build, parse_yaml, plain

#: Intervals that more than one setting has.
_COUNT, _NATURAL, _AMOUNT, _SHARE = "[1, inf)", "[0, inf)", "[0, inf)", "[0, 1]"


@dataclasses.dataclass(frozen=True)
class Data:
    """Where frames come from.

    Attributes:
        train: frames to learn from: a cache folder, a packed ``.npz``, or ``m2cai16:FOLDER`` for
            m2cai16-tool-locations.
        val: frames to choose by.
        train_part: the part of `train` to take, such as "train"; None takes all.
        val_part: the part of `val` to take.
        load: (height, width) that pictures are decoded to; None takes a cache's or pack's own.
        workers: threads of the Grain loader; 0 reads in the training process, which is enough for caches.
    """

    train: str = ""
    val: str = ""
    train_part: str | None = "train"
    val_part: str | None = "val"
    load: tuple[int, int] | None = None
    workers: int = 0

    def __post_init__(self) -> None:
        check_bounds(self, {"load": _COUNT, "workers": _NATURAL}, "data.")


@dataclasses.dataclass(frozen=True)
class Augment:
    """Random changes to training pictures; see `models.training.augment`.

    Attributes:
        scale: least share of the picture's area that a crop keeps.
        aspect: crops are up to this many times wider or taller than the picture.
        flip: whether half the pictures are mirrored.
        brightness: colors are multiplied by up to 1 plus or minus this.
        contrast: likewise for the distance from the mean color.
        saturation: likewise for the distance from gray.
        hue: rotation of hue by up to plus or minus this share of a turn.
        erase: share of pictures in which a rectangle is blanked.
    """

    scale: float = 0.6
    aspect: float = 1.2
    flip: bool = True
    brightness: float = 0.2
    contrast: float = 0.2
    saturation: float = 0.2
    hue: float = 0.02
    erase: float = 0.0

    def __post_init__(self) -> None:
        shares = dict.fromkeys(("brightness", "contrast", "saturation", "erase"), _SHARE)
        check_bounds(self, {"scale": "(0, 1]", "aspect": _COUNT, "hue": "[0, 0.5]", **shares}, "augment.")


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """How parameters move.

    Attributes:
        name: "adamw" or "adam".
        learning_rate: of the heads, at its peak.
        backbone_scale: the backbone's learning rate as a share of that.
        weight_decay: of AdamW, on kernels only.
        warmup_epochs: of linear rise.
        final_scale: learning rate at the end of the cosine, as a share of the peak.
        clip: largest norm of the gradient; 0 for none.
    """

    name: str = "adamw"
    learning_rate: float = 1e-3
    backbone_scale: float = 0.1
    weight_decay: float = 0.05
    warmup_epochs: float = 5.0
    final_scale: float = 0.0
    clip: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in ("adam", "adamw"):
            raise ValueError(f"optimizer.name is {self.name!r}: choose one of adam, adamw")
        amounts = ("learning_rate", "backbone_scale", "weight_decay", "warmup_epochs", "final_scale", "clip")
        check_bounds(self, dict.fromkeys(amounts, _AMOUNT), "optimizer.")


@dataclasses.dataclass(frozen=True)
class Loss:
    """What is minimized.

    Attributes:
        phases: weight of the phases' cross-entropy.
        tools: weight of the tools' binary cross-entropy.
        balance: weigh rare classes by the median class frequency over their own.
        smoothing: label smoothing.
        hmm: weight of the hidden Markov model's conditional likelihood of the labels, in nats a frame; of whole
            videos or clips, see `models.training.hmm`.
        hmm_model: the model file for it, as ``hmmjax stabilize`` writes it, with probability emissions.
    """

    phases: float = 1.0
    tools: float = 1.0
    balance: bool = False
    smoothing: float = 0.0
    hmm: float = 0.0
    hmm_model: str | None = None

    def __post_init__(self) -> None:
        check_bounds(self, {**dict.fromkeys(("phases", "tools", "hmm"), _AMOUNT), "smoothing": "[0, 1)"}, "loss.")


@dataclasses.dataclass(frozen=True)
class Config:
    """A training run.

    Attributes:
        run: the folder that keeps everything of the run.
        system: a key of `models.systems.SYSTEMS`.
        backbone: a key of `models.backbones.BACKBONES`; None for the system's usual one.
        options: of the backbone, such as ``{remat: true}``.
        pretrained: torchvision weights for the backbone, ``.pth`` or ``.safetensors``.
        temporal: a key of `models.temporal.TEMPORAL`; None for the system's usual one, or none.
        temporal_options: of the temporal model, such as ``{width: 128}``.
        frozen: a run whose backbone is taken as it is. Its features of whole videos are kept on disk, and only the
            temporal model and the heads are trained, `batch` videos in an update.
        start: a run of the same system whose best parameters training begins with.
        clip: neighboring frames in one training sequence, for a temporal model whose backbone is trained with it;
            `batch` then counts clips.
        size: (height, width) that the network sees.
        mean: of RGB in [0, 1], subtracted.
        std: by which it is divided.
        dtype: of the computation, "float32" or "bfloat16".
        seed: decides initial weights, order, augmentation and dropout.
        epochs: passes over the training frames.
        batch: frames (or clips, or videos) in one update, over all devices.
        accumulate: parts in which a batch is computed, one after the other, to save memory. A part's loss is the mean
            over its own known labels and its batch normalization has its own statistics, so that the same batch at once
            is the same update only where neither differs between parts.
        eval_batch: frames at once in validation.
        eval_every: epochs between validations.
        patience: validations without a better score after which training stops; 0 never stops early.
        monitor: what is best: "score" (mean of mAP and phase accuracy), or "loss".
        log_every: updates between lines of metrics.
        save_every: updates between checkpoints, beside one at each validation; 0 for none.
        stop_after: end the run after so many updates, as if killed; 0 runs to the end.
        tensorboard: write event files.
        deterministic: use only GPU kernels with a fixed order of summation, so that resuming is bit-equal there too.
        data: see `Data`.
        augment: see `Augment`.
        optimizer: see `Optimizer`.
        loss: see `Loss`.
        detection: see `Detection`.
    """

    run: str = "runs/run"
    system: str = "toolnet"
    backbone: str | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    pretrained: str | None = None
    temporal: str | None = None
    temporal_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    frozen: str | None = None
    start: str | None = None
    clip: int = 1
    size: tuple[int, int] = (224, 224)
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    dtype: str = "bfloat16"
    seed: int = 0
    epochs: int = 30
    batch: int = 64
    accumulate: int = 1
    eval_batch: int = 128
    eval_every: int = 1
    patience: int = 0
    monitor: str = "score"
    log_every: int = 10
    save_every: int = 0
    stop_after: int = 0
    tensorboard: bool = True
    deterministic: bool = False
    data: Data = Data()
    augment: Augment = Augment()
    optimizer: Optimizer = Optimizer()
    loss: Loss = Loss()
    detection: Detection = dataclasses.field(default_factory=Detection)

    def __post_init__(self) -> None:
        choices = {"dtype": ("float32", "bfloat16"), "monitor": ("score", "loss")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}: choose one of {', '.join(allowed)}")
        counts = ("clip", "size", "epochs", "batch", "accumulate", "eval_batch", "eval_every", "log_every")
        check_bounds(self, dict.fromkeys(counts, _COUNT))
        check_bounds(self, dict.fromkeys(("patience", "save_every", "stop_after"), _NATURAL))
        check_bounds(self, {"mean": "(-inf, inf)", "std": "(0, inf)", "seed": "[0, 4294967296)"})
        if self.batch % self.accumulate:
            raise ValueError(f"a batch of {self.batch} cannot be computed in {self.accumulate} equal parts")
        if self.frozen is not None and self.clip > 1:
            raise ValueError(
                "a frozen backbone reads whole videos, and clips are for one that is trained. Fix: set frozen or clip, "
                "not both"
            )


def read_config(path: str | Path | None, overrides: Sequence[str] = ()) -> Config:
    """A configuration from a file and ``key=value`` settings that go before it.

    Args:
        path: YAML with `Config`'s names, or a Python file that sets ``config``; None for the defaults.
        overrides: such as ``optimizer.learning_rate=1e-4`` and ``size=[160,284]``.

    Raises:
        ValueError: for an unknown name, with a guess at what was meant, for a value of the wrong type or outside its
            bounds, and for a file that is no YAML.
    """
    values: dict[str, Any] = {}
    if path is not None and Path(path).suffix == ".py":
        found = runpy.run_path(str(path)).get("config")
        if not isinstance(found, Config):
            raise ValueError(f"{path} does not set config to a models.training.config.Config")
        values = dataclasses.asdict(found)
    elif path is not None:
        values = parse_yaml(Path(path).read_text(encoding="utf-8"), str(path)) or {}
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals:
            raise ValueError(f"{override!r} is no setting: write key=value")
        place, parents = values, key.split(".")
        for depth, name in enumerate(parents):
            if not isinstance(place, dict):
                where = ".".join(parents[:depth]) or "the configuration"
                raise ValueError(f"{override!r}: {where} holds settings by name, not {place!r}")
            if depth < len(parents) - 1:
                place = place.setdefault(name, {})
        place[parents[-1]] = parse_yaml(text, override)
    return build(Config, values)


def write_config(config: Config, path: str | Path) -> None:
    """Write a configuration as YAML that `read_config` reads back."""
    Path(path).write_text(config_text(config), encoding="utf-8")


def config_text(config: Config) -> str:
    """A configuration as YAML."""
    return yaml.safe_dump(plain(dataclasses.asdict(config)), sort_keys=False)
