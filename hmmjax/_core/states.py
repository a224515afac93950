"""States of streams as arrays with names: whether one may take the place of another, and of which model it is."""

from hashlib import sha256
from typing import Any

import jax
import numpy as np


def check(state: Any, like: Any) -> None:
    """Raise unless a state has the arrays, shapes and kinds of numbers of a stream's own."""
    advice = "pass the state of a stream of the same model and lag."
    if type(state) is not type(like):
        raise TypeError(f"state is {type(state).__name__}, not {type(like).__name__}: {advice}")
    have, wanted = arrays_of(state), arrays_of(like)
    if have.keys() != wanted.keys():
        raise ValueError(f"state has {', '.join(have)}, this stream {', '.join(wanted)}: {advice}")
    for name, want in wanted.items():
        if problem := difference(np.asarray(have[name]), np.asarray(want), name):
            raise ValueError(f"state.{name} {problem}: {advice}")


def difference(have: np.ndarray, want: np.ndarray | jax.Array, name: str) -> str:
    """Return what keeps an array of a state from taking the place of another, or ""."""
    if have.shape != want.shape:
        return f"has shape {have.shape} in place of {want.shape}"
    if have.dtype.kind != want.dtype.kind:
        return f"is {have.dtype} in place of {want.dtype}"
    if np.isnan(have).any():
        return "is NaN"
    return "is negative" if name.endswith("frames") and (have < 0).any() else ""


def arrays_of(state: Any) -> dict[str, Any]:
    """Return the arrays of a state by name, in the order of its leaves."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path).strip(".").replace(".", "_"): leaf for path, leaf in leaves}


def fingerprint(params: Any) -> str:
    """Return a hash of a model's arrays and structure."""
    digest = sha256(str(jax.tree.structure(params)).encode())
    for leaf in jax.tree.leaves(params):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()
