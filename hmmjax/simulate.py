"""Simulated surgeries, with a recognizer that errs the way real ones do.

Everything runs on numpy alone and is a function of the seed. The surgeries follow the published statistics of the
Cholec80 training and test videos (how often each phase order occurs, how long phases last, how common and how
persistent each tool is); no label file is read. The recognizer is one formula for both tracks:

    score_t       = what is there + drift of the video + slow noise + flicker
    probability_t = softmax or sigmoid of gain * score_t

Slow noise makes runs of errors, flicker makes changes that never happened, and a gain above the honest one makes
the probabilities over-confident. Phases are recognized from a window of time, as recurrent networks do: a change is
noticed late, and flicker is weaker than for tools, which are recognized frame by frame. How certain the tool
recognizer sounds has little to do with how far it is from changing its mind, so that wrong frames are sure of
themselves as well.
"""

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from hmmjax.io.names import CHOLEC80_PHASES, CHOLEC80_TOOLS
from hmmjax.types import Labels, Observations

PHASES, TOOLS = CHOLEC80_PHASES, CHOLEC80_TOOLS

#: The six phase orders of Cholec80 and how many of its 80 videos follow each.
PHASE_ORDERS = (
    ((0, 1, 2, 3, 4, 5, 6), 51),
    ((0, 1, 2, 3, 5, 4, 6), 12),
    ((1, 2, 3, 4, 5, 6), 8),
    ((0, 1, 2, 3, 4, 6), 6),
    ((0, 1, 2, 3, 4, 6, 5), 2),
    ((1, 2, 3, 4, 6, 5), 1),
)
#: Seconds in each phase over the 80 videos, and the number of videos that have it.
PHASE_SECONDS = np.array([8574, 74826, 14080, 58433, 7618, 14332, 6635])
PHASE_VIDEOS = np.array([71, 80, 80, 80, 80, 74, 80])
MEAN_MINUTES = 38.4

#: P(tool still there one second later).
TOOL_PERSISTENCE = np.array([0.940, 0.926, 0.972, 0.932, 0.952, 0.904, 0.947])
#: Fraction of videos in which the tool never appears.
TOOL_MISSING = np.array([0.0, 8 / 80, 0.0, 0.0, 0.0, 19 / 80, 0.0])
#: P(tool | phase), tools by phases: plausible use, whose average over PHASE_SECONDS is the published prevalence
#: (.556 .048 .559 .018 .032 .053 .062).
TOOL_USE = np.array(
    [
        [0.450, 0.570, 0.550, 0.560, 0.620, 0.450, 0.650],
        [0.005, 0.030, 0.015, 0.065, 0.030, 0.150, 0.030],
        [0.030, 0.745, 0.120, 0.760, 0.020, 0.050, 0.010],
        [0.000, 0.005, 0.180, 0.005, 0.005, 0.005, 0.000],
        [0.000, 0.008, 0.350, 0.005, 0.000, 0.005, 0.000],
        [0.010, 0.022, 0.030, 0.028, 0.030, 0.360, 0.080],
        [0.000, 0.001, 0.000, 0.006, 0.800, 0.150, 0.420],
    ]
)


@dataclasses.dataclass(frozen=True)
class Recognizer:
    """How the simulated network errs. The defaults give the accuracies of published frame-wise networks.

    Attributes:
        noise: standard deviation of all noise together; 0 is a perfect (if late) recognizer.
        drift: share of the noise's variance that is constant over a video (its light, its patient).
        phase_flicker: share that is independent from second to second, for phases.
        tool_flicker: the same for tools.
        phase_run_seconds: correlation time of the rest, which makes whole runs of errors, for phases.
        tool_run_seconds: the same for tools.
        window_seconds: past seconds that the phase is recognized from.
        phase_gap: how far the scores of neighboring phases are apart.
        phase_gain: factor on phase scores before the softmax.
        tool_gain: factor on tool scores before the sigmoid.
        candour: how much a tool's score says about its own reliability: 1 all, 0 nothing.
        hit_rate: (K,) share of a tool's frames in which it is seen, at threshold 0.5 and noise 1.
        false_alarm_rate: (K,) share of the other frames in which it is seen all the same.
    """

    noise: float = 1.0
    drift: float = 0.15
    phase_flicker: float = 0.0015
    tool_flicker: float = 0.15
    phase_run_seconds: float = 25.0
    tool_run_seconds: float = 6.0
    window_seconds: int = 10
    phase_gap: float = 1.95
    phase_gain: float = 3.5
    tool_gain: float = 4.0
    candour: float = 0.4
    hit_rate: tuple[float, ...] = (0.84, 0.75, 0.95, 0.70, 0.78, 0.74, 0.82)
    false_alarm_rate: tuple[float, ...] = (0.22, 0.012, 0.06, 0.006, 0.007, 0.012, 0.012)


