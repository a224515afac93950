"""What calibration changes on held-out videos."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hmmjax import inference, metrics
from hmmjax.calibration import without_powers
from hmmjax.stabilize.examples import TRACKS, Examples
from hmmjax.stabilize.folds import Part
from hmmjax.stabilize.posteriors import Inferred, groups_of, numpy_posterior
from hmmjax.types import Labels, Params, Posterior


@dataclasses.dataclass(frozen=True)
class HeldOutScores:
    """How well probabilities fit the labels of held-out videos.

    Attributes:
        conditional: log-probability of the labels given the observations, in nats per labeled frame.
        phase_error: expected calibration error of phases, NaN without phase labels.
        tool_error: expected calibration error of tools, NaN without tool labels.
    """

    conditional: float
    phase_error: float
    tool_error: float


def calibration_effect(
    plan: Sequence[Part], examples: Examples, inferred: Inferred
) -> tuple[HeldOutScores, HeldOutScores] | None:
    """Score the models of a plan on their held-out videos, without and with their powers.

    Args:
        plan: which model infers which videos, see `hmmjax.stabilize.folds.plan_folds`.
        examples: all videos with their labels.
        inferred: what these models infer of the videos.

    Returns:
        Scores with powers of one, and with the powers found; None if no labeled video is held out.
    """
    before, after = _Scores(), _Scores()
    for part, videos in groups_of(plan, examples):
        if part.fold >= 0:
            plain = without_powers(part.model)
            before.add(plain, videos, numpy_posterior(plain, videos.obs, videos.mask)[0])
            after.add(part.model, videos, inferred.smoothed_of(part.positions))
    return None if not after.frames else (before.result(), after.result())


def describe_effect(effect: tuple[HeldOutScores, HeldOutScores]) -> str:
    """Describe what calibration changes on held-out videos, in one sentence."""
    before, after = effect
    text = (
        "on held-out videos, calibration changes the conditional log-likelihood of the labels from "
        f"{before.conditional:.3f} to {after.conditional:.3f} nats per frame (higher is better)"
    )
    for name in ("phase", "tool"):
        old, new = (getattr(scores, f"{name}_error") for scores in effect)
        if new == new:
            text += f", and the calibration error (ECE) of {name}s from {old:.3f} to {new:.3f} (lower is better)"
    return text


class _Scores:
    """Running sums over videos of `HeldOutScores`."""

    def __init__(self) -> None:
        self.total, self.frames = 0.0, 0
        self.videos: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {track: [] for track in TRACKS}

    def add(self, model: Params, part: Examples, found: Posterior) -> None:
        """Add a group of videos with their posteriors, which empty videos at its end may lack."""
        labels = Labels(*(None if getattr(model, t) is None else getattr(part.labels, t) for t in TRACKS))
        joint = inference.log_likelihood(model, part.obs, part.mask, labels)
        log_likelihood = np.asarray(found.log_likelihood)
        joint = np.asarray(joint, np.float64)[: len(log_likelihood)]
        possible = np.isfinite(log_likelihood)
        self.total += float(np.where(possible, joint - np.where(possible, log_likelihood, 0), -np.inf).sum())
        known = np.zeros(part.mask.shape, bool)
        for track, videos in self.videos.items():
            truth, values = getattr(labels, track), getattr(found, track)
            if truth is None:
                continue
            known |= (truth >= 0) if truth.ndim == 2 else (truth >= 0).any(-1)
            videos += [(t[m], v[m]) for t, v, m in zip(truth, values, part.mask, strict=False)]
        self.frames += int((known & part.mask).sum())

    def result(self) -> HeldOutScores:
        errors = []
        for track, measure in (("phases", metrics.phase_calibration), ("tools", metrics.tool_calibration)):
            videos = [(t, v) for t, v in self.videos[track] if (t >= 0).any()]
            errors.append(measure([t for t, _ in videos], [v for _, v in videos]).value if videos else float("nan"))
        return HeldOutScores(self.total / self.frames, *errors)
