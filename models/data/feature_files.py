"""Read precomputed features of videos from .npy, .npz, .h5, .pt and .safetensors files, without executing code.

A file belongs to one video. It holds an array (n, D) called "features", or a single two-dimensional array under any
name; and optionally "frames" (n,), the frame number of each row, and "fps", what these numbers count per second. For
.npy, frame numbers are in a file next to it: video01.npy and video01.frames.npy.
"""

import dataclasses
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.io import FormatError, natural, video_id
from models.torchfile import read_torch

#: Suffixes of files of features.
SUFFIXES = (".npy", ".npz", ".h5", ".hdf5", ".pt", ".pth", ".safetensors")
#: What the files that `models.extract` wrote have in common.
INDEX = "features.json"
#: Added to a video's name in the file of its frame numbers.
FRAMES = ".frames.npy"


@dataclasses.dataclass(frozen=True)
class Layout:
    """The meaning of the rows of files that do not state it themselves.

    Attributes:
        rate: rows per second of files without frame numbers; the first row is frame 0.
        fps: frames per second that frame numbers count.
        channels_first: the arrays are (D, n), as those of MS-TCN, instead of (n, D).
    """

    rate: float = 1.0
    fps: float = 25.0
    channels_first: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class VideoFeatures:
    """The features of one video.

    Attributes:
        video: name of the video.
        path: the file.
        values: (n, D) of any floating-point type, mapped into memory from .npy.
        frames: (n,) int64 frame numbers, ascending.
        fps: frames per second that these numbers count.
    """

    video: str
    path: Path
    values: np.ndarray
    frames: np.ndarray
    fps: float


def is_features(place: str | Path) -> bool:
    """Return whether a place is a file of features by its suffix, or a folder with at least one."""
    path = Path(place)
    return path.suffix.lower() in SUFFIXES if not path.is_dir() else next(_files(path), None) is not None


def find_features(place: str | Path) -> dict[str, Path]:
    """Return the files of features of a folder and its subfolders by video, in natural order; or a single file.

    Raises:
        FormatError: if there are none, and if two files belong to one video.
    """
    root = Path(place)
    if not root.exists():
        raise FormatError("no such file or folder of features", file=place, fix="check the path")
    found: dict[str, Path] = {}
    for path in [root] if root.is_file() else sorted(_files(root), key=lambda path: natural(path.stem)):
        twin = found.setdefault(video_id(path.stem), path)
        if twin != path:
            raise FormatError(
                f"the file belongs to the same video as {twin.relative_to(root)}", file=path, fix="keep one of them"
            )
    if not found:
        pickles = next(root.rglob("*.pkl"), None)
        cause = "the folder holds pickles, which can run code" if pickles else "the folder holds no files of features"
        raise FormatError(cause, file=place, fix=f"save one file per video: {', '.join(SUFFIXES)}")
    return found


def _files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.suffix.lower() in SUFFIXES and not path.name.endswith(FRAMES) and not path.name.startswith("."):
            yield path


def read_features(path: Path, layout: Layout) -> VideoFeatures:
    """Read the features of one video.

    Args:
        path: the file.
        layout: the meaning of its rows, as far as the file or the index of `models.extract` does not state it.

    Raises:
        FormatError: for a damaged file, and for one without a single two-dimensional array of numbers.
        ImportError: for .h5 without h5py.
    """
    try:
        arrays = _read(path)
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise FormatError(
            f"not a readable file of features ({error})", file=path, fix="write it again with models.extract or NumPy"
        ) from error
    values = _values(arrays, path)
    values = values.T if layout.channels_first else values
    fps = float(np.asarray(arrays.get("fps", _indexed_fps(path) or layout.fps)).reshape(()))
    if not 0 < fps < np.inf:
        raise FormatError(f"fps is {fps:g}, expected a positive number", file=path, fix="correct it")
    if "frames" in arrays:
        frames = _frames(np.asarray(arrays["frames"]), len(values), path)
    else:
        frames = np.rint(np.arange(len(values)) * (fps / layout.rate)).astype(np.int64)
    return VideoFeatures(video_id(path.stem), path, values, frames, fps)


def _read(path: Path) -> dict[str, Any]:
    kind = path.suffix.lower()
    if kind == ".npy":
        numbers = path.with_name(path.stem + FRAMES)
        arrays: dict[str, Any] = {"features": np.load(path, mmap_mode="r", allow_pickle=False)}
        return arrays | ({"frames": np.load(numbers, allow_pickle=False)} if numbers.exists() else {})
    if kind == ".npz":
        with np.load(path, allow_pickle=False) as held:
            return dict(held)
    if kind in (".pt", ".pth"):
        return read_torch(path)
    if kind == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        try:
            return load_file(path)
        except (SafetensorError, AttributeError) as error:
            raise ValueError(str(error)) from error
    try:
        import h5py
    except ImportError as error:
        raise ImportError(f"{path} needs h5py, which is not installed. Fix: pip install h5py, or save .npy") from error
    found: dict[str, Any] = {}
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def _values(arrays: Mapping[str, Any], path: Path) -> np.ndarray:
    """Return the array of features (n, D); a leading axis of length one is removed."""
    shown = {name: np.shape(x) for name, x in arrays.items()}
    matrices = [name for name, shape in shown.items() if len([n for i, n in enumerate(shape) if n > 1 or i]) >= 2]
    name = "features" if "features" in arrays else matrices[0] if len(matrices) == 1 else None
    if name is None:
        listed = ", ".join(f"{name} {shape}" for name, shape in shown.items()) or "nothing"
        raise FormatError(
            f"expected one array of features (frames, channels), found {listed}",
            file=path,
            fix='call it "features"',
        )
    values = arrays[name]
    if values.ndim == 3 and values.shape[0] == 1:
        values = values[0]
    # bfloat16 of torch and safetensors is of no kind that NumPy knows.
    if values.ndim != 2 or not values.size or (values.dtype.kind != "f" and values.dtype.name != "bfloat16"):
        raise FormatError(
            f"the features are {values.dtype} {values.shape}, expected floating-point numbers (frames, channels)",
            file=path,
            fix="save one row per frame",
        )
    return values


def _frames(frames: np.ndarray, count: int, path: Path) -> np.ndarray:
    if frames.shape != (count,) or frames.dtype.kind not in "iu":
        raise FormatError(
            f"frames is {frames.dtype} {frames.shape}, expected one integer for each of the {count} rows of features",
            file=path,
            fix="save the frame number of each row, or leave frames out and state rows per second",
        )
    if (np.diff(frames.astype(np.int64)) <= 0).any() or frames[0] < 0:
        raise FormatError("the frame numbers do not ascend from 0 or more", file=path, fix="sort the rows by frame")
    return frames.astype(np.int64)


def _indexed_fps(path: Path) -> float | None:
    """Return the frames per second in the index of the file's folder, if there is one."""
    index = path.with_name(INDEX)
    if not index.exists():
        return None
    try:
        return float(json.loads(index.read_text(encoding="utf-8"))["fps"])
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"damaged index ({error})", file=index, fix="extract the features again") from error
