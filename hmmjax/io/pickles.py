"""Read predictions and annotations in pickles and files of torch, as plain data (`hmmjax.io.unpickle`).

- TeCNO and its descendants: ``[features, scores, labels]`` of one video, ``video_41_1.0fps.pkl``;
- an array per video: ``{"video41": scores, ...}``, or under the names of an NPZ (`hmmjax.io.arrays`);
- arrays per video and kind: ``{"video41": {"phase_gt_sec": labels, "tool_gt_sec": presence}, ...}``;
- rows per video: ``{"video41": [{"frame_id": 0, "phase_gt": 0, "tool_gt": [1, 0, ...]}, ...]}`` (SelfSupSurg);
- one array of one video.
"""

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.io.arrays import array_track, pickle_error, tracks_of_arrays
from hmmjax.io.errors import FormatError
from hmmjax.io.spec import Spec
from hmmjax.io.tracks import Track
from hmmjax.io.unpickle import read_pickle
from hmmjax.io.videos import array_suffix, video_id

_RATE = re.compile(r"[-_ ]+(\d+(?:\.\d+)?)fps$")
_FRAME = ("frame_id", "frame", "original_frame")
_LABELS = ("gt", "label", "labels", "target", "targets", "truth")


def read_pickled(file: str, spec: Spec) -> list[Track]:
    """Read the tracks of a pickle.

    Raises:
        FormatError: the file holds anything but arrays, tensors, lists, dictionaries, text and numbers, or they are
            not arranged as the module says.
    """
    try:
        content = read_pickle(file)
    except ValueError as error:
        raise pickle_error(file, str(error)) from None
    except OSError as error:
        raise FormatError(f"the file cannot be read ({error.strerror})", file=file, fix="check the path") from None
    if isinstance(content, Mapping):
        return tracks_of_arrays(file, _named(file, content), spec)
    parts = content if isinstance(content, list) else [content]
    arrays: list[np.ndarray] = [x for x in map(_as_array, parts) if x is not None]
    whole = _as_array(content)
    if whole is not None and not (len(arrays) == 3 and arrays[1].ndim == 2):
        arrays = [whole]
    if len(arrays) == 3 and arrays[1].ndim == 2 and len({len(x) for x in arrays}) == 1:
        # TeCNO: features, scores and labels of one video.
        spec = dataclasses.replace(spec, track=spec.track or "phases")
        return [_single(file, arrays[2] if spec.unknown else arrays[1], spec)]
    if len(arrays) == 1:
        return [_single(file, arrays[0], spec)]
    raise FormatError(
        f"the pickle holds {_describe(content)}, of which the predictions are not clear",
        file=file,
        fix="save one array per video: np.savez('predictions.npz', phases_41=..., frames_41=...)",
    )


def _single(file: str, values: np.ndarray, spec: Spec) -> Track:
    """Return the track of one video's array; the file's name may tell the number of rows per second."""
    stem = Path(file).stem
    rate = _RATE.search(stem)
    if rate and float(rate[1]) > 0:
        step = spec.counter_fps / float(rate[1])
        if abs(step - round(step)) > 1e-6 or step < 1:
            raise FormatError(
                f"{rate[1]} rows per second are not a whole number of frames apart at {spec.counter_fps:g} per second",
                file=file,
                fix=f"pass fps={float(rate[1]):g}, so that frame numbers count rows",
            )
        spec = dataclasses.replace(spec, step=round(step))
        stem = stem[: rate.start()]
    track = array_track(file, values, video_id(stem), spec)
    # Results are written as NPZ, which has room for frame numbers.
    layout = dataclasses.replace(track.layout, format="npz", key=f"{track.track}_{array_suffix(track.video)}")
    return dataclasses.replace(track, layout=layout)


def _named(file: str, content: Mapping[Any, Any]) -> dict[str, np.ndarray]:
    """Return the arrays of a dictionary under the names that an NPZ would have."""
    found: dict[str, np.ndarray] = {}
    for key, value in content.items():
        name = f"{int(key)}" if isinstance(key, int) else str(key)
        if isinstance(value, str) and name.startswith("part_"):
            found[name] = np.array(value)
        elif (array := _as_array(value)) is not None:
            found[name if _is_known(name) else f"pred_{name}"] = array
        elif isinstance(value, Mapping):
            for kind, x in value.items():
                array, short = _as_array(x), _kind(str(kind))
                if array is not None and short:
                    found[f"{short}_{name}"] = array
        elif isinstance(value, list) and value and all(isinstance(row, Mapping) for row in value):
            found |= _rows(file, name, value)
    if not found:
        raise FormatError(
            f"the pickle holds {_describe(content)}, and no array per video",
            file=file,
            fix="save one array per video: np.savez('predictions.npz', phases_41=..., frames_41=...)",
        )
    return found


def _rows(file: str, video: str, rows: list[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return the columns of rows; a row whose tools are None has unknown tools."""
    frame = next((name for name in _FRAME if name in rows[0]), None)
    if frame is None:
        raise FormatError(
            f"the rows of {video} have no frame number ({', '.join(map(str, rows[0]))})",
            file=file,
            fix=f"add {_FRAME[0]} to each row",
        )
    found = {f"frames_{video}": np.array([int(row[frame]) for row in rows])}
    for name in rows[0]:
        kind, values = _kind(str(name)), [row.get(name) for row in rows]
        if kind is None or all(v is None for v in values) or any(isinstance(v, str) for v in values):
            continue
        width = max(np.size(v) for v in values if v is not None)
        blank = -1 if width == 1 and kind == "phases" else [-1] * width
        array = _as_array([blank if v is None else v for v in values])
        if array is not None:
            found[f"{kind}_{video}"] = array
    return found


def _kind(name: str) -> str | None:
    """Return "phases", "tools" or "frames" for the name of a column or array, None for others, such as names."""
    words = re.split(r"[_\W]+", name.lower())
    if "name" in words or "names" in words:
        return None
    for kind in ("phase", "tool", "frame"):
        if kind in words or f"{kind}s" in words:
            return f"{kind}s"
    return None


def _is_known(name: str) -> bool:
    known = r"(phases?|tools?|scores?|logits?|probs?|labels?|pred(iction)?s?|frames)_.+|fps|(phase|tool)s?_names"
    return re.fullmatch(known, name) is not None


def _as_array(value: Any) -> np.ndarray | None:
    """Return an array of numbers or text, None for anything else."""
    if isinstance(value, np.ndarray):
        return value
    if not isinstance(value, list) or not value or isinstance(value[0], Mapping):
        return None
    try:
        array = np.array([np.asarray(x) for x in value])
    except ValueError:
        return None
    return array if array.dtype.kind in "biufU" else None


def _describe(content: Any) -> str:
    """Describe data in a few words."""
    if isinstance(content, Mapping):
        keys = ", ".join(map(str, list(content)[:5]))
        return f"a dictionary with the keys {keys}{' ...' if len(content) > 5 else ''}"
    if isinstance(content, list):
        shapes = [f"{x.shape}" if (x := _as_array(part)) is not None else type(part).__name__ for part in content[:5]]
        return f"a list of {len(content)} ({', '.join(shapes)}{' ...' if len(content) > 5 else ''})"
    return f"{'an array' if isinstance(content, np.ndarray) else type(content).__name__}"
