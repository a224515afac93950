"""Read PyTorch checkpoints without PyTorch and without executing pickled code.

A checkpoint may hold objects of any class next to its tensors, for instance its command line. Here every name that
`hmmjax.io.torch_file` does not know stands for an empty class of its own, so that a file can only build dictionaries of
arrays, next to objects without content.
"""

import functools
import itertools
import mmap
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax.io.torch_file import Tensor, Unpickler, read_legacy, read_zip

#: Entries of the dictionaries of a checkpoint with its optimizer, and copies of its numbers, are far fewer.
_MOST_ENTRIES, _COPIES = 1_000_000, 16
#: Keys under which training loops nest a state dict.
_NESTED = ("state_dict", "model", "model_state_dict", "model_state")


class _Ignored:
    """An object of a class that is not loaded; it accepts whatever a pickle does to it and keeps nothing."""

    def __new__(cls, *_: Any, **__: Any) -> "_Ignored":
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    def extend(self, values: Any) -> None:
        pass


class _Unpickler(Unpickler):
    """An unpickler of tensors that leaves out all else, and adds its names to a list."""

    def __init__(self, file: Any, ignored: list[str]):
        super().__init__(file)
        self._ignored = ignored

    def unknown(self, module: str, name: str) -> Any:
        self._ignored.append(f"{module}.{name}")
        # A new class for each name, because a pickle may set attributes of what it is given.
        return type("Ignored", (_Ignored,), {})


def read_torch(path: str | Path) -> dict[str, np.ndarray]:
    """Read the tensors of a PyTorch file, in the current zip format or in the format before PyTorch 1.6.

    Args:
        path: a file written by ``torch.save(network.state_dict(), path)``, or a checkpoint with the state dict under
            "state_dict", "model", "model_state_dict" or "model_state". Of other nested dictionaries, the keys are
            joined by dots; objects other than tensors are left out without loading their classes.

    Returns:
        Name to array, in torch's layout; "tensor" to the array of a file that holds a single tensor.

    Raises:
        ValueError: for any other file, and for one that contains no tensors.
    """
    ignored: list[str] = []
    unpickler = functools.partial(_Unpickler, ignored=ignored)
    with open(path, "rb") as file:
        try:
            loaded = read_zip(file, unpickler) if zipfile.is_zipfile(file) else _read_mapped(file, unpickler)
            for key in _NESTED:
                if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
                    loaded = loaded[key]
            found = _arrays(loaded, os.fstat(file.fileno()).st_size)
        except Exception as error:  # damaged bytes make zipfile, zlib and pickle raise almost anything
            cause = f": {str(error) or type(error).__name__}{_refused(ignored)}"
            raise ValueError(f"{path} is not a torch file of tensors{cause}") from error
    if found or loaded == {}:
        return found
    raise ValueError(
        f"{path} is not a torch file of tensors{_refused(ignored)}. Fix: in torch, save network.state_dict()"
    )


def _refused(ignored: list[str]) -> str:
    return f" (refused to load {ignored[0]}: only tensors are allowed)" if ignored else ""


def _read_mapped(opened: Any, unpickler: Callable[[Any], Unpickler]) -> Any:
    # A memory map never reads past the end of the file, whatever length the file declares.
    with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as file:
        return read_legacy(file, unpickler)


def _arrays(loaded: Any, length: int) -> dict[str, np.ndarray]:
    """Return the arrays of a file of `length` bytes by name; tied weights, with several names, are one array."""
    found: dict[str, np.ndarray] = {}
    known: dict[int, np.ndarray] = {}
    total = 0
    for name, tensor in _tensors(loaded, "", itertools.count()):
        if id(tensor) not in known:
            array = known[id(tensor)] = tensor.array()
            total += array.nbytes
            if total > _COPIES * length:
                raise pickle.UnpicklingError(f"the tensors take more than {_COPIES} times the file's {length:,} bytes")
        found[name] = known[id(tensor)]
    return found


def _tensors(loaded: Any, name: str, visited: Iterator[int]) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of nested dictionaries, by the keys joined by dots."""
    # Dictionaries that share others may stand for billions of entries in a few bytes.
    if next(visited) > _MOST_ENTRIES:
        raise pickle.UnpicklingError(f"the file has more than {_MOST_ENTRIES:,} entries")
    if isinstance(loaded, Tensor):
        yield name or "tensor", loaded
    elif isinstance(loaded, dict):
        for key, value in loaded.items():
            yield from _tensors(value, f"{name}.{key}" if name else str(key), visited)
