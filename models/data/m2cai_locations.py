"""m2cai16-tool-locations: 2,811 frames of Cholec80 videos 67 to 76 with boxes around every instrument.

Boxes are fractions of the image, because each XML's <size> is that of the native image and images may have been scaled.
Frames are seconds to minutes apart, at irregular times, and the usual split puts neighboring frames into different
parts, see `neighbor_share`.
"""

import dataclasses
import math
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hmmjax.io import CHOLEC80_TOOLS, FormatError, natural
from hmmjax.io.names import find_name, unknown_name
from hmmjax.types import Labels

IMAGE_SETS = ("train", "val", "trainval", "test")
FPS = 25


@dataclasses.dataclass(frozen=True, eq=False)
class BoxedFrame:
    """One frame and its boxes.

    Attributes:
        name: such as "v01_002250".
        video: such as "v01".
        frame: frame number at 25 fps.
        image: path of the image; it may not exist if only annotations were copied.
        width: native width in pixels, from the XML file.
        height: native height in pixels, from the XML file.
        tools: (N,) int32, tool in each box.
        boxes: (N, 4) float32 xmin, ymin, xmax, ymax as fractions of width and height, clipped to the image.
        clipped: number of boxes that extended outside the image.
    """

    name: str
    video: str
    frame: int
    image: str
    width: int
    height: int
    tools: np.ndarray
    boxes: np.ndarray
    clipped: int

    @property
    def presence(self) -> np.ndarray:
        """The presence (K,) int32 of tools: 1 for each tool that has a box."""
        present = np.zeros(len(CHOLEC80_TOOLS), np.int32)
        present[self.tools] = 1
        return present


def read_image_set(directory: str | os.PathLike[str], name: str) -> tuple[str, ...]:
    """Read the names of the frames in train, val, trainval or test. (ImageSets/Layout is outdated and not read.)

    Raises:
        FormatError: for an unknown or missing image set, and for an invalid or repeated name.
    """
    if name not in IMAGE_SETS:
        raise FormatError(f"unknown image set {name!r}", fix=f"choose one of {', '.join(IMAGE_SETS)}")
    path = Path(directory) / "ImageSets" / "Main" / f"{name}.txt"
    if not path.is_file():
        raise FormatError("no such image set", file=path, fix="check the folder, or choose another image set")
    names: dict[str, int] = {}
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise FormatError("not a text file in UTF-8", file=path, fix="get the file again") from None
    for number, line in enumerate(lines, 1):
        # VOC lists may have a flag after each name: whether a class is present.
        stem, *flags = line.split() or [""]
        stem = re.sub(r"\.(jpg|jpeg|png|xml)$", "", stem, flags=re.IGNORECASE)
        if not stem:
            continue
        if flags not in ([], ["1"], ["0"], ["-1"]):
            raise FormatError(f"expected the name of a frame, found {line.strip()!r}", file=path, line=number)
        if stem in names:
            raise FormatError(f"{stem} is listed twice, first on line {names[stem]}", file=path, line=number)
        names[stem] = number
    return tuple(names)


def read_image_sets(directory: str | os.PathLike[str]) -> dict[str, tuple[str, ...]]:
    """Read the names of the frames in each image set of a copy.

    trainval, the union of train and val, is used only if both are missing.

    Args:
        directory: contains ImageSets/Main.

    Returns:
        Names by image set.

    Raises:
        FormatError: if there are no image sets, if one is empty, or if a frame is in two.
    """
    folder = Path(directory) / "ImageSets" / "Main"
    have = [name for name in IMAGE_SETS if (folder / f"{name}.txt").is_file()]
    if {"train", "val"} & set(have):
        have = [name for name in have if name != "trainval"]
    if not have:
        raise FormatError("no image sets", file=folder, fix="give the folder that contains ImageSets and JPEGImages")
    sets = {name: read_image_set(directory, name) for name in have}
    where: dict[str, str] = {}
    for part, names in sets.items():
        if not names:
            raise FormatError("an empty image set", file=folder / f"{part}.txt", fix="complete or remove it")
        for name in names:
            if where.setdefault(name, part) != part:
                raise FormatError(
                    f"{name} is in the image sets {where[name]} and {part}", file=folder, fix="remove it from one"
                )
    return sets


def read_frames(directory: str | os.PathLike[str], names: Sequence[str]) -> tuple[BoxedFrame, ...]:
    """Read frames with their boxes, in the given order."""
    return tuple(read_frame(directory, name) for name in names)


