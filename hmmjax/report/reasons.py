"""What the model changed and why: the longest runs in which raw and stabilized differ, with log-likelihood ratios."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from hmmjax._core.memory import with_past
from hmmjax.ensembles import main_member
from hmmjax.plots.style import words
from hmmjax.stabilize import Stabilized
from hmmjax.stabilize.prepare import observations_for
from hmmjax.stabilize.systems import as_phases, as_tools
from hmmjax.transitions import PhaseConditioned
from hmmjax.types import Observations, Params


@dataclasses.dataclass(frozen=True)
class Change:
    """A run of frames in which one raw label is replaced by one stabilized label.

    Attributes:
        video: the video's position.
        track: "phases" or "tools".
        tool: the tool's position; -1 for phases.
        first: position of the first frame among the frames read.
        last: position of the last frame.
        start: seconds at the first frame.
        end: seconds after the last frame.
        raw: the recognizer's label.
        stabilized: the stabilized label.
        before: the stabilized phase before the run; -1 at the start of the video, and for tools.
        after: the stabilized phase after the run; -1 at the end of the video, and for tools.
        probability: mean posterior probability of the stabilized label.
        right: fraction of the run's annotated frames in which the stabilized label is true; NaN without annotation.
        raw_right: fraction of the run's annotated frames in which the raw label is true; NaN without annotation.
        frames_say: emission log-likelihood ratio of the stabilized to the raw label over the run, in nats.
        moves_say: transition log-likelihood ratio into, within and out of the run, in nats.
        tools_say: log-likelihood ratio of the stabilized tools given the phase, in nats; NaN for tools.
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
        """Duration of the run."""
        return self.end - self.start


def longest_changes(result: Stabilized, count: int = 12) -> list[Change]:
    """Find the longest runs in which raw and stabilized labels differ, longest first.

    Args:
        result: from `hmmjax.stabilize.stabilize`.
        count: maximum number of runs per track.

    Returns:
        Changes of phases, then of tools. Log-likelihood ratios are under the model of all videos.

    Source: log-likelihood ratios of the two label sequences that differ in the run only.
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
    """Return labels (n, C): one column of phases, or one per tool."""
    return as_phases(values)[:, None] if track == "phases" else as_tools(values)


def _runs(track: str, raw: np.ndarray, smooth: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Find runs in which one label replaces another: (length, tool, first, last)."""
    runs = []
    before, after = _labels(track, raw), _labels(track, smooth)
    for c in range(before.shape[1]):
        pair = np.stack([before[:, c], after[:, c]], 1)
        edges = np.flatnonzero((np.diff(pair, axis=0) != 0).any(1)) + 1
        for first, end in zip([0, *edges.tolist()], [*edges.tolist(), len(pair)], strict=True):
            # A missing prediction (-1) is not a change.
            if pair[first, 0] != pair[first, 1] and pair[first, 0] >= 0:
                runs.append((end - first, c if track == "tools" else -1, first, end - 1))
    return runs


def _explain(result: Stabilized, track: str, i: int, tool: int, first: int, last: int) -> Change:
    column = max(tool, 0)
    raw = _labels(track, getattr(result.raw, track)[i])[:, column]
    smooth = _labels(track, getattr(result.smoothed, track)[i])[:, column]
    posterior = getattr(result.smoothed, track)[i]
    given, out, inside = int(raw[first]), int(smooth[first]), slice(first, last + 1)
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
            right, raw_right = (known == out).mean(), (known == given).mean()
    seconds = result.frames[i] / result.fps
    frames_say, moves_say, tools_say = _weigh(result, track, i, tool, first, last, given, smooth)
    return Change(
        video=i,
        track=track,
        tool=tool,
        first=first,
        last=last,
        start=float(seconds[first]),
        end=float(seconds[last] + result.step_seconds),
        raw=given,
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
    result: Stabilized, track: str, i: int, tool: int, first: int, last: int, given: int, smooth: np.ndarray
) -> tuple[float, float, float]:
    """Return the three log-likelihood ratios of a change, in nats; NaN if the model lacks the part."""
    params = main_member(result.model.params, track)
    chain = getattr(params, track)
    inside = np.arange(first, last + 1)
    around = np.arange(max(first - 1, 0), min(last + 2, len(smooth)))
    other = smooth.copy()
    other[inside] = given

    outputs = Observations(result.outputs("phases", i), result.outputs("tools", i))
    whole = observations_for(outputs, params, 0.5)
    frames_say = np.nan
    if chain.emission is not None:
        video = jax.tree.map(lambda x: x[None], getattr(whole, track))
        arguments = with_past(chain.emission, video, np.ones((1, len(smooth)), bool))
        table = np.asarray(chain.emission.log_prob(*arguments), np.float64)[0, inside]
        if track == "tools" and chain.emission.is_joint:
            table = _alone(table, tool, as_tools(result.smoothed.tools[i])[inside])  # type: ignore[index]
        elif track == "tools":
            table = table[:, tool] if table.ndim == 3 and table.shape[1] == params.num_tools else None
        if table is not None:
            frames_say = float((table[np.arange(len(inside)), smooth[inside]] - table[:, given]).sum())
    matrix = tool_matrix(params)
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
    """Return log-likelihoods (n, 2) of one tool, from tables (n, K, 2**K), given the other tools (n, K)."""
    places = 2 ** np.arange(tools.shape[1])[::-1]
    others = tools @ places - tools[:, tool] * places[tool]
    frames = np.arange(len(tools))
    return np.stack([table.sum(1)[frames, others + state * places[tool]] for state in (0, 1)], -1)


