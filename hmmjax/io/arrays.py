"""Read NPZ and NPY files. Python objects in them are refused.

An NPZ holds one array per video and track, named ``<what>_<video>``: ``phase_01``, ``phases_41``, ``tools_41``,
``score_61``, ``logits_71`` ... It may also hold ``frames_<video>`` (n,) frame numbers, ``phase_names``, ``tool_names``,
``fps``, the frames per second of the frame counter, and ``part_<video>``, the part of the video in the recognizer's
training, such as "train".
"""

import dataclasses
import re
from collections.abc import Callable, Mapping

import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.names import find_name, fold, unknown_name
from hmmjax.io.parts import read_parts
from hmmjax.io.scores import check_scores
from hmmjax.io.spec import Spec, check_frames, check_labels
from hmmjax.io.tracks import Layout, Track, with_notices
from hmmjax.io.videos import video_id

_KEY = re.compile(r"(phases?|tools?|scores?|logits?|probs?|probabilit(?:y|ies)|labels?|pred(?:iction)?s?)_(.+)")
_NAMES = {"phase_names": "phases", "phases_names": "phases", "tool_names": "tools", "tools_names": "tools"}
#: Keys of the library's own result files that do not hold predictions.
_OWN_KEYS = re.compile(
    r"(frames|part|log_likelihood|fold|(filtered|raw\d*|truth)_(phases|tools)|(filtered_)?(tool_log_odds|phase_log_probs))_.+"
    r"|fps|convention|step_seconds|protocol|notices"
)


def load_arrays(file: str, wanted: Callable[[str], bool] = lambda key: True) -> dict[str, np.ndarray]:
    """Load the arrays of an NPZ, or that of an NPY under the key "". Arrays of Python objects are refused.

    Args:
        file: the file.
        wanted: tells by its key whether to load an array; the others are returned empty.

    Raises:
        FormatError: if the file is damaged, pickled, or not the kind of file that its suffix tells.
    """
    try:
        with open(file, "rb") as handle:
            data = np.load(handle, allow_pickle=False)
            if isinstance(data, np.ndarray):
                return {"": data}
            arrays = {key: data[key] if wanted(key) else np.zeros(0) for key in data.files}
            if strange := [key for key, array in arrays.items() if not isinstance(array, np.ndarray)]:
                raise ValueError(f"{strange[0]} is not an array")
            return arrays
    except Exception as error:
        # Damaged files raise all kinds of errors: impossible sizes (MemoryError, OverflowError), unparsable headers
        # (SyntaxError, tokenize.TokenError), zip flags that mean encryption (RuntimeError, NotImplementedError).
        if "allow_pickle" in str(error) or "pickled" in str(error):
            raise pickle_error(file, "the file holds Python objects, or is not a NumPy file") from None
        raise FormatError(
            f"the file is damaged or truncated ({error})", file=file, fix="copy or export it again"
        ) from None


def pickle_error(file: str, cause: str) -> FormatError:
    """Return the error for a pickle of anything but plain data, with the way to convert it."""
    return FormatError(
        cause,
        file=file,
        fix="if you trust the file, load it yourself and save plain arrays: "
        "np.savez('predictions.npz', phases_41=..., frames_41=..., phase_names=[...])",
    )


def read_arrays(file: str, spec: Spec) -> list[Track]:
    """Read the tracks of an NPZ (many videos) or NPY (one video).

    Raises:
        FormatError: if the file is damaged or ambiguous; the message names file, array, row, cause and fix.
    """
    arrays = load_arrays(file, _is_used)
    return (
        [array_track(file, arrays[""], video_id(file), spec)] if "" in arrays else tracks_of_arrays(file, arrays, spec)
    )


def array_track(file: str, values: np.ndarray, video: str, spec: Spec) -> Track:
    """Return the track of one array, of which only the file's name or the options tell what it holds."""
    return _track(file, "", video, _npy_track(file, values, spec), {"": values}, {}, spec)


