"""Times in tables of segments: seconds, milliseconds, timecodes and frame numbers, each by the unit of its column."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hmmjax.io.columns import Column
from hmmjax.io.decimals import whole_number, whole_number_error, with_points
from hmmjax.io.errors import FormatError
from hmmjax.io.spec import Spec
from hmmjax.io.timecodes import NTSC, Reading, clock, has_frames

_DROP_FRAME = re.compile(r"(?<![\d:;])\d{1,2}:\d{2}:\d{2};(\d{2})(?![\d:;])")
#: Milliseconds that may be a whole number with a point between thousands.
_GROUPS = re.compile(r"[1-9]\d{0,2}\.\d{3}")

Row = tuple[int, list[str]]
"""The line number and the cells of a row."""


class Segment(NamedTuple):
    """One segment: seconds, or frames if `fps` is None in its table; `end` None lasts until the next one.

    A blank label of the tier of tools tells that all tools are known.
    """

    video: str
    start: float
    end: float | None
    label: str
    line: int
    fps: float | None = None
    tier: str = ""


class Times:
    """The times of a file, in seconds or frames, how its timecodes were read, and other notices."""

    def __init__(self, file: str, text: str, spec: Spec) -> None:
        self.file = file
        self.counter_fps = spec.counter_fps
        self.fps = spec.fps
        # Frame numbers from 30 on exist at 59.94 frames per second only; a file has one rate.
        if spec.fps is None and any(int(match[1]) >= 30 for match in _DROP_FRAME.finditer(text)):
            self.fps = 2 * NTSC
        self._readings: list[Reading] = []
        self._units: set[str] = set()
        self.notes: list[str] = []
        self.per_frame = False

    def read(self, line: int, cell: str, unit: str = "seconds") -> float:
        """Return a time in seconds, or a frame number if the unit is "frames".

        Raises:
            FormatError: the cell is not a time, or not in this unit.
        """
        self._units.add("clock" if ":" in cell else unit)
        if unit == "frames":
            number = whole_number(cell)
            if number is None:
                fix = "write whole numbers, or name the column by the unit of its times (start_time, start_s, start_ms)"
                raise whole_number_error(cell, fix, file=self.file, line=line)
            return number
        try:
            if ":" in cell:
                seconds, reading = clock(cell, self.fps)
                if reading is not None and reading not in self._readings:
                    self._readings.append(reading)
                return seconds
            # Python also reads 5_0 as 50.
            return float(cell.replace("_", "?")) * (1e-3 if unit == "ms" else 1.0)
        except ValueError as error:
            cause, _, fix = str(error).rpartition("; ") if has_frames(cell) else (f"{cell!r} is not a time", "", "")
            raise FormatError(
                cause, file=self.file, line=line, fix=fix or "write seconds, hh:mm:ss or frame numbers"
            ) from None

    @property
    def unit(self) -> str:
        """The unit of all times that were read, "clock" for timecodes; "seconds" if there are several."""
        return next(iter(self._units)) if len(self._units) == 1 else "seconds"

    def notices(self) -> list[str]:
        """Return the notices, among them how timecodes with frame numbers were read."""
        if len({reading.drops for reading in self._readings}) > 1:
            raise FormatError(
                "some timecodes are hh:mm:ss:ff, others hh:mm:ss;ff", file=self.file, fix="write all of them alike"
            )
        return [*self.notes, *(own.note(self.file) for own in self._readings)]


def decimal_points(file: str, rows: Sequence[Row], units: Mapping[int, str]) -> list[Row]:
    """Return rows whose times have decimal points in place of decimal commas; frame numbers remain as they are.

    Args:
        file: the file, for error messages.
        rows: line numbers and cells.
        units: the unit of each column of times, by its position.

    Raises:
        FormatError: a comma, or a point in milliseconds, may also separate thousands.
    """
    columns = [column for column, unit in units.items() if unit != "frames"]
    if not columns:
        return list(rows)
    given = np.array([[cells[column] for column in columns] for _, cells in rows])
    found, commas = with_points(file, given, lambda row: rows[row][0])
    for k in [k for k, column in enumerate(columns) if units[column] == "ms" and not commas]:
        fractions = [(line, cells[columns[k]]) for line, cells in rows if "." in cells[columns[k]]]
        if fractions and all(_GROUPS.fullmatch(cell) for _, cell in fractions):
            line, cell = fractions[0]
            raise FormatError(
                f"the point in {cell!r} may be decimal or separate thousands",
                file=file,
                line=line,
                fix=f"write {cell.replace('.', '')}, without separators of thousands, or seconds",
            )
    out = []
    for (line, cells), own in zip(rows, found.tolist(), strict=True):
        replaced = dict(zip(columns, own, strict=True))
        out.append((line, [replaced.get(column, cell) for column, cell in enumerate(cells)]))
    return out


def unit_of(
    file: str, titles: Sequence[str], head: Sequence[Column], rows: Sequence[Row], column: int, other: int | None
) -> str:
    """Return the unit of a column of times: by its name, its timecodes, the name of the other column, or fractions.

    Raises:
        FormatError: neither of them tells.
    """
    if head[column].unit:
        return head[column].unit
    if any(":" in cells[column] for _, cells in rows):
        return "seconds"
    if other is not None and head[other].unit:
        return head[other].unit
    columns = [column] if other is None else [column, other]
    if any(re.search(r":|[.,]\d", cells[c]) for _, cells in rows for c in columns):
        return "seconds"
    name = titles[column]
    raise FormatError(
        f"the column {name!r} does not tell its unit",
        file=file,
        line=1,
        fix=f"rename it {name}_seconds, {name}_ms or {name}_frame",
    )
