"""Stabilize arrays that are in memory, without files: what comes out of a network's loop over videos."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hmmjax._core.arrays import native
from hmmjax.io import Layout, Track, resolve_names
from hmmjax.io.errors import FormatError
from hmmjax.io.scores import check_scores
from hmmjax.io.spec import KINDS, Spec, check_labels
from hmmjax.stabilize.pipeline import Stabilized, stabilize
from hmmjax.stabilize.settings import Settings

Names = str | Sequence[str]


def stabilize_arrays(
    phases: Sequence[Any] | None = None,
    tools: Sequence[Any] | None = None,
    *,
    true_phases: Sequence[Any] | None = None,
    true_tools: Sequence[Any] | None = None,
    kind: str | None = None,
    ids: Sequence[str] | None = None,
    phase_names: Names | None = None,
    tool_names: Names | None = None,
    seconds_per_row: float = 1.0,
    settings: Settings | None = None,
    **overrides: Any,
) -> Stabilized:
    """Stabilize the outputs of a recognizer that are in memory, one array per video.

    Does what `stabilize` does with files: annotated videos are held out, and never stabilized by a model that has seen
    their labels. Arrays of NumPy, JAX, PyTorch and others are accepted; move those on a GPU to the CPU.

    Args:
        phases: for each video (n, L) probabilities or logits, or (n,) int labels; NaN and -1 are missing. None if the
            recognizer does not predict phases.
        tools: for each video (n, K) probabilities or logits of presence, or int presence. None without tools.
        true_phases: for each video (n,) int labels with -1 for unknown, or None for a video without annotation. None
            without annotated phases.
        true_tools: for each video (n, K) presence 0, 1 or -1 for unknown, or None. None without annotated tools.
        kind: "labels", "probabilities" or "logits" (softmax over phases, sigmoid per tool); None takes integers for
            labels and everything else for probabilities.
        ids: names of the videos; None numbers them: "video01", "video02" ...
        phase_names: (L,) names of the phases, or "cholec80"; None numbers them.
        tool_names: (K,) names of the tools, or "cholec80"; None numbers them.
        seconds_per_row: seconds from one row to the next.
        settings: how to learn, hold out and stabilize; None uses the defaults of `Settings`.
        overrides: settings by name, such as ``folds=3``, in place of those in `settings`.

    Returns:
        Posteriors of every video, the model, and the table of metrics, see `Stabilized`. `plot_result` draws a video.

    Raises:
        ValueError: there are no predictions, lists have different lengths, an option is out of range, or arrays do not
            fit together (`hmmjax.io.FormatError`, a ValueError).
        TypeError: an array in place of a list of arrays, one that cannot be read, or an override is not a setting.

    Example::

        result = hmmjax.stabilize.stabilize_arrays(logits, true_phases=labels, kind="logits", phase_names="cholec80")
        hmmjax.stabilize.plot_result(result, 0)
    """
    given = {"phases": phases, "tools": tools, "true_phases": true_phases, "true_tools": true_tools}
    for name, videos in given.items():
        shape = getattr(videos, "shape", None)
        if shape is not None:
            raise TypeError(f"{name} is an array {tuple(shape)}: pass a list of one array per video, as [{name}]")
    lengths = {name: len(videos) for name, videos in given.items() if videos is not None}
    if not {"phases", "tools"} & set(lengths):
        raise ValueError("there are no predictions: pass phases or tools, one array per video")
    count = next(iter(lengths.values()))
    if len(set(lengths.values())) > 1 or (ids is not None and len(ids) != count):
        told = ", ".join(f"{name} has {n}" for name, n in lengths.items())
        told += "" if ids is None else f", ids has {len(ids)}"
        raise ValueError(f"{told} videos: pass one array per video in each, and None for a video without annotation")
    if kind not in (None, *KINDS):
        raise ValueError(f"kind={kind!r} is unknown: pass one of {', '.join(KINDS)}")
    if not seconds_per_row > 0:
        raise ValueError(f"seconds_per_row={seconds_per_row:g} is not positive: pass the seconds between rows")
    videos = list(ids) if ids is not None else [f"video{i + 1:02d}" for i in range(count)]
    names = {"phases": resolve_names(phase_names, "phases"), "tools": resolve_names(tool_names, "tools")}

    def tracks(what: str, kind: str | None) -> list[Track]:
        track = what.removeprefix("true_")
        own = [(video, x) for video, x in zip(videos, given[what] or (), strict=False) if x is not None]
        return [_track(what, video, track, x, kind, names[track], 1 / seconds_per_row) for video, x in own]

    predictions = [*tracks("phases", kind), *tracks("tools", kind)]
    annotations = [*tracks("true_phases", "labels"), *tracks("true_tools", "labels")]
    return stabilize(predictions, annotations, settings, **overrides)


def _track(
    what: str, video: str, track: str, array: Any, kind: str | None, names: tuple[str, ...] | None, fps: float
) -> Track:
    place = f"{what} of {video}"
    values = np.asarray(native(place, array))
    if values.ndim not in ((1, 2) if track == "phases" else (2,)) or values.dtype.kind not in "biuf" or not len(values):
        wanted = "(frames, phases) scores or (frames,) labels" if track == "phases" else "(frames, tools)"
        raise FormatError(f"{place} is an array {values.dtype} {values.shape}", fix=f"pass numbers of shape {wanted}")
    if kind is None:
        kind = "labels" if values.ndim == 1 or values.dtype.kind in "biu" else "probabilities"
    if track == "phases" and (kind == "labels") != (values.ndim == 1):
        raise FormatError(
            f"{place}: an array of shape {values.shape} cannot hold {kind}",
            fix="pass (frames,) labels, or (frames, phases) scores and their kind",
        )
    if names is not None and values.ndim == 2 and values.shape[1] != len(names):
        raise FormatError(f"{place} has {values.shape[1]} columns, but there are {len(names)} names of {track}")
    spec = Spec(track, unknown=what.startswith("true_"))
    if kind == "labels":
        checked = check_labels(values, track, None if names is None else len(names), spec, lambda row: row + 1, place)
    else:
        checked = check_scores(values, track, kind, lambda row: row + 1, place)
    frames = np.arange(len(values), dtype=np.int64)
    return Track(video, track, frames, checked, names, fps, Layout(format="npz", kind=kind), place)
