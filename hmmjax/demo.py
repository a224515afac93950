"""The whole idea on simulated surgeries, no data needed: ``python -m hmmjax.demo --out demo-output``.

A recogniser M says, second by second, which phase a surgery is in and which tools it sees, and errs as real networks
do. A coupled HMM learnt from labelled videos then stabilises what M says of other videos: M becomes M_H. Needs the
``data`` extra.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hmmjax
from hmmjax import metrics
from hmmjax.metrics import Metric, unpad
from hmmjax.simulate import PHASES, TOOLS, Surgery, simulate_surgeries, stack
from hmmjax.stabilize import PRIORS
from hmmjax.types import Labels, Observations


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What one system says of the test videos.

    Attributes:
        name: of the system.
        phases: int phase labels, one (n,) array per video.
        tools: probabilities of presence, one (n, K) array per video.
        seconds: spent on learning and inference, compilation included.
    """

    name: str
    phases: Sequence[np.ndarray]
    tools: Sequence[np.ndarray]
    seconds: float


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m hmmjax.demo", description="Stabilise simulated surgeries.")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="folder for pictures and figures")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter videos")
    parser.add_argument("--seed", type=int, default=0, help="of the simulation")
    options = parser.parse_args(argv)
    run(options.out, quick=options.quick, seed=options.seed)


def run(out: Path, *, quick: bool = False, seed: int = 0) -> dict[str, dict[str, Metric]]:
    """Simulate, learn, stabilise, and write the table and a picture of each test video.

    Args:
        out: folder to write to; made if missing.
        quick: 8 videos of 25 minutes in place of 12 of Cholec80's mean length.
        seed: of the simulation.

    Returns:
        For each system, its figures by name.
    """
    from rich.console import Console

    console = Console()
    num_train, num_test, minutes = (5, 3, 25.0) if quick else (8, 4, 38.4)
    surgeries = simulate_surgeries(num_train + num_test, seed, minutes=minutes)
    train, test = surgeries[:num_train], surgeries[num_train:]
    console.print(
        f"{len(surgeries)} simulated surgeries, {sum(map(len, surgeries))} seconds in all: transitions and the "
        f"recogniser's errors are counted on {num_train}, figures are of the other {num_test}."
    )
    with console.status("stabilising"):
        outcomes = stabilise(stack(train), stack(test))
    truth = [s.phases for s in test], [s.tools for s in test]
    changes, switches = metrics.phase_changes(truth[0]), metrics.tool_changes(truth[1])
    results = {outcome.name: score(*truth, outcome) for outcome in outcomes}
    console.print(table(results))
    for line in conventions(results):
        console.print(line, style="dim", highlight=False)
    console.print(
        "M_H confusion reads M's labels, M_H probability its probabilities; M_H calibrated weighs them first. "
        f"The truth changes phase {changes.value:.0f} times and switches tools on or off {switches.value:.0f} times."
    )
    console.print("Seconds, compilation included: " + ", ".join(f"{o.name} {o.seconds:.1f}" for o in outcomes[1:]))
    write(out, test, outcomes, results, console.print)
    return results


Batch = tuple[Labels, Observations, np.ndarray]


def stabilise(train: Batch, test: Batch) -> list[Outcome]:
    """M itself, and M_H with either family of emissions, on the test videos.

    Args:
        train: labels, observations and mask of the videos to learn from.
        test: the same of the videos to stabilise; their labels are not looked at.
    """
    labels, seen, mask = train
    _, raw, test_mask = test
    outcomes = [Outcome("M", unpad(raw.discretize().phases, test_mask), unpad(raw.tools, test_mask), 0.0)]
    systems: tuple[tuple[str, str, Callable[[Observations], Observations]], ...] = (
        ("M_H confusion", "confusion", lambda obs: obs.discretize()),
        ("M_H probability", "probability", lambda obs: obs),
        ("M_H calibrated", "probability", lambda obs: obs),
    )
    for name, emissions, prepare in systems:
        start = time.perf_counter()
        params = hmmjax.estimate(labels, prepare(seen), mask, emissions=emissions, priors=PRIORS)
        if name == "M_H calibrated":
            params = hmmjax.calibrate(params, prepare(seen), mask, labels, iterations=12).params
        posterior = hmmjax.posterior(params, prepare(raw), test_mask)
        phases, tools = np.asarray(posterior.phases).argmax(-1), np.asarray(posterior.tools)
        seconds = time.perf_counter() - start
        outcomes.append(Outcome(name, unpad(phases, test_mask), unpad(tools, test_mask), seconds))
    return outcomes


