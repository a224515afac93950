"""What the caller declares about files, and the checks that every layout shares."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import PurePath

import numpy as np

from hmmjax.io.errors import FormatError

TRACKS = ("phases", "tools")
KINDS = ("labels", "probabilities", "logits")

#: Probability rows may miss one by this much (text files round); they are then normalized.
SUM_TOLERANCE = 1e-3
#: Probabilities may leave [0, 1] by this much (float32 sums round); they are then clipped.
RANGE_TOLERANCE = 1e-5

Where = Callable[[int], int]


@dataclasses.dataclass(frozen=True)
class Spec:
    """The declarations of one `read` call; see there."""

    track: str | None = None
    kind: dict[str, str | None] = dataclasses.field(default_factory=dict)
    names: dict[str, tuple[str, ...] | None] = dataclasses.field(default_factory=dict)
    fps: float | None = None
    step: int = 25
    offset: int | None = None
    header: str = "auto"
    strict: bool = True
    unknown: bool = False

    @property
    def counter_fps(self) -> float:
        """The declared frames per second, or Cholec80's 25."""
        return 25.0 if self.fps is None else self.fps

    @property
    def lowest_label(self) -> int:
        """-1 where unknown labels are allowed."""
        return -1 if self.unknown else 0

    def row_frames(self, count: int, offset: int = 0) -> np.ndarray:
        """Frame numbers of `count` rows in files that have no Frame column."""
        return np.arange(count, dtype=np.int64) * self.step + (offset if self.offset is None else self.offset)


_SUFFIX = re.compile(
    r"[-_. ]*(phases?|tools?|pred(ictions?)?|gt|labels?|probs?|logits?|scores?|annotations?|image[-_]test|"
    r"stabili[sz]ed|timestamps?)$",
    re.IGNORECASE,
)


def video_id(name: str) -> str:
    """A video's identifier from its file name or NPZ key, the same however the file is named.

    "video41-phase.txt", "video-41.txt", "VID41" and "41" are all "video41"; "workflow_video_02_pred.txt" is
    "workflow02" and "tool_video_11_image_test.csv" is "tool11": those number other recordings.

    Args:
        name: a file's name or path, or an array's name.

    Returns:
        The identifier; a name without a number at its end stays, less suffixes.
    """
    stem = re.sub(r"\.(txt|csv|tsv|npz|npy|png)$", "", PurePath(name).name, flags=re.IGNORECASE)
    while (shorter := _SUFFIX.sub("", stem)) and shorter != stem:
        stem = shorter
    match = re.fullmatch(r"(.*?)[-_ ]*(\d+)", stem)
    if not match:
        return stem
    prefix, number = match.groups()
    prefix = re.sub(r"(?<![a-z])(video|vid)$", "", prefix, flags=re.IGNORECASE)
    # Between two numbers a separator stays: "1_11" and "11_1" are different videos.
    parts = re.split(r"[-_ ]+", prefix.lower())
    prefix = ""
    for part in (*filter(None, parts), f"{int(number):02d}"):
        prefix += f"_{part}" if prefix[-1:].isdigit() and part[0].isdigit() else part
    return prefix if not prefix.isdigit() else f"video{prefix}"


def array_suffix(video: str) -> str:
    """What follows "phases_" in the arrays of a video: its number alone where that says which video it is.

    Args:
        video: an identifier.

    Returns:
        What `video_id` makes the identifier of.
    """
    number = video.removeprefix("video")
    return number if video_id(number) == video else video


