"""How late or early phases change: medians, quartiles and counts, which a few lost phases cannot carry away."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hmmjax.metrics.segments import delays_of
from hmmjax.report.tables import annotated
from hmmjax.stabilize import Stabilized

#: A change this close to the annotated one is where annotators disagree too: the tolerance of relaxed boundaries.
CLOSE = 10.0


@dataclasses.dataclass(frozen=True)
class Delay:
    """The delays of one system, in seconds; negative is early.

    Attributes:
        system: its name.
        transitions: true changes of phase.
        missed: those whose new phase this system never shows inside its segment.
        compared: those whose new phase every system shows, on which the next four are measured.
        median: of the delays.
        lower: quartile.
        upper: quartile.
        mean_absolute: mean of their absolute values.
        close: of all true changes, those shown within `CLOSE` seconds.
        split: how the videos relate to those learned from.
    """

    system: str
    transitions: int
    missed: int
    compared: int
    median: float
    lower: float
    upper: float
    mean_absolute: float
    close: int
    split: str


def delays(result: Stabilized) -> list[Delay]:
    """The delays of every system at the changes of phase of the videos that are annotated throughout.

    Args:
        result: from `hmmjax.stabilize.stabilize`.

    Returns:
        One for each system; none without a true change.

    Source: delays as in `hmmjax.metrics.transition_delay`; here over the same changes for all systems.
    """
    found = annotated(result, "phases", lambda s: s.phase_labels())
    if found is None:
        return []
    truth, said = found
    table = {
        name: np.array([d for a, b in zip(truth, x, strict=True) for d in delays_of(a, b)]) * result.step_seconds
        for name, x in said.items()
    }
    common = ~np.isnan(np.stack(list(table.values()))).any(0)
    if not common.any():
        return []
    rows = []
    for name, own in table.items():
        lower, median, upper = np.percentile(own[common], (25, 50, 75))
        rows.append(
            Delay(
                system=name,
                transitions=own.size,
                missed=int(np.isnan(own).sum()),
                compared=int(common.sum()),
                median=float(median),
                lower=float(lower),
                upper=float(upper),
                mean_absolute=float(np.abs(own[common]).mean()),
                close=int((np.abs(own) <= CLOSE).sum()),
                split=result.protocol,
            )
        )
    return rows


def later(found: Sequence[Delay]) -> list[str]:
    """A sentence where fewer changes of phase are shown in time than before.

    Args:
        found: from `delays`.

    Returns:
        None or one sentence.
    """
    close = {d.system: d.close for d in found}
    if close.get("M_H", 0) >= close.get("M", 0):
        return []
    fall = f"{close['M']} to {close.get('M_H', 0)} of {found[0].transitions}"
    return [f"changes of phase shown within {CLOSE:g} s of the annotated ones: {fall}"]