def tracks_of_arrays(file: str, arrays: Mapping[str, np.ndarray], spec: Spec) -> list[Track]:
    """Return the tracks of arrays under the names that the module's docstring lists.

    Raises:
        FormatError: if no array holds predictions, or one is ambiguous.
    """
    names = {_NAMES[key]: _strings(file, key, arrays[key]) for key in arrays if key in _NAMES}
    chosen, ignored = [], []
    for key in arrays:
        if key in _NAMES or _OWN_KEYS.fullmatch(key):
            continue
        match = _KEY.fullmatch(key)
        if match is None:
            ignored.append(key)
        else:
            chosen.append((key, *match.groups()))
    if not chosen:
        raise FormatError(
            f"none of the arrays holds predictions ({', '.join(arrays) or 'the file has no arrays'})",
            file=file,
            fix="name the arrays phases_<video> or tools_<video>, for instance phases_41",
        )
    parts, doubts = read_parts(file, arrays, {video_id(name) for _, _, name in chosen})
    tracks = []
    for key, what, name in chosen:
        track = _key_track(file, key, what, arrays[key], names, spec)
        if spec.track in (None, track):
            found = _track(file, key, video_id(name), track, arrays, names, spec)
            tracks.append(dataclasses.replace(found, part=parts.get(found.video)))
    if not tracks:
        raise FormatError(
            f"none of the arrays holds {spec.track} ({', '.join(arrays)})",
            file=file,
            fix=f"name the arrays {spec.track}_<video>",
        )
    notices = doubts + ([f"{file}: ignored arrays with unknown names: {', '.join(ignored)}"] if ignored else [])
    used = {track.layout.frames_key for track in tracks}
    if spec.track is None and (alone := [k for k in arrays if k.startswith("frames_") and k not in used]):
        notices.append(f"{file}: ignored frame numbers without predictions: {', '.join(alone)}")
    return with_notices(tracks, notices)


def _is_used(key: str) -> bool:
    """Whether an array of an NPZ has to be loaded; others may be of any size."""
    return key in _NAMES or key == "fps" or key.startswith(("frames_", "part_")) or _KEY.fullmatch(key) is not None


def _npy_track(file: str, values: np.ndarray, spec: Spec) -> str:
    if spec.track:
        return spec.track
    guess = [track for track in ("phases", "tools") if re.search(rf"{track[:-1]}", file.rsplit("/", 1)[-1].lower())]
    if len(guess) == 1:
        return guess[0]
    if values.ndim == 1:
        return "phases"
    raise FormatError(
        "the file name does not tell whether these are phases or tools",
        file=file,
        fix="pass track='phases' or track='tools'",
    )


def _key_track(
    file: str, key: str, what: str, values: np.ndarray, names: Mapping[str, tuple[str, ...]], spec: Spec
) -> str:
    if what.startswith("phase"):
        return "phases"
    if what.startswith("tool"):
        return "tools"
    if spec.track:
        return spec.track
    if len(names) == 1:
        return next(iter(names))
    if values.ndim == 1:
        return "phases"
    raise FormatError(
        f"the name of the array {key} does not tell whether it holds phases or tools",
        file=file,
        fix="pass track='phases' or track='tools'",
    )


def _rate(file: str, value: np.ndarray) -> float:
    if value.ndim or value.dtype.kind not in "iuf" or not np.isfinite(value) or value <= 0:
        raise FormatError(
            f"fps is {value.tolist()!r}", file=file, fix="store one positive number, the counter's frames per second"
        )
    return float(value)


def _strings(file: str, key: str, values: np.ndarray) -> tuple[str, ...]:
    if values.dtype.kind == "S":
        try:
            values = np.char.decode(values, "utf-8")
        except UnicodeDecodeError:
            raise FormatError(f"the array {key} is not UTF-8 text", file=file) from None
    if values.dtype.kind != "U" or values.ndim != 1:
        raise FormatError(f"the array {key} must be a list of strings", file=file)
    if len({fold(str(name)) for name in values}) < len(values):
        raise FormatError(f"the array {key} names a class twice", file=file)
    return tuple(str(name) for name in values)


