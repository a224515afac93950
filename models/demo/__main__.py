"""The whole chain, no data needed: ``python -m models.demo --out demo-output``, which is ``make demo``.

1. SimSurg draws surgeries and writes them as Cholec80 is laid out: mp4, phase and tool annotations.
2. A small EndoNet learns to recognize phases and tools in single frames, from the videos of the part "train".
3. It predicts the videos of "val" and "test", which it has never seen. Its errors are its own.
4. A coupled HMM learns from "val" how the network errs (on its own training videos it hardly does), and from the
   annotations of "train" and "val" how phases and tools follow each other.
5. The HMM stabilizes "test": the table, and pictures. Nothing of "test" was looked at before.

Needs the ``vision`` extra.
"""

import argparse
import dataclasses
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console

from hmmjax import io, metrics
from hmmjax.data.splits import Parts
from hmmjax.metrics import Metric
from hmmjax.stabilize.learn import Examples
from hmmjax.types import Labels
from models.data.cache import write_collection
from models.data.cholec80 import cholec80
from models.data.simsurg import write_cholec80
from models.demo.pictures import draw_moments, draw_videos
from models.demo.stabilize import conventions, score, stabilize, table
from models.predict import Reading, predict
from models.settings import read_config
from models.training.loop import fit

RECIPE = Path(__file__).parents[1] / "recipes" / "endonet_simsurg.yaml"
SIZE = (64, 112)  # height and width of the videos


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is simulated and learned.

    Attributes:
        videos: of each part.
        minutes: mean length of a video.
        epochs: of training.
    """

    videos: dict[str, int]
    minutes: float
    epochs: int


FULL = Scale({"train": 8, "val": 4, "test": 3}, 12.0, 8)
QUICK = Scale({"train": 4, "val": 3, "test": 1}, 4.0, 5)


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m models.demo", description="Simulate, train, predict, stabilize.")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for everything")
    parser.add_argument("--quick", action="store_true", help="little data: shows that all works, not how well")
    parser.add_argument("--seed", type=int, default=0, help="of simulation and training")
    options = parser.parse_args(argv)
    run(options.out, QUICK if options.quick else FULL, seed=options.seed)


def run(out: Path, scale: Scale = FULL, *, seed: int = 0) -> dict[str, dict[str, Metric]]:
    """Simulate, train, predict, stabilize, write the table's figures and the pictures.

    Args:
        out: folder to write to; what an earlier run left there is replaced.
        scale: how much of everything.
        seed: of simulation and training.

    Returns:
        For each system, its figures by name.
    """
    console = Console(highlight=False)
    begin = time.perf_counter()
    parts = _parts(scale.videos)
    for name in ("simsurg", "cache", "network"):
        shutil.rmtree(out / name, ignore_errors=True)
    for picture in out.glob("*.png"):
        picture.unlink()
    workers = min(os.cpu_count() or 1, 4)

    with stage(console, "1. simulate") as say:
        surgeries = write_cholec80(
            out / "simsurg", sum(scale.videos.values()), seed, minutes=scale.minutes, size=SIZE, workers=workers
        )
        say(f"{len(surgeries)} surgeries, {sum(map(len, surgeries)) / 60:.0f} minutes of video, in {out / 'simsurg'}")
    with stage(console, "2. read") as say:
        collection = cholec80(out / "simsurg", split={name: parts[name] for name in ("train", "val")})
        cache = write_collection(collection, out / "cache", SIZE)
        say(f"{len(cache)} pictures, one a second, with their labels")
    with stage(console, "3. train") as say:
        settings = [f"data.train={out / 'cache'}", f"data.val={out / 'cache'}", f"run={out / 'network'}"]
        fit(read_config(RECIPE, [*settings, f"epochs={scale.epochs}", f"seed={seed}"]), quiet=True)
        say(f"a small EndoNet on {scale.videos['train']} videos, {scale.epochs} epochs")
    with stage(console, "4. predict") as say:
        videos = [str(out / "simsurg" / "videos" / f"{video}.mp4") for video in parts["test"]]
        reading = Reading(SIZE, part="val")
        arrays = predict(out / "network", [str(out / "cache"), *videos], reading, which="last")
        io.save_npz(out / "predictions.npz", arrays, force=True)
        say(f"the {scale.videos['val']} + {scale.videos['test']} videos that it was not trained on")
    with stage(console, "5. stabilize") as say:
        known, test, index = read_back(out, parts)
        outcomes = stabilize(known, test, transitions(out, parts), index.split)
        truth = index.split(test.labels.phases), index.split(test.labels.tools)
        results = {outcome.name: score(*truth, outcome) for outcome in outcomes}
        say("errors learned from val, transitions from train and val")
    with stage(console, "6. draw") as say:
        tested = surgeries[-scale.videos["test"] :]
        write_figures(out / "figures.json", results)
        draw_videos(out, index, truth, outcomes)
        draw_moments(out / "moments.png", index, truth, (outcomes[0], outcomes[-1]), tested, seed, SIZE)
        say(f"{len(parts['test'])} time lines and moments.png, in {out}")
    tell(console, results, truth, scale)
    console.print(f"All of it took {time.perf_counter() - begin:.0f} seconds.")
    return results


@contextmanager
def stage(console: Console, name: str) -> Iterator[Callable[[str], None]]:
    """Show that a stage is being worked on; what it says is printed with its seconds."""
    said: list[str] = []
    start = time.perf_counter()
    with console.status(name):
        yield said.append
    console.print(f"{name:13}{time.perf_counter() - start:5.0f} s   {' '.join(said)}")


def _parts(videos: dict[str, int]) -> Parts:
    ends = np.cumsum(list(videos.values()))
    return {
        part: tuple(f"video{n:02d}" for n in range(end - count + 1, end + 1))
        for (part, count), end in zip(videos.items(), ends.tolist(), strict=True)
    }


def read_back(out: Path, parts: Parts) -> tuple[Examples, Examples, io.BatchIndex]:
    """The predictions file joined with the annotation files: val, test, and where test's frames are."""
    obs, labels, mask, index = io.to_batch(
        io.join(io.read(out / "predictions.npz")), annotations(out, parts, "val test")
    )
    examples = Examples(obs, labels, mask)
    rows = {part: [index.ids.index(video) for video in parts[part]] for part in ("val", "test")}
    return examples.take(rows["val"]), examples.take(rows["test"]), index.select(rows["test"])


