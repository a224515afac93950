"""Recognize the columns of tables by their names, in whatever words and spelling programs write them."""

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

FRAME = ("frame", "frames", "frameno", "framenr", "framenumber", "frameid", "frameindex", "frameidx")
"""Names of the column of frame numbers, without case, blanks, hyphens and underscores."""

_START = frozenset(
    ("start", "starts", "started", "begin", "begins", "beginning", "onset", "from", "beginn", "anfang", "von", "début")
)
_END = frozenset(
    (
        *("end", "ends", "ended", "ending", "stop", "stops", "stopped", "offset", "finish", "to", "until"),
        "ende",
        "bis",
        "fin",
    )
)
_DURATION = frozenset(("duration", "length", "dauer", "durée"))
_VIDEO = frozenset(("video", "videos", "media", "file", "filename", "case", "recording", "clip"))
_LABELS = (
    *("label", "labels", "phase", "phases", "annotation", "annotations", "behavior", "behaviour", "step", "class"),
    *("gesture", "tool", "instrument", "action", "activity", "event", "task", "value", "name", "category", "title"),
    *("description",),
)
"""Words for labels; of several columns that of the first word counts."""
_LABEL = frozenset(_LABELS)
_OF_TIME = frozenset(
    ("time", "times", "timestamp", "timecode", "tc", "point", "position", "at", "hh", "mm", "ss", "zeit")
)
_OF_NAMES = frozenset(("name", "names", "id", "no", "nr", "number", "file", "path", "filename", "title", "code"))
_MILLISECONDS = frozenset(("ms", "msec", "msecs", "millisecond", "milliseconds"))
_SECONDS = frozenset(("s", "sec", "secs", "second", "seconds"))
_FRAMES = frozenset(("frame", "frames", "frameno", "framenumber"))
#: Words of more than one part, as programs run them together.
_WORDS = (
    *("start", "begin", "onset", "stop", "end", "video", "media", "file", "phase", "label", "step", "event", "tool"),
    *("time", "stamp", "code", "frame", "name", "id", "path", "number", "no", "seconds", "ms", "sec", "zeit"),
)

ACCEPTED = (
    "a label (label, phase, step, tool, class, name, ...), a start (start, begin, onset, from) and an end (end, stop, "
    "offset, to) or a duration, also in German and French (Beginn, Ende, Dauer, début, fin, durée), with or without "
    "'time' and a unit (Start time, begin_ms, stop [s], start_frame), and a video if there are several"
)
"""What columns a table of segments has, for messages."""


class Column(NamedTuple):
    """What a column of a table of segments holds.

    Attributes:
        role: "video", "label", "start", "end", "duration", "frame", or the column's own name in lower case.
        unit: "seconds", "ms", "frames", or "" if its name does not tell.
        rank: of several columns with the same role that of the lowest rank counts.
    """

    role: str
    unit: str = ""
    rank: int = 0


def column_of(cell: str) -> Column:
    """Return what a column holds, by its name.

    Args:
        cell: the column's title, for instance "Start time", "begin_ms", "Stop [s]" or "VideoID".
    """
    words = _words(cell)
    folded = "".join(words)
    if folded in FRAME:
        return Column("frame")
    unit = _unit(words)
    rest = [w for w in words if w not in _OF_TIME | _MILLISECONDS | _SECONDS | _FRAMES]
    # "Phase start" tells when, "phase name" what.
    for role, known in (("start", _START), ("end", _END), ("duration", _DURATION)):
        if any(w in known for w in rest) and all(w in known | _LABEL | _VIDEO for w in rest):
            return Column(role, unit)
    if any(w in _VIDEO for w in words) and all(w in _VIDEO | _OF_NAMES for w in words):
        return Column("video")
    if any(w in _LABEL for w in words) and all(w in _LABEL | (_OF_NAMES - {"id", "no", "nr", "number"}) for w in words):
        return Column("label", rank=min(_LABELS.index(w) for w in words if w in _LABEL))
    return Column(folded)


def label_columns(titles: Sequence[str], track: str | None) -> tuple[int, list[int]]:
    """Return the column of labels, and the columns of tools that are not read because it holds phases.

    Args:
        titles: the columns' titles, one or more of them of labels.
        track: "phases" or "tools", if declared, of which the column is taken.
    """
    labels = sorted((column.rank, i) for i, column in enumerate(map(column_of, titles)) if column.role == "label")
    tools = [i for _, i in labels if re.search("tool|instrument", titles[i], re.IGNORECASE)]
    others = [i for _, i in labels if i not in tools]
    if track == "tools" and tools:
        return tools[0], []
    if track == "phases" and others:
        return others[0], []
    label = labels[0][1]
    return label, tools if label in others else []


def _words(cell: str) -> list[str]:
    """Return the words of a title in lower case; "StartTime" and "starttime" have two."""
    text = unicodedata.normalize("NFKC", cell)
    text = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    words = re.findall(r"[^\W_]+", text.lower())
    return [part for word in words for part in _split_word(word)]


def _split_word(word: str) -> list[str]:
    """Return the known words that a word consists of, or the word itself."""
    for first in _WORDS:
        if word.startswith(first) and len(word) > len(first):
            rest = _split_word(word[len(first) :])
            if all(part in _WORDS for part in rest):
                return [first, *rest]
    return [word]


def _unit(words: list[str]) -> str:
    if "ss" in words:  # ss.msec
        return "seconds"
    for unit, known in (("ms", _MILLISECONDS), ("seconds", _SECONDS), ("frames", _FRAMES)):
        if any(w in known for w in words):
            return unit
    return ""
