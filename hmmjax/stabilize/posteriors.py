"""Posteriors as NumPy arrays, video group by video group, each group under the model that has not seen its labels."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from hmmjax import inference
from hmmjax.calibration import without_powers
from hmmjax.ensembles import Ensemble
from hmmjax.stabilize.examples import TRACKS, Examples
from hmmjax.stabilize.folds import Part
from hmmjax.stabilize.settings import Progress
from hmmjax.types import Observations, Params, Posterior

#: What is inferred per frame, and which of the model's tracks it has a class axis of.
MARGINALS = {"phases": "phases", "tools": "tools", "phase_log_probs": "phases", "tool_log_odds": "tools"}

#: Number of videos that are inferred together: bounds memory.
GROUP = 8


def numpy_posterior(
    params: Params | Ensemble, obs: Observations, mask: np.ndarray, *, online: bool = False
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
    found = (inference.filter if online else inference.posterior)(params, _without_blank(obs, mask), mask)
    found = jax.tree.map(np.asarray, found)
    return found, found.log_likelihood


def _without_blank(obs: Observations, mask: np.ndarray) -> Observations:
    """Return observations without a track of scores that are NaN in all these videos.

    Inference refuses such a track, which in a call of its own is a slip; here it is a group of videos out of many.
    """

    def is_blank(x: Any) -> bool:
        return isinstance(x, np.ndarray) and x.dtype.kind == "f" and bool(np.isnan(x[mask]).all())

    return dataclasses.replace(obs, **{track: None for track in TRACKS if is_blank(getattr(obs, track))})


@dataclasses.dataclass(frozen=True, eq=False)
class Inferred:
    """Posteriors of all videos, each by the model of its part.

    Attributes:
        smoothed: given the whole video.
        filtered: given past and present frames.
        log_likelihood: (B,) of each video, in nats.
        folds: the fold in which each video was held out, -1 for none.
    """

    smoothed: Posterior
    filtered: Posterior
    log_likelihood: np.ndarray
    folds: tuple[int, ...]

    def smoothed_of(self, positions: Sequence[int]) -> Posterior:
        """Return the smoothed posteriors of some videos."""
        return jax.tree.map(lambda x: x[positions], self.smoothed)


def groups_of(plan: Sequence[Part], examples: Examples) -> Iterator[tuple[Part, Examples]]:
    """Yield the videos of a plan in groups of at most `GROUP`: a part with their positions, and the videos.

    Groups are padded to the same number of videos by empty ones, so that all of them run the same programs.
    """
    size = min(GROUP, max((len(part.positions) for part in plan), default=0))
    for part in plan:
        for start in range(0, len(part.positions), GROUP):
            group = part.positions[start : start + GROUP]
            yield (
                part._replace(positions=group),
                examples.take(group + group[:1] * (size - len(group))).only(range(len(group))),
            )


def infer_plan(
    plan: Sequence[Part], examples: Examples, ids: Sequence[str], params: Params | Ensemble, progress: Progress
) -> Inferred:
    """Infer every video with its model.

    Unless a part has an online model, the filter uses the model without calibration: powers that are right for a whole
    video make it react too late. An ensemble, whose powers were trained, keeps them.

    Args:
        plan: which model infers which videos, see `plan_folds`.
        examples: all videos.
        ids: (B,) names of the videos.
        params: the model of all videos, for the number of phases and tools.
        progress: called with a stage's name, the number of videos done and of all videos.

    Returns:
        Posteriors, log-likelihoods and folds of all videos.

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
    for (model, group, fold, online), videos in groups_of(plan, examples):
        progress("inference", done, count)
        smoothed, log_likelihood = numpy_posterior(model, videos.obs, videos.mask)
        if online is None:
            online = model if isinstance(model, Ensemble) else without_powers(model)
        filtered, _ = numpy_posterior(online, videos.obs, videos.mask, online=True)
        fold_of[group], likelihood[group] = fold, log_likelihood[: len(group)]
        for into, found in zip(arrays, (smoothed, filtered), strict=True):
            for name, array in into.items():
                if array is not None:
                    array[group] = getattr(found, name)[: len(group)]
        done += len(group)
    progress("inference", count, count)
    if not np.isfinite(likelihood).all():
        bad = ", ".join(name for name, value in zip(ids, likelihood, strict=True) if not np.isfinite(value))
        raise ValueError(
            f"impossible under the model: {bad}. Some transition or output has probability zero. Learn with "
            "pseudo-counts, and check that the files have the model's classes and frame rate."
        )
    smoothed, filtered = (Posterior(log_likelihood=likelihood, **x) for x in arrays)
    return Inferred(smoothed, filtered, likelihood, tuple(int(f) for f in fold_of))
