"""Labeled frames that are read at random: files on disk, JPEG bytes in memory, or arrays.

A source has a length, a `table` of labels, and ``source[i]``, frame i as (H, W, 3) uint8 RGB.
"""

import csv
import dataclasses
import io
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from hmmjax.data.splits import recording
from hmmjax.io import CHOLEC80_PHASES, CHOLEC80_TOOLS, FormatError
from models.data.columns import check_columns
from models.data.m2cai_locations import read_frames, read_image_sets

#: Columns that a table may lack.
OPTIONAL = ("boxes", "box_tools", "phase_weights", "tool_weights")


@dataclasses.dataclass(frozen=True, eq=False)
class FrameTable:
    """Where frames come from and what is known of them.

    Attributes:
        videos: (n,) names of videos, such as "video67".
        frames: (n,) int64 numbers on each video's own counter.
        phases: (n,) int32, -1 unknown.
        tools: (n, K) int32 0 or 1, -1 unknown.
        parts: (n,) names of the split's parts, such as "train".
        phase_names: L names.
        tool_names: K names.
        fps: frames per second of the counter.
        boxes: (n, M, 4) float32 xmin, ymin, xmax, ymax of each frame's boxes, as shares of the picture, all of them;
            None where boxes are not known.
        box_tools: (n, M) int32 the tool in each, -1 for padding.
        phase_weights: (n,) float32, how much each frame's phase counts in training; None is 1 throughout.
        tool_weights: (n, K) float32, likewise.
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

    def __len__(self) -> int:
        return len(self.frames)

    def rows(self, part: str | None) -> np.ndarray:
        """Row numbers of one part, or of all for None.

        Raises:
            FormatError: when no frame is in it.
        """
        found = np.arange(len(self)) if part is None else np.flatnonzero(self.parts == part)
        if not len(found):
            raise FormatError(
                f"no frame is in the part {part!r}", fix=f"there are {', '.join(sorted(set(self.parts))) or 'none'}"
            )
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it as arrays without Python objects."""
        known = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        values = {name: np.asarray(x) for name, x in known.items() if x is not None}
        return {name: x.astype(np.str_) if x.dtype.kind == "O" else x for name, x in values.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "FrameTable":
        """The table that `arrays` gave.

        Raises:
            ValueError: for columns that do not agree, or do not hold what they should.
            KeyError: for one that is missing.
        """
        check_columns(arrays)
        names = [field.name for field in dataclasses.fields(cls)]
        values = {name: arrays[name] for name in names if name in arrays or name not in OPTIONAL}
        for name in ("phase_names", "tool_names"):
            values[name] = tuple(str(x) for x in values[name])
        values["fps"] = float(values["fps"])
        return cls(**values)


class Source(Protocol):
    """Frames read at random."""

    table: FrameTable

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> np.ndarray: ...


@dataclasses.dataclass(frozen=True, eq=False)
class ImageFiles:
    """Pictures in files.

    Attributes:
        table: of n frames.
        paths: n files.
        size: (height, width) to scale to; None keeps each as it is.
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
    """Pictures as encoded bytes in one array: small to carry, quick to open.

    Attributes:
        table: of n frames.
        data: all files one after the other, uint8.
        ends: (n,) where each ends.
        size: (height, width) to scale to; None keeps each as it is.
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
        """Write an NPZ that `read_packed` reads."""
        np.savez(path, allow_pickle=False, data=self.data, ends=self.ends, **self.table.arrays())


def read_packed(path: str | Path, size: tuple[int, int] | None = None) -> PackedImages:
    """Frames that `PackedImages.save` wrote.

    Args:
        path: the file.
        size: (height, width) to scale to.

    Returns:
        The frames.

    Raises:
        FormatError: when the file is missing, damaged or of another kind.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as held:
            arrays = dict(held)
        packed = PackedImages(FrameTable.from_arrays(arrays), arrays["data"], arrays["ends"], size)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise FormatError(f"no readable packed pictures ({error})", file=path, fix="write them again") from error
    if len(packed) != len(packed.table) or (len(packed) and packed.ends[-1] != len(packed.data)):
        raise FormatError(
            f"{len(packed)} pictures and labels of {len(packed.table)} frames", file=path, fix="write them again"
        )
    return packed


def pack(source: Source, rows: Sequence[int] | None = None, *, quality: int = 90) -> PackedImages:
    """Encode frames of a source, as the source scales them, as JPEG."""
    from PIL import Image

    encoded = []
    for row in range(len(source)) if rows is None else rows:
        buffer = io.BytesIO()
        Image.fromarray(source[row]).save(buffer, "JPEG", quality=quality)
        encoded.append(np.frombuffer(buffer.getvalue(), np.uint8))
    ends = np.cumsum([len(x) for x in encoded])
    table = source.table if rows is None else take(source.table, np.asarray(rows))
    return PackedImages(table, np.concatenate(encoded), ends)


def take(table: FrameTable, rows: np.ndarray) -> FrameTable:
    """Some rows of a table."""
    names = ("videos", "frames", "phases", "tools", "parts", *OPTIONAL)
    columns = {name: getattr(table, name) for name in names}
    return dataclasses.replace(table, **{name: x[rows] for name, x in columns.items() if x is not None})


def stack_boxes(boxes: Sequence[np.ndarray], tools: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """Boxes of n frames as a table keeps them.

    Args:
        boxes: for each frame (N, 4), any number N.
        tools: for each frame (N,).

    Returns:
        "boxes" (n, M, 4) and "box_tools" (n, M), where M is the largest N, and 1 at least.
    """
    most = max([1, *map(len, tools)])
    out = np.zeros((len(boxes), most, 4), np.float32)
    which = np.full((len(boxes), most), -1, np.int32)
    for row, (corners, inside) in enumerate(zip(boxes, tools, strict=True)):
        out[row, : len(inside)] = corners
        which[row, : len(inside)] = inside
    return {"boxes": out, "box_tools": which}


def decode(data: bytes, size: tuple[int, int] | None = None, *, file: str | Path | None = None) -> np.ndarray:
    """An encoded picture as (H, W, 3) uint8 RGB, scaled to (height, width) when a size is given.

    Args:
        data: the picture's bytes.
        size: (height, width) to scale to.
        file: where they are from, for messages.

    Returns:
        The picture.

    Raises:
        FormatError: when this is no picture, is cut off, or has another depth than eight bits.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.mode.startswith(("I", "F")):
                raise FormatError(
                    f"its values are of kind {image.mode!r}, not eight bits", file=file, fix="convert it to 8-bit RGB"
                )
            if size is not None:
                # A JPEG can be decoded at a half or a quarter for a fraction of the time.
                image.draft("RGB", (2 * size[1], 2 * size[0]))
            picture = image.convert("RGB")
            if size is not None and picture.size != (size[1], size[0]):
                picture = picture.resize((size[1], size[0]), Image.Resampling.BILINEAR)
            return np.asarray(picture)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise FormatError(f"not a readable picture ({error})", file=file, fix="get the file again") from error


def m2cai16_locations(root: str | Path, size: tuple[int, int] | None = None) -> ImageFiles:
    """The frames of m2cai16-tool-locations that have a picture, of all its image sets.

    Tools are those that have a box; there are no frames without any. Phases come from ``frame_labels.csv``, which
    matches frames with Cholec80's annotation, and are unknown without it.

    Args:
        root: holds Annotations, ImageSets and JPEGImages.
        size: (height, width) to scale to.

    Returns:
        The frames; those listed without a picture are left out, with a warning.

    Raises:
        FormatError: when nothing is there, when a frame is in two image sets, and for damaged files.
    """
    root = Path(root)
    frames, parts = [], []
    for part, listed in read_image_sets(root).items():
        names = [name for name in listed if (root / "JPEGImages" / f"{name}.jpg").exists()]
        if len(names) < len(listed):
            warnings.warn(f"{root}: {len(listed) - len(names)} of {len(listed)} frames of {part} have no picture")
        frames += read_frames(root, names)
        parts += [part] * len(names)
    if not frames:
        raise FormatError("no pictures", file=root, fix="give the folder that holds ImageSets and JPEGImages")
    known = _phases(root / "frame_labels.csv")
    table = FrameTable(
        videos=np.array([recording(frame.name) for frame in frames]),
        frames=np.array([frame.frame for frame in frames], np.int64),
        phases=np.array([known.get(frame.name, -1) for frame in frames], np.int32),
        tools=np.stack([frame.presence for frame in frames]),
        parts=np.array(parts),
        **stack_boxes([frame.boxes for frame in frames], [frame.tools for frame in frames]),
    )
    return ImageFiles(table, tuple(Path(frame.image) for frame in frames), size)


def _phases(path: Path) -> dict[str, int]:
    if not path.exists():
        return {}
    found: dict[str, int] = {}
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        if not {"frame", "cholec80_phase"} <= set(reader.fieldnames or ()):
            raise FormatError("the columns frame and cholec80_phase expected", file=path, line=1)
        for row in reader:
            frame, phase = row["frame"], (row["cholec80_phase"] or "").strip()
            if frame in found:
                raise FormatError(f"{frame} is there twice", file=path, line=reader.line_num)
            if phase not in map(str, range(-1, len(CHOLEC80_PHASES))):
                raise FormatError(
                    f"phase {phase!r}, -1 to {len(CHOLEC80_PHASES) - 1} expected", file=path, line=reader.line_num
                )
            found[frame] = int(phase)
    return found
