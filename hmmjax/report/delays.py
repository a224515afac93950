"""How late or early phase changes are shown: medians, quartiles and counts, which are robust to a few lost phases."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from hmmjax.metrics.segments import delays_of
from hmmjax.report.tables import phases_without_gaps
from hmmjax.stabilize import Stabilized

#: Annotators disagree by about this many seconds; it is also the tolerance of metrics with relaxed boundaries.
CLOSE = 10.0


@dataclasses.dataclass(frozen=True)
class Delay:
    """Delays of one system's phase changes, in seconds; negative is early.

    Attributes:
        system: name of the system.
        transitions: number of true phase changes.
        missed: number of true changes whose new phase this system never predicts within its segment.
        compared: number of true changes whose new phase every system predicts; the next four are over these.
        median: median delay.
        lower: lower quartile of the delays.
        upper: upper quartile of the delays.
        mean_absolute: mean absolute delay.
        close: number of all true changes that are predicted within `CLOSE` seconds.
        split: how the videos relate to the videos learned from.
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
    """Measure the delays of every system at the phase changes of annotated videos without wide gaps.

    Args:
        result: from `hmmjax.stabilize.stabilize`.

    Returns:
        One entry per system; empty without a true change that all systems predict.

    Source: delays of `hmmjax.metrics.transition_delay`, here over the same changes for all systems.
    """
    found = phases_without_gaps(result)
    if found is None:
        return []
    truth, systems = found
    table = {
        name: np.array([d for a, b in zip(truth, x, strict=True) for d in delays_of(a, b)]) * result.step_seconds
        for name, x in systems.items()
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
    """Warn if stabilizing shows fewer phase changes in time.

    Args:
        found: from `delays`.

    Returns:
        At most one sentence.
    """
    close = {d.system: d.close for d in found}
    if close.get("M_H", 0) >= close.get("M", 0):
        return []
    fall = f"{close['M']} to {close.get('M_H', 0)} of {found[0].transitions}"
    return [f"phase changes shown within {CLOSE:g} s of the annotated ones: {fall}"]
