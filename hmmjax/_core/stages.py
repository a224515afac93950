"""Expand phases into sequences of stages, and merge results over stages into phases.

The model is described in `hmmjax.durations`. Shapes: L phases, S = sum(stages) stages.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array, Float

Stages = tuple[int, ...]
"""Number of stages of each of the L phases."""


def phase_of_stage(stages: Stages) -> np.ndarray:
    """Return the phase that each stage belongs to, (S,) int32."""
    return np.repeat(np.arange(len(stages), dtype=np.int32), stages)


def staged_transition(transition: Float[Array, "L L"], stages: Stages) -> Float[Array, "S S"]:
    """Return the transition matrix over stages.

    ``transition[p, p]`` is the probability that a stage of p lasts another frame. Otherwise the next stage of p
    begins or, after the last one, phase q with probability ``transition[p, q]``.
    """
    transition = jnp.asarray(transition)
    owner, count = phase_of_stage(stages), sum(stages)
    first = np.cumsum((0, *stages[:-1]))
    last = first + np.array(stages) - 1
    inner = np.setdiff1d(np.arange(count), last)
    away = jnp.where(np.eye(len(stages), dtype=bool), 0, transition)
    out = jnp.zeros((count, count), transition.dtype)
    out = out.at[np.arange(count), np.arange(count)].set(jnp.diagonal(transition)[owner])
    # Leaving an inner stage is written as the sum of the phase's exits, so that the derivative with respect to
    # `transition` gives expected counts whose M-step is the usual normalization.
    out = out.at[inner, inner + 1].set(away.sum(-1)[owner[inner]])
    return out.at[last[:, None], first].add(away)


def staged_initial(initial: Float[Array, "L C"], stages: Stages) -> Float[Array, "S C"]:
    """Return initial probabilities over stages: videos start in the first stage of a phase."""
    initial = jnp.asarray(initial)
    first = np.cumsum((0, *stages[:-1]))
    return jnp.zeros((sum(stages), initial.shape[1]), initial.dtype).at[first].set(initial)


def merge(per_stage: Float[Array, "... S"], stages: Stages) -> Float[Array, "... L"]:
    """Sum the probabilities of stages to those of phases."""
    member = phase_of_stage(stages)[:, None] == np.arange(len(stages))
    return num.einsum("...s,sl->...l", per_stage, jnp.asarray(member, per_stage.dtype))


def check_stages(stages: Any, num_phases: int) -> None:
    """Raise ValueError unless `stages` is None or a tuple of one positive integer per phase."""
    if stages is None:
        return
    valid = isinstance(stages, tuple) and all(isinstance(n, int) and n >= 1 for n in stages)
    if not valid or len(stages) != num_phases:
        raise ValueError(f"phases.stages must be a tuple of {num_phases} positive integers, got {stages!r}.")
