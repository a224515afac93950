"""One picture of a page, with its caption and the numbers in it."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, eq=False)
class Picture:
    """A picture of the report.

    Attributes:
        name: name of its files, without suffix.
        section: its section of the page: "confusion", "curves", "model", "recognizer", "minutes", "calibration" or
            "costs".
        caption: what it shows and how to read it.
        figure: the matplotlib figure.
        rows: the numbers in it, for a csv; None if another csv has them.
    """

    name: str
    section: str
    caption: str
    figure: "Figure"
    rows: list[dict[str, Any]] | None = None


def matrix_rows(
    matrix: Any, rows: Sequence[str], columns: Sequence[str], row: str, column: str, value: str = "probability"
) -> list[dict[str, Any]]:
    """Return a matrix as plain rows."""
    return [
        {row: rows[i], column: columns[j], value: float(x)} for (i, j), x in np.ndenumerate(np.asarray(matrix, float))
    ]