def transitions(out: Path, parts: Parts) -> tuple[Labels, np.ndarray]:
    """Labels once a second of all videos but test's, and their mask."""
    videos = [io.sample(video, 1.0) for video in io.join(annotations(out, parts, "train val"))]
    seen, _, mask, _ = io.to_batch(videos)
    return Labels(seen.phases, seen.tools), mask


def annotations(out: Path, parts: Parts, which: str) -> list[io.Track]:
    """The annotation files of some parts' videos."""
    videos = [video for part in which.split() for video in parts[part]]
    folder = out / "simsurg"
    files = [folder / f"{kind}_annotations" / f"{video}-{kind}.txt" for video in videos for kind in ("phase", "tool")]
    return io.read_annotations(files)


def write_figures(path: Path, results: dict[str, dict[str, Metric]]) -> None:
    """Every figure with its convention, as JSON; null where there is none, such as the precision of an absent tool."""
    records = [{"system": name, **metric.asdict()} for name, row in results.items() for metric in row.values()]
    records = [{k: None if v != v else v for k, v in record.items()} for record in records]
    path.write_text(json.dumps(records, indent=1), encoding="utf-8")


def tell(
    console: Console,
    results: dict[str, dict[str, Metric]],
    truth: tuple[Sequence[np.ndarray], Sequence[np.ndarray]],
    scale: Scale,
) -> None:
    """Print the table and how to read it."""
    console.print(table(results))
    for line in conventions(results):
        console.print(line, style="dim")
    changes, switches = metrics.phase_changes(truth[0]), metrics.tool_changes(truth[1])
    console.print(
        "M is the network, one picture at a time. M_H stabilizes its probabilities, weighed by what they have been "
        "worth in the videos of val; M_H online looks at the past only; M_H confusion reads M's labels alone. "
        f"The truth changes phase {changes.value:.0f} times and switches tools on or off {switches.value:.0f} times."
    )
    if scale is QUICK:
        console.print("Quick: learned from minutes of video, which shows that all works, not how well.")


if __name__ == "__main__":
    main()