def _track(
    file: str,
    key: str,
    video: str,
    track: str,
    arrays: Mapping[str, np.ndarray],
    names: Mapping[str, tuple[str, ...]],
    spec: Spec,
) -> Track:
    values = arrays[key]
    place = f"{file}[{key}]" if key else file
    wanted = (1, 2) if track == "phases" else (2,)
    if values.ndim not in wanted or values.dtype.kind not in "biuf":
        shape = "(frames,) labels or (frames, phases) scores" if track == "phases" else "(frames, tools)"
        raise FormatError(
            f"found an array {values.dtype} {values.shape}, expected numbers of shape {shape}",
            file=place,
            fix="save the array in that shape",
        )
    if len(values) == 0:
        raise FormatError("the array has no frames", file=place, fix="leave this video out")
    frames, frames_key, fps, notices = _frames(file, key, arrays, len(values), spec)
    check_frames(frames, lambda row: row + 1, place)
    classes = class_names(file, track, names, spec)
    if classes is not None and values.ndim == 2 and values.shape[1] != len(classes):
        raise FormatError(
            f"the array has {values.shape[1]} columns, but there are {len(classes)} class names",
            file=place,
            fix=f"store or declare one name per column ({track[:-1]}_names)",
        )
    kind = spec.kind.get(track)
    if kind is None:
        whole = values.dtype.kind in "biu" and track == "tools"
        kind = "labels" if whole or values.ndim == 1 else "logits" if key.startswith("logit") else "probabilities"
        if kind == "logits":
            notices.append(f"{place}: read as logits because of its name")
    if (kind == "labels") != (values.ndim == 1) and track == "phases":
        raise FormatError(f"a phase array of shape {values.shape} cannot hold {kind}", file=place, fix="correct kind")

    def line_of(row: int) -> int:
        return row + 1

    if kind == "labels":
        numbers = values.astype(np.int64) if values.dtype.kind in "biu" else values
        checked = check_labels(numbers, track, None if classes is None else len(classes), spec, line_of, place)
    else:
        checked = check_scores(values, track, kind, line_of, place)
    layout = Layout(format="npz" if key else "npy", kind=kind, key=key or None, frames_key=frames_key)
    return Track(video, track, frames, checked, classes, fps, layout, file, tuple(notices))


def class_names(file: str, track: str, names: Mapping[str, tuple[str, ...]], spec: Spec) -> tuple[str, ...] | None:
    """Return the file's class names, spelled as declared if names are declared, else the declared order."""
    own, declared = names.get(track), spec.names.get(track)
    if own is None or declared is None:
        return own or declared
    for name in own:
        if find_name(name, declared) is None:
            raise unknown_name(name, declared, track, file=file)
    return tuple(declared[find_name(name, declared)] for name in own)  # type: ignore[index]


def _frames(
    file: str, key: str, arrays: Mapping[str, np.ndarray], count: int, spec: Spec
) -> tuple[np.ndarray, str | None, float, list[str]]:
    """Return frame numbers, the key of their array, frames per second of the counter, and notices."""
    suffix = key.split("_", 1)[1] if "_" in key else ""
    frames_key = f"frames_{suffix}"
    if frames_key not in arrays:
        # "phases_01" and "frames_1" belong to the same video.
        same = [k for k in arrays if k.startswith("frames_") and video_id(k[len("frames_") :]) == video_id(suffix)]
        frames_key = same[0] if len(same) == 1 else frames_key
    fps = spec.counter_fps
    if "fps" in arrays:
        fps = _rate(file, arrays["fps"])
        if spec.fps is not None and spec.fps != fps:
            raise FormatError(
                f"the file stores fps {fps:g}, but {spec.fps:g} was declared", file=file, fix="omit fps, or correct it"
            )
    if frames_key in arrays:
        frames = arrays[frames_key]
        if frames.shape != (count,) or frames.dtype.kind not in "iu":
            raise FormatError(
                f"{frames_key} is {frames.dtype} {frames.shape}, but {key} needs {count} whole numbers",
                file=file,
                fix="store one frame number per row",
            )
        return frames.astype(np.int64), frames_key, fps, []
    offset = spec.offset or 0
    notice = (
        f"{file}: no frame numbers; rows are read as frames {offset}, {offset + spec.step}, {offset + 2 * spec.step} "
        f"... at {fps:g} {'frame' if fps == 1 else 'frames'} per second"
    )
    return spec.row_frames(count), None, fps, [notice]
