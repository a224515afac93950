"""Read numbers with decimal commas, as spreadsheets write them in much of the world."""

import re
from collections.abc import Callable

import numpy as np

from hmmjax.io.errors import FormatError

_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)(e[+-]?\d+)?", re.IGNORECASE)  # SPSS writes ,91
#: What may also be a whole number with a comma between thousands.
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")
_BOTH = re.compile(r"[+-]?\d[\d,.]*(,\d+\.\d|\.\d+,\d)\d*")
#: Groups of three digits, which may be a whole number with separators between thousands.
_GROUPS = re.compile(r"[1-9]\d{0,2}(['.,\s\u2009\u202f]\d{3})+")
_POINT = re.compile(r"[+-]?\d*\.\d+(e[+-]?\d+)?", re.IGNORECASE)


def with_points(file: str, cells: np.ndarray, line_of: Callable[[int], int]) -> tuple[np.ndarray, bool]:
    """Return cells with a decimal point in place of each decimal comma, and whether there was any.

    Args:
        file: the file, for error messages.
        cells: (n, c) text, of a file whose cells are not separated by commas.
        line_of: maps the position of a row to its line number.

    Returns:
        (n, c) text and whether numbers had commas.

    Raises:
        FormatError: commas may also separate thousands, or only some of the fractions have commas.
    """
    if "," not in "".join(cells[:50].ravel()) and not any("," in cell for cell in cells.ravel()):
        return cells, False
    unique, inverse = np.unique(cells, return_inverse=True)
    texts = unique.tolist()
    commas = [text for text in texts if _COMMA.fullmatch(text) or _THOUSANDS.fullmatch(text)]
    points = [text for text in texts if _POINT.fullmatch(text)]

    def refuse(text: str, cause: str) -> FormatError:
        line = line_of(int(np.argwhere(cells == text)[0, 0]))
        fix = "write decimal points, and no separators between thousands (0.91, 1250)"
        return FormatError(cause, file=file, line=line, fix=fix)

    if mixed := [text for text in texts if _BOTH.fullmatch(text)]:
        raise refuse(mixed[0], f"the number {mixed[0]!r} has both a comma and a point")
    if not commas:
        return cells, False
    if points:
        raise refuse(commas[0], f"some numbers have a comma ({commas[0]}), others a point ({points[0]})")
    if all(_THOUSANDS.fullmatch(text) for text in commas) or any(text.count(",") > 1 for text in commas):
        raise refuse(commas[0], f"the comma in {commas[0]!r} may be decimal or separate thousands")
    replaced = np.array([text.replace(",", ".") if _COMMA.fullmatch(text) else text for text in texts])
    return replaced[inverse].reshape(cells.shape), True


def whole_number(cell: str) -> int | None:
    """Return a whole number, also from 25.0, as pandas writes it if any other is missing; None if it is unclear.

    What may have separators between thousands ("1.000") is unclear.
    """
    match = None if _GROUPS.fullmatch(cell) else re.fullmatch(r"([+-]?\d{1,18})(\.0*)?", cell)
    return None if match is None else int(match[1])


def whole_number_error(cell: str, fix: str, *, file: str, line: int) -> FormatError:
    """Return the error for a frame number that is not whole, with how to write it, or else `fix`."""
    if _GROUPS.fullmatch(cell):
        fix = f"write {re.sub(r'[^0-9]', '', cell)}, without separators of thousands"
        if re.fullmatch(r"\d+[.,]000", cell):
            fix += f", or {cell[:-4]}"
    return FormatError(f"the frame number {cell!r} is not a whole number", file=file, line=line, fix=fix)
