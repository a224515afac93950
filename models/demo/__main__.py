"""The complete pipeline on simulated surgeries: ``python -m models.demo --out demo-output``, or ``make demo``.

1. SimSurg simulates surgeries and writes them in the layout of Cholec80: mp4, phase and tool annotations.
2. A small EndoNet learns to recognize phases and tools in single frames, from the videos of the part "train".
3. It predicts the videos of the parts "val" and "test", which it was not trained on.
4. A coupled HMM learns the network's errors from "val" (the network makes hardly any on its training videos), and the
   transitions of phases and tools from the annotations of "train" and "val".
5. The HMM stabilizes "test", of which no label was used before, and the demo writes a table and plots.

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
from hmmjax.stabilize import Examples
from hmmjax.types import Labels
from models.data.cache import write_collection
from models.data.cholec80 import cholec80
from models.data.simsurg import write_cholec80
from models.demo.outcomes import conventions, lost_phases, score, stabilize, table
from models.demo.plots import draw_moments, draw_videos
from models.inputs import Reading
from models.predict import predict
from models.settings import read_config
from models.training.loop import fit

RECIPE = Path(__file__).parents[1] / "recipes" / "endonet_simsurg.yaml"
SIZE = (64, 112)  # height and width of the videos


@dataclasses.dataclass(frozen=True)
class Scale:
    """The amount of data and training.

    Attributes:
        videos: number of videos of each part.
        minutes: mean length of a video.
        epochs: training epochs.
    """

    videos: dict[str, int]
    minutes: float
    epochs: int


FULL = Scale({"train": 8, "val": 4, "test": 3}, 12.0, 8)
QUICK = Scale({"train": 4, "val": 3, "test": 1}, 4.0, 5)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m models.demo", description="Simulate, train, predict, stabilize.")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="output folder (demo-output)")
    parser.add_argument(
        "--quick", action="store_true", help="use little data: checks that the pipeline works, not how well"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of simulation and training (0)")
    options = parser.parse_args(argv)
    run(options.out, QUICK if options.quick else FULL, seed=options.seed)


def run(out: Path, scale: Scale = FULL, *, seed: int = 0) -> dict[str, dict[str, Metric]]:
    """Simulate, train, predict and stabilize; write the metrics and the plots.

    Args:
        out: output folder; the output of an earlier run is replaced.
        scale: the amount of data and training.
        seed: of simulation and training.

    Returns:
        For each system, its metrics by name.
    """
    console = Console(highlight=False)
    begin = time.perf_counter()
    parts = _parts(scale.videos)
    for name in ("simsurg", "cache", "network"):
        shutil.rmtree(out / name, ignore_errors=True)
    for plot in out.glob("*.png"):
        plot.unlink()
    workers = min(os.cpu_count() or 1, 4)

    with stage(console, "1. simulate") as note:
        surgeries = write_cholec80(
            out / "simsurg", sum(scale.videos.values()), seed, minutes=scale.minutes, size=SIZE, workers=workers
        )
        note(f"{len(surgeries)} surgeries, {sum(map(len, surgeries)) / 60:.0f} minutes of video, in {out / 'simsurg'}")
    with stage(console, "2. read") as note:
        collection = cholec80(out / "simsurg", split={name: parts[name] for name in ("train", "val")})
        cache = write_collection(collection, out / "cache", SIZE, workers=workers)
        note(f"{len(cache)} frames, one per second, with their labels")
    with stage(console, "3. train") as note:
        settings = [f"data.train={out / 'cache'}", f"data.val={out / 'cache'}", f"run={out / 'network'}"]
        fit(read_config(RECIPE, [*settings, f"epochs={scale.epochs}", f"seed={seed}"]), quiet=True)
        note(f"a small EndoNet on {scale.videos['train']} videos, {scale.epochs} epochs")
    with stage(console, "4. predict") as note:
        videos = [str(out / "simsurg" / "videos" / f"{video}.mp4") for video in parts["test"]]
        reading = Reading(SIZE, part="val")
        arrays = predict(out / "network", [str(out / "cache"), *videos], reading, which="last")
        io.save_npz(out / "predictions.npz", arrays, force=True)
        note(f"{scale.videos['val']} val and {scale.videos['test']} test videos, not used in training")
    with stage(console, "5. stabilize") as note:
        known, test, index = read_back(out, parts)
        outcomes = stabilize(known, test, transitions(out, parts), index.split)
        truth = index.split(test.labels.phases), index.split(test.labels.tools)
        results = {outcome.name: score(*truth, outcome) for outcome in outcomes}
        note("errors learned from val, transitions from train and val")
    with stage(console, "6. draw") as note:
        tested = surgeries[-scale.videos["test"] :]
        write_metrics(out / "figures.json", results)
        draw_videos(out, index, truth, outcomes)
        draw_moments(out / "moments.png", index, truth, (outcomes[0], outcomes[-1]), tested, seed, SIZE)
        note(f"{len(parts['test'])} timelines and moments.png, in {out}")
    tell(console, results, truth, scale)
    lost = lost_phases(index.ids, truth[0], outcomes[0].phases, outcomes[-1].phases)
    for line in lost or ["M_H shows all phases of the test videos."]:
        console.print(line)
    console.print(f"The demo took {time.perf_counter() - begin:.0f} seconds.")
    return results


@contextmanager
def stage(console: Console, name: str) -> Iterator[Callable[[str], None]]:
    """Show a stage while it runs, then print its seconds and the notes passed to the yielded function."""
    notes: list[str] = []
    start = time.perf_counter()
    with console.status(name):
        yield notes.append
    console.print(f"{name:13}{time.perf_counter() - start:5.0f} s   {' '.join(notes)}")


def _parts(videos: dict[str, int]) -> Parts:
    ends = np.cumsum(list(videos.values()))
    return {
        part: tuple(f"video{n:02d}" for n in range(end - count + 1, end + 1))
        for (part, count), end in zip(videos.items(), ends.tolist(), strict=True)
    }


def read_back(out: Path, parts: Parts) -> tuple[Examples, Examples, io.BatchIndex]:
    """Return the predictions joined with the annotations: val, test, and the index of test's frames."""
    obs, labels, mask, index = io.to_batch(
        io.join(io.read(out / "predictions.npz")), annotations(out, parts, "val test")
    )
    examples = Examples(obs, labels, mask)
    rows = {part: [index.ids.index(video) for video in parts[part]] for part in ("val", "test")}
    return examples.take(rows["val"]), examples.take(rows["test"]), index.select(rows["test"])


