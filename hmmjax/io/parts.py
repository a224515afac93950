"""The part of a data set that each video had in a recognizer's training, as ``part_<video>`` of an NPZ tells it."""

import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.names import fold
from hmmjax.io.tracks import Track
from hmmjax.io.videos import natural, video_id

TRAIN = "train"
"""The part whose videos a recognizer was trained on, in whatever spelling the file has it."""

_SPELLINGS = (
    (TRAIN, re.compile(r"train.*|trn")),
    ("val", re.compile(r"(val(id(ation)?)?|dev(elopment)?)(set|split|part|videos?)?\d*")),
    ("test", re.compile(r"(te?st(ing)?|eval(uation)?|heldout|unseen)(set|split|part|videos?)?\d*")),
    ("unlabeled", re.compile(r"unlabell?ed")),
)


def part_name(word: str) -> str:
    """Return the one spelling of a part: "train" for "Training", "TRAIN" or "train set"; unknown words as they are."""
    return next((name for name, spelling in _SPELLINGS if spelling.fullmatch(fold(word.strip()))), word)


def read_parts(
    file: str, arrays: Mapping[str, np.ndarray], videos: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """Return the part of each video that a file tells, and notices.

    Args:
        file: the file, for messages.
        arrays: of the file; those named ``part_<video>`` are read.
        videos: identifiers of all videos of the file.

    Returns:
        Part by video identifier, and notices about words that are not the name of a part.

    Raises:
        FormatError: a part is not a string, belongs to no video, or is given twice with different values.
    """
    found: dict[str, tuple[str, str]] = {}
    unknown: dict[str, list[str]] = {}
    for key in (key for key in arrays if key.startswith("part_")):
        value, video = arrays[key], video_id(key.removeprefix("part_"))
        if value.ndim or value.dtype.kind != "U":
            raise FormatError(
                f"{key} is {value.dtype} {value.shape}", file=file, fix='store one string, such as "train"'
            )
        if video not in videos:
            listed = sorted(videos, key=natural)
            raise FormatError(
                f"{key} belongs to no video of the file ({', '.join(listed[:5])}{', ...' * (len(listed) > 5)})",
                file=file,
                fix="name it like the video's predictions: part_41 for phases_41",
            )
        part = part_name(str(value))
        other, earlier = found.setdefault(video, (part, key))
        if other != part:
            raise FormatError(
                f"{earlier} is {other!r}, but {key} is {part!r}", file=file, fix=f"store one part of {video}"
            )
        if part and all(part != name for name, _ in _SPELLINGS):
            unknown.setdefault(part, []).append(key)
    notices = [
        f"{file}: {', '.join(keys[:5])}{', ...' * (len(keys) > 5)}: {word!r} is not a known part (train, val, test, "
        "unlabeled), so the recognizer is taken not to have been trained on these videos"
        for word, keys in unknown.items()
    ]
    return {video: part for video, (part, _) in found.items()}, notices


def trained_on(predictions: Sequence[Track], annotations: Sequence[Track]) -> list[str]:
    """Return the annotated videos that a recognizer was trained on, in natural order.

    Args:
        predictions: tracks from `hmmjax.io.read`, of one or several recognizers.
        annotations: tracks from `hmmjax.io.read_annotations`.
    """
    trained = {track.video for track in predictions if track.part is not None and part_name(track.part) == TRAIN}
    return sorted(trained & {track.video for track in annotations}, key=natural)
