"""The settings of a training run as frozen dataclasses, each checked when it is built."""

import dataclasses
from typing import Any

from models.settings.parse import check_bounds

_COUNT, _NATURAL, _AMOUNT, _FRACTION = "[1, inf)", "[0, inf)", "[0, inf)", "[0, 1]"


@dataclasses.dataclass(frozen=True)
class Data:
    """The frames of a run.

    Attributes:
        train: frames to train on: a cache folder, a packed ``.npz``, or ``m2cai16:FOLDER`` for
            m2cai16-tool-locations. For a run on `features`, only labels are read from it, and it may also be
            ``cholec80:FOLDER`` or a manifest (.yaml, .csv).
        val: frames to validate on, in the same forms.
        split: the split of ``cholec80:FOLDER`` into parts: "32/8/40" or "40/8/32".
        train_part: the part of `train` to use, such as "train"; None uses all of it.
        val_part: the part of `val` to use; None uses all of it.
        fold: (i, n) trains on every n-th video of `train_part` only, in order of name and starting with the i-th, such
            as a frozen backbone on [0, 2] and a temporal model on [1, 2], whose features the backbone has not fitted.
        load: (height, width) that images are decoded to; None keeps the size of the cache or pack.
        workers: threads of the Grain loader; 0 reads in the training process, which is enough for caches.
        rate: rows of features per second, in files without frame numbers.
        slack: rows of features that may be missing or surplus at the end of a video; a video of Cholec80 ends one frame
            after its last second with tools.
        channels_first: features are (channels, frames), as those of MS-TCN.
    """

    train: str = ""
    val: str = ""
    split: str | None = None
    train_part: str | None = "train"
    val_part: str | None = "val"
    fold: tuple[int, int] | None = None
    load: tuple[int, int] | None = None
    workers: int = 0
    rate: float = 1.0
    slack: int = 1
    channels_first: bool = False

    def __post_init__(self) -> None:
        bounds = {"load": _COUNT, "workers": _NATURAL, "rate": "(0, inf)", "slack": _NATURAL}
        check_bounds(self, bounds, "data.")
        if self.fold is not None and not 0 <= self.fold[0] < self.fold[1]:
            raise ValueError(f"data.fold is {list(self.fold)}. Fix: give [i, n], with i from 0 to n - 1")


