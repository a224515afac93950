"""Read lists of videos: text, tables, JSON and JSON lines."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hmmjax.io.decode import read_text_file
from hmmjax.io.errors import FormatError
from hmmjax.io.names import fold
from hmmjax.io.table import DELIMITERS, split_cells

NAME_COLUMNS = ("video", "video_id", "name", "id")
"""Columns of a table of videos that may hold their names, most telling first."""

SUFFIXES = (".txt", ".csv", ".tsv", ".json", ".jsonl")
"""Suffixes of lists of videos."""


def read_manifest(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read a list of videos.

    Args:
        path: text with one name per line (# starts a comment); a table (csv, tsv; cells separated by tabs, semicolons
            or commas) with a header that has a column "video" (or one of `NAME_COLUMNS`, in any spelling), or with one
            column and no header; or JSON: a list of names or of
            objects with "video", also as JSON lines.

    Returns:
        One dictionary per video, in the file's order: its name under "video", and the other columns.

    Raises:
        FormatError: the file cannot be read, holds no videos, or an entry has no name.
    """
    path = Path(path)
    text = read_text_file(str(path))
    found = [_entry(item, path, line) for line, item in _items(text, path)]
    if not found:
        raise FormatError("holds no names of videos", file=path, fix="write one video per line")
    return found


def read_names(path: str | os.PathLike[str]) -> list[str]:
    """Read the names of videos, see `read_manifest`.

    Args:
        path: the file.

    Returns:
        The names, in the file's order.

    Raises:
        FormatError: as of `read_manifest`.
    """
    return [entry["video"] for entry in read_manifest(path)]


def _items(text: str, path: Path) -> Iterator[tuple[int | None, Any]]:
    """Yield the entries of a file, strings or dictionaries, with their lines."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        content = _parse(text, path, None)
        yield from ((None, item) for item in (content if isinstance(content, list) else [content]))
        return
    lines = [
        (number, line)
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if suffix == ".jsonl":
        yield from ((number, _parse(line, path, number)) for number, line in lines)
    elif suffix in (".csv", ".tsv"):
        delimiter = next((d for d in DELIMITERS if lines and d in lines[0][1]), None)
        # Without a delimiter, the line is one name, which may have blanks.
        rows = [split_cells(line, delimiter or "\t") for _, line in lines]
        header = [_title(cell) for cell in rows[0]] if rows else []
        if any(name in header for name in NAME_COLUMNS):
            pairs = zip(lines[1:], rows[1:], strict=True)
            yield from ((number, dict(zip(header, row, strict=False))) for (number, _), row in pairs)
            return
        for (number, _), row in zip(lines, rows, strict=True):
            yield number, row[0] if len(row) == 1 else dict.fromkeys(header)
    else:
        yield from ((number, line.partition("#")[0]) for number, line in lines)


def _title(cell: str) -> str:
    """Return a column's title in lower case, one of `NAME_COLUMNS` in its usual spelling."""
    return next((name for name in NAME_COLUMNS if fold(name) == fold(cell)), cell.lower())


def _parse(text: str, path: Path, line: int | None) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise FormatError(f"not valid JSON ({error})", file=path, line=line, fix="write a list of names") from None


def _entry(item: Any, path: Path, line: int | None) -> dict[str, Any]:
    """Return an entry as a dictionary with the video's name."""
    more = item if isinstance(item, dict) else {}
    name = next((more[key] for key in NAME_COLUMNS if key in more), None) if isinstance(item, dict) else item
    if isinstance(item, dict) and name is None:
        fix = f"name a column {NAME_COLUMNS[0]!r}"
        raise FormatError(f"no column of {', '.join(NAME_COLUMNS)} tells the video", file=path, line=line, fix=fix)
    if isinstance(name, bool) or not isinstance(name, str | int) or not str(name).strip():
        fix = 'write names, or objects such as {"video": "video41"}'
        raise FormatError(f"{name!r} is not the name of a video", file=path, line=line, fix=fix)
    return {**more, "video": str(name).strip()}
