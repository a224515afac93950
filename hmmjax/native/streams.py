"""Running videos in the compiled recursions, called once per frame without going through XLA."""

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax import native

_POINTER, _INT, _FLAG = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int
_FUNCTIONS = {
    "open": (_POINTER, [_INT] * 5 + [_POINTER] * 4 + [_INT]),
    "close": (None, [_POINTER]),
    "memory": (_INT, [_POINTER]),
    "step": (ctypes.c_double, [_POINTER, _POINTER, _INT, _POINTER, _FLAG, _FLAG, _POINTER]),
    "total": (ctypes.c_double, [_POINTER, _POINTER, _INT]),
    "smooth": (None, [_POINTER, _POINTER, _INT, _INT, _POINTER]),
    "read": (None, [_POINTER, _POINTER, _INT, _POINTER, _POINTER, _POINTER]),
    "write": (None, [_POINTER, _POINTER, _INT, _POINTER, _POINTER, _POINTER, ctypes.c_double]),
}


class Streams:
    """The chains of one running video, which are of the same size, and the memory of its last frames.

    Args:
        initial: (N, L, C) probabilities of N chains.
        transition: (N, L, L) probabilities.
        blocks: Kronecker factors (N, L, n, n), as in `hmmjax.messages.Potentials`.
        lag: frames to wait before smoothing.

    Raises:
        ValueError: the range of doubles might not do for this model, because tools cannot switch.
    """

    def __init__(self, initial: Any, transition: Any, blocks: Sequence[Any], lag: int) -> None:
        chains, phases, configs = initial.shape
        self.shape, self.lag, self.num_tools = (chains, phases, configs), lag, configs.bit_length() - 1
        sizes = np.array([block.shape[-1] for block in blocks], np.int64)
        flat = [np.zeros((chains, phases, 0)), *(np.reshape(block, (chains, phases, -1)) for block in blocks)]
        tables = [np.ascontiguousarray(x, np.float64) for x in (initial, transition, np.concatenate(flat, -1))]
        self._run = _functions()
        self._chains = self._run["open"](
            chains, phases, configs, self.num_tools, len(sizes), *map(_address, (sizes, *tables)), lag
        )
        if not self._chains:
            raise ValueError("the range of doubles might not do for this model")
        weakref.finalize(self, self._run["close"], self._chains)
        self._memory = np.zeros(self._run["memory"](self._chains))
        self._at = _address(self._memory)
        self._marginals = chains * phases + 2 * self.num_tools
        self._out = np.zeros(2 * self._marginals)
        self._out_at, self._step = _address(self._out), self._run["step"]

    def step(self, frame: int, given: np.ndarray) -> tuple[float, np.ndarray]:
        """Process a frame, after all frames before it. It may be repeated until the next one is processed.

        Args:
            frame: its number, from 0.
            given: contiguous float32 or float64 log-likelihoods of phases (N, L), tools (K, 2) and, if there are any,
                configurations (C), one after another.

        Returns:
            The log-likelihood of all frames so far, -inf if this one is impossible and NaN if the range of doubles does
            not do for it; and marginals of phases (N, L) and tools (K, 2) of the frame, then of the one `lag` frames
            before, as one array that the next call overwrites.
        """
        is_double, has_configs = given.dtype == np.float64, given.size > self._marginals
        total = self._step(self._chains, self._at, frame, _address(given), is_double, has_configs, self._out_at)
        return total, self._out

    def smooth(self, frames: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return marginals of phases (N, count, L) and tools (count, K, 2) of the last of so many frames."""
        chains, phases, _ = self.shape
        out = np.zeros(self._marginals * count)
        if count:
            self._run["smooth"](self._chains, self._at, frames, count, _address(out))
        at = chains * count * phases
        return out[:at].reshape(chains, count, phases), out[at:].reshape(count, self.num_tools, 2)

    def read(self, frame: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the logarithms that are kept of a frame.

        Returns:
            Filtered probabilities (N, L, C) and likelihoods of phases (N, L) and configurations (N, C).
        """
        chains, phases, configs = self.shape
        out = np.zeros(self.shape), np.zeros((chains, phases)), np.zeros((chains, configs))
        self._run["read"](self._chains, self._at, frame, *map(_address, out))
        return out

    def log_likelihood(self, frame: int) -> float:
        """Return the log-likelihood of all frames up to one that is kept."""
        return self._run["total"](self._chains, self._at, frame)

    def write(self, frame: int, kept: Sequence[Any], log_likelihood: float) -> None:
        """Keep what `read` returned of a frame; `log_likelihood` is that of all frames up to it."""
        arrays = [np.ascontiguousarray(x, np.float64) for x in kept]
        self._run["write"](self._chains, self._at, frame, *map(_address, arrays), log_likelihood)


def _address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def _functions() -> dict[str, Any]:
    """Return the entry points of streams.cc. They keep Python's lock: calls take microseconds."""
    library, found = ctypes.PyDLL(str(native.LIBRARY)), {}
    for name, (result, arguments) in _FUNCTIONS.items():
        found[name] = getattr(library, f"hmmjax_stream_{name}")
        found[name].restype, found[name].argtypes = result, arguments
    return found
