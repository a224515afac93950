"""Posteriors as NumPy arrays, video group by video group, each group under the model that has not seen its labels."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hmmjax import inference
from hmmjax.calibration import without_powers
from hmmjax.stabilize.examples import Examples
from hmmjax.stabilize.folds import Part
from hmmjax.stabilize.settings import Progress
from hmmjax.types import Observations, Params, Posterior

#: What is inferred per frame, and which of the model's tracks it has a class axis of.
MARGINALS = {"phases": "phases", "tools": "tools", "phase_log_probs": "phases", "tool_log_odds": "tools"}

#: Number of videos that are inferred together: bounds memory.
GROUP = 8


def numpy_posterior(
    params: Params, obs: Observations, mask: np.ndarray, *, online: bool = False
) -> tuple[Posterior, np.ndarray]:
    """Return posteriors as NumPy arrays.

    Args:
        params: the model.
        obs: (B, T, ...) observations.
        mask: (B, T) bool, True at valid frames.
        online: condition on past and present frames only (`hmmjax.filter`), not on the whole video.

    Returns:
        The marginals (B, T, L) and (B, T, K), None for a track that the model lacks; and log-likelihoods (B,).
    """
    found = (inference.filter if online else inference.posterior)(params, obs, mask)
    found = jax.tree.map(np.asarray, found)
    return found, found.log_likelihood


def infer_plan(
    plan: Sequence[Part], examples: Examples, ids: Sequence[str], params: Params, progress: Progress
) -> tuple[Posterior, Posterior, np.ndarray, tuple[int, ...]]:
    """Infer every video with its model.

    The filter uses the models without calibration: powers that are right for a whole video make it react too late.

    Args:
        plan: which model infers which videos, see `plan_folds`.
        examples: all videos.
        ids: (B,) names of the videos.
        params: the model of all videos, for the number of phases and tools.
        progress: called with a stage's name, the number of videos done and of all videos.

    Returns:
        Smoothed and filtered posteriors (B, T, ...), log-likelihoods (B,), and the fold of each video (-1: none).

    Raises:
        ValueError: a video is impossible under its model.
    """
    count, length = examples.mask.shape
    sizes = {"phases": params.num_phases, "tools": params.num_tools}

    def blank() -> dict[str, Any]:
        own = {name: sizes[track] for name, track in MARGINALS.items()}
        return {name: np.zeros((count, length, n), np.float32) if n else None for name, n in own.items()}

    arrays = blank(), blank()
    likelihood, fold_of, done = np.zeros(count), np.full(count, -1), 0
    for model, positions, fold in plan:
        fold_of[positions] = fold
        for start in range(0, len(positions), GROUP):
            group = positions[start : start + GROUP]
            part = examples.take(group)
            progress("inference", done, count)
            smoothed, likelihood[group] = numpy_posterior(model, part.obs, part.mask)
            filtered, _ = numpy_posterior(without_powers(model), part.obs, part.mask, online=True)
            for into, found in zip(arrays, (smoothed, filtered), strict=True):
                for name, array in into.items():
                    if array is not None:
                        array[group] = getattr(found, name)
            done += len(group)
    progress("inference", count, count)
    if not np.isfinite(likelihood).all():
        bad = ", ".join(name for name, value in zip(ids, likelihood, strict=True) if not np.isfinite(value))
        raise ValueError(
            f"impossible under the model: {bad}. Some transition or output has probability zero. Learn with "
            "pseudo-counts, and check that the files have the model's classes and frame rate."
        )
    smoothed, filtered = (Posterior(log_likelihood=likelihood, **x) for x in arrays)
    return smoothed, filtered, likelihood, tuple(int(f) for f in fold_of)
