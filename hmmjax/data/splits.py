"""Which videos train, validate and test, and which names mean the same recording."""

import re
from collections.abc import Iterable, Mapping, Sequence

from hmmjax.io import FormatError, natural, video_id

Parts = dict[str, tuple[str, ...]]

#: M2CAI16-tool's (and m2cai16-tool-locations') videos are Cholec80 videos under other names.
M2CAI16_TOOL_RECORDINGS = dict(zip(range(1, 16), (*range(67, 77), 61, 62, 64, 65, 66), strict=True))
#: Seconds by which an M2CAI16-tool video starts before its Cholec80 twin.
M2CAI16_TOOL_LEAD = {13: 2}


def _videos(first: int, last: int) -> tuple[str, ...]:
    return tuple(f"video{n:02d}" for n in range(first, last + 1))


#: Cholec80's usual splits, by name; test sets of 40 and of 32 videos are not comparable.
CHOLEC80_SPLITS: dict[str, Parts] = {
    "40/40": {"train": _videos(1, 40), "test": _videos(41, 80)},
    "32/8/40": {"train": _videos(1, 32), "val": _videos(33, 40), "test": _videos(41, 80)},
    "40/8/32": {"train": _videos(1, 40), "val": _videos(41, 48), "test": _videos(49, 80)},
}


def cholec80_split(name: str) -> Parts:
    """A split of Cholec80 by its usual name.

    Args:
        name: of `CHOLEC80_SPLITS`: "40/40", "32/8/40" or "40/8/32".

    Returns:
        Identifiers of videos by part: "train", "test" and, but in "40/40", "val".

    Raises:
        FormatError: for an unknown name.
    """
    if name not in CHOLEC80_SPLITS:
        raise FormatError(f"unknown split {name!r} of Cholec80", fix=f"give one of {', '.join(CHOLEC80_SPLITS)}")
    return CHOLEC80_SPLITS[name]


def recording(name: str) -> str:
    """The recording behind a video's name: its Cholec80 identifier where it has one, else its own.

    "tool_video_01.mp4", "v01", "V01_002250_flip.jpg" and "m2cai/v01-tool.txt" are all "video67"; CholecT50's "VID12" is
    "video12".

    Args:
        name: of a video, or of a file of one.

    Returns:
        An identifier; the same recording has the same whatever it is called.
    """
    # What looks like an extension is one, unless it is a number.
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
    """No recording may be in two parts, under whatever name.

    Args:
        parts: names of videos by part, for instance ``{"train": ..., "test": ...}``; parts of several datasets may be
            given together.
        allow: pairs of parts that may overlap, for instance ``[("val", "test")]``.

    Raises:
        FormatError: naming the parts, the names and the recordings that they share; or when a part names a recording
            twice.
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
            f"{len(names)} recording(s) {what}: {', '.join(sorted(names, key=natural)[:5])}",
            fix="take them out of one, or allow this overlap by name",
        )
