"""What the demo compares: a recognizer M, and M_H, what coupled HMMs make of it."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hmmjax
from hmmjax import metrics
from hmmjax.metrics import Metric
from hmmjax.simulate import PHASES, TOOLS
from hmmjax.stabilize import PRIORS
from hmmjax.stabilize.learn import Examples, learn_model
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


def stabilize(
    known: Examples,
    test: Examples,
    transitions: tuple[Labels, np.ndarray],
    split: Callable[[Any], Sequence[np.ndarray]],
) -> list[Outcome]:
    """M itself, and M_H in three ways, on the test videos.

    Args:
        known: labeled videos that M was not trained on: how it errs is learned here.
        test: the videos to stabilize; their labels are not looked at.
        transitions: labels (B, T) of any videos and their mask: how phases and tools follow each other.
        split: from a padded (B, T, ...) array of the test videos to one array a video.
    """
    raw = test.obs.discretize()
    outcomes = [Outcome("M", split(raw.phases), split(test.obs.tools), 0.0)]

    def infer(name: str, params: Any, obs: Observations, start: float, infer: Callable[..., Any]) -> None:
        answer = infer(params, obs, test.mask)
        phases, tools = np.asarray(answer.phases).argmax(-1), np.asarray(answer.tools)
        outcomes.append(Outcome(name, split(phases), split(tools), time.perf_counter() - start))

    def learned(emissions: str, obs: Observations) -> Any:
        examples = dataclasses.replace(known, obs=obs)
        sizes = {"num_phases": len(PHASES), "num_tools": len(TOOLS)}
        return learn_model(
            examples, emissions=emissions, transitions=transitions, priors=PRIORS, max_iterations=0, **sizes
        ).params

    start = time.perf_counter()
    infer("M_H confusion", learned("confusion", known.obs.discretize()), raw, start, hmmjax.posterior)
    start = time.perf_counter()
    params = learned("probability", known.obs)
    params = hmmjax.calibrate(params, known.obs, known.mask, known.labels, iterations=12).params
    infer("M_H online", params, test.obs, start, hmmjax.filter)
    infer("M_H", params, test.obs, start, hmmjax.posterior)
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

    grid = Table(box=SIMPLE_HEAVY, padding=(0, 0), title="Test videos: M, the recognizer; M_H, stabilized")
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
