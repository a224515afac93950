"""Read a folder of results back."""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax import io
from hmmjax.io import FormatError, ModelFile
from hmmjax.io.arrays import load_arrays
from hmmjax.io.find import RESULTS
from hmmjax.io.folder import is_unfinished
from hmmjax.stabilize.examples import TRACKS
from hmmjax.stabilize.pipeline import Stabilized
from hmmjax.stabilize.systems import System
from hmmjax.stabilize.table import compare_recognizers
from hmmjax.stabilize.write import LOGARITHMS


def read_results(folder: str | os.PathLike[str], *, relaxed: bool = False) -> Stabilized:
    """Read the results of `stabilize` from the folder that `write_results` wrote; recompute the table.

    Args:
        folder: holds ``stabilized.npz`` and ``model.npz``.
        relaxed: add metrics with relaxed boundaries to the table.

    Returns:
        The results that `write_results` was given.

    Raises:
        FormatError: the folder holds no results, or its files are damaged or from a version that did not store the
            predictions as read.
    """
    folder = Path(folder)
    file = folder / RESULTS
    if not file.is_file():
        raise FormatError(f"there is no {RESULTS} here", file=folder, fix="give a folder that hmmjax stabilize wrote")
    unfinished = (
        ("these results are from a run that did not finish or is still running",) if is_unfinished(folder) else ()
    )
    arrays = load_arrays(os.fspath(file))
    if "protocol" not in arrays or not any(key.startswith("raw_") for key in arrays):
        raise FormatError(
            "this file is from a version that did not store the predictions as read",
            file=file,
            fix="run hmmjax stabilize again",
        )
    model, online = io.load_params(folder / "model.npz"), None
    if (folder / "model_online.npz").is_file():
        online = io.load_params(folder / "model_online.npz")
    try:
        return dataclasses.replace(_restore(arrays, model, unfinished, relaxed), online_model=online)
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise FormatError(
            f"the arrays in this file do not fit together ({error})", file=file, fix="run hmmjax stabilize again"
        ) from None


def _restore(arrays: dict[str, np.ndarray], model: ModelFile, notices: Sequence[str], relaxed: bool) -> Stabilized:
    """Return the results whose arrays were written; recompute the table."""
    keys = sorted((k.removeprefix("fold_") for k in arrays if k.startswith("fold_")), key=io.natural)

    def system(name: str, prefix: str) -> System:
        found: dict[str, Any] = {}
        for field in (*TRACKS, *LOGARITHMS):
            names = [f"{prefix}{field}_{key}" for key in keys]
            found[field] = [arrays[name] for name in names] if all(name in arrays for name in names) else None
        return System(name, **found)

    def class_names(key: str) -> tuple[str, ...] | None:
        return tuple(map(str, arrays[key])) if key in arrays else None

    truth, recognizers = system("truth", "truth_"), [system("M", "raw_")]
    while any(key.startswith(f"raw{(number := len(recognizers) + 1)}_") for key in arrays):
        recognizers.append(system(f"M {number}", f"raw{number}_"))
    systems = [system("M_H", ""), system("M_H online", "filtered_")]
    phase_names, tool_names = class_names("phase_names"), class_names("tool_names")
    step, protocol = float(arrays["step_seconds"]), str(arrays["protocol"])
    table = compare_recognizers(
        recognizers,
        systems,
        truth.phases,
        truth.tools,
        phase_names=phase_names,
        tool_names=tool_names,
        rows_per_second=1 / step,
        relaxed=relaxed,
        split=protocol,
    )
    return Stabilized(
        tuple(io.video_id(key) for key in keys),
        tuple(arrays[f"frames_{key}"] for key in keys),
        float(arrays["fps"]),
        step,
        phase_names,
        tool_names,
        None if truth.phases is None else list(truth.phases),
        None if truth.tools is None else list(truth.tools),
        recognizers[0],
        *systems,
        log_likelihood=np.array([arrays[f"log_likelihood_{key}"] for key in keys]),
        folds=tuple(int(arrays[f"fold_{key}"]) for key in keys),
        protocol=protocol,
        model=model,
        table=table,
        notices=(*map(str, arrays["notices"]), *notices),
        fused=tuple(recognizers[1:]),
    )
