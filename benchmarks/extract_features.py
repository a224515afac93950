"""Time the extraction of features from a cache: ``python benchmarks/extract_features.py --out FILE``.

The cache holds simulated pictures in videos as long as Cholec80's, one picture per second. Each network has random
weights, computes in bfloat16 at 224x224 and writes half precision. Its first video compiles it and is not counted.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from models.data.cache import ArrayImages, write_cache
from models.data.frames import FrameTable
from models.encoders import encoder_of_backbone
from models.extract import extract
from models.inputs import Reading

NETWORKS = ("resnet50", "convnext_base", "vit_base", "vit_large")
VIDEOS, SECONDS = 9, 2306  # Cholec80's mean length


def make_cache(folder: Path, videos: int, seconds: int, size: tuple[int, int]) -> None:
    """Write a cache of random pictures, which no processor can compress or predict."""
    count = videos * seconds
    names = np.repeat([f"video{n:02d}" for n in range(1, videos + 1)], seconds)
    table = FrameTable(
        names,
        np.tile(25 * np.arange(seconds), videos),
        np.zeros(count, np.int32),
        np.zeros((count, 7), np.int32),
        np.full(count, "test"),
    )
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (64, *size, 3), np.uint8)
    write_cache(ArrayImages(table, np.resize(pictures, (count, *size, 3))), folder)


def main() -> None:
    """Write the cache, extract by each network, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--videos", type=int, default=VIDEOS)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--size", type=int, nargs=2, default=(256, 456), help="of the pictures in the cache")
    parser.add_argument("--input", type=int, default=224, help="side of the network's input")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--workers", type=int, default=4)
    options = parser.parse_args()
    results: dict[str, Any] = {
        "command": ["python", *sys.argv],
        "device": jax.devices()[0].device_kind,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("jax", "flax")}},
        "pictures": [options.videos, options.seconds, *options.size],
        "batch": options.batch,
        "networks": {},
    }
    with tempfile.TemporaryDirectory() as temporary:
        cache = Path(temporary) / "cache"
        make_cache(cache, options.videos, options.seconds, tuple(options.size))
        for name in options.networks.split(","):
            encoder = encoder_of_backbone(name, None, size=(options.input, options.input))
            reading = Reading(encoder.size, batch=options.batch)
            begin = time.perf_counter()
            images = np.zeros((options.batch, *options.size, 3), np.uint8)
            np.asarray(encoder.compute(images))
            compiled = time.perf_counter() - begin
            # What the network alone could do, with its input on the device.
            given = jax.device_put(images)
            begin = time.perf_counter()
            for _ in range(20):
                last = encoder.compute(given)  # pyright: ignore[reportArgumentType]
            jax.block_until_ready(last)
            alone = 20 * options.batch / (time.perf_counter() - begin)
            begin = time.perf_counter()
            written, _, failed = extract(
                encoder, [str(cache)], Path(temporary) / name, reading, workers=options.workers
            )
            taken = time.perf_counter() - begin
            assert len(written) == options.videos and not failed, failed
            frames = options.videos * options.seconds
            results["networks"][name] = {
                "frames per second": round(frames / taken, 1),
                "times real time, at one frame per second": round(frames / taken, 1),
                "frames per second of the network alone": round(alone, 1),
                "seconds": round(taken, 2),
                "frames": frames,
                "seconds to compile": round(compiled, 1),
            }
            print(name, results["networks"][name], flush=True)
            options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
