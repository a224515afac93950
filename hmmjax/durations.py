"""How long phases last: each phase as a chain of stages, so that short ones are rare and the chain stays exact.

A Markov phase may end at any moment, most probably at once: its duration is geometric. Real phases are not like that.
Phase p as a row of n stages, each of which is left with the same probability, lasts negative-binomially long: the sum
of n geometric durations, n frames at the least. Only `PhaseChain.stages` says so; everything else of a model keeps its
meaning and its shape, and every answer is about phases, summed over stages.

Source: phase-type durations (Neuts 1981; Langrock & Zucchini 2011 for hidden semi-Markov models).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core import numerics as num
from hmmjax._core.batch import collect
from hmmjax._core.checks import check_label_dtype, check_mask, is_concrete
from hmmjax._core.typing import Array, Float
from hmmjax.types import Labels, Observations, Params

Stages = tuple[int, ...]


def owners(stages: Stages) -> np.ndarray:
    """The phase that each stage belongs to.

    Args:
        stages: (L,) stages of each phase, S in all.

    Returns:
        (S,) int.
    """
    return np.repeat(np.arange(len(stages)), stages)


def staged_transition(transition: Float[Array, "L L"], stages: Stages) -> Float[Array, "S S"]:
    """The chain of stages.

    ``transition[p, p]`` is the probability that a stage of p lasts another frame. Otherwise the next stage of p
    begins or, after the last one, phase q with probability ``transition[p, q]``.

    Args:
        transition: (L, L) as `PhaseChain` has it.
        stages: (L,) stages of each phase, S in all.

    Returns:
        (S, S) probabilities of the next stage (column) given the current one (row).

    Source: see the module.
    """
    transition = jnp.asarray(transition)
    owner, count = owners(stages), sum(stages)
    first = np.cumsum((0, *stages[:-1]))
    last = first + np.array(stages) - 1
    inner = np.setdiff1d(np.arange(count), last)
    away = jnp.where(np.eye(len(stages), dtype=bool), 0, transition)
    out = jnp.zeros((count, count), transition.dtype)
    out = out.at[np.arange(count), np.arange(count)].set(jnp.diagonal(transition)[owner])
    # A stage ends for a reason, some next phase, whether or not another stage comes first: as a sum over the row this
    # keeps the M-step of `fit` plain normalized counts.
    out = out.at[inner, inner + 1].set(away.sum(-1)[owner[inner]])
    return out.at[last[:, None], first].add(away)


def staged_initial(initial: Float[Array, "L C"], stages: Stages) -> Float[Array, "S C"]:
    """Videos start in the first stage of a phase.

    Args:
        initial: (L, C) of phases, and of whatever comes with them.
        stages: (L,) stages of each phase, S in all.

    Returns:
        (S, C), zero but in first stages.
    """
    initial = jnp.asarray(initial)
    first = np.cumsum((0, *stages[:-1]))
    return jnp.zeros((sum(stages), initial.shape[1]), initial.dtype).at[first].set(initial)


def merge(per_stage: Float[Array, "... S"], stages: Stages) -> Float[Array, "... L"]:
    """Probabilities of stages summed to those of phases.

    Args:
        per_stage: (..., S) probabilities.
        stages: (L,) stages of each phase, S in all.

    Returns:
        (..., L) in the same dtype.
    """
    member = owners(stages)[:, None] == np.arange(len(stages))
    return num.einsum("...s,sl->...l", per_stage, jnp.asarray(member, per_stage.dtype))


def spread(params: Params, stages: Sequence[int]) -> Params:
    """Give the phases of a model without stages some, and the same mean durations as before.

    Args:
        params: a model with phases; (L,) stages go in.
        stages: stages of each phase, 1 or more; 1 leaves a phase as it was.

    Returns:
        The model with ``params.phases.stages`` set. Given the counted mean duration this is also the maximum
        likelihood estimate of a negative binomial duration with so many stages.

    Raises:
        ValueError: no phases, a wrong number of stages, stages already, or a phase that is on average shorter than its
            stages.

    Source: see the module.
    """
    chain = params.phases
    if chain is None:
        raise ValueError("params has no phases, and durations are the phases': give a model with a PhaseChain.")
    if chain.stages is not None:
        raise ValueError("params.phases has stages already; start from the model without them.")
    stages = tuple(int(n) if n == n and n == int(n) else n for n in stages)
    check_stages(stages, chain.num_phases)
    transition = jnp.asarray(chain.transition)
    leave = (1 - jnp.diagonal(transition)) * jnp.asarray(stages, transition.dtype)
    # A phase of n stages and n frames on average: a float32 may miss that by a rounding.
    over = 1 + 4 * max(stages) * float(jnp.finfo(transition.dtype).eps)
    if is_concrete(transition) and (short := np.flatnonzero(np.asarray(leave, np.float64) > over)).size:
        p = int(short[0])
        raise ValueError(f"phase {p} lasts {stages[p] / float(leave[p]):.3g} frames on average, fewer than its stages.")
    most = jnp.maximum(leave, 1)
    leave, scaled = leave / most, transition * (jnp.asarray(stages, transition.dtype) / most)[:, None]
    staged = jnp.where(np.eye(len(stages), dtype=bool), jnp.diag(1 - leave), scaled)
    return dataclasses.replace(params, phases=dataclasses.replace(chain, transition=staged, stages=stages))


def check_stages(stages: Any, num_phases: int) -> None:
    """Raise unless there is a positive number of stages for every phase.

    Args:
        stages: what `PhaseChain.stages` holds; None is always right.
        num_phases: L.

    Raises:
        ValueError: no tuple, another length than L, or numbers that are not whole and positive.
    """
    if stages is None:
        return
    whole = isinstance(stages, tuple) and all(isinstance(n, int) and n >= 1 for n in stages)
    if not whole or len(stages) != num_phases:
        raise ValueError(f"phases.stages must be a tuple of {num_phases} positive integers, got {stages!r}.")


def choose(labels: Labels, mask: Any = None, *, most: int = 6, num_phases: int | None = None) -> Stages:
    """How many stages each phase needs, by the durations in labeled videos.

    For every phase and every number of stages, the likelihood of each video's durations is computed with the mean
    that the other videos have; the number with the largest sum wins. The last run of a video, and one that an unknown
    label ends, count as lasting at least so long.

    Args:
        labels: phases (B, T); -1 is unknown. One video or several.
        mask: (B, T) bool; frames after the last observed one are ignored.
        most: largest number of stages. A phase never gets more than its shortest run has frames, or its counted mean.
        num_phases: L; by default what the labels show.

    Returns:
        (L,) for `spread`; 1 for a phase that fewer than two videos show.

    Raises:
        TypeError: labels or a mask of another kind.
        ValueError: no phase labels, or labels and a mask that do not go together.

    Source: see the module; leave-one-out likelihood of negative binomial durations.
    """
    if labels.phases is None:
        raise ValueError("durations are counted in phase labels: give hmmjax.Labels(phases=...).")
    if most < 1:
        raise ValueError(f"most={most} must be at least 1.")
    known, seen = np.asarray(labels.phases), None if mask is None else np.asarray(mask)
    check_label_dtype("labels.phases", known)
    check_mask(seen)
    data, _ = collect(Observations(), seen, Labels(known))
    phases, observed = np.asarray(data.phase_labels), np.asarray(data.observed)
    phases = np.where(np.arange(phases.shape[1]) < np.asarray(data.lengths)[:, None], phases, -1)
    count = int(phases.max(initial=-1)) + 1 if num_phases is None else num_phases
    if phases.max(initial=-1) >= count or phases.min(initial=-1) < -1:
        raise ValueError(f"labels.phases must be 0..{count - 1}, and -1 for unknown; they hold {np.unique(known)}.")
    runs: list[list[tuple[int, int, bool]]] = [[] for _ in range(count)]
    for video, (row, seen) in enumerate(zip(phases, observed, strict=True)):
        row = row[: np.flatnonzero(seen).max(initial=-1) + 1]
        if not row.size:
            continue
        starts = np.flatnonzero(np.diff(row, prepend=row[:1] - 1))
        for start, end in zip(starts, [*starts[1:], len(row)], strict=True):
            if row[start] >= 0 and (start == 0 or row[start - 1] >= 0):
                ended = end < len(row) and row[end] >= 0
                runs[row[start]].append((video, int(end - start), bool(ended)))
    # Frames of a phase that are followed by a known one, over those in which it ends: what counting calls its mean.
    # It is shorter than the runs are where the starts of some are unknown.
    now, then = phases[:, :-1], phases[:, 1:]
    means = []
    for p in range(count):
        followed = (now == p) & (then >= 0)
        means.append(followed.sum() / max((followed & (then != p)).sum(), 1))
    return tuple(_best_number(own, max(1, min(most, int(mean)))) for own, mean in zip(runs, means, strict=True))


def _best_number(runs: list[tuple[int, int, bool]], most: int) -> int:
    if len({video for video, _, _ in runs}) < 2 or not any(ended for _, _, ended in runs):
        return 1
    video, length, ended = (np.array(column) for column in zip(*runs, strict=True))
    scores = []
    for n in range(1, min(most, int(length.min())) + 1):
        total = 0.0
        for held_out in np.unique(video):
            others, own = video != held_out, video == held_out
            leave = n * max(ended[others].sum(), 0.5) / length[others].sum()
            total += _log_duration(length[own], ended[own], n, min(leave, 1 - 1e-9)).sum()
        scores.append(total)
    return int(np.argmax(scores)) + 1


def _log_duration(length: np.ndarray, ended: np.ndarray, n: int, leave: float) -> np.ndarray:
    """Log-probability of n stages lasting exactly, or where not ended at least, so many frames."""
    horizon = int(length.max())
    stage = np.full((horizon, n), -np.inf)
    stay, go = np.log1p(-leave), np.log(leave)
    stage[0, 0] = 0.0
    for t in range(1, horizon):
        came = np.concatenate([[-np.inf], stage[t - 1, :-1]]) + go
        stage[t] = np.logaddexp(stage[t - 1] + stay, came)
    exact, at_least = stage[length - 1, -1] + go, np.logaddexp.reduce(stage[length - 1], -1)
    return np.where(ended, exact, at_least)