def check_frames(frames: np.ndarray, where: Where, file: str) -> None:
    """Frames must be non-negative and strictly increasing.

    Raises:
        FormatError: naming the offending line.
    """
    if frames.size == 0:
        raise FormatError("no frames", file=file, fix="give a file with at least one row, or leave it out")
    if (frames < 0).any():
        row = int(np.argmax(frames < 0))
        raise FormatError(f"negative frame number {frames[row]}", file=file, line=where(row))
    steps = np.diff(frames)
    if (steps > 0).all():
        return
    row = int(np.argmax(steps <= 0)) + 1
    earlier = np.flatnonzero(frames[:row] == frames[row])
    if earlier.size:
        raise FormatError(
            f"frame {frames[row]} is there twice (first on line {where(int(earlier[0]))})",
            file=file,
            line=where(row),
            fix="keep one row per frame",
        )
    raise FormatError(
        f"frame {frames[row]} comes after frame {frames[row - 1]}",
        file=file,
        line=where(row),
        fix="sort the rows by frame number",
    )


MOST_CLASSES = 1000
"""No file numbers more phases than this; a larger index is damage, and would ask for a model of that size."""


def check_labels(values: np.ndarray, track: str, count: int | None, spec: Spec, where: Where, file: str) -> np.ndarray:
    """Whole-number labels in range: phases 0..count-1 (any count when None), tools 0 or 1; -1 where allowed.

    Returns:
        The labels as int32.

    Raises:
        FormatError: naming the offending line.
    """
    highest = 1 if track == "tools" else (MOST_CLASSES - 1 if count is None else count - 1)
    rows = values if values.ndim == 2 else values[:, None]
    if rows.dtype.kind == "f":
        _raise_at(~np.isfinite(rows), rows, "not a number: {}", where, file)
        _raise_at(rows != np.rint(rows), rows, "label {} is not a whole number", where, file, _scores_fix(track))
    out = (rows < spec.lowest_label) | (rows > highest)
    if out.any():
        allowed = "0 or 1" if track == "tools" else f"0 to {highest}"
        allowed += ", or -1 for unknown" if spec.unknown else ""
        fix = "check that the class order given has all the classes" if track == "phases" else _scores_fix(track)
        _raise_at(out, rows, f"{track[:-1]} label {{}} is out of range ({allowed})", where, file, fix)
    return values.astype(np.int32)


def check_scores(values: np.ndarray, track: str, kind: str, where: Where, file: str) -> np.ndarray:
    """Probabilities as they are, or from logits (softmax over phases, sigmoid per tool).

    Args:
        values: (n, C) scores.
        track: "phases" or "tools".
        kind: "probabilities" or "logits".
        where: from row position to line number.
        file: for messages.

    Returns:
        (n, C) float64 probabilities; phase rows sum to one.

    Raises:
        FormatError: for NaN, values outside [0, 1], and rows of phase probabilities that do not sum to one.
    """
    values = values.astype(np.float64)
    _raise_at(~np.isfinite(values), values, "not a number: {}", where, file, "remove the row or repair the value")
    if kind == "logits":
        if track == "tools":
            return np.where(values >= 0, 1 / (1 + np.exp(-np.abs(values))), 1 - 1 / (1 + np.exp(-np.abs(values))))
        powers = np.exp(values - values.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)
    out = (values < -RANGE_TOLERANCE) | (values > 1 + RANGE_TOLERANCE)
    fix = "if these are a network's raw outputs say kind='logits'"
    _raise_at(out, values, "{} is not a probability", where, file, fix)
    values = np.clip(values, 0, 1)
    if track == "tools":
        return values
    total = values.sum(-1, keepdims=True)
    off = np.abs(total - 1) > SUM_TOLERANCE
    _raise_at(off, total, "phase probabilities sum to {}, not 1", where, file, fix)
    return values / total


def _scores_fix(track: str) -> str:
    return f"if the {track} are scores say kind='probabilities' or kind='logits'"


def _raise_at(bad: np.ndarray, values: np.ndarray, cause: str, where: Where, file: str, fix: str | None = None) -> None:
    """Raise about the first bad entry, if there is one."""
    if bad.any():
        row, column = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise FormatError(cause.format(f"{values[row, column]:g}"), file=file, line=where(int(row)), fix=fix)
