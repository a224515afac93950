"""Split a text file into cells: detect separator and header, and check that all rows have the same length."""

import csv
import dataclasses
import re

import numpy as np

from hmmjax.io.decimals import whole_number, whole_number_error, with_points
from hmmjax.io.errors import FormatError
from hmmjax.io.spec import Spec

DELIMITERS = ("\t", ";", ",")
"""Separators of cells in the order in which they are tried: cells may hold those that come later. Others are spaces."""

#: What spreadsheets and programs write for a missing number.
_MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "-nan")

_DAMAGED = "export the file again; the row is damaged or the file truncated"


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
    trailing: int  # number of blank columns after the last one
    decimal: str = "."

    def line_of(self, row: int) -> int:
        """Return the line number of a row."""
        return self.lines[row]


def split_cells(line: str, delimiter: str) -> list[str]:
    """Return the cells of a line, without blanks around them; spaces are a delimiter of any number of them."""
    line = line.strip("\r\n")
    if '"' in line:  # R and spreadsheets quote text
        line = line.strip(" ") if delimiter == " " else line
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]
    return line.split() if delimiter == " " else [cell.strip() for cell in line.split(delimiter)]


def delimiter_of(first: str, second: str) -> str:
    """Return what separates the cells of a file, given its first two lines."""
    # Titles may be separated by spaces although cells are by tabs.
    found = next((d for d in DELIMITERS if d in second and (d in first or d == "\t")), " ")
    # "25 0,91 0,05": commas are within numbers.
    if found == "," and any(re.fullmatch(r"-?\d+\s+-?\d+", cell) for cell in second.split(",")):
        return " "
    return found


def split_table(file: str, text: str, spec: Spec) -> Table:
    """Split the text of a file into lines and cells, detecting separator, header and decimal commas.

    Raises:
        FormatError: if the file is empty, its rows differ in length, it does not have the declared header, or commas
            in its numbers may mean two things.
    """
    numbered = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip(" \t,;")]
    if not numbered:
        raise FormatError("the file is empty", file=file, fix="export it again, or leave it out")
    delimiter = delimiter_of(numbered[0][1], numbered[min(1, len(numbered) - 1)][1])
    first = split_cells(numbered[0][1], delimiter if delimiter in numbered[0][1] else " ")
    numeric = all(is_number(cell) for cell in first)
    # A first row such as "0<TAB>Preparation" is data although not all its cells are numbers.
    data = numeric or (len(first) > 1 and is_number(first[0]))
    _check_header(file, numbered[0], data, spec)
    rows = [(i, split_cells(line, delimiter)) for i, line in (numbered if data else numbered[1:])]
    if not rows:
        raise FormatError("the file has a header but no rows", file=file, fix="export it again, or leave it out")
    if delimiter == " " and not data and len(first) == 2:
        # "25 Calot Triangle Dissection": if spaces separate cells, everything after the frame number is the name.
        rows = [(i, [cells[0], " ".join(cells[1:])] if len(cells) > 1 else cells) for i, cells in rows]
    # Spreadsheets save blank columns after the last one.
    width = max(_filled(cells) for _, cells in rows) if data else _filled(first)
    _check_widths(file, rows, width, delimiter, None if data else first)
    table = Table(
        file=file,
        header=None if data else first[:width],
        header_line=None if data else numbered[0][1].rstrip("\r\n"),
        cells=np.array([cells[:width] for _, cells in rows]),
        lines=[i for i, _ in rows],
        delimiter=delimiter,
        newline="\r\n" if "\r\n" in text else "\n",
        trailing=len(rows[0][1]) - width,
    )
    if delimiter == ",":
        return table
    cells, commas = with_points(file, table.cells, table.line_of)
    return dataclasses.replace(table, cells=cells, decimal="," if commas else ".")


def _check_header(file: str, first: tuple[int, str], data: bool, spec: Spec) -> None:
    """Raise FormatError if the first line is not what the options say."""
    if spec.header == "yes" and data:
        raise FormatError(
            f"a header was declared but the first line is data: {first[1].strip()!r}",
            file=file,
            line=first[0],
            fix="pass header='no' or header='auto' (skipping this line would lose the first frame)",
        )
    if spec.header == "no" and not data:
        raise FormatError(
            f"no header was declared but the first line is not data: {first[1].strip()!r}",
            file=file,
            line=first[0],
            fix="pass header='yes' or header='auto'",
        )


def _filled(cells: list[str]) -> int:
    """Return the number of cells without the blank ones at the end."""
    return next((n for n in range(len(cells), 0, -1) if cells[n - 1]), 0)


def _check_widths(
    file: str, rows: list[tuple[int, list[str]]], width: int, delimiter: str, header: list[str] | None
) -> None:
    """Raise FormatError for the first row that does not have `width` cells, apart from blank ones at its end."""
    for i, cells in rows:
        if len(cells) >= width and _filled(cells) <= width:
            continue
        fix = _DAMAGED
        if delimiter == "," and _filled(cells) > width and sum(map(is_number, cells)) > width:
            fix = "if commas are decimal, separate cells by semicolons or tabs, or write decimal points"
        elif header is not None and i == rows[0][0]:
            fix = "name every column in the header, including the frame number; remove lines above it"
        raise FormatError(
            f"expected {width} columns{' as in the header' if header else ''}, found {len(cells)}",
            file=file,
            line=i,
            fix=fix,
        )


def frame_numbers(table: Table, column: int) -> np.ndarray:
    """Return the (n,) int64 frame numbers of a column.

    Raises:
        FormatError: naming the first line without a whole number.
    """
    cells = table.cells[:, column].tolist()
    numbers = [whole_number(cell) for cell in cells]
    if None in numbers:
        row = numbers.index(None)
        cell = cells[row].replace(".", ",") if table.decimal == "," else cells[row]
        fix = "put frame numbers (0, 25, 50, ... on Cholec80) into the first column"
        if row and None not in numbers[:row] and all(number is None for number in numbers[row:]):
            fix = "remove the rows below the last frame, such as totals"
        raise whole_number_error(cell, fix, file=table.file, line=table.line_of(row))
    return np.array(numbers, np.int64)


def floats(table: Table, cells: np.ndarray) -> np.ndarray:
    """Return cells (n, c) as float64, blank cells, NA and their like as NaN.

    Raises:
        FormatError: naming the first line with a cell that is not a number.
    """
    try:
        return cells.astype(np.float64)
    except ValueError:
        pass
    unique, inverse = np.unique(cells, return_inverse=True)
    try:
        values = np.array([np.nan if is_missing(str(cell)) else float(cell) for cell in unique])
    except ValueError:
        row, column = next((r, c) for r, c in np.ndindex(cells.shape) if not _is_value(str(cells[r, c])))
        raise FormatError(
            f"{str(cells[row, column])!r} is not a number",
            file=table.file,
            line=table.line_of(int(row)),
            fix=_DAMAGED,
        ) from None
    return values[inverse].reshape(cells.shape)


def is_missing(cell: str) -> bool:
    """Whether a cell stands for a missing number: blank, NaN, NA and their like."""
    return cell.lower() in _MISSING


def _is_value(cell: str) -> bool:
    return is_missing(cell) or _parses(cell)


def is_number(cell: str) -> bool:
    """Whether a cell is a number, with a decimal point or comma, or NaN."""
    return _parses(cell) or _parses(cell.replace(",", ".", 1))


def _parses(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # of Python's spelling of numbers, which video names may have too
