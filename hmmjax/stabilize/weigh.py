"""What calibration is worth, on videos that neither the tables nor the powers have seen."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hmmjax import inference, metrics
from hmmjax.calibration import plain
from hmmjax.stabilize.folds import GROUP, Part
from hmmjax.stabilize.learn import Examples
from hmmjax.types import Labels, Params


@dataclasses.dataclass(frozen=True)
class Worth:
    """One model's figures on held-out videos.

    Attributes:
        conditional: log-probability of the labels given the observations, nats a labeled frame.
        phase_error: expected calibration error of phases, NaN without phase labels.
        tool_error: likewise of tools.
    """

    conditional: float
    phase_error: float
    tool_error: float


def held_out_worth(plan: Sequence[Part], examples: Examples) -> tuple[Worth, Worth] | None:
    """The models of `plan` with powers of one, and as they are; None when no labeled video is held out."""
    before, after = _Sum(), _Sum()
    for model, positions, fold in plan:
        if fold < 0:
            continue
        for start in range(0, len(positions), GROUP):
            part = examples.take(positions[start : start + GROUP])
            before.add(plain(model), part)
            after.add(model, part)
    return None if not after.frames else (before.worth(), after.worth())


def words(worth: tuple[Worth, Worth]) -> str:
    """Both in a sentence."""
    before, after = worth
    text = (
        "on held-out videos calibration changes the labels' conditional log-likelihood from "
        f"{before.conditional:.3f} to {after.conditional:.3f} nats a frame (higher is better)"
    )
    for name in ("phase", "tool"):
        old, new = (getattr(w, f"{name}_error") for w in worth)
        if new == new:
            text += f", the calibration error (ECE) of {name}s from {old:.3f} to {new:.3f} (lower is better)"
    return text


class _Sum:
    def __init__(self) -> None:
        self.total, self.frames = 0.0, 0
        self.videos: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"phases": [], "tools": []}

    def add(self, model: Params, part: Examples) -> None:
        labels = Labels(
            *(None if getattr(model, t) is None else getattr(part.labels, t) for t in ("phases", "tools")),
        )
        found = inference.posterior(model, part.obs, part.mask)
        clamped = inference.log_likelihood(model, part.obs, part.mask, labels)
        self.total += float(np.sum(np.asarray(clamped, np.float64) - np.asarray(found.log_likelihood, np.float64)))
        known = np.zeros(part.mask.shape, bool)
        for track, videos in self.videos.items():
            truth, said = getattr(labels, track), getattr(found, track)
            if truth is None:
                continue
            known |= (truth >= 0) if truth.ndim == 2 else (truth >= 0).any(-1)
            videos += [(t[m], np.clip(s[m], 0, 1)) for t, s, m in zip(truth, np.asarray(said), part.mask, strict=True)]
        self.frames += int((known & part.mask).sum())

    def worth(self) -> Worth:
        errors = []
        for track, measure in (("phases", metrics.phase_calibration), ("tools", metrics.tool_calibration)):
            videos = [(t, s) for t, s in self.videos[track] if (t >= 0).any()]
            errors.append(measure([t for t, _ in videos], [s for _, s in videos]).value if videos else float("nan"))
        return Worth(self.total / self.frames, *errors)


__all__ = ["Worth", "held_out_worth", "words"]
