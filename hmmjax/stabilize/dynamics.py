"""Initial and transition probabilities: counted in labels, spread over stages, or left to EM."""

import dataclasses
from typing import Any

import numpy as np

from hmmjax import durations
from hmmjax.initialize import estimate, init_params
from hmmjax.stabilize.coverage import is_partial
from hmmjax.stabilize.examples import TRACKS, Examples, bridge_gaps
from hmmjax.stabilize.settings import Settings
from hmmjax.types import Labels, Params

#: How transitions are learned without counting them.
_ESTIMATED = "{}: order and length of {} were estimated from the predictions themselves"
_NO_WHOLE = "no video is annotated throughout (annotate at least 99 % of some video's frames to count them instead)"


def learn_dynamics(
    examples: Examples,
    num_phases: int,
    num_tools: int,
    settings: Settings,
    transitions: tuple[Labels, np.ndarray] | None,
) -> tuple[Params, str]:
    """Return initial and transition probabilities, and their origin in words."""
    labels, mask = (examples.labels, examples.mask) if transitions is None else transitions
    labels = bridge_gaps(labels, mask)
    missing = (num_phases and not _any_known(labels.phases)) or (num_tools and not _any_known(labels.tools))
    if missing:
        if transitions is not None:
            raise ValueError(
                "the videos for transitions lack labels of a track of the model. Give labels of phases and of tools."
            )
        start = init_params(num_phases, num_tools, emissions=settings.family)
        return start, _ESTIMATED.format("no annotations", "phases" if num_phases else "tool uses")
    counts = Labels(labels.phases if num_phases else None, labels.tools if num_tools else None)
    params = estimate(
        counts,
        None,
        mask,
        emissions=settings.family,
        priors=settings.priors,
        num_phases=num_phases if num_phases else None,
    )
    if transitions is None and settings.max_iterations != 0:
        # Labels that stop early give phases that they never show no way in; EM learns from what they do show.
        start = init_params(num_phases, num_tools, emissions=settings.family)
        partial = [t for t in TRACKS if getattr(examples.obs, t) is not None and is_partial(examples, t)]
        params = dataclasses.replace(params, **{track: getattr(start, track) for track in partial})
        if partial:
            what = "phases" if "phases" in partial else "tool uses"
            return params, _ESTIMATED.format(_NO_WHOLE, what)
    where = "the labeled videos" if transitions is None else f"{mask.any(1).sum()} other videos"
    return params, f"transitions counted in {where}"


def with_stages(
    params: Params, examples: Examples, transitions: tuple[Labels, np.ndarray] | None
) -> tuple[Params, str]:
    """Expand phases into the stages that fit the durations in the labels; also return how many, in words."""
    labels, mask = (examples.labels, examples.mask) if transitions is None else transitions
    if labels.phases is None or params.phases is None:
        return params, ""
    stages = durations.choose(bridge_gaps(labels, mask), mask, num_phases=params.num_phases)
    # Pseudo-counts may shorten the mean duration; a phase cannot have more stages than mean frames.
    leave = 1 - np.diagonal(np.asarray(params.phases.transition, np.float64))
    stages = tuple(min(n, max(1, int(1.000001 / max(x, 1e-9)))) for n, x in zip(stages, leave, strict=True))
    return durations.spread(params, stages), f"; phases in {', '.join(map(str, stages))} stages"


def dynamic_blocks(params: Params) -> tuple[str, ...]:
    """Return the names of a model's blocks of initial and transition probabilities, which `fit` can freeze."""
    tracks = [track for track in TRACKS if getattr(params, track) is not None]
    return tuple(f"{track}.{block}" for track in tracks for block in ("initial", "transition"))


def _any_known(labels: Any) -> bool:
    return labels is not None and bool((np.asarray(labels) >= 0).any())
