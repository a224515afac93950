"""Columns of a table of segments that are not read: a time among them is an error, any other a notice."""

from collections.abc import Sequence

from hmmjax.io.columns import ACCEPTED, Column
from hmmjax.io.errors import FormatError
from hmmjax.io.timecodes import clock

_KNOWN = frozenset(("video", "label", "start", "end", "duration", "frame", "track", "tier", "fps"))
"""Roles that are read, or that another column takes the place of."""
_SHOWN = 5
"""Maximum number of titles in a notice."""


def check_unread(
    file: str,
    titles: Sequence[str],
    head: Sequence[Column],
    rows: Sequence[tuple[str, int, list[str]]],
    start: int,
    *,
    ends: bool,
    fps: float | None,
) -> list[str]:
    """Return a notice about columns that are not read; raise if one of them seems to tell when segments end.

    Args:
        file: the file, for messages.
        titles: the columns' titles.
        head: what the columns hold.
        rows: videos, line numbers and cells; the rows of several videos may alternate.
        start: position of the column of starts.
        ends: whether a column of ends or durations is read.
        fps: frames per second of timecodes; None means their default.

    Returns:
        A notice that names the columns, or nothing.

    Raises:
        FormatError: without ends, an unknown column holds times that are not before the starts, or the durations
            between them.
    """
    unknown = [i for i, c in enumerate(head) if c.role not in _KNOWN and not numbers_rows([x[i] for *_, x in rows])]
    unknown = [i for i in unknown if any(cells[i] for *_, cells in rows)]
    if not ends:
        starts = [_time(cells[start], fps) for *_, cells in rows]
        videos: dict[str, list[int]] = {}
        for r, (video, *_) in enumerate(rows):
            videos.setdefault(video, []).append(r)
        for i in unknown:
            times = [_time(cells[i], fps) for *_, cells in rows]
            pairs = [([starts[r] for r in own], [times[r] for r in own]) for own in videos.values()]
            filled = [cells[i] for *_, cells in rows]
            if any(_are_durations(*pair) for pair in pairs) or _are_ends(starts, times, filled):
                raise FormatError(
                    f"the column {titles[i]!r} has an unknown title and seems to tell when segments end; without it, "
                    "each would last until the next row",
                    file=file,
                    line=1,
                    fix=f"rename it end or duration, or remove it; the columns are {ACCEPTED}",
                )
    return unread_columns(file, titles, unknown)


def unread_columns(file: str, titles: Sequence[str], positions: Sequence[int]) -> list[str]:
    """Return a notice that names the columns at these positions, which are not read; nothing without any."""
    if not positions:
        return []
    names = [repr(titles[i]) if titles[i] else f"number {i + 1}" for i in positions]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return [f"{file}: columns with other titles are not read: {', '.join(names[:_SHOWN])}{more}"]


def numbers_rows(cells: Sequence[str]) -> bool:
    """Return whether the cells of a column number the rows, from 0 or 1."""
    cells = list(cells)
    return any(cells == [str(i + first) for i in range(len(cells))] for first in (0, 1))


def _are_ends(starts: Sequence[float | None], times: Sequence[float | None], cells: Sequence[str]) -> bool:
    """Whether all filled cells are times that are not before the starts; one time for all rows is not an end."""
    pairs = [(a, b) for a, b, cell in zip(starts, times, cells, strict=True) if cell]
    alike = len(pairs) > 1 and len({b for _, b in pairs}) == 1
    return not alike and all(a is not None and b is not None and b >= a for a, b in pairs)


def _are_durations(starts: Sequence[float | None], times: Sequence[float | None]) -> bool:
    """Whether a row of a video starts when the one before it has lasted for its time."""
    found = zip(starts, times, starts[1:], strict=False)
    return any(
        a is not None and d is not None and b is not None and d > 0 and abs(a + d - b) <= 0.01 * d for a, d, b in found
    )


def _time(cell: str, fps: float | None) -> float | None:
    """Return the number in a cell, or the seconds of a timecode; None for another cell."""
    try:
        return clock(cell, fps)[0] if ":" in cell else float(cell.replace(",", "."))
    except ValueError:
        return None
