"""Unpickle what torch saves, without torch and without executing anything: tensors, storages and both file formats.

A file of torch is a pickle that refers to raw storages. The unpickler resolves a fixed list of names, each to a method
of its own or to a dtype, which a pickle cannot change; a subclass adds names, and says what becomes of all others.
"""

import collections
import io
import math
import os
import pickle
import pickletools
import struct
import zipfile
from collections.abc import Callable
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

MAGIC = 0x1950A86A20F9469CFC6C
"""The first pickle of a file that torch wrote before version 1.6."""
DTYPES = {
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
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")


class Storage:
    """A flat array whose values are filled in after unpickling, from the zip file or the end of the file."""

    __slots__ = ("count", "dtype", "values")

    def __init__(self, dtype: np.dtype, count: int):
        self.dtype, self.count = dtype, count
        self.values: np.ndarray | None = None

    def fill(self, data: bytes) -> None:
        """Take the values; raise pickle.UnpicklingError if there are too few or too many bytes."""
        if len(data) != self.count * self.dtype.itemsize:
            raise pickle.UnpicklingError(f"a storage of {self.count} {self.dtype} numbers has {len(data)} bytes")
        self.values = np.frombuffer(data, self.dtype)


class Tensor:
    """A view of a storage, converted to an array after the storage is filled."""

    __slots__ = ("offset", "shape", "storage", "strides")

    def __init__(self, storage: Any, offset: Any, shape: Any, strides: Any):
        numbers = (offset, *shape, *strides)
        if not isinstance(storage, Storage) or len(shape) != len(strides) or any(type(n) is not int for n in numbers):
            raise pickle.UnpicklingError("a tensor is malformed")
        last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        if min(numbers) < 0 or math.prod(shape) > storage.count or (0 not in shape and last >= storage.count):
            raise pickle.UnpicklingError("a tensor extends outside its storage")
        self.storage, self.offset, self.shape, self.strides = storage, offset, tuple(shape), tuple(strides)

    def array(self) -> np.ndarray:
        """Return the values; raise pickle.UnpicklingError if the file has none."""
        values = self.storage.values
        if values is None:
            raise pickle.UnpicklingError("the values of a tensor are missing from the file")
        if 0 in self.shape:
            return np.zeros(self.shape, values.dtype)
        steps = [step * values.itemsize for step in self.strides]
        return np.lib.stride_tricks.as_strided(values[self.offset :], self.shape, steps).copy()


class Unpickler(pickle.Unpickler):
    """An unpickler of the pickle at the current position of a file, which is left at the pickle's end.

    Args:
        file: a binary file, bytes in memory or a memory map.
    """

    #: Methods that stand for the names of a pickle, by module and name.
    KNOWN: ClassVar[dict[tuple[str, str], str]] = {
        ("collections", "OrderedDict"): "_ordered",
        ("torch._utils", "_rebuild_tensor_v2"): "_tensor",
        ("torch._utils", "_rebuild_tensor"): "_tensor",
        ("torch._utils", "_rebuild_parameter"): "_parameter",
    }

    def __init__(self, file: Any):
        start = file.tell()
        # genops checks lengths of strings; the memo grows to its greatest index, so bound that by the pickle's size.
        memo = max(
            (n for code, n, _ in pickletools.genops(file) if code.name in _PUTS and isinstance(n, int)), default=0
        )
        end = file.tell()
        if memo > end:
            raise pickle.UnpicklingError(f"the pickle declares {memo} objects in {end} bytes")
        file.seek(start)
        super().__init__(io.BytesIO(file.read(end - start)))
        self.storages: dict[str, Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name."""
        if (known := self.KNOWN.get((module, name))) is not None:
            return getattr(self, known)
        if module == "torch" and name in DTYPES:
            return np.dtype(DTYPES[name])
        return self.unknown(module, name)

    def unknown(self, module: str, name: str) -> Any:
        """Return what stands for a name that is not known, or raise."""
        raise pickle.UnpicklingError(
            f"the pickle holds {module}.{name}, which is not read (arrays, tensors, lists and dictionaries are)"
        )

    def persistent_load(self, saved: Any) -> Storage:
        """Return the storage that a tensor refers to."""
        kind, dtype, key, _, count, *view = saved
        if kind != "storage" or not isinstance(dtype, np.dtype) or any(part is not None for part in view):
            raise pickle.UnpicklingError("a storage is malformed")
        return self.storages.setdefault(str(key), Storage(dtype, int(count)))

    def _ordered(self, items: Any = ()) -> Any:
        return collections.OrderedDict(items)

    def _tensor(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> Tensor:
        return Tensor(storage, offset, shape, strides)

    def _parameter(self, data: Any, *_: Any) -> Any:
        return data


def read_zip(file: Any, unpickler: Callable[[Any], Unpickler]) -> Any:
    """Read a file of torch 1.6 or newer.

    Args:
        file: a zip file, open for reading.
        unpickler: makes the `Unpickler` of a pickle in a file.

    Returns:
        What was saved, with `Tensor` for tensors.

    Raises:
        pickle.UnpicklingError: a member is missing, compressed or too long, or the numbers are big-endian.
    """
    length = os.fstat(file.fileno()).st_size
    with zipfile.ZipFile(file) as archive:
        members = {info.filename.partition("/")[2]: info for info in archive.infolist()}

        def read(name: str) -> bytes:
            info = members.get(name)
            # torch does not compress; a compressed member could expand without bound.
            if info is None or info.compress_type != zipfile.ZIP_STORED or info.file_size > length:
                raise pickle.UnpicklingError(f"{name} is missing from the file, compressed, or longer than the file")
            return archive.read(info)

        if "byteorder" in members and read("byteorder") != b"little":
            raise pickle.UnpicklingError("the numbers are big-endian")
        main = unpickler(io.BytesIO(read("data.pkl")))
        loaded = main.load()
        for key, storage in main.storages.items():
            storage.fill(read(f"data/{key}"))
    return loaded


def read_legacy(file: Any, unpickler: Callable[[Any], Unpickler]) -> Any:
    """Read what torch wrote before version 1.6, and writes inside of other pickles.

    Args:
        file: a binary file, bytes in memory or a memory map; none may read past its end.
        unpickler: makes the `Unpickler` of a pickle in a file.

    Returns:
        What was saved, with `Tensor` for tensors.

    Raises:
        pickle.UnpicklingError: the file begins with another pickle, or a storage has another length.
    """
    magic = unpickler(file).load()
    if type(magic) is not int or magic != MAGIC:
        raise pickle.UnpicklingError("the magic number of a torch file is missing")
    for _ in ("version", "sizes of C's numbers"):
        unpickler(file).load()
    main = unpickler(file)
    loaded = main.load()
    for key in unpickler(file).load():
        storage = main.storages[str(key)]
        (count,) = struct.unpack("<q", file.read(8))
        if count < 0 or count != storage.count:
            raise pickle.UnpicklingError("a storage has an unexpected length")
        storage.fill(file.read(count * storage.dtype.itemsize))
    return loaded
