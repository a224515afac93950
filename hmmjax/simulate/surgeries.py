"""Surgeries with the statistics of Cholec80: phases, tools and the predictions of a recognizer."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from hmmjax._core.deprecation import renamed_arguments
from hmmjax.io.names import CHOLEC80_PHASES, CHOLEC80_TOOLS
from hmmjax.simulate.episodes import EPISODE_USE, Departures, episodic_tools, late, obscured, with_returns
from hmmjax.simulate.recognizer import Recognizer, recognize_phases, recognize_tools
from hmmjax.types import Labels, Observations

PHASES, TOOLS = CHOLEC80_PHASES, CHOLEC80_TOOLS

#: The six phase orders of Cholec80, and the number of its 80 videos that follow each.
PHASE_ORDERS = (
    ((0, 1, 2, 3, 4, 5, 6), 51),
    ((0, 1, 2, 3, 5, 4, 6), 12),
    ((1, 2, 3, 4, 5, 6), 8),
    ((0, 1, 2, 3, 4, 6), 6),
    ((0, 1, 2, 3, 4, 6, 5), 2),
    ((1, 2, 3, 4, 6, 5), 1),
)
#: Seconds in each phase over the 80 videos, and the number of videos with the phase.
PHASE_SECONDS = np.array([8574, 74826, 14080, 58433, 7618, 14332, 6635])
PHASE_VIDEOS = np.array([71, 80, 80, 80, 80, 74, 80])
MEAN_MINUTES = 38.4

#: P(tool present | present one second before).
TOOL_PERSISTENCE = np.array([0.940, 0.926, 0.972, 0.932, 0.952, 0.904, 0.947])
#: Fraction of videos in which the tool never appears.
TOOL_MISSING = np.array([0.0, 8 / 80, 0.0, 0.0, 0.0, 19 / 80, 0.0])
#: P(tool | phase), tools by phases: plausible values whose average over PHASE_SECONDS is the published prevalence
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
class Surgery:
    """One simulated video with its predictions, at one frame per second.

    Attributes:
        name: "sim01" and so on.
        phases: (T,) int32 true phases, indices into `PHASES`.
        tools: (T, K) int32 true presence, 0 or 1, in the order of `TOOLS`.
        phase_probabilities: (T, L) float32 predicted probabilities; rows sum to one.
        tool_probabilities: (T, K) float32 predicted probabilities of presence.
        content_phases: (T,) phases that are to be seen, if annotations differ; None if not.
        content_tools: (T, K) tools that are to be seen, if annotations differ; None if not.
        obscured: (T,) how much smoke and blur obscure the image, 0 to 1; None if it is not simulated.
    """

    name: str
    phases: np.ndarray
    tools: np.ndarray
    phase_probabilities: np.ndarray
    tool_probabilities: np.ndarray
    content_phases: np.ndarray | None = None
    content_tools: np.ndarray | None = None
    obscured: np.ndarray | None = None

    @property
    def content(self) -> tuple[np.ndarray, np.ndarray]:
        """Phases (T,) and tools (T, K) that are to be seen, which annotations may follow late."""
        phases = self.phases if self.content_phases is None else self.content_phases
        return phases, self.tools if self.content_tools is None else self.content_tools

    def __len__(self) -> int:
        return len(self.phases)


@renamed_arguments(recogniser="recognizer")
def simulate_surgeries(
    num_videos: int,
    seed: int = 0,
    *,
    minutes: float = MEAN_MINUTES,
    recognizer: Recognizer | None = None,
    departures: Departures | None = None,
) -> tuple[Surgery, ...]:
    """Simulate surgeries and the predictions of a recognizer.

    The first n videos of a seed do not depend on `num_videos`.

    Args:
        num_videos: number of videos.
        seed: seed of all random numbers.
        minutes: mean duration of a video; phases are scaled, but tools switch as often as in real time.
        recognizer: the errors of the recognizer; defaults to `Recognizer()`.
        departures: how surgeries depart from the hidden Markov model, see `Departures`; None draws tools from the very
            law that the model assumes.

    Returns:
        The surgeries, "sim01" first.

    Raises:
        ValueError: if `num_videos` or the noise is negative, or `minutes` is not positive and finite.
    """
    if num_videos < 0:
        raise ValueError(f"num_videos is {num_videos}: pass 0 or more")
    if not 0 < minutes < math.inf:
        raise ValueError(f"minutes is {minutes}: pass a positive mean duration")
    recognizer = recognizer or Recognizer()
    if not 0 <= recognizer.noise < math.inf:
        raise ValueError(f"noise is {recognizer.noise}: pass a standard deviation, 0 or more")
    surgeries = []
    for n in range(num_videos):
        truth, errors = (np.random.default_rng([seed, n, stream]) for stream in (0, 1))
        phases = simulate_phases(truth, minutes)
        if departures is None:
            tools = simulate_tools(truth, phases)
            more = {}
        else:
            phases = with_returns(truth, phases, departures.returns)
            tools = episodic_tools(truth, phases, _tool_use(truth, EPISODE_USE), departures)
            more = {
                "content_phases": phases,
                "content_tools": tools,
                "obscured": obscured(truth, tools, departures.obscured),
            }
        seen = recognize_phases(errors, phases, recognizer), recognize_tools(errors, tools, recognizer, **_haze(more))
        if departures is not None:
            phases = late(truth, phases, departures.phase_delay)
            tools = np.stack([late(truth, track, departures.tool_delay) for track in tools.T], 1)
        surgeries.append(Surgery(f"sim{n + 1:02d}", phases, tools, *seen, **more))
    return tuple(surgeries)


def _haze(more: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"obscured": more["obscured"]} if "obscured" in more else {}


def _tool_use(rng: np.random.Generator, average: np.ndarray) -> np.ndarray:
    """Draw which tools a video uses; return how often each is present in each phase (K, L), on average `average`."""
    used = rng.random(len(TOOLS)) >= TOOL_MISSING
    return average / (1 - TOOL_MISSING)[:, None] * used[:, None]


def simulate_phases(rng: np.random.Generator, minutes: float = MEAN_MINUTES) -> np.ndarray:
    """Simulate the phases of one video: an order drawn by frequency, and log-normal durations of at least 5 s.

    Args:
        rng: random number generator.
        minutes: mean duration of a video.

    Returns:
        (T,) int32 indices into `PHASES`, one per second.
    """
    counts = np.array([count for _, count in PHASE_ORDERS])
    order = list(PHASE_ORDERS[rng.choice(len(counts), p=counts / counts.sum())][0])
    mean = PHASE_SECONDS[order] / PHASE_VIDEOS[order] * (minutes / MEAN_MINUTES)
    # Part of the variation is shared by all phases, since a slow surgeon is slow throughout.
    shared, own = 0.35, 0.45
    spread = shared * rng.standard_normal() + own * rng.standard_normal(len(order))
    seconds = np.maximum(np.rint(mean * np.exp(spread - (shared**2 + own**2) / 2)), 5)
    return np.repeat(np.array(order, np.int32), seconds.astype(int))


def simulate_tools(rng: np.random.Generator, phases: np.ndarray) -> np.ndarray:
    """Simulate the tools of one video: two-state chains with the stationary distribution `TOOL_USE` in each phase.

    Args:
        rng: random number generator.
        phases: (T,) int indices into `PHASES`, one per second.

    Returns:
        (T, K) int32 presence, 0 or 1, in the order of `TOOLS`.
    """
    use = _tool_use(rng, TOOL_USE)
    # Detailed balance: P(0) P(0->1) = P(1) P(1->0).
    arrival = np.minimum(use * (1 - TOOL_PERSISTENCE)[:, None] / (1 - use), 1.0)
    # A tool that is not used in a phase disappears immediately.
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


def stack(surgeries: Sequence[Surgery]) -> tuple[Labels, Observations, np.ndarray]:
    """Pad surgeries to one batch.

    Args:
        surgeries: B surgeries, the longest with T frames.

    Returns:
        Labels with phases (B, T) and tools (B, T, K), -1 on padding; Observations with probabilities (B, T, L) and
        (B, T, K), 0 on padding; mask (B, T), False on padding.

    Raises:
        ValueError: if there are no surgeries.
    """
    if not surgeries:
        raise ValueError("there are no surgeries to stack: pass at least one")
    longest = max(map(len, surgeries))

    def pad(field: str, fill: float) -> np.ndarray:
        arrays = [getattr(s, field) for s in surgeries]
        return np.stack(
            [np.pad(a, [(0, longest - len(a)), *[(0, 0)] * (a.ndim - 1)], constant_values=fill) for a in arrays]
        )

    labels = Labels(pad("phases", -1), pad("tools", -1))
    observations = Observations(pad("phase_probabilities", 0), pad("tool_probabilities", 0))
    return labels, observations, np.arange(longest) < np.array([len(s) for s in surgeries])[:, None]
