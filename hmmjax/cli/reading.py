"""Read the files that options name, and build the settings that options ask for."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hmmjax import io
from hmmjax.cli import console
from hmmjax.cli.options import AnnotationFormat, FuseFiles, Learning, PredictionFiles
from hmmjax.io import FormatError, Track
from hmmjax.io.choose import absence
from hmmjax.io.tracks import with_notices
from hmmjax.stabilize import PRIORS, Settings


def learning_settings(learning: Learning, **more: Any) -> Settings:
    """Return the settings that the options of the command line ask for.

    Args:
        learning: how to hold out.
        more: further settings by name.

    Raises:
        ValueError: an option is out of range.
    """
    pseudo_count = learning.unseen_phase_change
    if not 0 <= pseudo_count < math.inf:
        raise ValueError(f"--unseen-phase-change {pseudo_count:g} is not a pseudo-count. Fix: give 0 or more")
    return Settings(
        folds=None if learning.leave_one_out else learning.folds,
        priors=dataclasses.replace(PRIORS, phase_transition=pseudo_count),
        hidden_phases=not learning.no_hidden_phases,
        step=learning.time_step,
        training_videos=learning.training_videos,
        **more,
    )


def read_predictions(files: PredictionFiles, stages: console.Stages, *, videos: str | None = None) -> list[Track]:
    """Read the predictions of one recognizer.

    Args:
        files: the files and how to read them.
        stages: progress.
        videos: the videos to select, such as "41-60"; None for all.

    Raises:
        FormatError: there are no predictions, or a file cannot be read.
    """
    if not (files.predictions or files.phases or files.tools):
        raise FormatError("there are no predictions", fix="give files or folders, or --phases and --tools")
    names = {}
    for pair in files.rename or []:
        old, _, new = pair.partition("=")
        if not (old and new):
            raise FormatError(
                f"--rename {pair!r} is not of the form old=new", fix="write old=new, e.g. tool_video_11=video61"
            )
        names[old] = new
    tracks: list[Track] = []
    options = _prediction_options(files)
    for paths, track in ((files.predictions, None), (files.phases, "phases"), (files.tools, "tools")):
        if paths:
            progress = stages.files("reading predictions")
            tracks += io.read(list(paths), track=track, progress=progress, **options)
    return io.select(io.rename_videos(tracks, names), videos, option="--videos")


def _prediction_options(files: PredictionFiles) -> dict[str, Any]:
    """Return the arguments of `hmmjax.io.read`."""
    return {
        "kind": {"phases": files.phase_kind or files.kind, "tools": files.tool_kind or files.kind},
        "phase_names": files.phase_names,
        "tool_names": files.tool_names,
        "fps": files.fps,
        "first_index": files.first_index or 0,
        "rows": files.rows,
        "step": files.row_step,
        "offset": files.offset,
        "header": files.header,
        "strict": not files.lenient,
    }


def read_further(fuse: FuseFiles, files: PredictionFiles, stages: console.Stages) -> list[list[Track]]:
    """Read the predictions of further recognizers, one list per recognizer."""
    paths, options = list(fuse.fuse or ()), _prediction_options(files)

    def each(values: Sequence[Any] | None, name: str, default: Any) -> list[Any]:
        values = list(values or [default])
        if len(values) not in (1, len(paths)) and paths:
            raise FormatError(
                f"there are {len(values)} --fuse-{name} for {len(paths)} --fuse",
                fix=f"give --fuse-{name} once, or once for each --fuse",
            )
        return values * len(paths) if len(values) == 1 else values

    settings = zip(
        paths,
        each(fuse.fuse_kind, "kind", options["kind"]),
        each(fuse.fuse_phase_names, "phase-names", options["phase_names"]),
        each(fuse.fuse_fps, "fps", options["fps"]),
        strict=True,
    )
    out = []
    for i, (path, kind, names, rate) in enumerate(settings):
        own = {**options, "kind": kind, "phase_names": names, "fps": rate}
        out.append(io.read(path, progress=stages.files(f"reading recognizer {i + 2}"), **own))
    return out


def select_videos(sources: Sequence[list[Track]], videos: str | None) -> list[list[Track]]:
    """Select videos of several recognizers; a video may be missing in some of them."""
    every = [t for source in sources for t in source]
    chosen = {t.video for t in io.select(every, videos)}
    absent = absence({t.video for t in every}, videos, "--videos")
    out = [with_notices([t for t in source if t.video in chosen], absent) for source in sources]
    for i, source in enumerate(out, 1):
        if not source:
            own = ", ".join(dict.fromkeys(t.video for t in sources[i - 1]))
            raise FormatError(
                f"recognizer {i} has none of the videos {videos}", fix=f"leave it out, or choose among {own}"
            )
    return out


def read_truth(
    paths: Sequence[Path] | None,
    format: AnnotationFormat,
    files: PredictionFiles,
    stages: console.Stages,
    stage: str = "annotations",
) -> list[Track]:
    """Read annotations; return an empty list if no path is given.

    Args:
        paths: files or folders.
        format: how to read them.
        files: the predictions, whose class names, frame rate, first index and row step apply unless `format` has its
            own.
        stages: progress.
        stage: name of the stage.
    """
    if not paths:
        return []
    return io.read_annotations(
        list(paths),
        progress=stages.files(f"reading {stage}"),
        fps=format.annotations_fps or files.fps,
        first_index=(files.first_index or 0)
        if format.annotations_first_index is None
        else format.annotations_first_index,
        shift=format.annotations_shift,
        rows=files.rows,
        phase_names=format.annotations_phase_names or files.phase_names,
        tool_names=format.annotations_tool_names or files.tool_names,
        step=files.row_step,
    )


def of_selected(truth: list[Track], predictions: Sequence[Track], videos: str | None) -> list[Track]:
    """Return the annotations of the selected videos, so that the others cause no notices.

    If no annotation belongs to a selected video, all are returned: reading them together raises a better error.
    """
    ids = {p.video for p in predictions}
    return [t for t in truth if videos is None or t.video in ids] or truth


def read_transitions(
    learning: Learning, format: AnnotationFormat, files: PredictionFiles, stages: console.Stages
) -> list[Track]:
    """Read the annotations in which transitions are counted."""
    tracks = read_truth(learning.transitions_from, format, files, stages, "transitions")
    return io.select(tracks, learning.transition_videos, option="--transition-videos")


def check_learning(learning: Learning) -> None:
    """Raise FormatError if options contradict each other."""
    if learning.transition_videos and not learning.transitions_from:
        raise FormatError(
            "--transition-videos selects videos of --transitions-from, which is missing", fix="give --transitions-from"
        )
