"""How the commands read what they are given: options to `hmmjax.io` calls."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hmmjax import io
from hmmjax.cli import console
from hmmjax.io import FormatError, Track


def prediction_options(
    kind: str | None,
    phase_kind: str | None,
    tool_kind: str | None,
    phase_names: str | None,
    tool_names: str | None,
    fps: float | None,
    row_step: int,
    offset: int | None,
    header: str,
    lenient: bool,
) -> dict[str, Any]:
    """Arguments of `hmmjax.io.read` from the command line's options."""
    return {
        "kind": {"phases": phase_kind or kind, "tools": tool_kind or kind},
        "phase_names": phase_names,
        "tool_names": tool_names,
        "fps": fps,
        "step": row_step,
        "offset": offset,
        "header": header,
        "strict": not lenient,
    }


def truth_options(fps: float | None, phases: str | None, tools: str | None, row_step: int) -> dict[str, Any]:
    """Arguments of `hmmjax.io.read_annotations`."""
    return {"fps": fps, "phase_names": phases, "tool_names": tools, "step": row_step}


def predictions(
    anything: Sequence[Path] | None,
    phases: Sequence[Path] | None,
    tools: Sequence[Path] | None,
    options: dict[str, Any],
    rename: Sequence[str] | None,
    videos: str | None,
    stages: console.Stages,
) -> list[Track]:
    """Predictions of one recognizer, from files of any kind, of phases and of tools."""
    if not (anything or phases or tools):
        raise FormatError("no predictions", fix="give files or folders, or --phases and --tools")
    names = {}
    for pair in rename or []:
        old, _, new = pair.partition("=")
        if not (old and new):
            raise FormatError(f"--rename {pair!r}", fix="write old=new, e.g. tool_video_11=video61")
        names[old] = new
    tracks: list[Track] = []
    for paths, track in ((anything, None), (phases, "phases"), (tools, "tools")):
        if paths:
            progress = stages.files("reading predictions")
            tracks += io.read(list(paths), track=track, progress=progress, **options)
    return io.select(io.rename_videos(tracks, names), videos)


def further(
    fuse: Sequence[Path] | None,
    options: dict[str, Any],
    kinds: Sequence[str] | None,
    phase_names: Sequence[str] | None,
    rates: Sequence[float] | None,
    stages: console.Stages,
) -> list[list[Track]]:
    """Predictions of the other recognizers, one list each."""
    paths = list(fuse or ())

    def each(values: Sequence[Any] | None, name: str, default: Any) -> list[Any]:
        values = list(values or [default])
        if len(values) not in (1, len(paths)) and paths:
            raise FormatError(f"{len(values)} --fuse-{name} for {len(paths)} --fuse", fix="say it once, or for each")
        return values * len(paths) if len(values) == 1 else values

    settings = zip(
        paths,
        each(kinds, "kind", options["kind"]),
        each(phase_names, "phase-names", options["phase_names"]),
        each(rates, "fps", options["fps"]),
        strict=True,
    )
    out = []
    for i, (path, kind, names, rate) in enumerate(settings):
        own = {**options, "kind": kind, "phase_names": names, "fps": rate}
        out.append(io.read(path, progress=stages.files(f"reading recognizer {i + 2}"), **own))
    return out


def choose(sources: Sequence[list[Track]], videos: str | None) -> list[list[Track]]:
    """The chosen videos of each recognizer; what one lacks another may have."""
    chosen = {t.video for t in io.select([t for source in sources for t in source], videos)}
    out = [[t for t in source if t.video in chosen] for source in sources]
    for i, source in enumerate(out, 1):
        if not source:
            raise FormatError(
                f"recognizer {i} has none of the videos {videos}",
                fix=f"leave it out, or choose among {', '.join(dict.fromkeys(t.video for t in sources[i - 1]))}",
            )
    return out


def of_chosen(truth: list[Track], said: Sequence[Track], videos: str | None) -> list[Track]:
    """The labels of the chosen videos: whoever leaves videos out need not be told that they are annotated.

    All of them where none belongs to a chosen video, which is an error that others report.
    """
    ids = {p.video for p in said}
    return [t for t in truth if videos is None or t.video in ids] or truth


def truth(paths: Sequence[Path] | None, options: dict[str, Any], stages: console.Stages, stage: str) -> list[Track]:
    """Labels; none where no path is given."""
    if not paths:
        return []
    return io.read_annotations(list(paths), progress=stages.files(f"reading {stage}"), **options)
