"""`hmmjax explore`: what annotations say before any recognizer has looked."""

from typing import Annotated

import typer

from hmmjax import io
from hmmjax.cli import console
from hmmjax.cli import options as o


@console.friendly
def explore(
    annotations: o.AnnotationFiles,
    out: o.Out,
    phase_names: o.PhaseNames = None,
    tool_names: o.ToolNames = None,
    fps: o.Fps = None,
    row_step: o.RowStep = 25,
    videos: o.Videos = None,
    step: Annotated[
        int | None, typer.Option(help="Frame numbers from one frame to the next; left out: as annotated.")
    ] = None,
    title: o.Title = "What the annotations say",
    force: o.Force = False,
    dry_run: o.DryRun = False,
    json: o.Json = False,
    traceback: o.Traceback = False,
) -> None:
    """Explore annotations: presence of tools, proportions and durations of phases, transitions.

    Writes explore.html, which needs no network, its figures (pictures/) and its numbers (tables/).
    """
    console.needs("jinja2", extra="report")
    from hmmjax import explore as job
    from hmmjax.explore.write import PARTS

    page = out / "explore.html"
    io.refuse_existing(out, PARTS, force=force)
    with console.Stages() as stages:
        options = {"fps": fps, "phase_names": phase_names, "tool_names": tool_names, "step": row_step}
        tracks = io.read_annotations(list(annotations), progress=stages.files("reading annotations"), **options)
        found = job.explore(io.select(tracks, videos), step=step)
        files = [] if dry_run else job.write_exploration(found, out, title=title, force=force)
    console.notices(found.notices)
    size = f"{console.videos(len(found.ids))}, {int(found.frames.sum()):,} frames"
    answer = {
        "videos": list(found.ids),
        "frames": int(found.frames.sum()),
        "step_seconds": found.step_seconds,
        "phases": console.counts(found.phase_names, found.phase_frames),
        "tools": console.counts(found.tool_names, found.tool_frames),
        "files": [str(f) for f in files],
    }
    text = f"{size}: would write {page}, nothing written" if dry_run else f"{size}\n{len(files)} files written to {out}"
    console.answer(answer, text, json)
