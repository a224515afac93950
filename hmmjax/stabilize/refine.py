"""Train a counted model for single labels, with a given penalty or one that inner folds choose."""

import dataclasses
from collections.abc import Callable

import numpy as np

from hmmjax.emissions import Fused, Tempered
from hmmjax.ensembles import labels_of
from hmmjax.refinement import refine
from hmmjax.stabilize.candidates import POWER
from hmmjax.stabilize.examples import TRACKS, Examples, label_coverage
from hmmjax.stabilize.learn import Learned
from hmmjax.tuning import tune_refinement
from hmmjax.types import Labels, Observations, Params


def refine_model(learned: Learned, examples: Examples) -> Learned:
    """Train a counted model for single labels, given all frames and, for the filter, given the past.

    Args:
        learned: the model, from `learn_model`; one learned by EM is returned as it is, and its method says so.
        examples: the videos that it was learned from.

    Returns:
        The model for whole videos, and as `online` that for the filter.
    """
    known = labels_of(learned.params, examples.labels)
    if learned.fit is not None or not _labeled(known, examples).any():
        why = "EM was needed" if learned.fit is not None else "there are no labels"
        return dataclasses.replace(learned, method=f"{learned.method}; not trained for labels, because {why}")
    start = _with_half_powers(learned.params)
    offline, online = (
        refine(start, examples.obs, examples.mask, known, objective=objective).params
        for objective in ("smoother", "filter")
    )
    return dataclasses.replace(learned, params=offline, online=online, method=f"{learned.method}; trained for labels")


def tune_model(learned: Learned, examples: Examples, learn: Callable[[np.ndarray], Learned]) -> Learned:
    """Do what `refine_model` does, with the penalty and the number of iterations chosen on inner folds.

    Args:
        learned: the model, from `learn_model`; one learned by EM, or from a single labeled video, is not tuned.
        examples: the videos that it was learned from.
        learn: return the counted model of some of these videos, given their positions.
    """
    known = labels_of(learned.params, examples.labels)
    if learned.fit is not None or _labeled(known, examples).sum() < 2:
        return refine_model(learned, examples)

    def start(labels: Labels, obs: Observations, mask: np.ndarray) -> Params:
        return _with_half_powers(learn(np.flatnonzero(mask.any(1))).params)

    offline, online = (
        tune_refinement(start, examples.obs, examples.mask, known, objective=objective)
        for objective in ("smoother", "filter")
    )
    how = (
        f"{mode} with a penalty (l2) of {x.best.l2:g} and {x.best.max_iterations} iterations"
        if x.best.max_iterations
        else f"{mode} not at all"
        for mode, x in (("offline", offline), ("online", online))
    )
    method = f"{learned.method}; trained for labels, {' and '.join(how)}, chosen on inner folds"
    return dataclasses.replace(
        learned, params=offline.refinement.params, online=online.refinement.params, method=method
    )


def _with_half_powers(params: Params) -> Params:
    """Return a model with emission powers of one half, from which label-wise training starts."""
    for track in TRACKS:
        chain = getattr(params, track)
        if chain is not None and chain.emission is not None and not isinstance(chain.emission, Fused):
            power = np.full(() if track == "phases" else params.num_tools, POWER, np.float32)
            chain = dataclasses.replace(chain, emission=Tempered(chain.emission.unwrapped, power))
            params = dataclasses.replace(params, **{track: chain})
    return params


def _labeled(known: Labels, examples: Examples) -> np.ndarray:
    """Return for each video (B,) whether any frame of a track that the model has is labeled."""
    return np.any([label_coverage(examples, t)[0] for t in TRACKS if getattr(known, t) is not None], axis=0)
