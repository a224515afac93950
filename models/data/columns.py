"""Checks of the columns of a table of frames, which may come from other programs or earlier versions."""

from collections.abc import Mapping

import numpy as np

#: Column to its axes: n frames, K tools, L phases, M boxes.
_AXES = {
    "videos": "n",
    "frames": "n",
    "phases": "n",
    "tools": "nK",
    "parts": "n",
    "phase_names": "L",
    "tool_names": "K",
    "fps": "",
    "boxes": "nM4",
    "box_tools": "nM",
    "phase_weights": "n",
    "tool_weights": "nK",
}
_TEXT = ("videos", "parts", "phase_names", "tool_names")
_INTEGERS = ("frames", "phases", "tools", "box_tools")


def check_columns(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError unless columns have consistent lengths, valid types and labels in range.

    Args:
        arrays: the columns of `models.data.frames.FrameTable` by name; optional columns may be missing.

    Raises:
        ValueError: for the first invalid column, with its name.
        KeyError: if a column that gives n, K or L is missing.
    """
    for name in ("frames", "phase_names", "tool_names"):
        if np.ndim(arrays[name]) != 1:
            raise ValueError(f"{name} has {np.ndim(arrays[name])} axes, expected 1")
    if ("boxes" in arrays) != ("box_tools" in arrays):
        raise ValueError("one of boxes and box_tools is missing: give both or neither")
    sizes = {"n": len(arrays["frames"]), "L": len(arrays["phase_names"]), "K": len(arrays["tool_names"]), "4": 4}
    if "boxes" in arrays:
        sizes["M"] = int(np.prod(np.shape(arrays["box_tools"])[1:2]))
    for name, axes in _AXES.items():
        if name in arrays:
            _check_column(name, np.asarray(arrays[name]), tuple(sizes[axis] for axis in axes))
    for name, count in (("phases", sizes["L"]), ("tools", 2), ("box_tools", sizes["K"])):
        labels = np.asarray(arrays.get(name, -1))
        if labels.size and not -1 <= labels.min() <= labels.max() < count:
            raise ValueError(f"{name} has values from {labels.min()} to {labels.max()}, expected -1 to {count - 1}")
    for name in ("phase_names", "tool_names"):
        if len(set(map(str, arrays[name]))) < len(arrays[name]):
            raise ValueError(f"{name} has duplicate names")
    if not arrays["fps"] > 0:
        raise ValueError(f"fps is {arrays['fps']}, expected a positive number")
    for name in ("phase_weights", "tool_weights"):
        if name in arrays and arrays[name].size and arrays[name].min() < 0:
            raise ValueError(f"{name} has negative values")


def _check_column(name: str, column: np.ndarray, shape: tuple[int, ...]) -> None:
    if column.shape != shape:
        raise ValueError(f"{name} has shape {column.shape}, expected {shape}")
    if not column.size:
        return
    kinds = "UO" if name in _TEXT else "iu" if name in _INTEGERS else "iuf"
    if column.dtype.kind not in kinds:
        raise ValueError(f"{name} has type {column.dtype}, expected {'text' if name in _TEXT else 'numbers'}")
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        raise ValueError(f"{name} has values that are not finite")
