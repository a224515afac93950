"""Splits into training, validation and test videos, and names that denote the same recording."""

import re
from collections.abc import Iterable, Mapping, Sequence

from hmmjax.io import FormatError, natural, video_id

Parts = dict[str, tuple[str, ...]]

#: The Cholec80 videos that M2CAI16-tool and m2cai16-tool-locations contain, by their numbers there.
M2CAI16_TOOL_RECORDINGS = dict(zip(range(1, 16), (*range(67, 77), 61, 62, 64, 65, 66), strict=True))
#: Seconds by which an M2CAI16-tool video starts before the same video of Cholec80.
M2CAI16_TOOL_LEAD = {13: 2}


def _videos(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"video{n:02d}" for n in range(first, last + 1))


#: Common splits of Cholec80 by name; results on test sets of 40 and of 32 videos are not comparable.
CHOLEC80_SPLITS: dict[str, Parts] = {
    "40/40": {"train": _videos(1, 40), "test": _videos(41, 80)},
    "32/8/40": {"train": _videos(1, 32), "val": _videos(33, 40), "test": _videos(41, 80)},
    "40/8/32": {"train": _videos(1, 40), "val": _videos(41, 48), "test": _videos(49, 80)},
}


def cholec80_split(name: str) -> Parts:
    """Return a split of Cholec80.

    Args:
        name: "40/40", "32/8/40" or "40/8/32".

    Returns:
        Video identifiers by part: "train", "test" and, except in "40/40", "val".

    Raises:
        FormatError: if the name is unknown.
    """
    if name not in CHOLEC80_SPLITS:
        raise FormatError(f"unknown split {name!r} of Cholec80", fix=f"pass one of {', '.join(CHOLEC80_SPLITS)}")
    return CHOLEC80_SPLITS[name]


def recording(name: str) -> str:
    """Return the identifier of a recording: that in Cholec80 if it is part of it, else its own.

    "tool_video_01.mp4", "v01", "V01_002250_flip.jpg" and "m2cai/v01-tool.txt" are all "video67"; CholecT50's "VID12" is
    "video12".

    Args:
        name: the name of a video, or of one of its files.

    Returns:
        An identifier that is the same for all names of a recording.
    """
    # Remove the extension, but not a number after a period.
    stem = re.sub(r"\.\w*[A-Za-z]\w*$", "", re.split(r"[/\\]", name)[-1])
    identifier = video_id(re.sub(r"[-_ ]*flip$", "", stem, flags=re.IGNORECASE)).lower()
    located = re.fullmatch(r"v(\d+)(_\d+)?", identifier)
    if located and int(located[1]) in M2CAI16_TOOL_RECORDINGS:
        return f"video{M2CAI16_TOOL_RECORDINGS[int(located[1])]:02d}"
    if identifier.startswith("tool") and identifier[4:].isdigit():
        twin = M2CAI16_TOOL_RECORDINGS.get(int(identifier[4:]))
        return identifier if twin is None else f"video{twin:02d}"
    return identifier


def check_disjoint(parts: Mapping[str, Iterable[str]], *, allow: Iterable[Sequence[str]] = ()) -> None:
    """Raise FormatError if a recording is in two parts, possibly under different names.

    Args:
        parts: video names by part, for instance ``{"train": ..., "test": ...}``; also parts of several data sets.
        allow: pairs of parts that may overlap, for instance ``[("val", "test")]``.

    Raises:
        FormatError: if parts share recordings, or a part names a recording twice; the message lists them.
    """
    allowed = {frozenset(pair) for pair in allow}
    seen: dict[str, list[tuple[str, str]]] = {}
    for part, names in parts.items():
        for name in names:
            seen.setdefault(recording(name), []).append((part, name))
    shared: dict[frozenset[str], list[str]] = {}
    for where in seen.values():
        for i, (part, name) in enumerate(where):
            for other, twin in where[:i]:
                pair = frozenset((part, other))
                if pair not in allowed:
                    shared.setdefault(pair, []).append(twin if twin == name else f"{twin} = {name}")
    if shared:
        pair, names = next(iter(shared.items()))
        what = "twice in " + next(iter(pair)) if len(pair) == 1 else "both in " + " and in ".join(sorted(pair))
        raise FormatError(
            f"{len(names)} recording(s) are {what}: {', '.join(sorted(names, key=natural)[:5])}",
            fix="remove them from one part, or allow the overlap",
        )
