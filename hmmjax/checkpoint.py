"""Interrupt and resume EM. Its state is the parameters, so a checkpoint is a model file."""

import hashlib
import json
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core.batch import dtype_of
from hmmjax._core.typing import ArrayLike
from hmmjax.anchoring import anchor_options
from hmmjax.io.errors import FormatError
from hmmjax.io.model_file import load_params, save_params
from hmmjax.learning import fit
from hmmjax.types import FitResult, Labels, Observations, Params


def fit_with_checkpoint(
    path: str | os.PathLike[str],
    params: Params,
    obs: Observations,
    mask: ArrayLike = None,
    labels: Labels | None = None,
    *,
    max_iterations: int = 100,
    every: int = 10,
    callback: Callable[[int, float], None] | None = None,
    **options: Any,
) -> FitResult:
    """Run `hmmjax.fit`, save its parameters every few iterations, and resume from there when called again.

    Args:
        path: the checkpoint, an NPZ that `hmmjax.io.load_params` reads too. Written atomically.
        params: the starting parameters, of families that the library exports.
        obs: (B, T, ...) observations, a list of (T_i, ...) arrays, or (T, ...) for a single video.
        mask: (B, T) bool, True where observed; None if all frames are.
        labels: known phases and tools, -1 for unknown.
        max_iterations: maximum number of EM iterations, including those of earlier calls.
        every: iterations between saves. Each save costs one additional E-step.
        callback: called after every iteration with its number and the objective in nats.
        **options: further keyword arguments of `fit`.

    Returns:
        The result that `fit` returns without interruption: the same parameters and the complete history.

    Raises:
        FormatError: the checkpoint belongs to other starting parameters, data or options, or is damaged.
        TypeError, ValueError: bad input, see `fit`; `every` below 1 or `max_iterations` below 0.
    """
    if every < 1:
        raise ValueError(f"every={every} must be at least 1 iteration.")
    if max_iterations < 0:
        raise ValueError(f"max_iterations={max_iterations} must be at least 0.")
    key = _fingerprint((params, obs, mask, labels), options)
    params, options = anchor_options(params, obs, mask, labels, options)
    history: list[float] = []
    likelihood: list[float] = []
    converged = False
    if os.path.exists(path):
        file = load_params(path)
        state = file.metadata.get("em")
        if not isinstance(state, dict) or state.get("key") != key:
            raise FormatError(
                "the checkpoint belongs to other starting parameters, data or options",
                file=path,
                fix="choose another file",
            )
        params = file.params
        history, likelihood, converged = _progress(state, path)
    while not converged and (not history or len(history) - 1 < max_iterations):
        done = max(len(history) - 1, 0)

        def report(iteration: int, objective: float, done: int = done) -> None:
            if callback is not None:
                callback(done + iteration, objective)

        remaining = min(every, max_iterations - done)
        result = fit(params, obs, mask, labels, max_iterations=remaining, callback=report, **options)
        params, converged = result.params, bool(result.converged)
        history += np.asarray(result.history, float).tolist()[1 if history else 0 :]
        likelihood += np.asarray(result.log_likelihood, float).tolist()[1 if likelihood else 0 :]
        state = {"key": key, "history": history, "log_likelihood": likelihood, "converged": converged}
        save_params(path, params, metadata={"em": state}, force=True)
        if remaining <= 0:
            break
    objectives, likelihoods = (jnp.asarray(x, dtype_of(params)) for x in (history, likelihood))
    count = jnp.asarray(len(history) - 1, jnp.int32)
    return FitResult(params, objectives, likelihoods, count, jnp.asarray(converged))


def _progress(state: dict[str, Any], path: str | os.PathLike[str]) -> tuple[list[float], list[float], bool]:
    """Return objective and log-likelihood after each iteration so far, and whether EM had converged."""
    history, likelihood, converged = (state.get(k, []) for k in ("history", "log_likelihood", "converged"))
    complete = all(
        isinstance(x, list) and x and all(isinstance(v, int | float) for v in x) for x in (history, likelihood)
    )
    if not complete or len(history) != len(likelihood) or not isinstance(converged, bool):
        raise FormatError(
            "the checkpoint does not hold the progress of EM", file=path, fix="delete it, or choose another file"
        )
    return history, likelihood, converged


def _fingerprint(trees: Any, options: dict[str, Any]) -> str:
    """Return a hash of all inputs, by which a checkpoint of another job is recognized."""
    digest = hashlib.sha256(json.dumps(sorted(str(k) for k in options)).encode())
    leaves, structure = jax.tree.flatten((trees, {k: v for k, v in options.items() if k != "freeze"}))
    digest.update(str(structure).encode())
    for leaf in leaves:
        array = np.asarray(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr(sorted(options.get("freeze", ()))).encode())
    return digest.hexdigest()
