"""Read pickles of plain data without executing them.

A pickle names the functions that rebuild its objects. The unpickler here resolves a fixed list of names, each to an
object of this module that only collects what it is given, and refuses every other name: a file can build arrays, torch
tensors, lists, dictionaries, strings and numbers, and nothing else.
"""

import collections
import io
import math
import os
import pickle
import pickletools
import struct
import zipfile
from typing import Any

import numpy as np

_STORAGES = {
    "DoubleStorage": np.float64,
    "FloatStorage": np.float32,
    "HalfStorage": np.float16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}
_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric", "numpy")
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")
_DEEPEST = 50
_VALUES_PER_BYTE, _FEWEST = 8, 100_000
"""A file may stand for this many values per byte, and so many in any case: lists may share rows."""


class _DType:
    """A NumPy dtype of numbers, booleans or text, as pickled."""

    __slots__ = ("value",)

    def __init__(self, code: Any, *_: Any):
        self.value = np.dtype(code) if isinstance(code, str) else None
        if self.value is None or self.value.kind not in "biufUS":
            raise pickle.UnpicklingError(f"the pickle holds an array of dtype {code!r}, which is not read")

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else "="
        assert self.value is not None
        self.value = self.value.newbyteorder(order) if order in ("<", ">") else self.value


class _BFloat16(_DType):
    """torch's bfloat16, which NumPy lacks: the upper halves of float32."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("<u2")


class _Array:
    """A NumPy array, whose contents follow as its state."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if isinstance(data, list):
            raise pickle.UnpicklingError("the pickle holds an array of Python objects, which is not read")
        self.value = _array(data, dtype, shape, "F" if fortran else "C")


class _Storage:
    """A flat array of torch; a zip file, or the end of the file, holds its values."""

    __slots__ = ("count", "dtype", "upper_halves", "values")

    def __init__(self, dtype: _DType, count: int):
        assert dtype.value is not None
        self.dtype, self.upper_halves = dtype.value, isinstance(dtype, _BFloat16)
        self.count, self.values = count, None

    def fill(self, data: bytes) -> None:
        if len(data) != self.count * self.dtype.itemsize:
            raise pickle.UnpicklingError(f"a storage of {self.count} numbers has {len(data)} bytes")
        values = np.frombuffer(data, self.dtype)
        self.values = (values.astype(np.uint32) << 16).view(np.float32) if self.upper_halves else values


class _Tensor:
    """A view of a torch storage."""

    __slots__ = ("offset", "shape", "storage", "strides")

    def __init__(self, storage: Any, offset: Any, shape: Any, strides: Any):
        self.storage, self.offset, self.shape, self.strides = storage, offset, tuple(shape), tuple(strides)

    def array(self) -> np.ndarray:
        values = self.storage.values if isinstance(self.storage, _Storage) else None
        numbers = (self.offset, *self.shape, *self.strides)
        if values is None or len(self.shape) != len(self.strides) or any(not isinstance(n, int) for n in numbers):
            raise pickle.UnpicklingError("a tensor is malformed")
        last = self.offset + sum((n - 1) * step for n, step in zip(self.shape, self.strides, strict=True))
        if min(numbers) < 0 or math.prod(self.shape) > values.size or (0 not in self.shape and last >= values.size):
            raise pickle.UnpicklingError("a tensor extends outside its storage")
        if 0 in self.shape:
            return np.zeros(self.shape, values.dtype)
        steps = [step * values.itemsize for step in self.strides]
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.shape, steps).copy()


def _array(data: Any, dtype: Any, shape: Any, order: Any = "C") -> np.ndarray:
    if not isinstance(dtype, _DType) or not isinstance(data, bytes | bytearray | str):
        raise pickle.UnpicklingError("an array is malformed")
    raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
    return np.frombuffer(raw, dtype.value).reshape(shape, order="F" if order == "F" else "C").copy()


