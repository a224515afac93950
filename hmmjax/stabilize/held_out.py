"""Learn from some of the prepared videos, without what is known of those that are held out."""

import numpy as np

from hmmjax.io import FormatError
from hmmjax.stabilize.examples import Examples
from hmmjax.stabilize.learn import Learned, learn_model
from hmmjax.stabilize.prepare import Prepared, TransitionVideos
from hmmjax.stabilize.refine import refine_model, tune_model
from hmmjax.stabilize.settings import AUTO, Progress, Settings
from hmmjax.types import Observations


def learn_from(
    prepared: Prepared,
    settings: Settings,
    positions: np.ndarray,
    held_out: np.ndarray,
    stage: str,
    progress: Progress,
) -> Learned:
    """Learn from the videos at `positions`, without the transitions of the held-out videos."""
    ids, counts = prepared.index.ids, prepared.counts
    examples = prepared.labeled(settings.threshold) if settings.emissions == AUTO else prepared.examples

    def learn(positions: np.ndarray, held_out: np.ndarray) -> Learned:
        others = None if counts is None else without(counts, {ids[p] for p in held_out})
        return learn_model(
            examples.only(positions),
            settings,
            num_phases=prepared.classes["phases"],
            num_tools=prepared.classes["tools"],
            transitions=None if others is None else (others.labels, others.mask),
            callback=lambda done, _: progress(stage, done, 0),
        )

    def learn_inner(some: np.ndarray) -> Learned:
        return learn(some, np.union1d(held_out, np.setdiff1d(positions, some)).astype(int))

    try:
        learned = learn(positions, held_out)
        if settings.learn == "tune":
            return tune_model(learned, examples.only(positions), learn_inner)
        return refine_model(learned, examples.only(positions)) if settings.learn == "refine" else learned
    except ValueError as error:
        places = ", ".join(f"{p} {ids[p]}" for p in positions)
        raise ValueError(f"{error} (videos by number: {places})") from error


def without(counts: TransitionVideos, held_out: set[str]) -> TransitionVideos:
    """Return the videos, those that are held out as empty ones."""
    keep = [i for i, name in enumerate(counts.ids) if name not in held_out]
    if not keep:
        raise FormatError("no video is left to count transitions in", fix="give videos that are not scored")
    part = Examples(Observations(), counts.labels, counts.mask).only(keep)
    return TransitionVideos(counts.ids, part.labels, part.mask)