@dataclasses.dataclass(frozen=True)
class Surgery:
    """One simulated video at 1 frame a second.

    Attributes:
        name: "sim01" and so on.
        phases: (T,) int32 true phase, an index into `PHASES`.
        tools: (T, K) int32 true presence, 0 or 1, in the order of `TOOLS`.
        phase_probabilities: (T, L) float32 what the recognizer says; rows sum to one.
        tool_probabilities: (T, K) float32 what the recognizer says.
    """

    name: str
    phases: np.ndarray
    tools: np.ndarray
    phase_probabilities: np.ndarray
    tool_probabilities: np.ndarray

    def __len__(self) -> int:
        return len(self.phases)


def simulate_surgeries(
    num_videos: int, seed: int = 0, *, minutes: float = MEAN_MINUTES, recognizer: Recognizer | None = None
) -> tuple[Surgery, ...]:
    """Simulate surgeries and what a recognizer says of them.

    Video n of a seed is the same however many videos are asked for.

    Args:
        num_videos: how many.
        seed: of all randomness.
        minutes: mean length of a video; phases shrink in proportion, tools keep their pace.
        recognizer: how the network errs; `Recognizer()` when left out.

    Returns:
        The surgeries, "sim01" first.

    Raises:
        ValueError: when `num_videos` is negative, `minutes` is not positive, or the recognizer's noise is no number.
    """
    if num_videos < 0:
        raise ValueError(f"num_videos is {num_videos}: give 0 or more.")
    if not 0 < minutes < math.inf:
        raise ValueError(f"minutes is {minutes}: a video's mean length must be positive.")
    recognizer = recognizer or Recognizer()
    if not 0 <= recognizer.noise < math.inf:
        raise ValueError(f"noise is {recognizer.noise}: give a standard deviation, 0 or more.")
    surgeries = []
    for n in range(num_videos):
        truth, errors = (np.random.default_rng([seed, n, stream]) for stream in (0, 1))
        phases = simulate_phases(truth, minutes)
        tools = simulate_tools(truth, phases)
        surgeries.append(
            Surgery(
                f"sim{n + 1:02d}",
                phases,
                tools,
                recognize_phases(errors, phases, recognizer),
                recognize_tools(errors, tools, recognizer),
            )
        )
    return tuple(surgeries)


def simulate_phases(rng: np.random.Generator, minutes: float = MEAN_MINUTES) -> np.ndarray:
    """Phases of one video: an order as often as it occurs, log-normal durations of 5 seconds at least.

    Args:
        rng: what is drawn from.
        minutes: mean length of a video.

    Returns:
        (T,) int32 indices into `PHASES`, one a second.
    """
    counts = np.array([count for _, count in PHASE_ORDERS])
    order = list(PHASE_ORDERS[rng.choice(len(counts), p=counts / counts.sum())][0])
    mean = PHASE_SECONDS[order] / PHASE_VIDEOS[order] * (minutes / MEAN_MINUTES)
    # A slow surgeon is slow in every phase: part of the spread is shared.
    shared, own = 0.35, 0.45
    spread = shared * rng.standard_normal() + own * rng.standard_normal(len(order))
    seconds = np.maximum(np.rint(mean * np.exp(spread - (shared**2 + own**2) / 2)), 5)
    return np.repeat(np.array(order, np.int32), seconds.astype(int))


def simulate_tools(rng: np.random.Generator, phases: np.ndarray) -> np.ndarray:
    """Tools of one video: two-state chains whose stationary law in each phase is `TOOL_USE`.

    Args:
        rng: what is drawn from.
        phases: (T,) int indices into `PHASES`, one a second.

    Returns:
        (T, K) int32 presence, 0 or 1, in the order of `TOOLS`.
    """
    used = rng.random(len(TOOLS)) >= TOOL_MISSING
    use = TOOL_USE / (1 - TOOL_MISSING)[:, None] * used[:, None]
    # In equilibrium as many tools come as go: P(0) P(0->1) = P(1) P(1->0).
    arrival = np.minimum(use * (1 - TOOL_PERSISTENCE)[:, None] / (1 - use), 1.0)
    # A tool that a phase has no use for leaves at once.
    stay = np.where(use > 0, TOOL_PERSISTENCE[:, None], 0.0)
    draws = rng.random((len(phases), len(TOOLS)))
    tools = np.zeros((len(phases), len(TOOLS)), np.int32)
    if len(phases):
        now = draws[0] < use[:, phases[0]]
        tools[0] = now
        for t in range(1, len(phases)):
            now = draws[t] < np.where(now, stay[:, phases[t]], arrival[:, phases[t]])
            tools[t] = now
    return tools


