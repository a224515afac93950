"""Choose videos by numbers, ranges and names, and tell which of them are absent."""

import difflib
import re
from collections.abc import Collection, Sequence
from itertools import groupby, pairwise
from typing import Any

from hmmjax.io.errors import FormatError
from hmmjax.io.tracks import Track, with_notices
from hmmjax.io.videos import natural, video_id

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def select(tracks: Sequence[Track], videos: str | None, *, option: str = "videos") -> list[Track]:
    """Select the tracks of some videos.

    Args:
        tracks: tracks from `read`.
        videos: numbers, ranges and identifiers, separated by commas: ``"1-40"``, ``"41-60,62"``, ``"workflow02"``. A
            number selects every video whose identifier ends in it. None selects all.
        option: name of the choice, for the notice.

    Returns:
        The tracks of the selected videos, in the given order, with a notice if numbers of a range are absent.

    Raises:
        FormatError: if a part of `videos` matches no video; the message names the closest ones.
    """
    if videos is None:
        return list(tracks)
    names = {track.video for track in tracks}
    parts = [part for part in map(str.strip, videos.split(",")) if part]
    chosen = {name for part in parts for name in _named(part, names)}
    if not chosen:
        raise FormatError(f"no video matches {videos!r}", fix=f"choose among {spans(names)}")
    return with_notices([t for t in tracks if t.video in chosen], absence(names, videos, option))


def absence(names: Collection[str], videos: str | None, option: str) -> list[str]:
    """Return a notice if some numbers of a choice have no video.

    Args:
        names: the videos.
        videos: as in `select`.
        option: name of the choice.
    """
    absent = absent_numbers(names, videos or "")
    if not absent:
        return []
    missing, total = (sum(high - low + 1 for low, high in ranges) for ranges in (absent, _ranges(videos or "")))
    return [f"{option} {videos}: {missing:,} of {total:,} numbers have no video ({in_words(absent)})"]


def _named(part: str, names: Collection[str]) -> set[str]:
    """Return the names that one part of a choice selects; raise FormatError if there are none."""
    match = _RANGE.fullmatch(part)
    if match:
        low, high = int(match[1]), int(match[2] or match[1])
        found = {name for name in names if (n := _number(name)) is not None and low <= n <= high}
    else:
        found = {video_id(part)} & set(names)
    if not found:
        raise FormatError(f"no video matches {part!r}{did_you_mean(part, names)}", fix=f"choose among {spans(names)}")
    return found


def absent_numbers(names: Collection[str], choice: str) -> list[tuple[int, int]]:
    """Return the numbers of the ranges of a choice that no video has.

    Args:
        names: the videos.
        choice: as in `select`.

    Returns:
        First and last number of each run of absent ones, in order; parts of `choice` that are names count as present.
    """
    numbers = sorted({n for name in names if (n := _number(name)) is not None})
    absent = []
    for low, high in _ranges(choice):
        ends = [low - 1, *(n for n in numbers if low <= n <= high), high + 1]
        absent += [(a + 1, b - 1) for a, b in pairwise(ends) if b - a > 1]
    return absent


def in_words(ranges: Sequence[tuple[int, int]]) -> str:
    """Return ranges as they are written in a choice, the first ten of them: "9-12, 62"."""
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in ranges[:10]]
    return ", ".join(shown) + ", ..." * (len(ranges) > 10)


def did_you_mean(name: str, names: Collection[str]) -> str:
    """Return the closest names, of the same number if it has one, as the end of a message; nothing for numbers."""
    if _RANGE.fullmatch(name):
        return ""
    wanted = video_id(name)
    alike = sorted((other for other in names if _number(other) == _number(wanted)), key=natural)
    folded = {other.lower(): other for other in alike}
    close = difflib.get_close_matches(wanted.lower(), folded, n=3, cutoff=0.75)
    return f" (did you mean {' or '.join(folded[other] for other in close)}?)" if close else ""


def spans(videos: Collection[str]) -> str:
    """Return names in natural order, with successive numbers as ranges: "video33 to video40, video62"."""

    def key(item: tuple[int, str]) -> Any:
        match = re.fullmatch(r"(.*?)(\d+)", item[1])
        return (match[1], int(match[2]) - item[0]) if match else (item[1], 0)

    groups = [[name for _, name in group] for _, group in groupby(enumerate(sorted(videos, key=natural)), key)]
    told = [group if len(group) < 3 else [f"{group[0]} to {group[-1]}"] for group in groups]
    return ", ".join(name for group in told for name in group)


def _ranges(choice: str) -> list[tuple[int, int]]:
    """Return the numbers of a choice as disjoint ranges, in order."""
    matches = [match for part in choice.split(",") if (match := _RANGE.fullmatch(part.strip()))]
    joined: list[tuple[int, int]] = []
    for low, high in sorted((int(match[1]), int(match[2] or match[1])) for match in matches):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return joined


def _number(name: str) -> int | None:
    """Return the number in which a name ends."""
    match = re.search(r"(\d+)$", name)
    return int(match[1]) if match else None
