"""m2cai16-tool-locations as a source of labeled frames."""

import csv
import warnings
from pathlib import Path

import numpy as np

from hmmjax.data.splits import recording
from hmmjax.io import CHOLEC80_PHASES, FormatError
from models.data.frames import FrameTable, ImageFiles, stack_boxes
from models.data.m2cai_locations import read_frames, read_image_sets


def m2cai16_locations(root: str | Path, size: tuple[int, int] | None = None) -> ImageFiles:
    """Open the frames of all image sets of m2cai16-tool-locations.

    A tool is present if it has a box; every frame has at least one. Phases come from ``frame_labels.csv``, which
    matches frames with Cholec80's annotations, and are unknown without this file.

    Args:
        root: contains Annotations, ImageSets and JPEGImages.
        size: (height, width) to scale to; None keeps the size of each image.

    Returns:
        The frames. Those without an image are skipped with a warning.

    Raises:
        FormatError: if there are no frames, if a frame is in two image sets, and for damaged files.
    """
    root = Path(root)
    frames, parts = [], []
    for part, listed in read_image_sets(root).items():
        names = [name for name in listed if (root / "JPEGImages" / f"{name}.jpg").exists()]
        if len(names) < len(listed):
            warnings.warn(
                f"{root}: skipped {len(listed) - len(names)} of {len(listed)} frames of {part}, which have no image"
            )
        frames += read_frames(root, names)
        parts += [part] * len(names)
    if not frames:
        raise FormatError("no images", file=root, fix="give the folder that contains ImageSets and JPEGImages")
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
            raise FormatError("the columns frame and cholec80_phase are missing", file=path, line=1)
        for row in reader:
            frame, phase = row["frame"], (row["cholec80_phase"] or "").strip()
            if frame in found:
                raise FormatError(f"{frame} is listed twice", file=path, line=reader.line_num)
            if phase not in map(str, range(-1, len(CHOLEC80_PHASES))):
                raise FormatError(
                    f"phase {phase!r} is not in -1 to {len(CHOLEC80_PHASES) - 1}", file=path, line=reader.line_num
                )
            found[frame] = int(phase)
    return found
