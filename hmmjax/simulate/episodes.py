"""Surgeries that depart from the hidden Markov model: tools used in episodes, phases that return, late annotators.

`simulate_tools` draws each tool from the transition law that the hidden Markov model assumes, so that a comparison on
such videos favors the model. Here tools follow what Cholec80's annotations show instead:

- Instruments of the right hand (hook, bipolar, scissors, clipper, irrigator) take turns. They are used in episodes
  whose lengths have heavy tails, are often taken again after a short gap, and scissors mostly follow the clipper.
- The grasper often comes and goes together with them.
- A phase may return (in none of Cholec80's videos, but in other data sets).
- Annotations follow what is to be seen by some seconds.
- Smoke and blur obscure all tools at a time, above all while tissue is coagulated.
"""

import dataclasses

import numpy as np

from hmmjax.io.names import CHOLEC80_TOOLS

#: The instruments of the right hand, of which one is used at a time.
RIGHT_HAND = tuple(CHOLEC80_TOOLS.index(name) for name in ("Hook", "Bipolar", "Scissors", "Clipper", "Irrigator"))
GRASPER, HOOK, BIPOLAR, SCISSORS, CLIPPER = (
    CHOLEC80_TOOLS.index(name) for name in ("Grasper", "Hook", "Bipolar", "Scissors", "Clipper")
)
#: Mean length of an episode in seconds and its coefficient of variation, by tool, in Cholec80's annotations.
EPISODE_SECONDS = np.array([16.6, 13.6, 35.3, 14.8, 21.0, 10.4, 18.8])
EPISODE_SPREAD = np.array([2.04, 1.19, 1.33, 0.78, 0.95, 1.27, 1.58])
#: Fraction of each phase's seconds with a tool in Cholec80's annotations, tools by phases.
EPISODE_USE = np.array(
    [
        [0.48, 0.66, 0.53, 0.45, 0.79, 0.51, 0.35],
        [0.01, 0.03, 0.01, 0.03, 0.01, 0.31, 0.04],
        [0.01, 0.77, 0.06, 0.76, 0.01, 0.01, 0.00],
        [0.00, 0.00, 0.20, 0.00, 0.00, 0.01, 0.00],
        [0.00, 0.00, 0.40, 0.00, 0.00, 0.00, 0.00],
        [0.00, 0.02, 0.02, 0.04, 0.00, 0.39, 0.03],
        [0.00, 0.00, 0.00, 0.00, 0.78, 0.25, 0.28],
    ]
)


@dataclasses.dataclass(frozen=True)
class Departures:
    """How far simulated surgeries depart from the hidden Markov model; zeros of all but `gap_spread` switch parts off.

    Attributes:
        again: probability that the instrument of the right hand's last episode is taken again.
        together: probability that the grasper changes together with an instrument of the right hand.
        gap_spread: coefficient of variation of the seconds between episodes.
        returns: probability that a phase of a video returns for a while.
        phase_delay: mean seconds by which annotations of phase changes are late.
        tool_delay: mean seconds by which annotations of tool changes are late.
        obscured: fraction of time in which smoke or blur obscures the image, apart from coagulation.
    """

    again: float = 0.6
    together: float = 0.15
    gap_spread: float = 2.5
    returns: float = 0.1
    phase_delay: float = 3.0
    tool_delay: float = 0.4
    obscured: float = 0.15

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            limit = np.inf if field.name in ("gap_spread", "phase_delay", "tool_delay") else 1.0
            if not 0 <= value <= limit or value == np.inf:
                raise ValueError(f"{field.name} is {value}: give a number from 0" + (" to 1" if limit == 1 else ""))


def episodic_tools(
    rng: np.random.Generator, phases: np.ndarray, use: np.ndarray, departures: Departures | None = None
) -> np.ndarray:
    """Simulate the tools of one video in episodes.

    Args:
        rng: random number generator.
        phases: (T,) int phases, one per second.
        use: (K, L) fraction of a phase in which a tool is present; 0 for tools that the video lacks.
        departures: strengths; defaults to `Departures()`.

    Returns:
        (T, K) int32 presence, 0 or 1, in the order of Cholec80's tools.
    """
    departures = departures or Departures()
    tools = np.zeros((len(phases), len(use)), np.int32)
    _right_hand(rng, phases, use, departures, tools)
    busy = tools[:, list(RIGHT_HAND)].max(1)
    changes = np.flatnonzero(busy[1:] != busy[:-1]) + 1
    moved = set(changes[rng.random(len(changes)) < departures.together].tolist())
    for tool in range(len(use)):
        if tool not in RIGHT_HAND:
            _alternate(rng, phases, use[tool], tool, departures, tools, moved if tool == GRASPER else set())
    return tools


def _seconds(rng: np.random.Generator, mean: float, spread: float) -> int:
    """Sample a whole number of seconds, at least 1, log-normal with a mean and a coefficient of variation."""
    variance = np.log1p(spread**2)
    return max(1, round(float(mean * np.exp(np.sqrt(variance) * rng.standard_normal() - variance / 2))))


