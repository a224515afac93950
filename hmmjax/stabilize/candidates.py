"""Models among which `hmmjax.stabilize.auto` chooses: counted, trained for single labels, and with restarts."""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hmmjax.calibration import without_powers
from hmmjax.emissions import Tempered, ToolMonotone
from hmmjax.initialize import estimate
from hmmjax.refinement import refine
from hmmjax.stabilize.examples import Examples, label_coverage
from hmmjax.stabilize.settings import PRIORS
from hmmjax.types import Labels, Observations, Params, PhaseChain

RESTART = 1e-3
"""Probability per frame that the phases of a model with restarts continues in any phase. A model that is wrong about
the past, as transitions that no labeled video shows may make it, then comes back."""

POWER = 0.5
"""Power of emissions before training, and of scores of tools, whose frames are far from independent."""


class Candidate(NamedTuple):
    """A model, offline and online, and the tracks for which it is considered."""

    offline: Params
    online: Params
    tracks: tuple[str, ...]


def learn_candidates(
    base: Params, labeled: Examples, scores: Observations, counts: tuple[Labels, np.ndarray], trained: bool
) -> dict[str, Candidate]:
    """Return models learned from the same videos, by name.

    Args:
        base: the model as named families give it: counted, perhaps calibrated.
        labeled: the videos that it was learned from, with labels as observations.
        scores: the recognizer's outputs of all videos as read.
        counts: labels and mask of the videos in which transitions are counted.
        trained: whether there are enough videos to train phases for single labels.

    Returns:
        "counted" is the given model. If phases are predicted and `trained`: "trained" for single labels given the past,
        "trained, restarts", and "counted, restarts". If tools have scores: "scores", which takes them as they
        are, without a threshold, each tool by itself.
    """
    tracks = tuple(t for t in ("phases", "tools") if getattr(labeled.obs, t) is not None)
    found = {"counted": Candidate(base, without_powers(base), tracks)}
    if trained and "phases" in tracks and label_coverage(labeled, "phases")[0].any():
        chain: Any = base.phases
        chain = dataclasses.replace(chain, emission=chain.emission.unwrapped)
        known = Observations(labeled.obs.phases), labeled.mask, Labels(labeled.labels.phases)
        for name, start in (("trained", chain), ("trained, restarts", with_restarts(chain))):
            start = dataclasses.replace(start, emission=Tempered(start.emission, jnp.asarray(POWER)))
            model = refine(Params(start), *known, objective="filter").params
            found[name] = Candidate(model, model, ("phases",))
        model = Params(with_restarts(chain))
        found["counted, restarts"] = Candidate(model, model, ("phases",))
    if isinstance(scores.tools, np.ndarray) and scores.tools.dtype.kind == "f" and labeled.labels.tools is not None:
        model = _evidence_of_scores(labeled, scores.tools, counts)
        found["scores"] = Candidate(model, model, ("tools",))
    return found


def with_restarts(chain: PhaseChain, probability: float = RESTART) -> PhaseChain:
    """Return a chain of phases that restarts in any phase, with a small probability per frame.

    Args:
        chain: the phases.
        probability: of a restart in each frame; ten times as much of an unusual first phase.
    """
    count = chain.num_phases
    first = min(10 * probability, 1.0)
    return dataclasses.replace(
        chain,
        initial=(1 - first) * jnp.asarray(chain.initial) + first / count,
        transition=(1 - probability) * jnp.asarray(chain.transition) + probability / count,
    )


def _evidence_of_scores(labeled: Examples, scores: np.ndarray, counts: tuple[Labels, np.ndarray]) -> Params:
    """Return independent tools that observe scores, by an isotonic map learned in the labeled frames."""
    tools = estimate(Labels(tools=counts[0].tools), None, counts[1], priors=PRIORS).tools
    assert tools is not None
    emission = ToolMonotone.from_labels(scores, labeled.labels.tools, labeled.mask)
    return Params(None, dataclasses.replace(tools, emission=Tempered(emission, jnp.full(tools.num_tools, POWER))))