def transitions(out: Path, parts: Parts) -> tuple[Labels, np.ndarray]:
    """Return labels, one per second, of the videos of train and val, and their mask."""
    videos = [io.sample(video, 1.0) for video in io.join(annotations(out, parts, "train val"))]
    seen, _, mask, _ = io.to_batch(videos)
    return Labels(seen.phases, seen.tools), mask


def annotations(out: Path, parts: Parts, which: str) -> list[io.Track]:
    """Read the annotation files of the videos of some parts, named in a string."""
    videos = [video for part in which.split() for video in parts[part]]
    folder = out / "simsurg"
    files = [folder / f"{kind}_annotations" / f"{video}-{kind}.txt" for video in videos for kind in ("phase", "tool")]
    return io.read_annotations(files)


def write_metrics(path: Path, results: dict[str, dict[str, Metric]]) -> None:
    """Write every metric with its convention as JSON; an undefined one, such as the AP of an absent tool, is null."""
    records = [{"system": name, **metric.asdict()} for name, row in results.items() for metric in row.values()]
    records = [{k: None if v != v else v for k, v in record.items()} for record in records]
    path.write_text(json.dumps(records, indent=1), encoding="utf-8")


def tell(
    console: Console,
    results: dict[str, dict[str, Metric]],
    truth: tuple[Sequence[np.ndarray], Sequence[np.ndarray]],
    scale: Scale,
) -> None:
    """Print the table and an explanation of it."""
    console.print(table(results))
    for line in conventions(results):
        console.print(line, style="dim")
    changes, switches = metrics.phase_changes(truth[0]), metrics.tool_changes(truth[1])
    console.print(
        "M is the network, applied to each frame alone. M_H stabilizes its probabilities, with weights calibrated on "
        "the videos of val; M_H online uses past and present frames only; M_H confusion uses M's labels only. In the "
        f"truth, phases change {changes.value:.0f} times and tools {switches.value:.0f} times."
    )
    if scale is QUICK:
        console.print("--quick uses little data: it shows that the pipeline works, not how well.")


if __name__ == "__main__":
    main()
