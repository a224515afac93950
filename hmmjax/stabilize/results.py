"""Read a folder of results back."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from hmmjax import io
from hmmjax.io import FormatError
from hmmjax.io.arrays import load_arrays
from hmmjax.io.folder import is_unfinished
from hmmjax.io.read import RESULTS
from hmmjax.stabilize.pipeline import Stabilized
from hmmjax.stabilize.table import System, compare_recognizers


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
    model = io.load_params(folder / "model.npz")
    keys = sorted((k.removeprefix("fold_") for k in arrays if k.startswith("fold_")), key=io.natural)
    ids = tuple(io.video_id(key) for key in keys)

    def values(prefix: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for track in ("phases", "tools"):
            names = [f"{prefix}{track}_{key}" for key in keys]
            found[track] = [arrays[name] for name in names] if all(name in arrays for name in names) else None
        return found

    try:
        truth = values("truth_")
        recognizers = [System("M", **values("raw_"))]
        while any(key.startswith(f"raw{(number := len(recognizers) + 1)}_") for key in arrays):
            recognizers.append(System(f"M {number}", **values(f"raw{number}_")))
        systems = [
            System("M_H", **values("")),
            System("M_H online", **values("filtered_")),
        ]
        names = {t: _names(arrays, f"{t}_names") for t in ("phase", "tool")}
        step, protocol = float(arrays["step_seconds"]), str(arrays["protocol"])
        table = compare_recognizers(
            recognizers,
            systems,
            truth["phases"],
            truth["tools"],
            phase_names=names["phase"],
            tool_names=names["tool"],
            rows_per_second=1 / step,
            relaxed=relaxed,
            split=protocol,
        )
        return Stabilized(
            ids,
            tuple(arrays[f"frames_{key}"] for key in keys),
            float(arrays["fps"]),
            step,
            names["phase"],
            names["tool"],
            truth["phases"],
            truth["tools"],
            recognizers[0],
            *systems,
            log_likelihood=np.array([arrays[f"log_likelihood_{key}"] for key in keys]),
            folds=tuple(int(arrays[f"fold_{key}"]) for key in keys),
            protocol=protocol,
            model=model,
            table=table,
            notices=(*map(str, arrays["notices"]), *unfinished),
            fused=tuple(recognizers[1:]),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise FormatError(
            f"the arrays in this file do not fit together ({error})", file=file, fix="run hmmjax stabilize again"
        ) from None


def _names(arrays: dict[str, np.ndarray], key: str) -> tuple[str, ...] | None:
    return tuple(map(str, arrays[key])) if key in arrays else None