def _right_hand(
    rng: np.random.Generator, phases: np.ndarray, use: np.ndarray, departures: Departures, tools: np.ndarray
) -> None:
    """Fill in the instruments of the right hand, which take turns."""
    hand = np.array(RIGHT_HAND)
    now, last, clipped = 0, -1, False
    while now < len(phases):
        phase = int(phases[now])
        share = use[hand, phase]
        weights = share / EPISODE_SECONDS[hand]
        if not clipped:
            weights = weights * np.where(hand == SCISSORS, 0.1, 1.0)
        total = weights.sum()
        if total == 0:
            now += 1
            continue
        mean = float((weights * EPISODE_SECONDS[hand]).sum() / total)
        busy = min(float(share.sum()), 0.95)
        gap = _seconds(rng, mean * (1 - busy) / busy, departures.gap_spread) - (rng.random() < 0.5)
        other = np.flatnonzero(phases[now : now + gap] != phase)
        if len(other):
            # Another phase begins before the instrument is taken.
            now += int(other[0])
            continue
        now += gap
        if now >= len(phases):
            return
        again = last >= 0 and rng.random() < departures.again * min(1.0, use[last, int(phases[now])] / 0.2)
        tool = last if again else int(rng.choice(hand, p=weights / total))
        end = min(now + _seconds(rng, EPISODE_SECONDS[tool], EPISODE_SPREAD[tool]), len(phases))
        # An instrument that a phase hardly uses is put down when the phase begins.
        unused = np.flatnonzero(use[tool, phases[now:end]] < 0.1 * use[tool, phases[now]])
        end = now + int(unused[0]) if len(unused) else end
        tools[now:end, tool] = 1
        now, last, clipped = max(end, now + 1), tool, clipped or tool == CLIPPER


def _alternate(
    rng: np.random.Generator,
    phases: np.ndarray,
    use: np.ndarray,
    tool: int,
    departures: Departures,
    tools: np.ndarray,
    moved: set[int],
) -> None:
    """Fill in a tool that is used alongside others: present and absent by turns, and changed at the times `moved`."""
    present, left, share = False, 0, -1.0
    for t, phase in enumerate(phases.tolist()):
        before, share = share, float(np.clip(use[phase], 0, 0.98))
        # A phase that uses the tool much more or less than the one before starts from a fresh draw.
        fresh = before < 0 or max(before, share) > 2 * min(before, share)
        if fresh or left <= 0 or t in moved:
            present = bool(rng.random() < share) if fresh else not present
            off = EPISODE_SECONDS[tool] * (1 - share) / share if share > 0 else np.inf
            mean = EPISODE_SECONDS[tool] if present else off
            left = _seconds(rng, mean, EPISODE_SPREAD[tool]) if np.isfinite(mean) else len(phases)
        tools[t, tool] = present = present and share > 0
        left -= 1


def with_returns(rng: np.random.Generator, phases: np.ndarray, probability: float) -> np.ndarray:
    """Let a phase of one video return, with a probability, for 10 to 40 seconds inside the phase after it.

    Args:
        rng: random number generator.
        phases: (T,) int phases, one per second.
        probability: of a return.

    Returns:
        (T,) int phases, as long as before.
    """
    starts = np.flatnonzero(np.diff(phases)) + 1
    chosen, length, where = rng.random(), int(rng.integers(10, 41)), rng.random()
    if chosen >= probability or not len(starts):
        return phases
    begin = int(starts[int(rng.integers(len(starts)))])
    later = starts[starts > begin]
    end = int(later[0]) if len(later) else len(phases)
    room = end - begin - length
    if room < 2:
        return phases
    at = begin + 1 + int(where * (room - 1))
    found = phases.copy()
    found[at : at + length] = phases[begin - 1]
    return found


def late(rng: np.random.Generator, track: np.ndarray, mean: float) -> np.ndarray:
    """Delay the changes of a track (T,) by geometric numbers of seconds with a mean, each on its own."""
    found = track.copy()
    changes = np.flatnonzero(np.diff(track)) + 1
    delays = rng.geometric(1 / (1 + mean), len(changes)) - 1
    for change, delay in zip(changes[::-1].tolist(), delays[::-1].tolist(), strict=True):
        found[change : change + delay] = track[change - 1]
    return found


def obscured(rng: np.random.Generator, tools: np.ndarray, fraction: float) -> np.ndarray:
    """Simulate how much smoke and blur obscure each second, from 0 to 1: more after hook and bipolar are used.

    Args:
        rng: random number generator.
        tools: (T, K) presence of tools.
        fraction: of time that is obscured without coagulation.

    Returns:
        (T,) float.
    """
    level = np.zeros(len(tools))
    now = 0.0
    coagulates = tools[:, HOOK] + 2 * tools[:, BIPOLAR]
    draws = rng.random((len(tools), 2))
    for t in range(len(tools)):
        burst = draws[t, 0] < (fraction + 0.04 * coagulates[t] * (fraction > 0)) / 5
        now = max(now * 0.8, 0.5 + 0.5 * draws[t, 1] if burst else 0.0)
        level[t] = now
    return level
