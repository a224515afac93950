"""What the model changed, and why: the longest runs in which raw and stabilized differ, with the evidence weighed."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hmmjax.plots.style import words
from hmmjax.stabilize import Stabilized
from hmmjax.stabilize.prepare import observations_for
from hmmjax.stabilize.table import as_phases, as_tools
from hmmjax.types import Observations


@dataclasses.dataclass(frozen=True)
class Change:
    """One run of frames in which the stabilized result differs from what was read in one and the same way.

    Attributes:
        video: the video's position.
        track: "phases" or "tools".
        tool: the tool's position; -1 for phases.
        first: position of its first frame among those read.
        last: position of its last frame.
        start: seconds at its first frame.
        end: seconds after its last frame.
        raw: the label that was read.
        stabilized: the label that came out.
        before: the stabilized phase before the run; -1 at the start of the video, and for tools.
        after: likewise after it.
        probability: mean posterior probability of what came out.
        right: share of the run's annotated frames where the stabilized label is true; NaN without annotation.
        raw_right: the same of what was read.
        frames_say: nats that the recognizer's outputs in the run speak for what came out (negative: for what was read).
        moves_say: nats that transitions into, within and out of the run speak for what came out.
        tools_say: nats that the tools, as stabilized, speak for the phase that came out; NaN for tools.
    """

    video: int
    track: str
    tool: int
    first: int
    last: int
    start: float
    end: float
    raw: int
    stabilized: int
    before: int
    after: int
    probability: float
    right: float
    raw_right: float
    frames_say: float
    moves_say: float
    tools_say: float

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.end - self.start


def longest_changes(result: Stabilized, count: int = 12) -> list[Change]:
    """The longest runs of each track in which raw and stabilized labels differ, longest first.

    Args:
        result: from `hmmjax.stabilize.stabilize`.
        count: at most so many of each track.

    Returns:
        Changes of phases, then of tools. Weights are by the model of all videos, along the two paths of labels.

    Source: log-likelihood ratios of the run's two readings, by the model's own emissions and transitions.
    """
    found: list[Change] = []
    for track in ("phases", "tools"):
        raw, smooth = getattr(result.raw, track), getattr(result.smoothed, track)
        if raw is None or smooth is None:
            continue
        own = [
            (length, i, tool, first, last)
            for i in range(len(result.ids))
            for length, tool, first, last in _runs(track, raw[i], smooth[i])
        ]
        own.sort(key=lambda run: -run[0])
        found += [_explain(result, track, *run[1:]) for run in own[:count]]
    return found


def _labels(track: str, values: np.ndarray) -> np.ndarray:
    """(n, C) labels: one column of phases, or one per tool."""
    return as_phases(values)[:, None] if track == "phases" else as_tools(values)


def _runs(track: str, raw: np.ndarray, smooth: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Runs of one kind of difference: (length, tool, first, last)."""
    runs = []
    before, after = _labels(track, raw), _labels(track, smooth)
    for c in range(before.shape[1]):
        pair = np.stack([before[:, c], after[:, c]], 1)
        edges = np.flatnonzero((np.diff(pair, axis=0) != 0).any(1)) + 1
        for first, end in zip([0, *edges.tolist()], [*edges.tolist(), len(pair)], strict=True):
            # Where nothing was said (-1) nothing was changed.
            if pair[first, 0] != pair[first, 1] and pair[first, 0] >= 0:
                runs.append((end - first, c if track == "tools" else -1, first, end - 1))
    return runs


def _explain(result: Stabilized, track: str, i: int, tool: int, first: int, last: int) -> Change:
    column = max(tool, 0)
    raw = _labels(track, getattr(result.raw, track)[i])[:, column]
    smooth = _labels(track, getattr(result.smoothed, track)[i])[:, column]
    posterior = getattr(result.smoothed, track)[i]
    said, out, inside = int(raw[first]), int(smooth[first]), slice(first, last + 1)
    if track == "phases":
        probability = posterior[inside, out].mean()
    else:
        probability = (posterior[inside, tool] if out else 1 - posterior[inside, tool]).mean()
    right = raw_right = np.nan
    truth = getattr(result, f"truth_{track}")
    if truth is not None:
        known = truth[i][inside] if track == "phases" else truth[i][inside, tool]
        known = known[known >= 0]
        if known.size:
            right, raw_right = (known == out).mean(), (known == said).mean()
    seconds = result.frames[i] / result.fps
    frames_say, moves_say, tools_say = _weigh(result, track, i, tool, first, last, said, smooth)
    return Change(
        video=i,
        track=track,
        tool=tool,
        first=first,
        last=last,
        start=float(seconds[first]),
        end=float(seconds[last] + result.step_seconds),
        raw=said,
        stabilized=out,
        before=int(smooth[first - 1]) if track == "phases" and first else -1,
        after=int(smooth[last + 1]) if track == "phases" and last + 1 < len(smooth) else -1,
        probability=float(probability),
        right=float(right),
        raw_right=float(raw_right),
        frames_say=frames_say,
        moves_say=moves_say,
        tools_say=tools_say,
    )


