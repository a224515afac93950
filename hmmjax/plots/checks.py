"""Check the rows of a picture: arrays of the same frames and tools, by the names under which they were given."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def require_rows(**tracks: Any) -> None:
    """Raise TypeError unless each track is a mapping of rows."""
    for track, rows in tracks.items():
        if rows is not None and not isinstance(rows, Mapping):
            raise TypeError(
                f"{track} is a {type(rows).__name__}, but rows have names: pass a dict, as {{'raw': {track}}}"
            )


def require_frames(given: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError unless all arrays that were given have the same number of frames."""
    if len({len(x) for x in given.values()}) > 1:
        told = ", ".join(f"{name} has {len(x)}" for name, x in given.items())
        raise ValueError(f"{told} frames: pass values of the same frames")


def require_tools(bands: Mapping[str, np.ndarray], posterior: np.ndarray | None) -> int:
    """Return the number of tools; raise ValueError unless all arrays (n, K) have the same."""
    if not bands:
        return 0
    given = {f"tools[{name!r}]": x for name, x in bands.items()}
    given |= {} if posterior is None else {"tool_posterior": posterior}
    if len({x.shape[1:] for x in given.values()}) > 1 or next(iter(given.values())).ndim != 2:
        told = ", ".join(f"{name} has shape {x.shape}" for name, x in given.items())
        raise ValueError(f"{told}: pass (frames, tools) of the same tools")
    return next(iter(given.values())).shape[1]


def require_names(argument: str, names: Sequence[str], count: int, what: str) -> None:
    """Raise ValueError unless there is one name for each of `count` classes, bars or rows; a string is no list."""
    if isinstance(names, str):
        raise ValueError(
            f"{argument} is the string {names!r}: pass a list of names, one for each of the {count} {what}"
        )
    require_count(argument, names, count, what, "names")


def require_count(argument: str, values: Any, count: int, what: str, kind: str = "values") -> None:
    """Raise ValueError unless there is one value for each of `count` classes, bars or rows."""
    if values is not None and len(values) != count:
        raise ValueError(
            f"{argument} has {len(values)} {kind}, but there are {count} {what}: pass one for each, in their order"
        )
