"""Split a text file into cells: detect separator and header, and check that all rows have the same length."""

import csv
import dataclasses
import re

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.spec import Spec


@dataclasses.dataclass(frozen=True)
class Table:
    """The cells of a text file; all rows have the same length."""

    file: str
    header: list[str] | None
    header_line: str | None
    cells: np.ndarray  # (n, columns) of str
    lines: list[int]  # (n,) 1-based line numbers
    delimiter: str
    newline: str
    trailing: bool

    def line_of(self, row: int) -> int:
        """Return the line number of a row."""
        return self.lines[row]


def split_table(file: str, text: str, spec: Spec) -> Table:
    """Split the text of a file into lines and cells, detecting separator and header.

    Raises:
        FormatError: if the file is empty, its rows differ in length, or it does not have the declared header.
    """
    numbered = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not numbered:
        raise FormatError("the file is empty", file=file, fix="export it again, or leave it out")
    sample = numbered[1][1] if len(numbered) > 1 else numbered[0][1]
    delimiter = "," if "," in sample else "\t" if "\t" in sample else " "

    if delimiter == " " and ";" in sample:
        raise FormatError(
            "cells are separated by semicolons",
            file=file,
            line=numbered[0][0],
            fix="export with tabs or commas between cells, and decimal points",
        )

    def split(line: str) -> list[str]:
        if '"' in line:  # R and spreadsheets quote text
            return [cell.strip() for cell in next(csv.reader([line.strip()], delimiter=delimiter))]
        if delimiter == ",":
            return [cell.strip() for cell in line.split(",")]
        line = line.strip()
        return [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()

    first = split(numbered[0][1])
    numeric = all(is_number(cell) for cell in first)
    # A first row such as "0<TAB>Preparation" is data although not all its cells are numbers.
    data = numeric or (len(first) > 1 and is_number(first[0]))
    if spec.header == "yes" and data:
        raise FormatError(
            f"a header was declared but the first line is data: {numbered[0][1].strip()!r}",
            file=file,
            line=numbered[0][0],
            fix="pass header='no' or header='auto' (skipping this line would lose the first frame)",
        )
    if spec.header == "no" and not data:
        raise FormatError(
            f"no header was declared but the first line is not data: {numbered[0][1].strip()!r}",
            file=file,
            line=numbered[0][0],
            fix="pass header='yes' or header='auto'",
        )
    header = None if data else first
    rows = [(i, split(line)) for i, line in (numbered if data else numbered[1:])]
    if not rows:
        raise FormatError("the file has a header but no rows", file=file, fix="export it again, or leave it out")
    if delimiter == " " and not numeric and header is not None and len(header) == 2:
        # "25 Calot Triangle Dissection": if spaces separate cells, everything after the frame number is the name.
        rows = [(i, [cells[0], " ".join(cells[1:])] if len(cells) > 1 else cells) for i, cells in rows]
    width = len(rows[0][1]) if header is None else len(header)
    for i, cells in rows:
        if len(cells) != width:
            raise FormatError(
                f"expected {width} columns{' as in the header' if header else ''}, found {len(cells)}",
                file=file,
                line=i,
                fix="export the file again; the row is damaged or the file truncated"
                if header is None or i != rows[0][0]
                else "name every column in the header, including the frame number",
            )
    return Table(
        file=file,
        header=header,
        header_line=None if header is None else numbered[0][1].rstrip("\r\n"),
        cells=np.array([cells for _, cells in rows]),
        lines=[i for i, _ in rows],
        delimiter=delimiter,
        newline="\r\n" if "\r\n" in text else "\n",
        trailing=delimiter == "\t" and sample.endswith("\t"),
    )


def frame_numbers(table: Table, column: int) -> np.ndarray:
    """Return the (n,) int64 frame numbers of a column.

    Raises:
        FormatError: naming the first line without a whole number.
    """
    cells = table.cells[:, column]
    # pandas writes whole numbers as 25.0 if any other is missing.
    cells = np.array([re.sub(r"\.0*$", "", cell) for cell in cells.tolist()]) if "." in cells[0] else cells
    try:
        return cells.astype(np.int64)
    except (ValueError, OverflowError):
        row = next(i for i, cell in enumerate(cells) if not re.fullmatch(r"[+-]?\d{1,18}", cell))
        raise FormatError(
            f"the frame number {str(cells[row])!r} is not a whole number",
            file=table.file,
            line=table.line_of(row),
            fix="put frame numbers (0, 25, 50, ... on Cholec80) into the first column",
        ) from None


def floats(table: Table, cells: np.ndarray) -> np.ndarray:
    """Return cells (n, c) as float64, blank cells as NaN.

    Raises:
        FormatError: naming the first line with a cell that is not a number.
    """
    cells = np.where(cells == "", "nan", cells)
    try:
        return cells.astype(np.float64)
    except ValueError:
        row, column = next((r, c) for r, c in np.ndindex(cells.shape) if not is_number(str(cells[r, c])))
        raise FormatError(
            f"{str(cells[row, column])!r} is not a number",
            file=table.file,
            line=table.line_of(int(row)),
            fix="export the file again; the row is damaged or the file truncated",
        ) from None


def is_number(cell: str) -> bool:
    """Whether Python parses a cell as a number, including NaN."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
