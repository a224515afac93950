"""Results of `hmmjax.compare`: emission families in the order of how well they predict labels."""

import dataclasses
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np


class Agreement(NamedTuple):
    """How well predictions agree with the true labels, in labeled frames; NaN for a track without labels.

    Attributes:
        phase_accuracy: fraction of frames whose phase is right, all videos pooled.
        tool_f1: F1 of presence at a threshold of one half, mean over tools.
    """

    phase_accuracy: float
    tool_f1: float


UNKNOWN = Agreement(math.nan, math.nan)


@dataclasses.dataclass(frozen=True)
class Rank:
    """Results of one family on held-out videos, in nats per labeled frame.

    Attributes:
        family: a name in `hmmjax.emissions.FAMILIES`.
        conditional: log-probability of the labels given the observations, calibrated; higher is better.
        uncalibrated: log-probability of the labels given the observations, with powers of one.
        marginal: log-probability (density) of the observations with powers of one, in nats per observed frame. It is
            comparable only between families that observe the same outputs: "confusion" and "logistic" observe labels,
            the others probabilities. NaN for "scaled", which is not a density.
        powers: powers of the phases and of each tool, learned from all videos.
        as_it_is: agreement of uncalibrated posteriors (with powers of one) with the labels.
        calibrated: agreement of calibrated posteriors with the labels.
        videos: per video, the calibrated log-probability of its labels given its observations, in nats, and the number
            of labeled frames.
        behind: difference between the best family's `conditional` and this one's.
        error: standard error of `behind`, over videos; NaN if a video is impossible for one of
            the two families.
    """

    family: str
    conditional: float
    uncalibrated: float
    marginal: float
    powers: dict[str, Any]
    as_it_is: Agreement = UNKNOWN
    calibrated: Agreement = UNKNOWN
    videos: tuple[tuple[float, int], ...] = ()
    behind: float = 0.0
    error: float = 0.0

    @property
    def tied(self) -> bool:
        """Whether the family cannot be told from the best: the 95 % interval of `behind` includes zero.

        The interval is Student's, with one degree of freedom less than videos; with two videos almost all families tie.
        """
        try:
            from scipy.special import stdtrit  # Student's quantiles; scipy.stats takes a second to import
        except ImportError:
            raise ImportError("the interval of a rank needs SciPy: pip install scipy.") from None

        return bool(self.behind <= stdtrit(max(len(self.videos) - 1, 1), 0.975) * self.error)


class Ranking(tuple[Rank, ...]):
    """Ranks, best first, each with its distance from the best. Printing shows a table.

    Attributes:
        recognizer: agreement of the recognizer's own predictions, in the same frames.
    """

    recognizer: Agreement

    def __new__(cls, ranks: Iterable[Rank], recognizer: Agreement) -> "Ranking":
        """Sort ranks of the same videos."""
        ranks = sorted(ranks, key=lambda rank: -rank.conditional)
        ranking = super().__new__(cls, (_with_distance(rank, ranks[0]) for rank in ranks))
        ranking.recognizer = recognizer
        return ranking

    def rows(self) -> list[tuple[str, ...]]:
        """Return the table's cells: one row of titles, one row per family, best first, and the recognizer's own.

        Agreement with the labels is "with powers of one / calibrated".
        """
        tracks = [name for name in Agreement._fields if not math.isnan(getattr(self.recognizer, name))]
        titles = ["family", "conditional", "behind", "±", "uncalibrated", "marginal"]
        rows = []
        for rank in self:
            nats = (rank.conditional, rank.behind, rank.error, rank.uncalibrated, rank.marginal)
            pairs = ([getattr(found, name) for found in (rank.as_it_is, rank.calibrated)] for name in tracks)
            rows.append((rank.family, *map(_format_nats, nats), *(" / ".join(map(_format_fraction, p)) for p in pairs)))
        own = [_format_fraction(getattr(self.recognizer, name)) for name in tracks]
        return [(*titles, *(_TITLES[name] for name in tracks)), *rows, ("recognizer", *[""] * 5, *own)]

    def __str__(self) -> str:
        """Return the table as text."""
        rows = self.rows()
        widths = [2 + max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [row[0].ljust(widths[0]) + "".join(map(str.rjust, row[1:], widths[1:])).rstrip() for row in rows]
        note = (
            "held-out videos, nats per frame, higher is better; ±: standard error of behind, over videos\n"
            "accuracy (of phases), F1 (of tools): with powers of one / calibrated"
        )
        return "\n".join([*lines, note])


_TITLES = {"phase_accuracy": "accuracy", "tool_f1": "F1"}


def _format_nats(value: float) -> str:
    """Format with three significant digits: differences may be far below a hundredth of a nat."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _format_fraction(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}".replace("0.", ".", 1)


def _with_distance(rank: Rank, best: Rank) -> Rank:
    """Return the rank with its distance from the best, and that distance's standard error."""
    behind = 0.0 if rank is best else best.conditional - rank.conditional
    if not rank.videos:
        return dataclasses.replace(rank, behind=behind, error=math.nan)
    nats, frames = np.array(rank.videos).T
    with np.errstate(invalid="ignore"):
        difference = np.array(best.videos)[:, 0] - nats
        # The error of a sum over independent videos, divided by the number of frames, which is known.
        spread = float(np.std(difference, ddof=1)) if len(difference) > 1 else math.nan
    error = math.sqrt(len(difference)) * spread / max(float(frames.sum()), 1.0)
    return dataclasses.replace(rank, behind=behind, error=error)
