"""Labeled frames with random access: the table of labels, and images in files or as JPEG bytes in memory.

A source has a length, a `table` of labels, and ``source[i]``, frame i as (H, W, 3) uint8 RGB.
"""

import dataclasses
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypedDict

import numpy as np

from hmmjax.io import CHOLEC80_PHASES, CHOLEC80_TOOLS, FormatError, write_atomically
from models.data.columns import check_columns
from models.data.picture import decode, encode_jpeg

#: Columns that a table may lack.
OPTIONAL = ("boxes", "box_tools", "phase_weights", "tool_weights")
#: Part of frames that are not labeled, and its spelling in caches and manifests of earlier versions.
UNLABELED, _EARLIER_UNLABELED = "unlabeled", "unlabelled"


def part_name(part: str) -> str:
    """Return the current spelling of a part's name: "unlabelled" of earlier versions becomes "unlabeled"."""
    return UNLABELED if part == _EARLIER_UNLABELED else part


@dataclasses.dataclass(frozen=True, eq=False)
class FrameTable:
    """The origin and the labels of n frames.

    Attributes:
        videos: (n,) names of videos, such as "video67".
        frames: (n,) int64 frame numbers in each video.
        phases: (n,) int32, -1 if unknown.
        tools: (n, K) int32, 0 or 1, -1 if unknown.
        parts: (n,) names of parts, such as "train". The earlier spelling "unlabelled" is replaced by "unlabeled".
        phase_names: L names.
        tool_names: K names.
        fps: frames per second that the frame numbers count.
        boxes: (n, M, 4) float32, all boxes of each frame: xmin, ymin, xmax, ymax as fractions of the image; None if
            boxes are unknown.
        box_tools: (n, M) int32, tool in each box, -1 for padding.
        phase_weights: (n,) float32, weight of each phase label in the training loss; None is 1 everywhere.
        tool_weights: (n, K) float32, weight of each tool label in the training loss; None is 1 everywhere.
    """

    videos: np.ndarray
    frames: np.ndarray
    phases: np.ndarray
    tools: np.ndarray
    parts: np.ndarray
    phase_names: tuple[str, ...] = CHOLEC80_PHASES
    tool_names: tuple[str, ...] = CHOLEC80_TOOLS
    fps: float = 25.0
    boxes: np.ndarray | None = None
    box_tools: np.ndarray | None = None
    phase_weights: np.ndarray | None = None
    tool_weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        earlier = np.asarray(self.parts) == _EARLIER_UNLABELED
        if np.any(earlier):
            object.__setattr__(self, "parts", np.where(earlier, UNLABELED, self.parts))

    def __len__(self) -> int:
        return len(self.frames)

    def rows(self, part: str | None) -> np.ndarray:
        """Return the row indices of one part, or of all frames for None.

        Raises:
            FormatError: if the part has no frames.
        """
        found = np.arange(len(self)) if part is None else np.flatnonzero(self.parts == part_name(part))
        if not len(found):
            parts = ", ".join(sorted(set(self.parts)))
            raise FormatError(
                f"the part {part!r} has no frames", fix=f"choose one of {parts}" if parts else "add frames"
            )
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the table as arrays that can be saved without pickling."""
        known = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values = {name: np.asarray(x) for name, x in known.items() if x is not None}
        return {name: x.astype(np.str_) if x.dtype.kind == "O" else x for name, x in values.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "FrameTable":
        """Build a table from the result of `arrays`.

        Raises:
            ValueError: for columns with inconsistent lengths, wrong types or labels out of range.
            KeyError: for a missing column.
        """
        check_columns(arrays)
        names = [field.name for field in dataclasses.fields(cls)]
        values: dict[str, Any] = {name: arrays[name] for name in names if name in arrays or name not in OPTIONAL}
        for name in ("phase_names", "tool_names"):
            values[name] = tuple(str(x) for x in values[name])
        values["fps"] = float(values["fps"])
        return cls(**values)


class Source(Protocol):
    """Frames with random access, see the module's docstring. Every source is a dataclass with a `table`."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @property
    def table(self) -> FrameTable:
        """Labels of the frames."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True, eq=False)
class ImageFiles:
    """Frames in image files.

    Attributes:
        table: labels of n frames.
        paths: n files.
        size: (height, width) to scale to; None keeps the size of each image.
    """

    table: FrameTable
    paths: tuple[Path, ...]
    size: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> np.ndarray:
        path = self.paths[index]
        return decode(path.read_bytes(), self.size, file=path)


@dataclasses.dataclass(frozen=True, eq=False)
class PackedImages:
    """Frames as encoded images in one array, which is small and quick to open.

    Attributes:
        table: labels of n frames.
        data: the concatenated image files, uint8.
        ends: (n,) end of each image in `data`.
        size: (height, width) to scale to; None keeps the size of each image.
    """

    table: FrameTable
    data: np.ndarray
    ends: np.ndarray
    size: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> np.ndarray:
        start = 0 if index == 0 else self.ends[index - 1]
        return decode(self.data[start : self.ends[index]].tobytes(), self.size)

    def save(self, path: str | Path) -> None:
        """Write an NPZ file for `read_packed`; an existing file is replaced."""
        path = Path(path)
        with write_atomically(path if path.suffix == ".npz" else f"{path}.npz", force=True) as temporary:
            np.savez(temporary, allow_pickle=False, data=self.data, ends=self.ends, **self.table.arrays())


def read_packed(path: str | Path, size: tuple[int, int] | None = None) -> PackedImages:
    """Read frames written by `PackedImages.save`.

    Args:
        path: the file.
        size: (height, width) to scale to; None keeps the size of each image.

    Returns:
        The frames.

    Raises:
        FormatError: if the file is missing, damaged or of another kind.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as held:
            arrays = dict(held)
        packed = PackedImages(FrameTable.from_arrays(arrays), arrays["data"], arrays["ends"], size)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise FormatError(f"not a readable file of packed images ({error})", file=path, fix="write it again") from error
    if len(packed) != len(packed.table) or (len(packed) and packed.ends[-1] != len(packed.data)):
        raise FormatError(
            f"{len(packed)} images but labels of {len(packed.table)} frames", file=path, fix="write the file again"
        )
    return packed


