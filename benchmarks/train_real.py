"""Train recipes on m2cai16-tool-locations and score them on its validation set.

    python benchmarks/train_real.py pack FRAMES packed.npz      # pack all frames into one file
    python benchmarks/train_real.py input packed.npz --out input.json      # measure the input pipeline
    python benchmarks/train_real.py fit packed.npz RECIPE... --out FOLDER      # results.json, predictions, metrics

The split is random within videos (47 % of the test frames have a training frame within a second), so that the results
are optimistic: they compare systems, and do not show how well a system works on a new video.
"""

import argparse
import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hmmjax.io import save_npz
from hmmjax.metrics import average_precision
from models.data.cache import load_images, read_cache, write_cache
from models.data.frames import Source, pack, read_packed, take
from models.data.loader import epoch_order, prefetch, read_batches
from models.data.m2cai_source import m2cai16_locations
from models.detect import LOCATORS, box_scores, detect
from models.detection.scores import pointing
from models.inputs import Reading
from models.predict import predict
from models.settings import Config, read_config
from models.systems import make_system
from models.training.feeds import score
from models.training.loop import fit
from models.training.run import environment
from models.training.step import data_mesh, init_state, make_optimizer, make_program, replicate, schedule, spread

SIZE = (216, 384)


def pack_frames(options: argparse.Namespace) -> None:
    """Write JPEG bytes and labels of all frames to one file."""
    packed = pack(m2cai16_locations(options.frames, SIZE), quality=options.quality)
    Path(options.packed).parent.mkdir(parents=True, exist_ok=True)
    packed.save(options.packed)
    print(f"{options.packed}: {len(packed)} frames, {Path(options.packed).stat().st_size / 2**20:.1f} MiB")


