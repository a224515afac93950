"""Read PyTorch checkpoints without PyTorch and without executing pickled code.

A ``.pth`` file is a pickle that refers to raw storages. The unpickler resolves a fixed list of names, each to a
function of this module, and every other name to an empty class of its own, so a file can only build dictionaries of
arrays, next to objects without content where a checkpoint holds, for instance, its command line.
"""

import collections
import io
import itertools
import mmap
import os
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

_DTYPES = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
#: Entries of the dictionaries of a checkpoint with its optimizer, and copies of its numbers, are far fewer.
_MOST_ENTRIES, _COPIES = 1_000_000, 16
#: Keys under which training loops nest a state dict.
_NESTED = ("state_dict", "model", "model_state_dict", "model_state")


class _Storage:
    """A flat array whose values are filled in after unpickling (a legacy file stores them after the pickle)."""

    def __init__(self, dtype: np.dtype, count: int):
        self.dtype = dtype
        self.count = count
        self.values: np.ndarray | None = None

    def fill(self, data: bytes) -> None:
        if len(data) != self.count * self.dtype.itemsize:
            raise ValueError(f"a storage of {self.count} {self.dtype} numbers has {len(data)} bytes")
        self.values = np.frombuffer(data, self.dtype)


class _Tensor:
    """A view of a storage, converted to an array after the storage is filled."""

    def __init__(self, storage: Any, offset: Any, shape: Any, strides: Any):
        if not isinstance(storage, _Storage) or len(shape) != len(strides):
            raise pickle.UnpicklingError("malformed tensor")
        last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        empty = 0 in shape
        if min((offset, *shape, *strides)) < 0 or (not empty and last >= storage.count):
            raise pickle.UnpicklingError("a tensor extends outside its storage")
        if int(np.prod(shape, dtype=object)) > storage.count:
            raise pickle.UnpicklingError("a tensor has more numbers than its storage")
        self.storage, self.offset, self.shape, self.strides = storage, offset, tuple(shape), tuple(strides)

    def array(self) -> np.ndarray:
        values = self.storage.values
        if values is None:
            raise pickle.UnpicklingError("the values of a tensor are missing from the file")
        if 0 in self.shape:
            return np.zeros(self.shape, values.dtype)
        steps = [step * values.itemsize for step in self.strides]
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.shape, steps).copy()


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


class _Unpickler(pickle.Unpickler):
    """An unpickler of one pickle in a file, which first checks the sizes that the pickle declares.

    Args:
        file: positioned at the start of the pickle; left at its end.
    """

    def __init__(self, file: Any):
        start = file.tell()
        # genops checks lengths of strings; the memo grows to its greatest index, so bound that by the file size.
        memo = max((n for code, n, _ in pickletools.genops(file) if code.name in _PUTS), default=0)
        end = file.tell()
        if memo > end:
            raise pickle.UnpicklingError(f"a memo index of {memo} in {end} bytes")
        file.seek(start)
        super().__init__(io.BytesIO(file.read(end - start)))
        self.storages: dict[str, _Storage] = {}
        self.ignored: list[str] = []

    def find_class(self, module: str, name: str) -> Any:
        # Bound methods and dtypes have no settable attributes, so a pickle cannot change them.
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) in (("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_tensor")):
            return self._tensor
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return self._parameter
        if module == "torch" and name in _DTYPES:
            return np.dtype(_DTYPES[name])
        self.ignored.append(f"{module}.{name}")
        # A new class for each name, because a pickle may set attributes of what it is given.
        return type("Ignored", (_Ignored,), {})

    def persistent_load(self, saved: Any) -> _Storage:
        kind, dtype, key, _, count, *view = saved
        if kind != "storage" or not isinstance(dtype, np.dtype) or any(part is not None for part in view):
            raise pickle.UnpicklingError("malformed storage")
        return self.storages.setdefault(str(key), _Storage(dtype, int(count)))

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
        return _Tensor(storage, offset, shape, strides)

    def _parameter(self, data: _Tensor, *_: Any) -> _Tensor:
        return data


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
    with open(path, "rb") as file:
        try:
            loaded, ignored = _read_zip(file) if zipfile.is_zipfile(file) else _read_legacy(file)
            for key in _NESTED:
                if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
                    loaded = loaded[key]
            found = _arrays(loaded, os.fstat(file.fileno()).st_size)
        except Exception as error:  # damaged bytes make zipfile, zlib and pickle raise almost anything
            raise ValueError(f"{path} is not a torch file of tensors: {str(error) or type(error).__name__}") from error
    if found or loaded == {}:
        return found
    refused = f" (refused to load {ignored[0]}: only tensors are allowed)" if ignored else ""
    raise ValueError(f"{path} is not a torch file of tensors{refused}. Fix: in torch, save network.state_dict()")


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


def _tensors(loaded: Any, name: str, visited: Iterator[int]) -> Iterator[tuple[str, _Tensor]]:
    """Yield the tensors of nested dictionaries, by the keys joined by dots."""
    # Dictionaries that share others may stand for billions of entries in a few bytes.
    if next(visited) > _MOST_ENTRIES:
        raise pickle.UnpicklingError(f"the file has more than {_MOST_ENTRIES:,} entries")
    if isinstance(loaded, _Tensor):
        yield name or "tensor", loaded
    elif isinstance(loaded, dict):
        for key, value in loaded.items():
            yield from _tensors(value, f"{name}.{key}" if name else str(key), visited)


def _read_zip(file: Any) -> tuple[Any, list[str]]:
    length = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        members = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        if "data.pkl" not in members:
            raise pickle.UnpicklingError("data.pkl is missing from the archive")

        def read(name: str) -> bytes:
            info = members[name]
            # torch does not compress; a compressed member could expand without bound.
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > length:
                raise pickle.UnpicklingError(f"{name} is compressed, or longer than the file")
            return archive.read(info)

        if "byteorder" in members and read("byteorder") != b"little":
            raise pickle.UnpicklingError("the numbers are big-endian")
        unpickler = _Unpickler(io.BytesIO(read("data.pkl")))
        loaded = unpickler.load()
        for key, storage in unpickler.storages.items():
            storage.fill(read(f"data/{key}"))
    return loaded, unpickler.ignored


def _read_legacy(opened: Any) -> tuple[Any, list[str]]:
    # A memory map never reads past the end of the file, whatever length the file declares.
    with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as file:
        return _legacy_parts(file)


def _legacy_parts(file: mmap.mmap) -> tuple[Any, list[str]]:
    head = _Unpickler(file)
    magic = head.load()
    if head.ignored:
        raise pickle.UnpicklingError(f"refused to load {head.ignored[0]}: only tensors are allowed")
    if magic != _LEGACY_MAGIC:
        raise pickle.UnpicklingError("the magic number of a torch file is missing")
    for _ in ("version", "system"):
        _Unpickler(file).load()
    unpickler = _Unpickler(file)
    loaded = unpickler.load()
    for key in _Unpickler(file).load():
        storage = unpickler.storages[str(key)]
        (count,) = struct.unpack("<q", file.read(8))
        if count < 0 or count != storage.count:
            raise pickle.UnpicklingError("a storage has an unexpected length")
        storage.fill(file.read(count * storage.dtype.itemsize))
    return loaded, unpickler.ignored