@dataclasses.dataclass(frozen=True)
class Augment:
    """Random changes to training images, applied by `models.training.augment`.

    Attributes:
        scale: smallest fraction of the image's area that a crop covers.
        aspect: largest factor by which a crop is stretched in width or in height.
        flip: mirror half of the images left to right.
        brightness: largest relative change of all colors.
        contrast: largest relative change of the distance from the image's mean color.
        saturation: largest relative change of the distance from gray.
        hue: largest rotation of hue, in turns.
        erase: fraction of the images in which a rectangle is blanked.
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
        fractions = dict.fromkeys(("brightness", "contrast", "saturation", "erase"), _FRACTION)
        check_bounds(self, {"scale": "(0, 1]", "aspect": _COUNT, "hue": "[0, 0.5]", **fractions}, "augment.")


@dataclasses.dataclass(frozen=True)
class Optimizer:
    """The optimizer and its learning-rate schedule: linear warm-up, then half a cosine.

    Attributes:
        name: "adamw" or "adam".
        learning_rate: peak learning rate of the heads and the temporal model.
        backbone_scale: learning rate of the backbone, as a multiple of `learning_rate`; None takes a tenth with
            `pretrained` or `start`, and 1 for random weights.
        weight_decay: of AdamW; only kernels of dense and convolutional layers decay.
        warmup_epochs: length of the linear warm-up.
        final_scale: learning rate at the end of the cosine, as a fraction of the peak.
        clip: largest global norm of the gradient; 0 does not clip.
    """

    name: str = "adamw"
    learning_rate: float = 1e-3
    backbone_scale: float | None = None
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
    """The terms of the training loss.

    Attributes:
        phases: weight of the cross-entropy of phases.
        tools: weight of the binary cross-entropy of tools.
        balance: weight every class by the median class frequency divided by its own.
        balance_tracks: the tracks whose classes `balance` weights; LAST and TeCNO weight phases alone.
        tool_reduction: "sum" or "mean" of the losses of a frame's tools; None for the system's own.
        smoothing: label smoothing.
        hmm: weight of the negative conditional log-likelihood of the labels under a hidden Markov model, in nats per
            frame; for systems with a temporal model, see `models.training.losses.HMMLoss`.
        hmm_model: the model file for `hmm`, with probability emissions, as ``hmmjax stabilize`` writes it.
    """

    phases: float = 1.0
    tools: float = 1.0
    balance: bool = False
    balance_tracks: tuple[str, ...] = ("phases", "tools")
    tool_reduction: str | None = None
    smoothing: float = 0.0
    hmm: float = 0.0
    hmm_model: str | None = None

    def __post_init__(self) -> None:
        check_bounds(self, {**dict.fromkeys(("phases", "tools", "hmm"), _AMOUNT), "smoothing": "[0, 1)"}, "loss.")
        if self.tool_reduction not in (None, "sum", "mean"):
            raise ValueError(f"loss.tool_reduction is {self.tool_reduction!r}: choose sum or mean, or leave it out")
        if not set(self.balance_tracks) <= {"phases", "tools"}:
            raise ValueError(f"loss.balance_tracks is {list(self.balance_tracks)}: choose among phases, tools")


@dataclasses.dataclass(frozen=True)
class Detection:
    """Sizes and thresholds of Faster R-CNN; see `models.detection.faster_rcnn`.

    Attributes:
        sizes: square roots of the anchors' areas, as fractions of the image's height.
        ratios: width over height of the anchors.
        width: number of channels of the proposal layer.
        candidates: maximum number of anchors per image that are decoded, those with the greatest objectness.
        proposals: maximum number of boxes per image that reach the second stage.
        proposal_overlap: intersection over union above which one proposal suppresses another.
        anchors: number of anchors per image in the first stage's loss.
        regions: number of regions per image in the second stage's loss.
        positives: maximum fraction of these regions that contain a tool.
        bins: side of a region's feature map; None takes the backbone's own.
        overlap: intersection over union above which one box suppresses another of the same tool.
        detections: maximum number of boxes per image in the output.
        min_score: minimum probability of a box in the output; the score of a frame has no such threshold.
    """

    sizes: tuple[float, ...] = (0.2, 0.35, 0.55, 0.85)
    ratios: tuple[float, ...] = (0.5, 1.0, 2.0)
    width: int = 512
    candidates: int = 512
    proposals: int = 128
    proposal_overlap: float = 0.7
    anchors: int = 256
    regions: int = 64
    positives: float = 0.25
    bins: int | None = None
    overlap: float = 0.3
    detections: int = 20
    min_score: float = 0.01

    def __post_init__(self) -> None:
        counts = ("candidates", "proposals", "anchors", "regions", "detections", "width", "bins")
        fractions = ("proposal_overlap", "positives", "overlap")
        bounds = dict.fromkeys(counts, _COUNT) | dict.fromkeys(fractions, "(0, 1]")
        check_bounds(self, {"sizes": "(0, inf)", "ratios": "(0, inf)", "min_score": _FRACTION, **bounds}, "detection.")


@dataclasses.dataclass(frozen=True)
class Config:
    """A training run.

    Attributes:
        run: the folder of the run.
        system: a key of `models.systems.SYSTEMS`.
        backbone: a key of `models.backbones.BACKBONES`; None for the system's default.
        options: of the backbone, such as ``{remat: true}``.
        pretrained: file of published weights for the backbone, see `models.weights`.
        temporal: a key of `models.temporal.TEMPORAL`; None for the system's default, which may be none.
        temporal_options: of the temporal model, such as ``{width: 128}``.
        frozen: a run whose backbone is used unchanged. Its features of whole videos are kept on disk; only the
            temporal model and the heads are trained, with `batch` videos per update.
        features: a folder with one file of features per video, see `models.data.feature_files`, instead of images and a
            backbone; only the temporal model and the heads are trained, with `batch` videos per update.
        start: a run of the same system whose best parameters are the initial ones.
        clip: number of neighboring frames in a training sequence, for a temporal model that is trained together with
            its backbone; `batch` then counts clips.
        size: (height, width) of the network's input.
        mean: per RGB channel, in [0, 1], subtracted from images.
        std: per RGB channel, by which images are then divided.
        dtype: of the computation, "float32" or "bfloat16"; parameters are float32.
        seed: of initial weights, order, augmentation and dropout.
        epochs: passes over the training frames.
        batch: frames (or clips, or videos) per update, over all devices.
        accumulate: number of equal parts in which the gradient of a batch is computed, to save memory. The loss of a
            part is the mean over its known labels, and batch normalization uses the statistics of the part, so the
            update equals that of the undivided batch only if neither differs between parts.
        eval_batch: frames per batch in validation.
        eval_every: epochs between validations.
        patience: number of validations without improvement after which training stops; 0 never stops early.
        monitor: what selects the best checkpoint: "score" (mean of mAP and phase accuracy) or "loss".
        log_every: updates between lines of metrics.
        save_every: updates between checkpoints, in addition to one at each validation; 0 for none.
        stop_after: stop the run after this number of updates, as if it were killed; 0 runs to the end.
        tensorboard: write TensorBoard event files.
        deterministic: restrict GPU kernels to those with a fixed order of summation, so that a resumed run is bit-equal
            there too.
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
    features: str | None = None
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
    detection: Detection = Detection()

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
            raise ValueError(
                f"batch={self.batch} cannot be divided into accumulate={self.accumulate} equal parts. Fix: make batch "
                "a multiple of accumulate"
            )
        if self.optimizer.backbone_scale is None:
            known = self.pretrained is not None or self.start is not None
            settled = dataclasses.replace(self.optimizer, backbone_scale=0.1 if known else 1.0)
            object.__setattr__(self, "optimizer", settled)
        if self.features is not None:
            self._check_features()
        if self.frozen is not None and self.clip > 1:
            raise ValueError(
                f"clip={self.clip} cannot be combined with frozen={self.frozen}: a frozen backbone is used on whole "
                "videos. Fix: set frozen or clip, not both"
            )

    def _check_features(self) -> None:
        """Raise ValueError for settings of images in a run on features."""
        given = ((name, getattr(self, name)) for name in ("backbone", "pretrained", "frozen"))
        wrong = [f"{name}={value}" for name, value in given if value is not None]
        wrong += [f"clip={self.clip}"] if self.clip > 1 else []
        if wrong:
            raise ValueError(
                f"{wrong[0]} cannot be combined with features={self.features}, which take the place of images and "
                f"backbone. Fix: leave {wrong[0].partition('=')[0]} out"
            )
