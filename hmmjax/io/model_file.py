"""Parameters as a file: an NPZ with arrays and a JSON description of the tree. No pickle, no code.

The array ``header`` is a JSON string ``{"format": "hmmjax-params", "version": 1, "params": tree, "phase_names": ...,
"tool_names": ..., "fps": ..., "metadata": ...}``. A tree is ``{"class": name, "fields": {...}}`` for a dataclass that
`hmmjax.emissions`, `hmmjax.transitions` or `hmmjax.types` exports, ``{"array": key}``, ``{"tuple": [...]}``,
``{"dict": {...}}`` or ``{"value": plain JSON value}``. New families need no change here.
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax._core.validation import check_params
from hmmjax.io.arrays import load_arrays
from hmmjax.io.errors import FormatError
from hmmjax.io.write import save_npz

FORMAT = "hmmjax-params"
VERSION = 1
"""Of the layout. Whoever raises it keeps reading the older ones, of which tests/fixtures holds a file each."""

PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class ModelFile:
    """What a model file holds.

    Attributes:
        params: the parameters.
        phase_names: (L,) class names, or None.
        tool_names: (K,) class names, or None.
        fps: time steps per second that the transitions belong to (1.0 for one frame per second), or None.
        metadata: what else was saved.
    """

    params: Any
    phase_names: tuple[str, ...] | None = None
    tool_names: tuple[str, ...] | None = None
    fps: float | None = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)


def registry() -> dict[str, type]:
    """The dataclasses that may stand in a model file, by name."""
    from hmmjax import emissions, transitions, types

    classes: dict[str, type] = {}
    for module in (types, emissions, transitions):
        for name in getattr(module, "__all__", dir(module)):
            thing = getattr(module, name)
            if isinstance(thing, type) and dataclasses.is_dataclass(thing):
                classes[name] = thing
    return classes


def save_params(
    path: PathLike,
    params: Any,
    *,
    phase_names: Sequence[str] | None = None,
    tool_names: Sequence[str] | None = None,
    fps: float | None = None,
    metadata: dict[str, Any] | None = None,
    force: bool = False,
) -> None:
    """Save parameters, to be read by `load_params`.

    Args:
        path: the file, usually ``.npz``.
        params: `hmmjax.Params` with any families.
        phase_names: (L,) names, so that a model meets predictions by name.
        tool_names: (K,) names.
        fps: time steps per second that the transitions belong to.
        metadata: anything that JSON can hold.
        force: overwrite.

    Raises:
        FileExistsError: when `path` exists and `force` is False.
        TypeError: for a class that the library does not export.
        ValueError: when the number of names and of classes differ.
    """
    for names, track in ((phase_names, "phases"), (tool_names, "tools")):
        count = getattr(params, f"num_{track}", None)
        if names is not None and count and count != len(names):
            raise ValueError(f"{len(names)} names for {count} {track}")
    arrays: dict[str, np.ndarray] = {}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "params": _encode(params, arrays, registry(), "params"),
        "phase_names": None if phase_names is None else list(phase_names),
        "tool_names": None if tool_names is None else list(tool_names),
        "fps": fps,
        "metadata": metadata or {},
    }
    save_npz(path, {"header": np.array(json.dumps(header)), **arrays}, force=force)


def load_params(path: PathLike) -> ModelFile:
    """Read what `save_params` wrote.

    Args:
        path: the file.

    Returns:
        The parameters, checked, and what was saved beside them.

    Raises:
        FormatError: for a file that is missing, damaged, of another kind, of a newer version, or that names a class
            this version does not know.
    """
    file = os.fspath(path)
    if not os.path.isfile(file):
        raise FormatError("no such model file", file=file)
    arrays = load_arrays(file)
    if "header" not in arrays:
        raise FormatError("this is no hmmjax model", file=file, fix="give a file that hmmjax.io.save_params wrote")
    try:
        header = json.loads(str(arrays["header"][()]))
        kind, version = header["format"], header["version"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise FormatError("its header cannot be read", file=file, fix="save the model again") from None
    if kind != FORMAT:
        raise FormatError(f"this is a {kind!r} file, not a model", file=file)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise FormatError(f"its format has the impossible version {version!r}", file=file, fix="save the model again")
    if version > VERSION:
        raise FormatError(
            f"made by a newer hmmjax (model format {version}, this one reads up to {VERSION})",
            file=file,
            fix="upgrade: pip install --upgrade hmmjax",
        )
    try:
        params = _decode(header["params"], arrays, registry(), file)
        check_params(params)
        names = [_names(header[f"{t}_names"], getattr(params, f"num_{t}s")) for t in ("phase", "tool")]
        fps, metadata = header["fps"], header["metadata"]
        if not isinstance(metadata, dict) or not (fps is None or (isinstance(fps, int | float) and 0 < fps < np.inf)):
            raise ValueError(f"fps is {fps!r}, metadata a {type(metadata).__name__}")
        return ModelFile(params, names[0], names[1], fps, metadata)
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FormatError(f"its contents do not fit together ({error})", file=file, fix="save it again") from None


def _names(names: Any, count: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names) or len(names) != count:
        raise ValueError(f"names {names!r} for {count} classes")
    return tuple(names)


def _encode(tree: Any, arrays: dict[str, np.ndarray], classes: dict[str, type], path: str) -> dict[str, Any]:
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    if dataclasses.is_dataclass(tree):
        name = type(tree).__name__
        if classes.get(name) is not type(tree):
            raise TypeError(f"{name} is not exported by hmmjax.emissions or hmmjax.transitions and cannot be saved")
        fields = {
            field.name: _encode(getattr(tree, field.name), arrays, classes, f"{path}.{field.name}")
            for field in dataclasses.fields(tree)
        }
        return {"class": name, "fields": fields}
    if isinstance(tree, tuple | list):
        return {"tuple": [_encode(item, arrays, classes, f"{path}.{i}") for i, item in enumerate(tree)]}
    if isinstance(tree, dict):
        return {"dict": {str(k): _encode(v, arrays, classes, f"{path}.{k}") for k, v in tree.items()}}
    array = np.asarray(tree)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{path} is a {type(tree).__name__}, which cannot be saved")
    arrays[path] = array
    return {"array": path}


def _native(array: np.ndarray) -> np.ndarray:
    """In this machine's byte order, the only one that JAX takes: files may come from elsewhere."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _decode(tree: Any, arrays: dict[str, np.ndarray], classes: dict[str, type], file: str) -> Any:
    if "value" in tree:
        return tree["value"]
    if "array" in tree:
        if tree["array"] not in arrays:
            raise FormatError(f"the array {tree['array']} is missing", file=file, fix="copy or save the model again")
        return _native(arrays[tree["array"]])
    if "tuple" in tree:
        return tuple(_decode(item, arrays, classes, file) for item in tree["tuple"])
    if "dict" in tree:
        return {key: _decode(value, arrays, classes, file) for key, value in tree["dict"].items()}
    name = tree["class"]
    if name not in classes:
        raise FormatError(
            f"unknown model part {name!r}", file=file, fix=f"update hmmjax; this version knows {', '.join(classes)}"
        )
    return classes[name](**{key: _decode(value, arrays, classes, file) for key, value in tree["fields"].items()})