def recognize_phases(rng: np.random.Generator, phases: np.ndarray, recognizer: Recognizer) -> np.ndarray:
    """What a recognizer says of phases: neighboring ones are confused more than distant ones.

    Args:
        rng: what is drawn from.
        phases: (T,) int indices into `PHASES`, one a second.
        recognizer: how the network errs.

    Returns:
        (T, L) float32 probabilities; rows sum to one.
    """
    num = len(PHASES)
    distance = np.abs(np.arange(num)[:, None] - np.arange(num))
    score = -np.where(distance == 0, 0.0, recognizer.phase_gap + 0.35 * (distance - 1))[phases]
    lasting, flicker = _noise(
        rng, score.shape, recognizer.drift, recognizer.phase_flicker, recognizer.phase_run_seconds
    )
    seen = _window_mean(score + recognizer.noise * lasting, recognizer.window_seconds)
    logits = recognizer.phase_gain * (seen + recognizer.noise * flicker)
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return (odds / odds.sum(-1, keepdims=True)).astype(np.float32)


def recognize_tools(rng: np.random.Generator, tools: np.ndarray, recognizer: Recognizer) -> np.ndarray:
    """What a recognizer says of tools, at its hit and false alarm rates.

    Args:
        rng: what is drawn from.
        tools: (T, K) presence, 0 or 1, in the order of `TOOLS`, one a second.
        recognizer: how the network errs.

    Returns:
        (T, K) float32 probabilities of presence.

    Raises:
        ValueError: a rate that does not lie strictly between 0 and 1.
    """
    quantile = NormalDist().inv_cdf
    hit = np.array([quantile(rate) for rate in recognizer.hit_rate])
    false_alarm = np.array([quantile(rate) for rate in recognizer.false_alarm_rate])
    score = np.where(tools == 1, hit, false_alarm)
    lasting, flicker = _noise(rng, score.shape, recognizer.drift, recognizer.tool_flicker, recognizer.tool_run_seconds)
    score = score + recognizer.noise * (lasting + flicker)
    mood = np.exp((1 - recognizer.candour) * rng.standard_normal(score.shape))
    certainty = np.abs(score) ** recognizer.candour * mood
    logits = np.clip(recognizer.tool_gain * np.sign(score) * certainty, -50, 50)
    return (1 / (1 + np.exp(-logits))).astype(np.float32)


def stack(surgeries: Sequence[Surgery]) -> tuple[Labels, Observations, np.ndarray]:
    """Pad surgeries to one batch, as the library's functions take it.

    Args:
        surgeries: B of them, the longest of T frames.

    Returns:
        Labels with phases (B, T) and tools (B, T, K), -1 on padding; Observations with probabilities (B, T, L) and
        (B, T, K), 0 on padding; mask (B, T), False on padding.

    Raises:
        ValueError: no surgeries.
    """
    if not surgeries:
        raise ValueError("there are no surgeries to stack: simulate at least one.")
    longest = max(map(len, surgeries))

    def pad(field: str, fill: float) -> np.ndarray:
        arrays = [getattr(s, field) for s in surgeries]
        return np.stack(
            [np.pad(a, [(0, longest - len(a)), *[(0, 0)] * (a.ndim - 1)], constant_values=fill) for a in arrays]
        )

    labels = Labels(pad("phases", -1), pad("tools", -1))
    observations = Observations(pad("phase_probabilities", 0), pad("tool_probabilities", 0))
    return labels, observations, np.arange(longest) < np.array([len(s) for s in surgeries])[:, None]


def _window_mean(score: np.ndarray, window: int) -> np.ndarray:
    """Mean of `score` over the last `window` frames."""
    if window <= 1 or not len(score):
        return score
    past = np.concatenate([np.repeat(score[:1], window, 0), score]).cumsum(0)
    return (past[window:] - past[:-window]) / window


def _noise(
    rng: np.random.Generator, shape: tuple[int, int], drift: float, flicker: float, run_seconds: float
) -> tuple[np.ndarray, np.ndarray]:
    """Noise (T, channels) of variance one together: what lasts (drift and runs), and flicker."""
    decay = np.exp(-1 / max(run_seconds, 1e-6))
    steps = rng.standard_normal(shape)
    steps[1:] *= np.sqrt(1 - decay**2)
    runs = np.empty(shape)
    now = np.zeros(shape[1])
    for t, step in enumerate(steps):
        now = decay * now + step
        runs[t] = now
    lasting = np.sqrt(drift) * rng.standard_normal(shape[1]) + np.sqrt(1 - flicker - drift) * runs
    return lasting, np.sqrt(flicker) * rng.standard_normal(shape)
