"""A text file as cells: separators, header and line numbers found out, every row of one length."""

import csv
import dataclasses
import re

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.spec import Spec


@dataclasses.dataclass(frozen=True)
class Table:
    """Cells of a text file, all rows of one length."""

    file: str
    header: list[str] | None
    header_line: str | None
    cells: np.ndarray  # (n, columns) of str
    lines: list[int]  # (n,) 1-based line numbers
    delimiter: str
    newline: str
    trailing: bool

    def where(self, row: int) -> int:
        """Line number of a row."""
        return self.lines[row]


def split_table(file: str, text: str, spec: Spec) -> Table:
    """Lines and cells, with the separator and the header found out.

    Raises:
        FormatError: for an empty file, rows of different lengths, and a header that is not as declared.
    """
    numbered = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not numbered:
        raise FormatError("the file is empty", file=file, fix="export it again, or leave it out")
    sample = numbered[1][1] if len(numbered) > 1 else numbered[0][1]
    delimiter = "," if "," in sample else "\t" if "\t" in sample else " "

    if delimiter == " " and ";" in sample:
        raise FormatError(
            "cells are separated by ';'",
            file=file,
            line=numbered[0][0],
            fix="export with tabs or commas between cells, and points in numbers",
        )

    def split(line: str) -> list[str]:
        if '"' in line:  # as R and spreadsheets write text
            return [cell.strip() for cell in next(csv.reader([line.strip()], delimiter=delimiter))]
        if delimiter == ",":
            return [cell.strip() for cell in line.split(",")]
        line = line.strip()
        return [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()

    first = split(numbered[0][1])
    numeric = all(is_number(cell) for cell in first)
    # A first row such as "0<TAB>Preparation" is data although it is not all numbers.
    data = numeric or (len(first) > 1 and is_number(first[0]))
    if spec.header == "yes" and data:
        raise FormatError(
            f"a header was declared but the first line is data: {numbered[0][1].strip()!r}",
            file=file,
            line=numbered[0][0],
            fix="say header='no' (a reader that skips this line loses the first frame)",
        )
    if spec.header == "no" and not data:
        raise FormatError(
            f"no header was declared but the first line is not data: {numbered[0][1].strip()!r}",
            file=file,
            line=numbered[0][0],
            fix="say header='yes' or 'auto'",
        )
    header = None if data else first
    rows = [(i, split(line)) for i, line in (numbered if data else numbered[1:])]
    if not rows:
        raise FormatError("the file has a header and no rows", file=file, fix="export it again, or leave it out")
    if delimiter == " " and not numeric and header is not None and len(header) == 2:
        # "25 Calot Triangle Dissection": with spaces between cells, all after the frame number is the name.
        rows = [(i, [cells[0], " ".join(cells[1:])] if len(cells) > 1 else cells) for i, cells in rows]
    width = len(rows[0][1]) if header is None else len(header)
    for i, cells in rows:
        if len(cells) != width:
            raise FormatError(
                f"{width} columns expected{' from the header' if header else ''}, {len(cells)} found",
                file=file,
                line=i,
                fix="the row is damaged or the file was cut short: export it again"
                if header is None or i != rows[0][0]
                else "the header must name every column, the frame number's included",
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
    """(n,) int64 frame numbers of a column.

    Raises:
        FormatError: naming the line that holds something else.
    """
    cells = table.cells[:, column]
    try:
        return cells.astype(np.int64)
    except (ValueError, OverflowError):
        row = next(i for i, cell in enumerate(cells) if not re.fullmatch(r"[+-]?\d{1,18}", cell))
        raise FormatError(
            f"frame number {str(cells[row])!r} is not a whole number",
            file=table.file,
            line=table.where(row),
            fix="the first column must count frames (0, 25, 50 ... on Cholec80)",
        ) from None


def floats(table: Table, cells: np.ndarray) -> np.ndarray:
    """Cells (n, c) as float64.

    Raises:
        FormatError: naming the line that holds something else.
    """
    try:
        return cells.astype(np.float64)
    except ValueError:
        row, column = next((r, c) for r, c in np.ndindex(cells.shape) if not is_number(str(cells[r, c])))
        raise FormatError(
            f"{str(cells[row, column])!r} is not a number",
            file=table.file,
            line=table.where(int(row)),
            fix="the row is damaged or the file was cut short: export it again",
        ) from None


def is_number(cell: str) -> bool:
    """Whether Python reads it as a number (NaN included)."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