def pack(source: Source, rows: Sequence[int] | None = None, *, quality: int = 90) -> PackedImages:
    """Encode frames of a source as JPEG, in the size that the source gives them.

    Args:
        source: of the frames.
        rows: indices of the frames; None packs all.
        quality: JPEG quality, at most 95.

    Returns:
        The packed frames.
    """
    chosen = range(len(source)) if rows is None else rows
    encoded = [np.frombuffer(encode_jpeg(source[row], quality), np.uint8) for row in chosen]
    ends = np.cumsum([len(x) for x in encoded])
    table = source.table if rows is None else take(source.table, np.asarray(rows))
    return PackedImages(table, np.concatenate(encoded), ends)


def take(table: FrameTable, rows: np.ndarray) -> FrameTable:
    """Select rows of a table."""
    names = ("videos", "frames", "phases", "tools", "parts", *OPTIONAL)
    columns = {name: getattr(table, name) for name in names}
    return dataclasses.replace(table, **{name: x[rows] for name, x in columns.items() if x is not None})


class BoxColumns(TypedDict):
    """The columns of a table that hold boxes, see `FrameTable`."""

    boxes: np.ndarray
    box_tools: np.ndarray


def stack_boxes(boxes: Sequence[np.ndarray], tools: Sequence[np.ndarray]) -> BoxColumns:
    """Pad the boxes of n frames to the columns of a table.

    Args:
        boxes: (N, 4) per frame, for any N.
        tools: (N,) per frame.

    Returns:
        "boxes" (n, M, 4) and "box_tools" (n, M), where M is the maximum N, and at least 1.
    """
    most = max([1, *map(len, tools)])
    padded = np.zeros((len(boxes), most, 4), np.float32)
    box_tools = np.full((len(boxes), most), -1, np.int32)
    for row, (corners, inside) in enumerate(zip(boxes, tools, strict=True)):
        padded[row, : len(inside)] = corners
        box_tools[row, : len(inside)] = inside
    return {"boxes": padded, "box_tools": box_tools}