def read_frame(directory: str | os.PathLike[str], name: str) -> BoxedFrame:
    """Read one frame with its boxes.

    Raises:
        FormatError: for a missing or damaged XML file, an unknown tool, or an empty box.
    """
    root = Path(directory)
    path = root / "Annotations" / f"{name}.xml"
    video, _, number = name.partition("_")
    if not number.isdigit():
        raise FormatError(f"the frame's name is {name!r}", file=path, fix="use names such as v01_002250")
    try:
        tree = ET.parse(path).getroot()
    except FileNotFoundError:
        raise FormatError("no such annotation", file=path) from None
    except ET.ParseError as error:
        raise FormatError(f"damaged XML ({error})", file=path, line=error.position[0]) from None
    except (LookupError, ValueError) as error:
        raise FormatError(f"damaged XML ({error})", file=path) from None
    width, height = (_number(tree, f"size/{side}", path) for side in ("width", "height"))
    if width <= 0 or height <= 0:
        raise FormatError(f"the image's size is {width:g}x{height:g}", file=path)
    tools, corners = [], []
    for thing in tree.iter("object"):
        label = (thing.findtext("name") or "").strip()
        tool = find_name(label, CHOLEC80_TOOLS)
        if tool is None:
            raise unknown_name(label, CHOLEC80_TOOLS, "tools", file=path)
        tools.append(tool)
        corners.append([_number(thing, f"bndbox/{edge}", path) for edge in ("xmin", "ymin", "xmax", "ymax")])
    # The reshape gives (0, 4) for a frame without objects.
    pixels = np.array(corners, np.float32).reshape(-1, 4)
    fractions = pixels / np.array([width, height] * 2, np.float32)
    boxes = np.clip(fractions, 0, 1)
    if (boxes[:, 2:] <= boxes[:, :2]).any():
        bad = pixels[(boxes[:, 2:] <= boxes[:, :2]).any(1)][0].tolist()
        raise FormatError(f"the box {bad} is empty or outside the image", file=path)
    return BoxedFrame(
        name=name,
        video=video,
        frame=int(number),
        image=str(root / "JPEGImages" / f"{name}.jpg"),
        width=int(width),
        height=int(height),
        tools=np.array(tools, np.int32),
        boxes=boxes,
        clipped=int((fractions != boxes).any(1).sum()),
    )


def to_batch(frames: Sequence[BoxedFrame], *, step: int = FPS) -> tuple[Labels, np.ndarray, tuple[str, ...]]:
    """Convert frames to tool labels on a regular time axis with gaps, for gap-aware inference.

    Args:
        frames: in any order; they are grouped by video and sorted in time.
        step: number of frames at 25 fps per position of the time axis; the frames' numbers are multiples of 25.

    Returns:
        Labels with tools (B, T, K), -1 where no frame is annotated; mask (B, T), True at annotated frames and False
        in gaps and padding; and the names of the B videos.

    Raises:
        FormatError: if a frame lies between two positions, or occurs twice.
    """
    videos = tuple(sorted({frame.video for frame in frames}, key=natural))
    origin = {v: min(f.frame for f in frames if f.video == v) for v in videos}
    span = max((f.frame - origin[f.video] for f in frames), default=-step) // step + 1
    tools = np.full((len(videos), span, len(CHOLEC80_TOOLS)), -1, np.int32)
    mask = np.zeros((len(videos), span), bool)
    for frame in frames:
        row, position = videos.index(frame.video), frame.frame - origin[frame.video]
        if position % step:
            raise FormatError(f"{frame.name} lies between two steps of {step} frames", fix="use step=25")
        if mask[row, position // step]:
            raise FormatError(f"{frame.name} is listed twice", fix="remove one")
        mask[row, position // step] = True
        tools[row, position // step] = frame.presence
    return Labels(tools=tools), mask, videos


def neighbor_share(names: Sequence[str], others: Sequence[str], seconds: float) -> float:
    """Compute the fraction of frames with a frame of another set at most `seconds` away in the same video.

    In the usual test set, 47 % have a frame of trainval within a second, so results on it are optimistic.

    Args:
        names: of the frames.
        others: names of the frames of the other set.
        seconds: maximum distance in time.
    """
    times: dict[str, list[int]] = {}
    for name in others:
        video, _, number = name.partition("_")
        times.setdefault(video, []).append(int(number))
    near = 0
    for name in names:
        video, _, number = name.partition("_")
        gaps = np.abs(np.array(times.get(video, [10**9])) - int(number))
        near += bool((gaps <= seconds * FPS).any())
    return near / max(len(names), 1)


def _number(element: ET.Element, tag: str, path: Path) -> float:
    text = element.findtext(tag)
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise FormatError(f"{tag} should be a number, found {text!r}", file=path)
    return number
