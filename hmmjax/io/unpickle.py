"""Read pickles of plain data without executing them.

A pickle names the functions that rebuild its objects. The unpickler here resolves a fixed list of names, each to an
object of this project that only collects what it is given, and refuses every other name: a file can build arrays, torch
tensors, lists, dictionaries, strings and numbers, and nothing else.
"""

import io
import os
import pickle
import zipfile
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from hmmjax.io.torch_file import MAGIC, Tensor, Unpickler, read_legacy, read_zip

_NUMPY = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy.core.numeric", "numpy._core.numeric", "numpy")
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


def _array(data: Any, dtype: Any, shape: Any, order: Any = "C") -> np.ndarray:
    if not isinstance(dtype, _DType) or not isinstance(data, bytes | bytearray | str):
        raise pickle.UnpicklingError("an array is malformed")
    raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
    return np.frombuffer(raw, dtype.value).reshape(shape, order="F" if order == "F" else "C").copy()


class _Unpickler(Unpickler):
    """An unpickler of torch's names and of NumPy's."""

    KNOWN: ClassVar[dict[tuple[str, str], str]] = {
        **Unpickler.KNOWN,
        **{(module, "_reconstruct"): "_reconstruct" for module in _NUMPY},
        **{(module, "_frombuffer"): "_frombuffer" for module in _NUMPY},
        **{(module, "scalar"): "_scalar" for module in _NUMPY},
        ("numpy", "dtype"): "_dtype",
        ("numpy", "ndarray"): "_marker",
        ("_codecs", "encode"): "_encode",
        **{(module, name): "_raw" for module in ("builtins", "__builtin__") for name in ("bytes", "bytearray")},
        ("torch.storage", "_load_from_bytes"): "_from_bytes",
    }

    def _reconstruct(self, *_: Any) -> _Array:
        return _Array()

    def _frombuffer(self, data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
        return _array(data, dtype, shape, order)

    def _scalar(self, dtype: Any, data: Any = b"") -> Any:
        return _array(data, dtype, ())[()]

    def _dtype(self, *arguments: Any) -> _DType:
        return _DType(*arguments)

    def _marker(self, *_: Any) -> None:
        raise pickle.UnpicklingError("the pickle is malformed")

    def _encode(self, text: Any, encoding: Any = "latin1") -> bytes:
        return str(text).encode("latin1")

    def _raw(self, data: Any = b"", *_: Any) -> bytes:
        if not isinstance(data, bytes):
            raise pickle.UnpicklingError("bytes are malformed")
        return data

    def _from_bytes(self, data: Any) -> Any:
        return read_legacy(io.BytesIO(bytes(data)), _Unpickler)


def read_pickle(path: str) -> Any:
    """Read the data of a pickle or of a file of torch without executing anything.

    Args:
        path: written by ``pickle.dump`` or ``torch.save``.

    Returns:
        Arrays, lists, tuples, dictionaries, strings and numbers; tensors as arrays, those of bfloat16 in float32.

    Raises:
        ValueError: the file is damaged or holds other objects; names the first class.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            zipped = zipfile.is_zipfile(file)
            file.seek(0)
            loaded = read_zip(file, _Unpickler) if zipped else _read_stream(file.read())
        return _Plain(size).of(loaded)
    except pickle.UnpicklingError as error:
        raise ValueError(str(error)) from None
    except OSError:
        raise
    except Exception as error:  # damaged bytes make zipfile and pickle raise almost anything
        raise ValueError(f"the pickle is damaged ({str(error) or type(error).__name__})") from None


def _read_stream(data: bytes) -> Any:
    loaded = _Unpickler(io.BytesIO(data)).load()
    if type(loaded) is int and loaded == MAGIC:
        return read_legacy(io.BytesIO(data), _Unpickler)
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
        if isinstance(value, Tensor):
            array = value.array()
            return (array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array), array.size
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
