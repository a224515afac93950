"""Predictions of one system, and the truth where it predicts."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class System:
    """Predictions of one system for some videos, at the frames that were read.

    Attributes:
        name: "M", "M_H" ...
        phases: for each video int labels (n,) or probabilities (n, L); None if it does not predict phases.
        tools: for each video int presence or probabilities (n, K); None if it does not predict tools.
        tool_log_odds: for each video log-odds of presence (n, K), which rank frames without ties; None if unknown.
        phase_log_probs: for each video logarithms of the probabilities of phases (n, L); None if unknown.
    """

    name: str
    phases: Sequence[np.ndarray] | None = None
    tools: Sequence[np.ndarray] | None = None
    tool_log_odds: Sequence[np.ndarray] | None = None
    phase_log_probs: Sequence[np.ndarray] | None = None

    @property
    def tool_ranking(self) -> Sequence[np.ndarray] | None:
        """Scores (n, K) of each video by which metrics rank frames: log-odds if known, otherwise `tools`."""
        return self.tools if self.tool_log_odds is None else self.tool_log_odds

    def phase_labels(self) -> list[np.ndarray]:
        """Return the labels (n,) int32 of each video: as given, or the most probable phase."""
        return [as_phases(x) for x in self.phases or []]


def as_phases(values: np.ndarray) -> np.ndarray:
    """Return labels (n,) int32: labels as given, of probabilities (n, L) the most probable phase; -1 if missing."""
    if values.ndim == 1:
        return values.astype(np.int32)
    return np.where(np.isnan(values).any(-1), -1, np.nan_to_num(values).argmax(-1)).astype(np.int32)


def as_tools(values: np.ndarray, threshold: float = 0.5) -> np.ndarray:
    """Return presence (n, K) int32: labels as given, probabilities at or above the threshold; -1 if missing."""
    if values.dtype.kind == "i":
        return values
    return np.where(np.isnan(values), -1, values >= threshold).astype(np.int32)


def is_complete(outputs: System) -> bool:
    """Return whether a recognizer predicts something in every frame: no label is -1 and no probability NaN."""
    return all((x >= 0).all() for x in (*(outputs.phases or ()), *(outputs.tools or ())))


def restrict_truth(outputs: System, truth: System) -> System:
    """Return the truth where a recognizer predicts, and -1 elsewhere."""

    def keep(labels: Sequence[np.ndarray] | None, values: Sequence[np.ndarray] | None, as_labels: Any) -> Any:
        if labels is None or values is None:
            return labels
        return [np.where(as_labels(x) < 0, -1, t) for t, x in zip(labels, values, strict=True)]

    return System(truth.name, keep(truth.phases, outputs.phases, as_phases), keep(truth.tools, outputs.tools, as_tools))