def score(phases: Sequence[np.ndarray], tools: Sequence[np.ndarray], outcome: Outcome) -> dict[str, Metric]:
    """The figures of one system, each with its convention."""
    return {
        "tool mAP": metrics.average_precision(tools, outcome.tools, names=TOOLS),
        "tool macro F1": metrics.tool_f1(tools, outcome.tools, names=TOOLS),
        "on/off changes": metrics.tool_changes(outcome.tools, names=TOOLS),
        "phase accuracy": metrics.accuracy(phases, outcome.phases),
        "phase Jaccard": metrics.jaccard(phases, outcome.phases, names=PHASES),
        "phase changes": metrics.phase_changes(outcome.phases),
    }


def table(results: dict[str, dict[str, Metric]]) -> Any:
    """A Rich table: a row for each system, a column for each figure; 80 characters wide."""
    from rich.box import SIMPLE_HEAVY
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAVY, padding=(0, 0), title="Test videos: M, the recogniser; M_H, stabilised")
    grid.add_column("", no_wrap=True)
    for name in next(iter(results.values())):
        grid.add_column(name, justify="right")
    for system, figures in results.items():
        grid.add_row(system, *(f"{m.value:.0f}" if m.unit else f"{m.value:.3f}" for m in figures.values()))
    return grid


def conventions(results: dict[str, dict[str, Metric]]) -> list[str]:
    """How each figure is measured, a line each."""
    figures = next(iter(results.values()))
    return [f"{name}: {metric.convention}; {metric.n_videos} videos" for name, metric in figures.items()]


def write(
    out: Path,
    surgeries: Sequence[Surgery],
    outcomes: Sequence[Outcome],
    results: dict[str, dict[str, Metric]],
    tell: Callable[[str], None],
) -> None:
    """Write figures.json and a picture of each video; the last outcome is the one whose tools are drawn."""
    from hmmjax.plots import plot_video, save_figure

    out.mkdir(parents=True, exist_ok=True)
    for earlier in out.glob("sim*.png"):
        earlier.unlink()
    records = [{"system": name, **metric.asdict()} for name, row in results.items() for metric in row.values()]
    # NaN has no place in JSON; it stands for "no such figure" here.
    records = [{k: None if v != v else v for k, v in record.items()} for record in records]
    (out / "figures.json").write_text(json.dumps(records, indent=1), encoding="utf-8")
    raw, *_, best = outcomes
    for n, surgery in enumerate(surgeries):
        figure = plot_video(
            np.arange(len(surgery)),
            phases={"truth": surgery.phases, **{o.name: o.phases[n] for o in outcomes}},
            tools={"truth": surgery.tools, "raw": _present(raw.tools[n]), "stabilised": _present(best.tools[n])},
            tool_posterior=best.tools[n],
            phase_names=PHASES,
            tool_names=TOOLS,
            title=f"{surgery.name} (simulated): stabilised tools are those of {best.name}",
        )
        save_figure(figure, out / f"{surgery.name}.png", force=True)
    tell(f"wrote {len(surgeries)} pictures and figures.json to {out}")


def _present(probabilities: np.ndarray) -> np.ndarray:
    return (probabilities >= 0.5).astype(np.int32)


if __name__ == "__main__":
    main()
