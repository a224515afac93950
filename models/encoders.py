"""Networks from images to features, with the normalization that their weights were trained on.

An encoder is the backbone of a training run, or a backbone with published weights.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from hmmjax.io import FormatError
from models import weights
from models.backbones import build
from models.backbones.images import IMAGENET_MEAN, IMAGENET_STD, normalize
from models.settings import config_text
from models.training.augment import resize
from models.training.local_devices import LocalDevices
from models.training.recognizer import Recognizer
from models.training.run import read_run

#: Files next to published weights that state the normalization: transformers' and timm's, and their names for it.
_DESCRIPTIONS = (("preprocessor_config.json", "image_mean", "image_std"), ("config.json", "mean", "std"))
Channels = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Encoder:
    """A network from images to features.

    Attributes:
        name: the run, or the backbone and the weights.
        digest: identifies the weights.
        size: (height, width) to which images are decoded.
        width: length D of the features.
        mean: of RGB in [0, 1], subtracted from images; None for a run, whose settings state it.
        std: of RGB in [0, 1], by which images are divided; None for a run.
        compute: images (N, H, W, 3) uint8 to features (N, D); the result may be on its way from the device.
    """

    name: str
    digest: str
    size: tuple[int, int]
    width: int
    compute: Callable[[np.ndarray], np.ndarray | jax.Array]
    mean: Channels | None = None
    std: Channels | None = None


def encoder_of_run(run: str, size: tuple[int, int] | None = None) -> Encoder:
    """Return the backbone of a training run, at its best checkpoint.

    Raises:
        FormatError: if the folder holds no training run, or one without a backbone.
    """
    config = read_run(run)
    if config.features is not None:
        raise FormatError("the run reads precomputed features and has no backbone", file=run, fix="give another run")
    recognizer = Recognizer(run)
    # The folder may have moved.
    text = config_text(dataclasses.replace(config, run=""))
    digest = hashlib.sha256(f"{recognizer.step} {text}".encode()).hexdigest()[:16]
    return Encoder(str(run), digest, size or config.data.load or config.size, recognizer.width, recognizer.features)


def encoder_of_backbone(
    name: str,
    pretrained: str | None,
    *,
    size: tuple[int, int] = (224, 224),
    options: dict[str, Any] | None = None,
    mean: Channels | None = None,
    std: Channels | None = None,
    dtype: str = "bfloat16",
) -> Encoder:
    """Return a backbone with published weights.

    Args:
        name: a key of `models.backbones.BACKBONES`.
        pretrained: file of weights; None leaves them random, from the seed 0.
        size: (height, width) of the network's input.
        options: of the backbone.
        mean: of RGB in [0, 1], subtracted from images; None takes that of `published_normalization`.
        std: of RGB in [0, 1], by which images are divided; None takes that of `published_normalization`.
        dtype: in which the network computes.

    Raises:
        ValueError: for an unknown name, and for weights that do not fit.
    """
    network = build(name, rngs=nnx.Rngs(0), **({"dtype": jnp.dtype(dtype)} | (options or {})))
    digest = "random"
    if pretrained is not None:
        weights.load_weights(network, pretrained)
        with open(pretrained, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    known = published_normalization(pretrained)
    mean, std = mean or known[0], std or known[1]
    network.eval()
    devices = LocalDevices()
    graph, state = nnx.split(network)
    state = devices.copy(state)

    @jax.jit
    def run(state: nnx.State, images: jax.Array) -> jax.Array:
        return nnx.merge(graph, state)(normalize(resize(images, size), mean, std)).pooled.astype(jnp.float32)

    shown = f"{name} {Path(pretrained).name if pretrained else 'random'} {options or ''}".strip()
    return Encoder(shown, digest, size, network.width, lambda images: run(state, devices.divide(images)), mean, std)


def published_normalization(pretrained: str | Path | None) -> tuple[Channels, Channels]:
    """Return mean and standard deviation of RGB in [0, 1] that weights were trained with.

    Args:
        pretrained: file of weights. A ``preprocessor_config.json`` (transformers) or ``config.json`` (timm) next to it
            is read; without one, and for None, they are those of ImageNet.

    Raises:
        FormatError: for a description that does not hold three numbers for each.
    """
    if pretrained is None:
        return IMAGENET_MEAN, IMAGENET_STD
    for name, *keys in _DESCRIPTIONS:
        path = Path(pretrained).parent / name
        if not path.exists():
            continue
        try:
            stated = json.loads(path.read_text(encoding="utf-8"))
            stated = {**stated, **stated.get("pretrained_cfg", {})}
            found = [tuple(float(x) for x in stated[key]) for key in keys if key in stated]
        except (ValueError, TypeError, AttributeError) as error:
            raise FormatError(
                f"not a description of weights ({error})", file=path, fix="correct or remove it"
            ) from error
        if not found:
            continue
        if len(found) != 2 or any(len(numbers) != 3 for numbers in found) or min(found[1]) <= 0:
            raise FormatError(
                f"{' and '.join(keys)} are not three numbers each",
                file=path,
                fix="correct it, or give --mean and --std",
            )
        return found[0], found[1]
    return IMAGENET_MEAN, IMAGENET_STD
