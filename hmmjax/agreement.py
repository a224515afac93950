"""Compare inferred states with a recognizer's own labels: a sign of emissions that drifted, which needs no truth."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax._core.batch import collect
from hmmjax._core.inputs import pad_lists
from hmmjax.anchoring import has_meaning
from hmmjax.inference import posterior
from hmmjax.types import Labels, Observations, Params

#: The confidence of a recognizer that predicts labels only.
ASSUMED = 0.95
#: States that agree with a recognizer's labels in fewer frames than this have probably drifted: smoothing changes a few
#: percent of frames, and a model trained on labels some ten.
ENOUGH = 0.8
#: Fewer frames than this do not show whether a class drifted.
FEW_FRAMES = 30


@dataclasses.dataclass(frozen=True, eq=False)
class Agreement:
    """How often inferred states are the recognizer's own labels.

    Attributes:
        counts: (N, N) number of frames with each most probable state (row) and label (column).
        confidence: mean probability that the recognizer gives to its own labels; `ASSUMED` if it predicts labels only.
    """

    counts: np.ndarray
    confidence: float

    @property
    def fraction(self) -> float:
        """Fraction of frames in which the state is the recognizer's label; NaN without frames."""
        return float(np.trace(self.counts) / self.counts.sum()) if self.counts.any() else float("nan")

    @property
    def has_drifted(self) -> bool:
        """Whether states agree in so few frames that smoothing does not explain it."""
        return bool(self.fraction < ENOUGH)

    def describe(self, names: Sequence[str] | None = None) -> list[str]:
        """Return one sentence if the states drifted, with the classes that drifted most; an empty list otherwise.

        Args:
            names: (N,) names of the classes, in the order of the states.
        """
        if not self.has_drifted:
            return []
        frames = self.counts.sum(0)
        own = np.diagonal(self.counts) / np.maximum(frames, 1)
        worst = [q for q in np.argsort(own, kind="stable") if frames[q] >= FEW_FRAMES and own[q] < 0.5][:3]
        parts = []
        for q in worst:
            name, other = (str(i) if names is None else names[i] for i in (q, int(self.counts[:, q].argmax())))
            parts.append(f"{name} in {own[q]:.0%}" + (f", mostly taken for {other}" if other != name else ""))
        return [
            f"inferred states agree with the recognizer's labels in only {self.fraction:.0%} of frames (its own mean "
            f"confidence is {self.confidence:.0%})" + (f": {'; '.join(parts)}" if parts else "")
        ]


def agreement(states: Sequence[np.ndarray], outputs: Sequence[np.ndarray], num_classes: int) -> Agreement:
    """Compare states with outputs.

    Args:
        states: for each video (n, N) probabilities of the states, or int labels (n,).
        outputs: for each video (n, N) probabilities, or int labels (n,), of the recognizer; NaN or -1 is missing.
        num_classes: N.

    Returns:
        Their agreement, over frames in which neither is missing. Probabilities count as their most probable class, so
        that a model that is less confident than the recognizer, but of the same opinion, agrees with it.
    """
    counts, sure, frames = np.zeros((num_classes, num_classes)), 0.0, 0
    for inferred, given in zip(states, outputs, strict=True):
        kept, labels = _most_probable(inferred), _most_probable(given)
        confidence = np.full(len(given), ASSUMED) if given.ndim == 1 else np.nan_to_num(given).max(-1)
        seen = (kept >= 0) & (labels >= 0)
        np.add.at(counts, (kept[seen], labels[seen]), 1)
        sure, frames = sure + float(confidence[seen].sum()), frames + int(seen.sum())
    return Agreement(counts, sure / frames if frames else float("nan"))


def _most_probable(values: np.ndarray) -> np.ndarray:
    """Return labels (n,): as given, or of probabilities (n, N) the most probable class; -1 if missing."""
    if values.ndim == 1:
        return values
    present = np.isfinite(values).all(-1) & (np.nan_to_num(values).sum(-1) > 0)
    return np.where(present, np.nan_to_num(values).argmax(-1), -1)


def find_drift(params: Params, obs: Observations, mask: Any = None, labels: Labels | None = None) -> list[str]:
    """Describe phases whose inferred states are no longer the recognizer's classes, as unlabeled EM may leave them.

    `find_label_switching` looks at emissions; this check looks at data. It needs no truth: smoothing corrects a few
    percent of a recognizer's frames, and states that contradict it in more than a fifth of them mean something else, or
    the recognizer is poor.

    Args:
        params: the model, with concrete values.
        obs: (B, T, ...) observations.
        mask: (B, T) bool, True where observed.
        labels: known states; -1 is unknown.

    Returns:
        One sentence per recognizer of phases with other than its own states, which names the phases that changed most;
        an empty list if there are none. Recognizers of features or of other classes are not checked.

    Raises:
        TypeError, ValueError: bad input.

    Source: a count of agreements.
    """
    if params.phases is None or params.phases.emission is None or obs.phases is None:
        return []
    obs, mask, labels, _ = pad_lists(obs, mask, labels)
    batch = collect(obs, mask, labels, params)
    states = np.asarray(posterior(params, obs, mask, labels).phases)
    states = states.reshape(*batch.observed.shape, params.num_phases)
    given = batch.phases if isinstance(batch.phases, tuple) else (batch.phases,)
    found = []
    seen = [np.asarray(x) for x in batch.observed]
    for family, outputs in zip(params.phases.emission.sources, given, strict=True):
        if outputs is None or not has_meaning(family):
            continue
        own = [np.asarray(x)[m] for x, m in zip(outputs, seen, strict=True)]
        inferred = [x[m] for x, m in zip(states, seen, strict=True)]
        found += agreement(inferred, own, params.num_phases).describe()
    return found