def measure_input(options: argparse.Namespace) -> None:
    """Measure frames per second from JPEG bytes and arrays to the accelerator; with --train also into a ResNet50."""
    config = read_config(None, ["system=toolnet", "backbone=resnet50", "size=[224,224]", "batch=256", *options.set])
    packed = read_packed(options.packed, SIZE)
    arrays = load_images(packed, workers=options.workers)
    rows = np.resize(np.arange(len(packed)), 1_000_000 // config.batch * config.batch)
    about = {"size": SIZE, "batch": config.batch, "cores": os.cpu_count()}
    results: dict[str, Any] = {"environment": environment(), **about}

    def note(part: str, name: str, rate: float) -> None:
        results.setdefault(part, {})[name] = rate
        print(f"{part}, {name}: {rate:.0f} frames per second of {SIZE[0]}x{SIZE[1]}", flush=True)
        Path(options.out).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    def batches(source: Source, workers: int = 0) -> Iterator[Any]:
        order = epoch_order(rows, config.batch, 0, 0)
        return prefetch(read_batches(source, order, workers=workers), lambda x: spread(x, data_mesh()), 3)

    uses: dict[str, Callable[[Any], Any]] = {"frames_per_second": lambda batch: jax.block_until_ready(batch["images"])}
    if options.train:
        uses["into training"] = train = training(config)
        name = f"{config.backbone} alone, the same batch repeatedly"
        note("into training", name, rate(itertools.repeat(next(batches(arrays))), train, options.seconds))
    for part, use in uses.items():
        for name, source, workers in (
            ("jpeg, one thread", packed, 0),
            (f"jpeg, {options.workers} threads", packed, options.workers),
            ("arrays, one thread", arrays, 0),
            (f"arrays, {options.workers} threads", arrays, options.workers),
        ):
            note(part, name, rate(batches(source, workers), use, options.seconds))
    # Grain's threads may still be reading ahead.
    os._exit(0)


def training(config: Config) -> Callable[[Any], Any]:
    """Return a function that trains on a batch and returns the loss."""
    system = make_system(config, 7, 7)
    learning_rate = schedule(config.optimizer, 10_000, 100)
    optimizer = make_optimizer(config.optimizer, learning_rate)
    program = make_program(system, optimizer, learning_rate, config, None, data_mesh())
    state = replicate(init_state(system, optimizer), data_mesh())

    def train(batch: Any) -> Any:
        nonlocal state
        state, metrics = program.train(state, batch)
        return metrics["loss"]

    return train


def rate(batches: Iterator[Any], use: Callable[[Any], Any], seconds: float) -> float:
    """Return frames per second, excluding the first three batches, which start threads and compile."""
    begin, seen = 0.0, 0
    for number, batch in enumerate(batches):
        answer = use(batch)
        if number == 2:
            jax.block_until_ready(answer)
            begin = time.perf_counter()
        elif number > 2:
            seen += len(batch["images"])
            if time.perf_counter() - begin > seconds:
                break
    jax.block_until_ready(answer)
    return seen / (time.perf_counter() - begin)


def fit_recipes(options: argparse.Namespace) -> None:
    """Train, predict the validation frames, score, and write all results."""
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"environment": environment(), "recipes": {}}
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        begin = time.perf_counter()
        write_cache(read_packed(options.packed, SIZE), cache, workers=options.workers)
        print(f"decoded in {time.perf_counter() - begin:.1f} s", flush=True)
        for recipe in options.recipes:
            for seed in options.seeds:
                name = f"{Path(recipe).stem}_seed{seed}"
                results["recipes"][name] = run_recipe(recipe, name, seed, cache, Path(folder) / name, out, options.set)
                (out / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def run_recipe(
    recipe: str, name: str, seed: int, cache: Path, run: Path, out: Path, settings: list[str]
) -> dict[str, Any]:
    """Train one recipe and return its scores."""
    places = [f"data.train={cache}", f"data.val={cache}", f"run={run}", f"seed={seed}", "tensorboard=false"]
    config = read_config(recipe, [*places, *settings])
    begin = time.perf_counter()
    fit(config, quiet=True)
    seconds = time.perf_counter() - begin
    results: dict[str, Any] = {"settings": settings, "seed": seed, "train_seconds": seconds}
    truth = read_truth(cache)
    for which in ("best", "last"):
        arrays = predict(run, [str(cache)], Reading(SIZE, part="val", batch=config.eval_batch), which=which)
        predicted = {track: gather(arrays, track, truth) for track in ("phases", "tools") if any_of(arrays, track)}
        results[which] = score(predicted, truth)
        if "tools" in predicted:
            results[which]["mAP by definition"] = {
                definition: average_precision(truth.tools, predicted["tools"], definition=definition).value
                for definition in ("sklearn", "voc-all-points", "voc-11-point", "m2cai16")
            }
        save_npz(out / f"{name}_{which}.npz", arrays, force=True)
        if config.system in LOCATORS:
            results[which] |= judge_boxes(run, cache, config.eval_batch, which, out / f"{name}_{which}_boxes.npz")
    shutil.copy(run / "metrics.jsonl", out / f"{name}.jsonl")
    shown = ", ".join(f"{key} {results['best'][key]:.4f}" for key in ("mAP", "accuracy") if key in results["best"])
    print(f"{name}: {seconds:.0f} s, best {shown}, last mAP {results['last'].get('mAP', float('nan')):.4f}", flush=True)
    return results


def judge_boxes(run: Path, cache: Path, batch: int, which: str, file: Path) -> dict[str, Any]:
    """Score the boxes of the validation frames, and count maps that peak inside a true box."""
    truth = read_truth(cache)
    arrays = detect(run, [str(cache)], Reading(SIZE, part="val", batch=batch), which=which)
    found = box_scores(arrays, truth)
    scores = {
        "box AP at IoU 0.5, VOC all points": found.mean,
        "box AP at IoU 0.5, VOC 11 points": float(np.nanmean(found.eleven_points)),
        "box AP by tool": dict(zip(truth.tool_names, found.all_points.tolist(), strict=True)),
        "true boxes by tool": dict(zip(truth.tool_names, found.boxes.tolist(), strict=True)),
    }
    if any_of(arrays, "maps"):
        maps = gather(arrays, "maps", truth)
        hits = pointing(maps, truth.boxes, truth.box_tools)
        scores["frames whose map peaks in a box, by tool"] = dict(zip(truth.tool_names, hits.tolist(), strict=True))
    save_npz(file, {name: x for name, x in arrays.items() if not name.startswith("maps_")}, force=True)
    return scores


def read_truth(cache: Path) -> Any:
    """Return the table of the validation frames, ordered by video and frame."""
    table = read_cache(cache).table
    rows = table.rows("val")
    return take(table, rows[np.lexsort((table.frames[rows], table.videos[rows]))])


def any_of(arrays: dict[str, np.ndarray], track: str) -> bool:
    """Return whether a predictions file has a track."""
    return any(name.startswith(f"{track}_") for name in arrays)


def gather(arrays: dict[str, np.ndarray], track: str, truth: Any) -> np.ndarray:
    """Return a track of all videos in the order of the truth."""

    def parts() -> Iterator[np.ndarray]:
        for video in sorted(set(truth.videos.tolist())):
            suffix = video.removeprefix("video")
            assert (arrays[f"frames_{suffix}"] == truth.frames[truth.videos == video]).all()
            yield arrays[f"{track}_{suffix}"].astype(np.float64)

    return np.concatenate(list(parts()))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    packing = commands.add_parser("pack", help="one file with all frames")
    packing.add_argument("frames", help="folder of m2cai16-tool-locations")
    packing.add_argument("packed")
    packing.add_argument("--quality", type=int, default=90)
    packing.set_defaults(run=pack_frames)
    feeding = commands.add_parser("input", help="measure the input pipeline")
    feeding.add_argument("packed")
    feeding.add_argument("--out", required=True)
    feeding.add_argument("--workers", type=int, default=16)
    feeding.add_argument("--seconds", type=float, default=6.0, help="seconds per measurement")
    feeding.add_argument("--train", action="store_true", help="also measure into a network in training")
    feeding.add_argument("--set", action="append", default=[], metavar="key=value", help="setting of that network")
    feeding.set_defaults(run=measure_input)
    fitting = commands.add_parser("fit", help="train and score")
    fitting.add_argument("packed")
    fitting.add_argument("recipes", nargs="+")
    fitting.add_argument("--out", required=True, help="folder for results.json, predictions and metrics")
    fitting.add_argument("--seeds", type=int, nargs="+", default=[0])
    fitting.add_argument("--set", action="append", default=[], metavar="key=value", help="overrides the recipes")
    fitting.add_argument("--workers", type=int, default=16)
    fitting.set_defaults(run=fit_recipes)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
