"""Backbones that compile in seconds, and frames to train them on. As a script, it is models.train with both."""

import dataclasses
import sys

import numpy as np
from flax import nnx

from models.backbones import BACKBONES
from models.backbones.base import Backbone, Features
from models.backbones.resnet import ResNet
from models.data.cache import ArrayImages, write_cache
from models.data.frames import FrameTable, stack_boxes


def tiny(**options):
    return ResNet((1, 1, 0, 0), False, **options)


class Micro(Backbone):
    """A dense ReLU layer of width 8 on the mean colors in a 4x4 grid."""

    head_name = "head"
    width = 8

    def __init__(self, *, rngs, dtype):
        self.layer = nnx.Linear(48, 8, rngs=rngs)

    def __call__(self, images, *, key=None):
        n, height, width, _ = images.shape
        grid = images.reshape(n, 4, height // 4, 4, width // 4, 3).mean((2, 4)).reshape(n, 48)
        return Features(nnx.relu(self.layer(grid)), {})


class Gridded(Backbone):
    """A dense ReLU layer of width 6 on the mean color of each cell of a 4x4 grid: a map; `strides` is ignored."""

    width = 6

    def __init__(self, *, rngs, dtype, strides=None):
        self.layer = nnx.Linear(3, 6, rngs=rngs)

    def __call__(self, images, *, key=None):
        n, height, width, _ = images.shape
        maps = nnx.relu(self.layer(images.reshape(n, 4, height // 4, 4, width // 4, 3).mean((2, 4))))
        return Features(maps.mean((1, 2)), {4: maps})


def divided(**options):
    """A ResNet with one block in the trunk, and no layer in the top."""
    return ResNet((1, 0, 0, 0), False, **options)


BACKBONES["tiny"] = tiny
BACKBONES["gridded"] = Gridded
BACKBONES["divided"] = divided
BACKBONES["micro"] = Micro


def frames(count=40, size=(20, 28)):
    """Frames whose color depends on the phase, and whose upper half is brighter if the first tool is present."""
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


def boxed_frames():
    """The frames of `frames`, with a box around the upper half if the first tool is present."""
    source = frames()
    present = [tools[:1].astype(bool) for tools in source.table.tools]
    boxes = [np.float32([[0, 0, 1, 0.5]])[seen] for seen in present]
    columns = stack_boxes(boxes, [np.zeros(seen.sum(), np.int32) for seen in present])
    return dataclasses.replace(source, table=dataclasses.replace(source.table, **columns))


def settings(folder, **more):
    """The ``key=value`` words of a short run on `frames`."""
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