class _Names:
    """What the names in a pickle stand for. Bound methods have no attributes that a pickle could set."""

    def reconstruct(self, *_: Any) -> _Array:
        return _Array()

    def frombuffer(self, data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
        return _array(data, dtype, shape, order)

    def scalar(self, dtype: Any, data: Any = b"") -> Any:
        return _array(data, dtype, ())[()]

    def dtype(self, *arguments: Any) -> _DType:
        return _DType(*arguments)

    def encode(self, text: Any, encoding: Any = "latin1") -> bytes:
        return str(text).encode("latin1")

    def raw(self, data: Any = b"", *_: Any) -> bytes:
        if not isinstance(data, bytes):
            raise pickle.UnpicklingError("bytes are malformed")
        return data

    def ordered(self, items: Any = ()) -> Any:
        return collections.OrderedDict(items)

    def tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
        return _Tensor(storage, offset, shape, strides)

    def parameter(self, data: Any, *_: Any) -> Any:
        return data

    def from_bytes(self, data: Any) -> Any:
        return _legacy_torch(io.BytesIO(bytes(data)))

    def marker(self, *_: Any) -> None:
        raise pickle.UnpicklingError("the pickle is malformed")


_ALLOWED = {
    **{(module, "_reconstruct"): "reconstruct" for module in _NUMPY},
    **{(module, "_frombuffer"): "frombuffer" for module in _NUMPY},
    **{(module, "scalar"): "scalar" for module in _NUMPY},
    ("numpy", "dtype"): "dtype",
    ("numpy", "ndarray"): "marker",
    ("_codecs", "encode"): "encode",
    ("collections", "OrderedDict"): "ordered",
    **{(module, name): "raw" for module in ("builtins", "__builtin__") for name in ("bytes", "bytearray")},
    ("torch._utils", "_rebuild_tensor_v2"): "tensor",
    ("torch._utils", "_rebuild_tensor"): "tensor",
    ("torch._utils", "_rebuild_parameter"): "parameter",
    ("torch.storage", "_load_from_bytes"): "from_bytes",
}


class _Unpickler(pickle.Unpickler):
    """An unpickler of the pickle at the current position of a file, which is left at the pickle's end."""

    def __init__(self, file: Any):
        start = file.tell()
        # The memo grows to its greatest index, so bound that by the pickle's size.
        memo = max(
            (n for code, n, _ in pickletools.genops(file) if code.name in _PUTS and isinstance(n, int)), default=0
        )
        end = file.tell()
        if memo > end:
            raise pickle.UnpicklingError(f"the pickle declares {memo} objects in {end} bytes")
        file.seek(start)
        super().__init__(io.BytesIO(file.read(end - start)))
        self.storages: dict[str, _Storage] = {}
        self._names = _Names()

    def find_class(self, module: str, name: str) -> Any:
        if (known := _ALLOWED.get((module, name))) is not None:
            return getattr(self._names, known)
        if (module, name) == ("torch", "BFloat16Storage"):
            return _BFloat16()
        if module == "torch" and name in _STORAGES:
            return _DType(np.dtype(_STORAGES[name]).str)
        raise pickle.UnpicklingError(
            f"the pickle holds {module}.{name}, which is not read (arrays, tensors, lists and dictionaries are)"
        )

    def persistent_load(self, saved: Any) -> _Storage:
        kind, dtype, key, _, count, *_ = saved
        if kind != "storage" or not isinstance(dtype, _DType) or dtype.value is None:
            raise pickle.UnpicklingError("a tensor is malformed")
        return self.storages.setdefault(str(key), _Storage(dtype, int(count)))


def read_pickle(path: str) -> Any:
    """Read the data of a pickle or of a file of torch without executing anything.

    Args:
        path: written by ``pickle.dump`` or ``torch.save``.

    Returns:
        Arrays, lists, tuples, dictionaries, strings and numbers; tensors as arrays.

    Raises:
        ValueError: the file is damaged or holds other objects; names the first class.
    """
    try:
        if zipfile.is_zipfile(path):
            return _Plain(os.path.getsize(path)).of(_zipped_torch(path))
        with open(path, "rb") as file:
            data = file.read()
        stream = io.BytesIO(data)
        loaded = _Unpickler(stream).load()
        if loaded == _TORCH_MAGIC:
            loaded = _legacy_torch(io.BytesIO(data))
        return _Plain(len(data)).of(loaded)
    except pickle.UnpicklingError as error:
        raise ValueError(str(error)) from None
    except OSError:
        raise
    except Exception as error:  # damaged bytes make zipfile and pickle raise almost anything
        raise ValueError(f"the pickle is damaged ({str(error) or type(error).__name__})") from None


def _zipped_torch(path: str) -> Any:
    length = os.path.getsize(path)
    with zipfile.ZipFile(path) as archive:
        members = {info.filename.partition("/")[2]: info for info in archive.infolist()}

        def read(name: str) -> bytes:
            info = members.get(name)
            # torch does not compress; a compressed member could expand without bound.
            if info is None or info.compress_type != zipfile.ZIP_STORED or info.file_size > length:
                raise pickle.UnpicklingError(f"{name} is missing from the file, or compressed")
            return archive.read(info)

        unpickler = _Unpickler(io.BytesIO(read("data.pkl")))
        loaded = unpickler.load()
        for key, storage in unpickler.storages.items():
            storage.fill(read(f"data/{key}"))
    return loaded


def _legacy_torch(file: io.BytesIO) -> Any:
    """Read what torch wrote before version 1.6, and writes inside of other pickles."""
    if _Unpickler(file).load() != _TORCH_MAGIC:
        raise pickle.UnpicklingError("the pickle holds bytes that are not torch's")
    for _ in range(2):
        _Unpickler(file).load()  # the version, and the sizes of C's numbers
    unpickler = _Unpickler(file)
    loaded = unpickler.load()
    for key in _Unpickler(file).load():
        storage = unpickler.storages[str(key)]
        (count,) = struct.unpack("<q", file.read(8))
        if count != storage.count:
            raise pickle.UnpicklingError("a storage has an unexpected length")
        storage.fill(file.read(count * storage.dtype.itemsize))
    return loaded


class _Plain:
    """Convert unpickled objects to data, with arrays in place of what stood for them.

    A pickle may refer to an object many times, and to objects that do so in turn: a few bytes may stand for billions of
    values. Objects are therefore converted once, and the values that the whole stands for are counted.

    Args:
        size: number of bytes of the pickle, which bounds the number of values.
    """

    def __init__(self, size: int):
        self._most = _FEWEST + _VALUES_PER_BYTE * size
        self._done: dict[int, tuple[Any, int]] = {}

    def of(self, value: Any) -> Any:
        """Return the data of an object.

        Raises:
            pickle.UnpicklingError: it is nested too deeply, stands for too many values, or has an unknown class.
        """
        return self._convert(value, 0)[0]

    def _convert(self, value: Any, depth: int) -> tuple[Any, int]:
        """Return the data of an object, and the number of values that it stands for."""
        if depth > _DEEPEST:
            raise pickle.UnpicklingError("the pickle is nested too deeply")
        if value is None or isinstance(value, bool | int | float | str | bytes | np.generic | np.ndarray):
            return value, 1
        if (known := self._done.get(id(value))) is None:
            known = self._done[id(value)] = self._container(value, depth)
        if known[1] > self._most:
            raise pickle.UnpicklingError(
                f"the pickle stands for more than {self._most:,} values, too many for its size"
            )
        return known

    def _container(self, value: Any, depth: int) -> tuple[Any, int]:
        if isinstance(value, _Array):
            if value.value is None:
                raise pickle.UnpicklingError("an array has no contents")
            return value.value, 1
        if isinstance(value, _Tensor):
            array = value.array()
            return array, array.size
        if isinstance(value, list | tuple) and all(isinstance(x, bool | int | float) for x in value):
            return list(value), 1 + len(value)
        if not isinstance(value, dict | list | tuple):
            raise pickle.UnpicklingError(
                f"the pickle holds {type(value).__name__.lstrip('_')} objects, which are not read"
            )
        keys, items = (list(value), list(value.values())) if isinstance(value, dict) else (None, value)
        inside, count = [], 1
        for x in items:
            data, own = self._convert(x, depth + 1)
            inside.append(data)
            count += own
            if count > self._most:
                break  # refused by the caller, before the rest is converted
        return (inside if keys is None else dict(zip(keys, inside, strict=False))), count
