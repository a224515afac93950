"""Models among which `hmmjax.stabilize.auto` chooses: counted, shrunk, trained for single labels, and of scores."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from hmmjax.calibration import without_powers
from hmmjax.emissions import Tempered, ToolMonotone
from hmmjax.initialize import estimate
from hmmjax.refinement import refine
from hmmjax.stabilize.examples import TRACKS, Examples, label_coverage
from hmmjax.stabilize.settings import PRIORS
from hmmjax.stabilize.strengths import Strength, shrunk
from hmmjax.types import Labels, Observations, Params, PhaseChain

RESTART = 1e-3
"""Probability per frame that the phases of a model with restarts continues in any phase. A model that is wrong about
the past, as transitions that no labeled video shows may make it, then comes back."""

POWER = 0.5
"""Power of emissions before training, and of scores of tools, whose frames are far from independent."""

SLOW = 0.03
"""Power of the emission of a model that follows the recognizer late, and hence ignores errors that last."""

SCORE_ITERATIONS = 10
"""Iterations of training of the model of phases that observes scores."""

MODES = ("offline", "online")


class Candidate(NamedTuple):
    """A model, offline and online, and by mode the tracks for which it is considered."""

    offline: Params
    online: Params
    tracks: Mapping[str, tuple[str, ...]]


def learn_candidates(
    base: Params,
    labeled: Examples,
    scores: Observations,
    counts: tuple[Labels, np.ndarray],
    trained: bool,
    strength: Strength,
    chooses: bool = True,
) -> dict[str, Candidate]:
    """Return models learned from the same videos, by name.

    Args:
        base: the model as named families give it: counted.
        labeled: the videos that it was learned from, with labels as observations.
        scores: the recognizer's outputs of all videos as read.
        counts: labels and mask of the videos in which transitions are counted.
        trained: whether there are enough videos to train phases for single labels.
        strength: of the shrunk models.
        chooses: whether there are enough videos to choose by.

    Returns:
        "counted" is the given model. If phases are predicted, "shrunk" is held to a recognizer that is mostly right
        (`hmmjax.stabilize.strengths`). With enough videos there are also "trained" for single labels given the past,
        "trained, restarts"; offline "slow", which is shrunk and follows late; and online "counted, restarts", in place
        of the models without restarts. If tools have scores, "scores" takes them as they are, without a threshold, each
        tool by itself. If phases have, and videos are too few to train phases otherwise but enough to choose by, online
        "trained, scores" takes theirs (`benchmarks/families.py` measured both). `observed_by` says what a model
        observes.
    """
    tracks = tuple(t for t in TRACKS if getattr(labeled.obs, t) is not None)
    found = {}
    if base.phases is not None and "phases" in tracks and label_coverage(labeled, "phases")[0].any():
        found = _models_of_phases(base.phases, labeled, trained, strength)
        if chooses and not trained and _are_scores(scores.phases):
            model = _trained_on_scores(base.phases, labeled, scores.phases)
            found["trained, scores"] = Candidate(model, model, {"offline": (), "online": ("phases",)})
    online = tuple(t for t in tracks if not (t == "phases" and "counted, restarts" in found))
    counted = Candidate(base, without_powers(base), {"offline": tracks, "online": online})
    found = {"counted": counted, **found}
    if _are_scores(scores.tools) and labeled.labels.tools is not None:
        model = _evidence_of_scores(labeled, scores.tools, counts)
        found["scores"] = Candidate(model, model, dict.fromkeys(MODES, ("tools",)))
    return found


def observed_by(params: Params, labels: Observations, scores: Observations) -> Observations:
    """Return what the emissions of a candidate observe of each of its tracks: scores, or labels; None if nothing.

    Args:
        params: the candidate's model.
        labels: of all tracks.
        scores: the recognizer's outputs as read.
    """

    def choose(track: str) -> Any:
        emission = getattr(getattr(params, track), "emission", None)
        if emission is None:
            return None
        return getattr(scores if emission.observes == "probabilities" else labels, track)

    return Observations(*map(choose, TRACKS))


def _are_scores(outputs: Any) -> bool:
    return isinstance(outputs, np.ndarray) and outputs.dtype.kind == "f"


def _models_of_phases(
    counted: PhaseChain, labeled: Examples, trained: bool, strength: Strength
) -> dict[str, Candidate]:
    chain: Any = counted
    chain = dataclasses.replace(chain, emission=chain.emission.unwrapped)
    found: dict[str, Candidate] = {}

    def add(name: str, offline: Params, online: Params, *modes: str) -> None:
        found[name] = Candidate(offline, online, {m: ("phases",) if m in modes else () for m in MODES})

    online = () if trained or strength.online is None else ("online",)
    add("shrunk", *shrunk(chain, labeled, strength), "offline", *online)
    if not trained:
        return found
    known = Observations(labeled.obs.phases), labeled.mask, Labels(labeled.labels.phases)
    add("slow", *shrunk(chain, labeled, strength._replace(offline=SLOW)), "offline")
    for name, start in (("trained", chain), ("trained, restarts", with_restarts(chain))):
        start = dataclasses.replace(start, emission=Tempered(start.emission, jnp.asarray(POWER)))
        model = refine(Params(start), *known, objective="filter").params
        add(name, model, model, *MODES)
    model = Params(with_restarts(chain))
    add("counted, restarts", model, model, "online")
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


def _trained_on_scores(counted: PhaseChain, labeled: Examples, scores: np.ndarray) -> Params:
    """Return phases that observe log-odds of scores, trained for single labels given the past."""
    known, obs = Labels(labeled.labels.phases), Observations(scores)
    own: Any = estimate(
        known, obs, labeled.mask, emissions="logit-normal", priors=PRIORS, num_phases=counted.num_phases
    ).phases
    start = dataclasses.replace(counted, emission=Tempered(own.emission, jnp.asarray(POWER)))
    return refine(Params(start), obs, labeled.mask, known, objective="filter", max_iterations=SCORE_ITERATIONS).params


def _evidence_of_scores(labeled: Examples, scores: np.ndarray, counts: tuple[Labels, np.ndarray]) -> Params:
    """Return independent tools that observe scores, by an isotonic map learned in the labeled frames."""
    tools = estimate(Labels(tools=counts[0].tools), None, counts[1], priors=PRIORS).tools
    assert tools is not None
    emission = ToolMonotone.from_labels(scores, labeled.labels.tools, labeled.mask)
    return Params(None, dataclasses.replace(tools, emission=Tempered(emission, jnp.full(tools.num_tools, POWER))))
