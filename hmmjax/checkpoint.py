"""EM that can be interrupted: its state is the parameters, so a checkpoint is a model file."""

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from hmmjax.io.errors import FormatError
from hmmjax.io.model_file import load_params, save_params
from hmmjax.learning import fit
from hmmjax.types import FitResult, Labels, Observations, Params


def fit_with_checkpoint(
    path: str | os.PathLike[str],
    params: Params,
    obs: Observations,
    mask: Any = None,
    labels: Labels | None = None,
    *,
    max_iterations: int = 100,
    every: int = 10,
    callback: Callable[[int, float], None] | None = None,
    **options: Any,
) -> FitResult:
    """`hmmjax.fit` that saves its parameters every few iterations and goes on from there when called again.

    Args:
        path: the checkpoint, an NPZ that `load_params` reads too. Written whole or not at all.
        params: where to start; the checkpoint's families must be those that the library exports.
        obs: as in `fit`.
        mask: as in `fit`.
        labels: as in `fit`.
        max_iterations: at most so many EM iterations, those of earlier calls included.
        every: iterations between saves; one more pass over the data for each.
        callback: called after every iteration with its number and the objective in nats.
        options: whatever else `fit` takes.

    Returns:
        What `fit` would have returned without interruption: the same parameters and the whole history.

    Raises:
        FormatError: when the checkpoint is of another start, other data or other options, or says nothing usable of
            how far EM had come.
        TypeError, ValueError: as `fit`, and when `every` or `max_iterations` cannot be.
    """
    if every < 1:
        raise ValueError(f"every={every}: save after 1 iteration or more")
    if max_iterations < 0:
        raise ValueError(f"max_iterations={max_iterations}: allow 0 iterations or more")
    key = _fingerprint((params, obs, mask, labels), options)
    history: list[float] = []
    likelihood: list[float] = []
    converged = False
    if os.path.exists(path):
        file = load_params(path)
        state = file.metadata.get("em")
        if not isinstance(state, dict) or state.get("key") != key:
            raise FormatError(
                "the checkpoint is of another start, other data or other options", file=path, fix="choose another file"
            )
        params = file.params
        history, likelihood, converged = _progress(state, path)
    while not converged and (not history or len(history) - 1 < max_iterations):
        done = max(len(history) - 1, 0)

        def told(iteration: int, objective: float, done: int = done) -> None:
            if callback is not None:
                callback(done + iteration, objective)

        left = min(every, max_iterations - done)
        result = fit(params, obs, mask, labels, max_iterations=left, callback=told, **options)
        params, converged = result.params, bool(result.converged)
        history += np.asarray(result.history, float).tolist()[1 if history else 0 :]
        likelihood += np.asarray(result.log_likelihood, float).tolist()[1 if likelihood else 0 :]
        state = {"key": key, "history": history, "log_likelihood": likelihood, "converged": converged}
        save_params(path, params, metadata={"em": state}, force=True)
        if left <= 0:
            break
    return FitResult(params, np.array(history), np.array(likelihood), len(history) - 1, converged)


def _progress(state: dict[str, Any], path: str | os.PathLike[str]) -> tuple[list[float], list[float], bool]:
    """Objective and log-likelihood after each iteration so far, and whether EM had converged."""
    history, likelihood, converged = (state.get(k, []) for k in ("history", "log_likelihood", "converged"))
    whole = all(isinstance(x, list) and x and all(isinstance(v, int | float) for v in x) for x in (history, likelihood))
    if not whole or len(history) != len(likelihood) or not isinstance(converged, bool):
        raise FormatError(
            "the checkpoint does not say how far EM had come", file=path, fix="delete it, or choose another file"
        )
    return history, likelihood, converged


def _fingerprint(trees: Any, options: dict[str, Any]) -> str:
    """Tells this job from others: every array and option, and what each is of (a track left out has no array)."""
    found = hashlib.sha256(json.dumps(sorted(str(k) for k in options)).encode())
    leaves, structure = jax.tree.flatten((trees, {k: v for k, v in options.items() if k != "freeze"}))
    found.update(str(structure).encode())
    for leaf in leaves:
        array = np.asarray(leaf)
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    found.update(repr(sorted(options.get("freeze", ()))).encode())
    return found.hexdigest()
