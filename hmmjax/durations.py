"""Duration distributions of phases: each phase as a chain of stages.

In a Markov chain the duration of a phase is geometric, so its most probable duration is one frame, which is
unrealistic. A phase of n consecutive stages, each left with the same probability, has a negative binomial duration: the
sum of n geometric durations, at least n frames. `PhaseChain.stages` holds the numbers of stages; all other parameters
keep their meaning and shape, inference stays exact, and results are over phases, summed over stages.

Source: phase-type durations (Neuts 1981; Langrock & Zucchini 2011 for hidden semi-Markov models).
"""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from hmmjax._core.batch import collect
from hmmjax._core.checks import check_label_dtype, check_mask, is_concrete
from hmmjax._core.inputs import pad_lists
from hmmjax._core.stages import Stages, check_stages
from hmmjax._core.typing import ArrayLike
from hmmjax.types import Labels, Observations, Params


def spread(params: Params, stages: Sequence[int]) -> Params:
    """Expand each phase of a model without stages into stages, preserving its mean duration.

    Args:
        params: a model with phases.
        stages: (L,) number of stages per phase, 1 or more; 1 leaves a phase unchanged.

    Returns:
        The model with ``params.phases.stages`` set. If its transitions were counted, this is the maximum likelihood
        estimate of negative binomial durations with these numbers of stages.

    Raises:
        ValueError: no phases, a wrong number of stages, a model with stages, or a phase whose mean duration is below
            its number of stages.

    Source: Langrock & Zucchini (2011).
    """
    chain = params.phases
    if chain is None:
        raise ValueError("params has no phases, so it has no durations. Pass a model with a PhaseChain.")
    if chain.stages is not None:
        raise ValueError("params.phases already has stages. Pass the model without them.")
    stages = tuple(int(n) if n == n and n == int(n) else n for n in stages)
    check_stages(stages, chain.num_phases)
    transition = jnp.asarray(chain.transition)
    leave = (1 - jnp.diagonal(transition)) * jnp.asarray(stages, transition.dtype)
    # Up to rounding, a phase of n stages may last n frames on average.
    limit = 1 + 4 * max(stages) * float(jnp.finfo(transition.dtype).eps)
    if is_concrete(transition) and (short := np.flatnonzero(np.asarray(leave, np.float64) > limit)).size:
        p = int(short[0])
        raise ValueError(
            f"phase {p} lasts {stages[p] / float(leave[p]):.3g} frames on average, fewer than its {stages[p]} stages. "
            "Choose fewer stages."
        )
    # A probability of leaving that rounds to above one becomes one.
    excess = jnp.maximum(leave, 1)
    leave, scaled = leave / excess, transition * (jnp.asarray(stages, transition.dtype) / excess)[:, None]
    staged = jnp.where(np.eye(len(stages), dtype=bool), jnp.diag(1 - leave), scaled)
    return dataclasses.replace(params, phases=dataclasses.replace(chain, transition=staged, stages=stages))


def choose(labels: Labels, mask: ArrayLike = None, *, most: int = 6, num_phases: int | None = None) -> Stages:
    """Choose the number of stages of each phase by the durations in labeled videos.

    For every phase and number of stages, the likelihood of each video's durations is computed with the mean duration in
    the other videos; the number with the largest sum is chosen. The last run of a video, and a run that ends in an
    unknown label, are censored: they last at least as long as they are seen.

    Args:
        labels: phases (B, T), a list of (T_i,) arrays, or (T,) for a single video; -1 for unknown.
        mask: (B, T) bool; frames after the last observed one are ignored.
        most: maximum number of stages. A phase never gets more stages than its shortest run or its mean duration has
            frames.
        num_phases: L; by default one more than the largest label.

    Returns:
        (L,) numbers of stages, for `spread`; 1 for a phase that occurs in fewer than two videos.

    Raises:
        TypeError: labels that are not integers, or a mask that is not boolean.
        ValueError: no phase labels, labels out of range, or labels and a mask of different shapes.

    Source: leave-one-out likelihood of negative binomial durations.
    """
    if labels.phases is None:
        raise ValueError("labels has no phases, whose durations are counted. Pass hmmjax.Labels(phases=...).")
    if most < 1:
        raise ValueError(f"most={most} must be at least 1.")
    _, mask, labels, _ = pad_lists(Observations(), mask, Labels(labels.phases))
    known, mask = np.asarray(labels.phases), None if mask is None else np.asarray(mask)
    check_label_dtype("labels.phases", known)
    check_mask(mask)
    batch = collect(Observations(), mask, Labels(known))
    phases, observed = np.asarray(batch.phase_labels), np.asarray(batch.observed)
    phases = np.where(np.asarray(batch.valid), phases, -1)
    count = int(phases.max(initial=-1)) + 1 if num_phases is None else num_phases
    if phases.max(initial=-1) >= count or phases.min(initial=-1) < -1:
        raise ValueError(f"labels.phases must be 0..{count - 1}, or -1 for unknown, but holds {np.unique(known)}.")
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
    # The mean duration by counting: frames of a phase that a known frame follows, per frame in which it ends. It is
    # shorter than the runs if the starts of some are unknown.
    now, following = phases[:, :-1], phases[:, 1:]
    means = []
    for p in range(count):
        followed = (now == p) & (following >= 0)
        means.append(followed.sum() / max((followed & (following != p)).sum(), 1))
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
    """Return the log-probability that n stages last exactly, or if not ended at least, `length` frames."""
    horizon = int(length.max())
    stage = np.full((horizon, n), -np.inf)
    stay, go = np.log1p(-leave), np.log(leave)
    stage[0, 0] = 0.0
    for t in range(1, horizon):
        entered = np.concatenate([[-np.inf], stage[t - 1, :-1]]) + go
        stage[t] = np.logaddexp(stage[t - 1] + stay, entered)
    exact, at_least = stage[length - 1, -1] + go, np.logaddexp.reduce(stage[length - 1], -1)
    return np.where(ended, exact, at_least)
