"""A simulated recognizer with realistic errors."""

import dataclasses
from statistics import NormalDist

import numpy as np

from hmmjax._core.deprecation import renamed_arguments
from hmmjax.io.names import CHOLEC80_PHASES


@dataclasses.dataclass(frozen=True)
class Recognizer:
    """The errors of the simulated recognizer. The defaults give accuracies of published frame-wise networks.

    Attributes:
        noise: standard deviation of the total noise; with 0, predictions are correct, but phases are late.
        drift: fraction of the noise variance that is constant over a video (lighting, patient).
        phase_flicker: fraction of the noise variance of phases that is independent per second.
        tool_flicker: fraction of the noise variance of tools that is independent per second.
        phase_run_seconds: correlation time of the remaining noise of phases, which causes runs of errors.
        tool_run_seconds: correlation time of the remaining noise of tools.
        window_seconds: past seconds from which the phase is recognized.
        phase_gap: difference between the scores of neighboring phases.
        phase_gain: factor on phase scores before the softmax.
        tool_gain: factor on tool scores before the sigmoid.
        candor: dependence of a tool's confidence on its distance from the decision boundary, from 0 to 1.
        hit_rate: (K,) fraction of a tool's frames in which it is predicted, at threshold 0.5 and noise 1.
        false_alarm_rate: (K,) fraction of the other frames in which it is predicted.
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
    candor: float = 0.4
    hit_rate: tuple[float, ...] = (0.84, 0.75, 0.95, 0.70, 0.78, 0.74, 0.82)
    false_alarm_rate: tuple[float, ...] = (0.22, 0.012, 0.06, 0.006, 0.007, 0.012, 0.012)


# The earlier spelling works for one release.
Recognizer.__init__ = renamed_arguments(candour="candor")(Recognizer.__init__)


def recognize_phases(rng: np.random.Generator, phases: np.ndarray, recognizer: Recognizer) -> np.ndarray:
    """Simulate phase predictions; neighboring phases are confused more often than distant ones.

    Args:
        rng: random number generator.
        phases: (T,) int indices into `PHASES`, one per second.
        recognizer: the errors of the recognizer.

    Returns:
        (T, L) float32 probabilities; rows sum to one.
    """
    num = len(CHOLEC80_PHASES)
    distance = np.abs(np.arange(num)[:, None] - np.arange(num))
    score = -np.where(distance == 0, 0.0, recognizer.phase_gap + 0.35 * (distance - 1))[phases]
    lasting, flicker = _noise(
        rng, score.shape, recognizer.drift, recognizer.phase_flicker, recognizer.phase_run_seconds
    )
    smoothed = _window_mean(score + recognizer.noise * lasting, recognizer.window_seconds)
    logits = recognizer.phase_gain * (smoothed + recognizer.noise * flicker)
    odds = np.exp(logits - logits.max(-1, keepdims=True))
    return (odds / odds.sum(-1, keepdims=True)).astype(np.float32)


def recognize_tools(
    rng: np.random.Generator, tools: np.ndarray, recognizer: Recognizer, obscured: np.ndarray | None = None
) -> np.ndarray:
    """Simulate tool predictions with given hit and false alarm rates.

    Args:
        rng: random number generator.
        tools: (T, K) presence, 0 or 1, in the order of `TOOLS`, one row per second.
        recognizer: the errors of the recognizer.
        obscured: (T,) how much the image is obscured, 0 to 1: tools are then missed together.

    Returns:
        (T, K) float32 probabilities of presence.

    Raises:
        ValueError: if a rate is not strictly between 0 and 1.
    """
    quantile = NormalDist().inv_cdf
    hit = np.array([quantile(rate) for rate in recognizer.hit_rate])
    false_alarm = np.array([quantile(rate) for rate in recognizer.false_alarm_rate])
    if obscured is not None:
        hit = hit - (hit - false_alarm) * np.minimum(obscured, 1)[:, None]
    score = np.where(tools == 1, hit, false_alarm)
    lasting, flicker = _noise(rng, score.shape, recognizer.drift, recognizer.tool_flicker, recognizer.tool_run_seconds)
    score = score + recognizer.noise * (lasting + flicker)
    spread = np.exp((1 - recognizer.candor) * rng.standard_normal(score.shape))
    certainty = np.abs(score) ** recognizer.candor * spread
    logits = np.clip(recognizer.tool_gain * np.sign(score) * certainty, -50, 50)
    return (1 / (1 + np.exp(-logits))).astype(np.float32)


def _window_mean(score: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of `score` over the last `window` frames."""
    if window <= 1 or not len(score):
        return score
    past = np.concatenate([np.repeat(score[:1], window, 0), score]).cumsum(0)
    return (past[window:] - past[:-window]) / window


def _noise(
    rng: np.random.Generator, shape: tuple[int, int], drift: float, flicker: float, run_seconds: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return noise (T, channels) with a total variance of one: drift and correlated noise, and flicker."""
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
