"""The options of `hmmjax.io.read`, and the checks of frame numbers and labels that all layouts share."""

import dataclasses
from collections.abc import Callable

import numpy as np

from hmmjax.io.errors import FormatError

TRACKS = ("phases", "tools")
KINDS = ("labels", "probabilities", "logits")

#: Maps the position of a row to its line number in the file.
LineOf = Callable[[int], int]


@dataclasses.dataclass(frozen=True)
class Spec:
    """The options of one call of `hmmjax.io.read`, which documents them."""

    track: str | None = None
    kind: dict[str, str | None] = dataclasses.field(default_factory=dict)
    names: dict[str, tuple[str, ...] | None] = dataclasses.field(default_factory=dict)
    fps: float | None = None
    step: int = 25
    offset: int | None = None
    header: str = "auto"
    strict: bool = True
    unknown: bool = False
    first_index: int = 0
    shift: int = 0
    rows: str = "auto"

    @property
    def counter_fps(self) -> float:
        """Frames per second of the frame counter: as declared, or 25 as on Cholec80."""
        return 25.0 if self.fps is None else self.fps

    def row_frames(self, count: int, offset: int = 0) -> np.ndarray:
        """Return the frame numbers of `count` rows of a file without a Frame column."""
        return np.arange(count, dtype=np.int64) * self.step + (offset if self.offset is None else self.offset)


def check_frames(frames: np.ndarray, line_of: LineOf, file: str) -> None:
    """Raise FormatError unless frame numbers are non-negative and strictly increasing.

    Raises:
        FormatError: naming the offending line.
    """
    if frames.size == 0:
        raise FormatError("the file has no frames", file=file, fix="export it again, or leave it out")
    if (frames < 0).any():
        row = int(np.argmax(frames < 0))
        raise FormatError(
            f"the frame number {frames[row]} is negative",
            file=file,
            line=line_of(row),
            fix="count frames from 0, and check offset",
        )
    steps = np.diff(frames)
    if (steps > 0).all():
        return
    row = int(np.argmax(steps <= 0)) + 1
    earlier = np.flatnonzero(frames[:row] == frames[row])
    if earlier.size:
        raise FormatError(
            f"frame {frames[row]} is listed twice (first on line {line_of(int(earlier[0]))})",
            file=file,
            line=line_of(row),
            fix="keep one row per frame",
        )
    raise FormatError(
        f"frame {frames[row]} comes after frame {frames[row - 1]}",
        file=file,
        line=line_of(row),
        fix="sort the rows by frame number",
    )


MAX_CLASSES = 1000
"""Maximum number of phases. A larger index means a damaged file, and would need a model of that size."""


def check_labels(
    values: np.ndarray, track: str, count: int | None, spec: Spec, line_of: LineOf, file: str
) -> np.ndarray:
    """Check that labels are whole numbers in range, and number phases from 0: -1 and NaN stand for missing ones.

    Phases are first_index to first_index + count - 1 in the file, tools 0 or 1.

    Args:
        values: (n,) or (n, C) labels.
        track: "phases" or "tools".
        count: number of phases; None if unknown.
        spec: the options of the call.
        line_of: maps the position of a row to its line number.
        file: the file, for error messages.

    Returns:
        The labels as int32, -1 for missing.

    Raises:
        FormatError: naming the offending line.
    """
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), -1, values)
    lowest = spec.first_index if track == "phases" else 0
    highest = 1 if track == "tools" else lowest + (MAX_CLASSES if count is None else count) - 1
    rows = values if values.ndim == 2 else values[:, None]
    if rows.dtype.kind == "f":
        raise_at(~np.isfinite(rows), rows, "{} is not a number", line_of, file, "repair or remove the row")
        fix = _scores_fix(track)
        if spec.unknown:
            fix = f"write -1 where the label is not known or undecided; {fix}"
        raise_at(rows != np.rint(rows), rows, "label {} is not a whole number", line_of, file, fix)
    # -1 means unknown in any numbering.
    out = ((rows < lowest) & (rows != -1)) | (rows > highest)
    if out.any():
        known = rows[rows != -1]
        below = (rows >= 0) & (rows < lowest)
        fix = f"pass first_index={int(rows[below].min()) if below.any() else 0}, or -1 for frames without a label"
        raise_at(below, rows, f"phase label {{}} is below the first index, {lowest}", line_of, file, fix)
        if track == "phases" and spec.first_index == 0 and known.size and known.min() >= 1 and known.max() == count:
            raise FormatError(
                f"phase label {count} is out of range (0 to {highest}). The labels are {known.min():g} to {count}, and "
                f"there are {count} phases: they seem to be numbered from 1",
                file=file,
                line=line_of(int(np.argmax(out.any(1)))),
                fix="pass first_index=1; if they are numbered from 0, declare all classes",
            )
        allowed = "0 or 1" if track == "tools" else f"{lowest} to {highest}"
        allowed += f", or -1 for {'unknown' if spec.unknown else 'missing'}"
        fix = f"count classes from {lowest}, and declare all of them" if track == "phases" else _scores_fix(track)
        raise_at(out, rows, f"{track[:-1]} label {{}} is out of range ({allowed})", line_of, file, fix)
    return np.where(values == -1, -1, values - lowest).astype(np.int32)


def _scores_fix(track: str) -> str:
    return f"if the {track} are scores, pass kind='probabilities' or kind='logits'"


def raise_at(
    bad: np.ndarray, values: np.ndarray, cause: str, line_of: LineOf, file: str, fix: str | None = None
) -> None:
    """Raise FormatError for the first bad entry, if any."""
    if bad.any():
        row, column = np.unravel_index(int(np.argmax(bad)), bad.shape)
        raise FormatError(cause.format(f"{values[row, column]:g}"), file=file, line=line_of(int(row)), fix=fix)
