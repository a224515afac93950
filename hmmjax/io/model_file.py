"""Save and load parameters: an NPZ with arrays and a JSON description of the tree, without pickles.

The array ``header`` is a JSON string ``{"format": "hmmjax-params", "version": 1, "params": tree, "phase_names": ...,
"tool_names": ..., "fps": ..., "metadata": ...}``. A tree is ``{"class": name, "fields": {...}}`` for a dataclass that
`hmmjax.emissions`, `hmmjax.transitions` or `hmmjax.types` exports, ``{"array": key}``, ``{"tuple": [...]}``,
``{"dict": {...}}`` or ``{"value": plain JSON value}``. New exported families need no change here.
"""

import dataclasses
import json
import os
from typing import Any

import numpy as np

from hmmjax._core.validation import check_params
from hmmjax.ensembles import Ensemble
from hmmjax.io.arrays import load_arrays
from hmmjax.io.errors import FormatError
from hmmjax.io.names import Names, resolve_names
from hmmjax.io.write import save_npz

FORMAT = "hmmjax-params"
VERSION = 1
"""Version of the format. If you increase it, keep reading older versions; tests/fixtures holds a file of each."""

PathLike = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class ModelFile:
    """The content of a model file.

    Attributes:
        params: the parameters, `hmmjax.Params` or `hmmjax.Ensemble`.
        phase_names: (L,) class names, or None.
        tool_names: (K,) class names, or None.
        fps: time steps per second of the transitions (1.0 for one frame per second), or None.
        metadata: further values saved with the model.
    """

    params: Any
    phase_names: tuple[str, ...] | None = None
    tool_names: tuple[str, ...] | None = None
    fps: float | None = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)


def registry() -> dict[str, type]:
    """Return the dataclasses that a model file can contain, by name."""
    from hmmjax import emissions, ensembles, transitions, types

    classes: dict[str, type] = {}
    for module in (types, emissions, transitions, ensembles):
        for name in getattr(module, "__all__", dir(module)):
            thing = getattr(module, name)
            if isinstance(thing, type) and dataclasses.is_dataclass(thing):
                classes[name] = thing
    return classes


def save_params(
    path: PathLike,
    params: Any,
    *,
    phase_names: Names | None = None,
    tool_names: Names | None = None,
    fps: float | None = None,
    metadata: dict[str, Any] | None = None,
    force: bool = False,
) -> None:
    """Save parameters in a file for `load_params`.

    Args:
        path: the file, usually ``.npz``.
        params: `hmmjax.Params` with exported families, or an `hmmjax.Ensemble` of them.
        phase_names: (L,) class names, by which the model is later matched with predictions, or "cholec80" and the like.
        tool_names: (K,) class names, or "cholec80" and the like.
        fps: time steps per second of the transitions.
        metadata: further values; anything that JSON can hold.
        force: overwrite an existing file.

    Raises:
        FileExistsError: if `path` exists and `force` is False.
        TypeError: if `params` is a `ModelFile`, or contains a class that the library does not export.
        ValueError: if the numbers of names and classes differ.
    """
    if isinstance(params, ModelFile):
        raise TypeError("params is a ModelFile, which names its parameters: pass its attribute `params`")
    phase_names, tool_names = resolve_names(phase_names, "phases"), resolve_names(tool_names, "tools")
    for names, track in ((phase_names, "phases"), (tool_names, "tools")):
        count = getattr(params, f"num_{track}", None)
        if names is not None and count and count != len(names):
            raise ValueError(f"{len(names)} {track[:-1]} names were given for {count} {track}: pass one name per class")
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
    """Load a file written by `save_params`.

    Args:
        path: the file.

    Returns:
        The validated parameters, and what was saved with them.

    Raises:
        FormatError: if the file is missing, damaged, not a model, of a newer version, or contains an unknown class.
    """
    file = os.fspath(path)
    if not os.path.isfile(file):
        raise FormatError("the model file does not exist", file=file, fix="check the path")
    try:
        arrays = load_arrays(file)
    except FormatError as error:
        if not error.cause.startswith("the file holds Python objects"):
            raise
        arrays = {}  # not an NPZ
    if "header" not in arrays:
        raise FormatError(
            "the file is not an hmmjax model", file=file, fix="pass a file written by hmmjax.io.save_params"
        )
    try:
        header = json.loads(str(arrays["header"][()]))
        kind, version = header["format"], header["version"]
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        raise FormatError("the header of the model file is damaged", file=file, fix="save the model again") from None
    if kind != FORMAT:
        raise FormatError(
            f"the file is a {kind!r} file, not a model", file=file, fix="pass a file written by hmmjax.io.save_params"
        )
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise FormatError(f"the model format version {version!r} is invalid", file=file, fix="save the model again")
    if version > VERSION:
        raise FormatError(
            f"the model was saved by a newer hmmjax (model format {version}, this one reads up to {VERSION})",
            file=file,
            fix="upgrade it with pip install --upgrade hmmjax",
        )
    try:
        params = _decode(header["params"], arrays, registry(), file)
        params.check() if isinstance(params, Ensemble) else check_params(params)
        names = [_names(header[f"{t}_names"], getattr(params, f"num_{t}s")) for t in ("phase", "tool")]
        fps, metadata = header["fps"], header["metadata"]
        if not isinstance(metadata, dict) or not (fps is None or (isinstance(fps, int | float) and 0 < fps < np.inf)):
            raise ValueError(f"fps is {fps!r}, metadata a {type(metadata).__name__}")
        return ModelFile(params, names[0], names[1], fps, metadata)
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"the parts of the model do not fit together ({error})", file=file, fix="save the model again"
        ) from None


def _names(names: Any, count: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not isinstance(names, list) or not all(isinstance(n, str) for n in names) or len(names) != count:
        raise ValueError(f"the names of {count} classes are {names!r}")
    return tuple(names)


def _encode(tree: Any, arrays: dict[str, np.ndarray], classes: dict[str, type], path: str) -> dict[str, Any]:
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    if dataclasses.is_dataclass(tree):
        name = type(tree).__name__
        if classes.get(name) is not type(tree):
            raise TypeError(
                f"{name} cannot be saved: use classes that hmmjax.emissions, hmmjax.transitions or hmmjax.types export"
            )
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
        raise TypeError(f"{path} is a {type(tree).__name__}, which cannot be saved: use arrays, numbers or strings")
    arrays[path] = array
    return {"array": path}


def _native(array: np.ndarray) -> np.ndarray:
    """Convert to this machine's byte order, the only one that JAX accepts."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _decode(tree: Any, arrays: dict[str, np.ndarray], classes: dict[str, type], file: str) -> Any:
    if "value" in tree:
        return tree["value"]
    if "array" in tree:
        if tree["array"] not in arrays:
            raise FormatError(
                f"the array {tree['array']} of the model is missing", file=file, fix="copy or save the model again"
            )
        return _native(arrays[tree["array"]])
    if "tuple" in tree:
        return tuple(_decode(item, arrays, classes, file) for item in tree["tuple"])
    if "dict" in tree:
        return {key: _decode(value, arrays, classes, file) for key, value in tree["dict"].items()}
    name = tree["class"]
    if name not in classes:
        raise FormatError(
            f"the model contains the unknown class {name!r}",
            file=file,
            fix=f"update hmmjax; this version has {', '.join(classes)}",
        )
    return classes[name](**{key: _decode(value, arrays, classes, file) for key, value in tree["fields"].items()})
