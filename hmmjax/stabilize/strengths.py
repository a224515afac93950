"""Trust in a recognizer of which few labeled videos are known: a prior that was chosen on other recognizers.

One or two labeled videos say little about a recognizer's errors, and nothing about classes that they lack. The table of
errors that is counted in them is therefore shrunk towards that of a recognizer that is mostly right.
"""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from hmmjax.anchoring import learn_emissions
from hmmjax.emissions import PhaseConfusion, Tempered
from hmmjax.stabilize.examples import Examples
from hmmjax.types import Labels, Observations, Params, PhaseChain

RIGHT = 0.9
"""Probability of a right label under a recognizer that is mostly right; all wrong labels are equally probable."""


class Strength(NamedTuple):
    """How far a counted table is shrunk, and how much a frame of it is worth.

    Attributes:
        frames: pseudo-frames of each phase of a recognizer that is mostly right.
        offline: power of the emission given whole videos.
        online: power of the emission for the filter; None leaves the recognizer unchanged.
    """

    frames: float
    offline: float
    online: float | None


STRENGTHS = {"many": Strength(10_000.0, 0.1, 1.0), "few": Strength(10_000.0, 1.0, None)}
"""By whether transitions are counted in many or few videos. Chosen on TMRNet and the five outputs of MS-TCN, with one
and two labeled videos: the largest mean gain with which neither network loses more than .002;
`benchmarks/few_videos.py` also measures what a choice on one network is worth on the other (docs/results/real.md)."""

MANY_VIDEOS = 4
"""Fewest videos in which transitions count as well known."""


def strength_of(count: int) -> Strength:
    """Return how far to shrink.

    Args:
        count: number of videos in which transitions are counted.
    """
    return STRENGTHS["many" if count >= MANY_VIDEOS else "few"]


def shrunk(chain: PhaseChain, labeled: Examples, strength: Strength) -> tuple[Params, Params]:
    """Return models of phases with an error table that is shrunk towards a recognizer that is mostly right.

    Args:
        chain: initial and transition probabilities of L phases.
        labeled: videos with labels as observations.
        strength: how far, and powers.

    Returns:
        The model for whole videos and that for the filter, the same if `strength` has no power for it.
    """
    count = chain.num_phases
    table = np.full((count, count), (1 - RIGHT) / max(count - 1, 1), np.float32)
    np.fill_diagonal(table, RIGHT if count > 1 else 1.0)
    start = dataclasses.replace(chain, emission=PhaseConfusion(jnp.asarray(table)))
    known = Labels(labeled.labels.phases)
    found = learn_emissions(
        Params(start), Observations(labeled.obs.phases), labeled.mask, known, frames=strength.frames
    ).phases
    assert found is not None
    offline, online = (
        Params(dataclasses.replace(found, emission=Tempered(found.emission, jnp.asarray(power))))
        for power in (strength.offline, strength.offline if strength.online is None else strength.online)
    )
    return offline, online
