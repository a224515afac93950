"""Backbones that compile in seconds, and frames to train it on. Run as a script, it is models.train with both."""

import sys

import numpy as np
from flax import nnx

from models.backbones import BACKBONES
from models.backbones.base import Backbone, Features
from models.backbones.resnet import ResNet
from models.data.cache import ArrayImages, write_cache
from models.data.frames import FrameTable


def tiny(**options):
    return ResNet((1, 1, 0, 0), False, **options)


class Micro(Backbone):
    """Eight rectified sums of the mean colours in a grid of 4 x 4."""

    width = 8

    def __init__(self, *, rngs, dtype):
        self.layer = nnx.Linear(48, 8, rngs=rngs)

    def __call__(self, images, *, key=None):
        n, height, width, _ = images.shape
        grid = images.reshape(n, 4, height // 4, 4, width // 4, 3).mean((2, 4)).reshape(n, 48)
        return Features(nnx.relu(self.layer(grid)), {})


BACKBONES["tiny"] = tiny
BACKBONES["micro"] = Micro


def frames(count=40, size=(20, 28)):
    """Frames whose colour tells the phase and whose upper half tells the first tool."""
    rng = np.random.default_rng(0)
    phases = rng.integers(0, 3, count).astype(np.int32)
    tools = rng.integers(0, 2, (count, 2)).astype(np.int32)
    images = rng.integers(0, 60, (count, *size, 3))
    images[np.arange(count), :, :, phases] += 100
    images[:, : size[0] // 2] += 90 * tools[:, 0, None, None, None]
    table = FrameTable(
        videos=np.repeat(["video01", "video02"], count // 2),
        frames=np.tile(np.arange(count // 2) * 25, 2),
        phases=phases,
        tools=tools,
        parts=np.where(np.arange(count) % 4 == 3, "val", "train"),
        phase_names=("Red", "Green", "Blue"),
        tool_names=("Lamp", "None"),
    )
    return ArrayImages(table, images.astype(np.uint8))


def settings(folder, **more):
    """Words of a command line for a short run on these frames."""
    cache = folder / "cache"
    if not cache.exists():
        write_cache(frames(), cache)
    words = {
        "run": folder / "run",
        "system": "endonet",
        "backbone": "tiny",
        "size": "[16,24]",
        "dtype": "float32",
        "batch": 8,
        "eval_batch": 8,
        "epochs": 3,
        "log_every": 1,
        "tensorboard": "false",
        "data.train": cache,
        "data.val": cache,
        "optimizer.backbone_scale": 1.0,
        "optimizer.warmup_epochs": 0,
    } | more
    return [f"{key}={value}" for key, value in words.items()]


if __name__ == "__main__":
    from models.train import main

    main(sys.argv[1:])