def tool_matrix(params: Params) -> np.ndarray | None:
    """Return the tools' transition probabilities (K, L, 2, 2) or (K, 2, 2); None if they are not a table."""
    transition = None if params.tools is None else params.tools.transition
    return np.asarray(transition.matrix) if isinstance(transition, PhaseConditioned) else None


def _path(log: np.ndarray, states: np.ndarray) -> float:
    """Return the log-probability of a path, from log-transitions."""
    return log[states[:-1], states[1:]].sum()


def _driven(log: np.ndarray, phases: np.ndarray, tools: np.ndarray) -> float:
    """Return the log-probability of all tools' transitions (n, K), given the phases (n,)."""
    k = np.arange(tools.shape[1])
    return log[k, phases[1:, None], tools[:-1], tools[1:]].sum()


#: Log-odds in nats from which a reason counts, and the word for its strength: odds of 3, 20 and 20,000 to one.
_STRENGTHS = ((10.0, "strongly"), (3.0, "clearly"), (1.0, "weakly"))


def describe(change: Change, phase_names: Sequence[str], tool_names: Sequence[str]) -> tuple[str, str]:
    """Describe a change in one sentence, and the reasons for it in numbers.

    Args:
        change: from `longest_changes`.
        phase_names: (L,) names of the phases.
        tool_names: (K,) names of the tools.

    Returns:
        The sentence, and a line of log-likelihood ratios in nats; positive values favor the change.
    """
    start = f"For {change.seconds:.0f} s the recognizer "
    sure = f"(probability {change.probability:.2f})"
    if change.track == "phases":
        raw, out = words(phase_names[change.raw]), words(phase_names[change.stabilized])
        text = f"{start}predicted {raw}; the model infers {out} {sure}"
    else:
        name = words(tool_names[change.tool])
        seen, inferred = ("detected", "absent") if change.raw else ("did not detect", "present")
        text = f"{start}{seen} {name}; the model infers that it is {inferred} {sure}"
    known = _weights(change)
    if known:
        best = max(known, key=lambda name: known[name])
        text += (
            f", mainly because of {best}." if sum(known.values()) > 0 else ", because of the frames before and after."
        )
    else:
        text += "."
    return text, "; ".join(f"{name} {weight:+.1f}" for name, weight in known.items())


def reasons_in_words(change: Change) -> str:
    """Describe how strongly each reason favors a change or opposes it, without numbers.

    Args:
        change: from `longest_changes`.

    Returns:
        One or two sentences; empty if no reason counts.
    """
    sides: dict[str, list[str]] = {"For": [], "Against": []}
    for name, weight in _weights(change).items():
        strength = next((word for least, word in _STRENGTHS if abs(weight) >= least), None)
        if strength:
            sides["For" if weight > 0 else "Against"].append(f"{name} ({strength})")
    return " ".join(f"{side}: {', '.join(names)}." for side, names in sides.items() if names)


def _weights(change: Change) -> dict[str, float]:
    """Return the known log-likelihood ratios of a change by reason, in nats."""
    phases = change.track == "phases"
    reason = "the order and the usual length of phases" if phases else "how rarely the tool appears and disappears"
    weights = {"the recognizer's outputs": change.frames_say, reason: change.moves_say, "the tools": change.tools_say}
    return {name: weight for name, weight in weights.items() if not np.isnan(weight)}
