"""The systems that the demo compares, the recognizer M and M_H in three variants, and the table of their metrics."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hmmjax import metrics
from hmmjax.metrics import Metric
from hmmjax.simulate import PHASES, TOOLS
from hmmjax.stabilize import Examples, learn_model, numpy_posterior
from hmmjax.types import Labels, Params
from models.stabilize import observations


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The output of one system on the test videos.

    Attributes:
        name: of the system.
        phases: phase labels, one int array (n,) per video.
        tools: probabilities that each tool is present, one array (n, K) per video.
        ranking: scores (n, K) of each video by which average precision ranks frames.
        seconds: time for learning and inference, including compilation.
    """

    name: str
    phases: Sequence[np.ndarray]
    tools: Sequence[np.ndarray]
    ranking: Sequence[np.ndarray]
    seconds: float


def stabilize(
    known: Examples,
    test: Examples,
    transitions: tuple[Labels, np.ndarray],
    split: Callable[[Any], Sequence[np.ndarray]],
) -> list[Outcome]:
    """Return the outcomes of M and of three variants of M_H on the test videos.

    Args:
        known: labeled videos that M was not trained on, in which its errors are counted.
        test: the videos to stabilize; their labels are not used.
        transitions: labels (B, T) of other videos and their mask (B, T), in which transitions are counted.
        split: splits a padded (B, T, ...) array of the test videos into one array per video.
    """
    raw = test.obs.discretize()
    scores = split(test.obs.tools)
    outcomes = [Outcome("M", split(raw.phases), scores, scores, 0.0)]

    def learn(emissions: str, **calibration: Any) -> Params:
        return learn_model(
            dataclasses.replace(known, obs=observations(known.obs, emissions)),
            emissions=emissions,
            transitions=transitions,
            max_iterations=0,
            num_phases=len(PHASES),
            num_tools=len(TOOLS),
            **calibration,
        ).params

    def infer(name: str, params: Params, emissions: str, start: float, online: bool = False) -> None:
        posterior, _ = numpy_posterior(params, observations(test.obs, emissions), test.mask, online=online)
        taken = time.perf_counter() - start
        phases, tools, ranking = np.asarray(posterior.phases).argmax(-1), posterior.tools, posterior.tool_log_odds
        outcomes.append(Outcome(name, split(phases), split(tools), split(ranking), taken))

    start = time.perf_counter()
    infer("M_H confusion", learn("confusion"), "confusion", start)
    start = time.perf_counter()
    params = learn("probability", calibrated=True, calibration={"iterations": 12})
    infer("M_H online", params, "probability", start, online=True)
    infer("M_H", params, "probability", start)
    return outcomes


def score(phases: Sequence[np.ndarray], tools: Sequence[np.ndarray], outcome: Outcome) -> dict[str, Metric]:
    """Return the metrics of one system by name, each with its convention."""
    return {
        "tool mAP": metrics.average_precision(tools, outcome.ranking, names=TOOLS),
        "tool macro F1": metrics.tool_f1(tools, outcome.tools, names=TOOLS),
        "on/off changes": metrics.tool_changes(outcome.tools, names=TOOLS),
        "phase accuracy": metrics.accuracy(phases, outcome.phases),
        "phase Jaccard": metrics.jaccard(phases, outcome.phases, names=PHASES),
        "phase changes": metrics.phase_changes(outcome.phases),
        "phases lost": metrics.phases_lost(phases, outcome.phases, names=PHASES),
    }


def lost_phases(
    ids: Sequence[str], truth: Sequence[np.ndarray], raw: Sequence[np.ndarray], kept: Sequence[np.ndarray]
) -> list[str]:
    """Return one sentence per phase and video of which stabilized predictions hit no second, with the reason.

    Args:
        ids: names of the videos.
        truth: true phases (n,) of each video, one row per second.
        raw: what M predicts.
        kept: what M_H predicts.
    """
    found = []
    for video, known, said, shown in zip(ids, truth, raw, kept, strict=True):
        for phase in np.setdiff1d(known, known[shown == known]):
            rows = known == phase
            right = said[rows] == phase
            edges = np.flatnonzero(np.diff(np.concatenate([[0], right, [0]])))
            longest = int((edges[1::2] - edges[::2]).max(initial=0))
            instead = PHASES[np.bincount(shown[rows]).argmax()]
            found.append(
                f"{PHASES[phase]} of {video} ({rows.sum()} seconds) is {instead} in M_H: M recognizes {right.sum()} "
                f"seconds of it, at most {longest} in a row"
            )
    return found


def table(results: dict[str, dict[str, Metric]]) -> Any:
    """Return a Rich table, 80 characters wide, with one row per system and one column per metric."""
    from rich.box import SIMPLE_HEAVY
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAVY, padding=(0, 0), title="Test videos: M, the recognizer; M_H, stabilized")
    grid.add_column("", no_wrap=True)
    for name in next(iter(results.values())):
        grid.add_column(name, justify="right")
    for system, row in results.items():
        grid.add_row(system, *(f"{m.value:.0f}" if m.unit else f"{m.value:.3f}" for m in row.values()))
    return grid


def conventions(results: dict[str, dict[str, Metric]]) -> list[str]:
    """Return one line per metric that states its convention."""
    row = next(iter(results.values()))
    return [f"{name}: {metric.convention}; {metric.n_videos} videos" for name, metric in row.items()]