def _weigh(
    result: Stabilized, track: str, i: int, tool: int, first: int, last: int, said: int, smooth: np.ndarray
) -> tuple[float, float, float]:
    """The three weights of a change, in nats; NaN where the model has no such part."""
    params = result.model.params
    chain = getattr(params, track)
    inside = np.arange(first, last + 1)
    around = np.arange(max(first - 1, 0), min(last + 2, len(smooth)))
    other = smooth.copy()
    other[inside] = said

    def picked(track: str) -> Any:
        return jax.tree.map(lambda x: x[inside], result.outputs(track, i))

    part = observations_for(Observations(picked("phases"), picked("tools")), params, 0.5)
    frames_say = np.nan
    if chain.emission is not None:
        table = np.asarray(chain.emission.log_prob(getattr(part, track)), np.float64)
        if track == "tools" and chain.emission.is_joint:
            table = _alone(table, tool, as_tools(result.smoothed.tools[i])[inside])  # type: ignore[index]
        elif track == "tools":
            table = table[:, tool] if table.ndim == 3 and table.shape[1] == params.num_tools else None
        if table is not None:
            frames_say = float((table[np.arange(len(inside)), smooth[inside]] - table[:, said]).sum())
    matrix = getattr(getattr(params.tools, "transition", None), "matrix", None)
    with np.errstate(divide="ignore"):
        if track == "phases":
            a = np.log(np.asarray(chain.transition, np.float64))
            moves = _path(a, smooth[around]) - _path(a, other[around])
            tools_say = np.nan
            if matrix is not None and result.smoothed.tools is not None:
                tools = as_tools(result.smoothed.tools[i])[around]
                log = np.log(np.asarray(matrix, np.float64))
                tools_say = _driven(log, smooth[around], tools) - _driven(log, other[around], tools)
            return frames_say, float(moves), float(tools_say)
        if matrix is None:
            return frames_say, np.nan, np.nan
        log = np.log(np.asarray(matrix, np.float64)[tool])
        if params.phases is None:
            moves = _path(log, smooth[around]) - _path(log, other[around])
        else:
            q = as_phases(result.smoothed.phases[i])[around][1:]  # type: ignore[index]
            moves = sum(
                sign * log[q, path[around][:-1], path[around][1:]].sum() for sign, path in ((1, smooth), (-1, other))
            )
        return frames_say, float(moves), np.nan


def _alone(table: np.ndarray, tool: int, tools: np.ndarray) -> np.ndarray:
    """What all labels say of one tool (n, 2), from tables (n, K, 2**K), where the other tools are as in (n, K)."""
    places = 2 ** np.arange(tools.shape[1])[::-1]
    others = tools @ places - tools[:, tool] * places[tool]
    frames = np.arange(len(tools))
    return np.stack([table.sum(1)[frames, others + state * places[tool]] for state in (0, 1)], -1)


def _path(log: np.ndarray, states: np.ndarray) -> float:
    return log[states[:-1], states[1:]].sum()


def _driven(log: np.ndarray, phases: np.ndarray, tools: np.ndarray) -> float:
    """Log-probability of all tools' moves (n, K), given the phases that they move into."""
    k = np.arange(tools.shape[1])
    return log[k, phases[1:, None], tools[:-1], tools[1:]].sum()


def describe(change: Change, phase_names: Sequence[str], tool_names: Sequence[str]) -> tuple[str, str]:
    """What changed, in one sentence for a person, and the weights behind it.

    Args:
        change: from `longest_changes`.
        phase_names: (L,).
        tool_names: (K,).

    Returns:
        The sentence, and a line of weights in nats: positive ones speak for the change.
    """
    said = f"For {change.seconds:.0f} s the recognizer "
    sure = f"(probability {change.probability:.2f})"
    if change.track == "phases":
        raw, out = words(phase_names[change.raw]), words(phase_names[change.stabilized])
        text = f"{said}said {raw}; the model says {out} {sure}"
        reason = "the order and the usual length of phases"
    else:
        name = words(tool_names[change.tool])
        text = f"{said}saw: {name}; the model says absent {sure}" if change.raw else f"{said}missed: {name}; "
        text += "" if change.raw else f"the model says present {sure}"
        reason = "how seldom the tool comes and goes"
    weights = {"what the frames show": change.frames_say, reason: change.moves_say, "the tools": change.tools_say}
    known = {name: weight for name, weight in weights.items() if not np.isnan(weight)}
    if known:
        best = max(known, key=lambda name: known[name])
        text += f", mainly for {best}." if sum(known.values()) > 0 else ", for what comes before and after."
    else:
        text += "."
    return text, "; ".join(f"{name} {weight:+.1f}" for name, weight in known.items())
