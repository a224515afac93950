"""Read labels as people write them: names in any spelling, yes and no, and words for unknown."""

from collections.abc import Sequence

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.names import find_name, unknown_name
from hmmjax.io.spec import Spec
from hmmjax.io.table import Table, is_number

_PRESENCE = {"true": "1", "false": "0", "yes": "1", "no": "0"}
# Spellings in other people's files, British ones included.
_UNKNOWN = ("", "-1", "?", "unknown", "unlabelled", "unlabeled", "none", "nan", "null", "n/a")


def is_undecided(cells: np.ndarray, track: str, kind: str | None, spec: Spec) -> np.ndarray:
    """Return which cells are labels of 0.5: annotators disagree (CATARACTS)."""
    if track == "tools" and kind == "labels" and spec.unknown:
        return np.isin(cells, ("0.5", ".5", "0.50"))
    return np.zeros(cells.shape, bool)


def as_presence(cells: np.ndarray) -> np.ndarray:
    """Return cells with 1 and 0 in place of True and False, yes and no; others remain."""
    unique, inverse = np.unique(cells, return_inverse=True)
    if not {text.lower() for text in unique.tolist()} & _PRESENCE.keys():
        return cells
    return np.array([_PRESENCE.get(t.lower(), t) for t in unique.tolist()])[inverse].reshape(cells.shape)


def match_names(
    unique: np.ndarray, inverse: np.ndarray, known: Sequence[str], table: Table
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Map phase names to indices into `known`, -1 if unknown; also return the spelling of each in the file."""
    spelling = list(known)
    codes = np.empty(len(unique), np.int32)
    first = np.unique(inverse, return_index=True)[1]
    for i in np.argsort(first):  # so that the first line with an unknown name is reported
        name, row = str(unique[i]), int(first[i])
        position = find_name(name, known)
        if position is None:
            if name.lower() in _UNKNOWN:
                codes[i] = -1
                continue
            if is_number(name):
                raise FormatError(
                    f"found the number {name!r} among phase names",
                    file=table.file,
                    line=table.line_of(row),
                    fix="repair the row",
                )
            raise unknown_name(name, known, "phases", file=table.file, line=table.line_of(row))
        codes[i] = position
        spelling[position] = name
    return codes[inverse.reshape(-1)], tuple(spelling)
