"""Load the compiled recursions for CPUs (C++, called through `jax.ffi`).

They are built when the package is installed, if there is a C++17 compiler (see `build`), and never required: without
them "auto" takes other backends. The environment variable HMMJAX_NATIVE switches them off ("off") or limits them to an
instruction set ("avx2", "baseline").
"""

import ctypes
import os
from functools import cache
from pathlib import Path

import jax

LIBRARY = Path(__file__).with_name("_recursions.so")
"""Where the build puts the compiled part."""

TARGETS = ("log_normalizer", "gradient", "filter", "viterbi", "smoother_vjp", "filter_vjp")


@cache
def load() -> tuple[str, str]:
    """Load the compiled part and register its functions with XLA.

    Returns:
        The instruction set that it uses on this processor ("" if it cannot be used), and the reason if it cannot.
    """
    if os.environ.get("HMMJAX_NATIVE") == "off":
        return "", "switched off by HMMJAX_NATIVE=off"
    if not LIBRARY.exists():
        return "", "not built: reinstall hmmjax where a C++17 compiler (g++ or clang++) is on the path"
    try:
        library = ctypes.CDLL(str(LIBRARY))
        for name in TARGETS:
            handler = jax.ffi.pycapsule(getattr(library, f"hmmjax_{name}"))
            jax.ffi.register_ffi_target(f"hmmjax_{name}", handler, platform="cpu")
        library.hmmjax_instruction_set.restype = ctypes.c_char_p
        return library.hmmjax_instruction_set().decode(), ""
    except Exception as error:  # a library of another machine or another jaxlib must not stop the import
        return "", f"not usable here ({str(error).splitlines()[0]}): reinstall hmmjax"


def is_loaded() -> bool:
    """Return whether the compiled recursions can be used."""
    return bool(load()[0])


def describe() -> str:
    """Return one line that says which recursions run on CPUs, and why."""
    instruction_set, reason = load()
    if instruction_set:
        return f"native: compiled recursions ({instruction_set})"
    return f"scan: XLA loops, because the compiled recursions are {reason}"
