"""Read CholecT50's JSON: instruments and phases among the triplets of each frame."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hmmjax.io.arrays import class_names
from hmmjax.io.errors import FormatError
from hmmjax.io.names import CHOLEC80_PHASES, fold
from hmmjax.io.spec import Spec, check_frames
from hmmjax.io.tracks import Layout, Track
from hmmjax.io.videos import video_id

_VECTOR, _INSTRUMENT, _PHASE = 15, 1, 14
"""Numbers per triplet, and the positions of the instrument and of the phase; -1 is none."""

_CHOLEC80: dict[str, str] = dict(
    zip(
        (
            "preparation",
            "carlottriangledissection",
            "clippingandcutting",
            "gallbladderdissection",
            "gallbladderpackaging",
            "cleaningandcoagulation",
            "gallbladderextraction",
        ),
        CHOLEC80_PHASES,
        strict=True,
    )
)
"""Cholec80's names of the phases that CholecT50 names otherwise; the videos and phases are the same."""


def read_triplets(file: str, content: Mapping[str, Any], spec: Spec) -> list[Track]:
    """Read the presence of instruments, and phases, of every annotated frame.

    Frames are numbered at the rate that the file stores. A frame without instruments may have a phase; one without
    triplets has no known phase.

    Raises:
        FormatError: another rate is declared, a triplet has no 15 numbers, or a number is out of range.
    """
    frames_of, categories = content["annotations"], content["categories"]
    if not isinstance(frames_of, Mapping) or not isinstance(categories, Mapping):
        raise FormatError("annotations or categories are not objects", file=file, fix="export the file again")
    fps = _rate(file, content.get("fps", 1), spec)
    keys = sorted(frames_of, key=_number(file))
    frames = np.array([int(key) for key in keys], np.int64)
    check_frames(frames, lambda row: row + 1, file)
    names = {track: _names(file, categories, track, spec) for track in ("phases", "tools")}
    phases = np.full(len(keys), -1, np.int32)
    tools = np.zeros((len(keys), len(names["tools"])), np.int32)
    for row, key in enumerate(keys):
        for vector in frames_of[key]:
            if not isinstance(vector, list) or len(vector) != _VECTOR:
                raise FormatError(
                    f"a triplet of frame {key} has no {_VECTOR} numbers", file=file, fix="export the file again"
                )
            for position, count in ((_INSTRUMENT, tools.shape[1]), (_PHASE, len(names["phases"]))):
                if vector[position] not in range(-1, count):
                    raise FormatError(
                        f"{vector[position]!r} in frame {key} is no category (0 to {count - 1})",
                        file=file,
                        fix="list all categories",
                    )
            if vector[_INSTRUMENT] >= 0:
                tools[row, vector[_INSTRUMENT]] = 1
            phases[row] = max(phases[row], vector[_PHASE])
    video = video_id(file)
    out = []
    for track, values in (("phases", phases), ("tools", tools)):
        if spec.track in (None, track) and names[track] and (values >= 0).any():
            layout = Layout("segments", "labels", ",", spelling=names[track])
            out.append(Track(video, track, frames, values, names[track], fps, layout, file))
    return out


def _number(file: str) -> Any:
    def number(key: str) -> int:
        if not key.isdigit():
            raise FormatError(f"{key!r} is not a frame number", file=file, fix="export the file again")
        return int(key)

    return number


def _rate(file: str, stored: Any, spec: Spec) -> float:
    if isinstance(stored, bool) or not isinstance(stored, int | float) or not stored > 0:
        raise FormatError(f"fps is {stored!r}", file=file, fix="store the frames per second, 1 in CholecT50")
    if spec.fps is not None and spec.fps != stored:
        raise FormatError(
            f"the file stores fps {stored:g}, but {spec.fps:g} was declared",
            file=file,
            fix=f"omit fps, or pass {stored:g} (of annotations: --annotations-fps {stored:g})",
        )
    return float(stored)


def _names(file: str, categories: Mapping[str, Any], track: str, spec: Spec) -> tuple[str, ...]:
    """Return the names of the categories by number, as declared or as in Cholec80 if they are the same classes."""
    found = categories.get("phase" if track == "phases" else "instrument") or {}
    try:
        own = tuple(str(found[str(i)]) for i in range(len(found)))
    except (KeyError, TypeError):
        raise FormatError(f"the categories of {track} are not numbered from 0", file=file, fix="number them") from None
    own = tuple(_CHOLEC80.get(fold(name), name) for name in own) if track == "phases" else own
    return class_names(file, track, {track: own}, spec) or ()
