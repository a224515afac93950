"""What the columns of a table of frames have to be: caches and packs come from other hands and older versions too."""

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
_WORDS = ("videos", "parts", "phase_names", "tool_names")
_WHOLE = ("frames", "phases", "tools", "box_tools")


def check_columns(arrays: Mapping[str, np.ndarray]) -> None:
    """See that columns agree with each other, and hold what they should.

    Args:
        arrays: the columns of `models.data.frames.FrameTable` by name; of those that it may lack, those there are.

    Raises:
        ValueError: for the first that does not, with its name.
        KeyError: when n, K or L cannot be told for want of a column.
    """
    for name in ("frames", "phase_names", "tool_names"):
        if np.ndim(arrays[name]) != 1:
            raise ValueError(f"{name} has {np.ndim(arrays[name])} axes, 1 expected")
    if ("boxes" in arrays) != ("box_tools" in arrays):
        raise ValueError("boxes and box_tools go together, and one is missing")
    sizes = {"n": len(arrays["frames"]), "L": len(arrays["phase_names"]), "K": len(arrays["tool_names"]), "4": 4}
    if "boxes" in arrays:
        sizes["M"] = int(np.prod(np.shape(arrays["box_tools"])[1:2]))
    for name, axes in _AXES.items():
        if name in arrays:
            _check_column(name, np.asarray(arrays[name]), tuple(sizes[axis] for axis in axes))
    for name, count in (("phases", sizes["L"]), ("tools", 2), ("box_tools", sizes["K"])):
        labels = np.asarray(arrays.get(name, -1))
        if labels.size and not -1 <= labels.min() <= labels.max() < count:
            raise ValueError(f"{name} from {labels.min()} to {labels.max()}, -1 to {count - 1} expected")
    for name in ("phase_names", "tool_names"):
        if len(set(map(str, arrays[name]))) < len(arrays[name]):
            raise ValueError(f"{name} has a name twice")
    if not arrays["fps"] > 0:
        raise ValueError(f"fps is {arrays['fps']}")
    for name in ("phase_weights", "tool_weights"):
        if name in arrays and arrays[name].size and arrays[name].min() < 0:
            raise ValueError(f"{name} is negative somewhere")


def _check_column(name: str, column: np.ndarray, shape: tuple[int, ...]) -> None:
    if column.shape != shape:
        raise ValueError(f"{name} is {column.shape}, {shape} expected")
    if not column.size:
        return
    kinds = "UO" if name in _WORDS else "iu" if name in _WHOLE else "iuf"
    if column.dtype.kind not in kinds:
        raise ValueError(f"{name} holds {column.dtype}, {'words' if name in _WORDS else 'numbers'} expected")
    if column.dtype.kind == "f" and not np.isfinite(column).all():
        raise ValueError(f"{name} is not finite somewhere")
