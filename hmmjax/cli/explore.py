"""`hmmjax explore`: explore annotations, before any recognizer is trained."""

import dataclasses
from typing import Annotated

import typer

from hmmjax.cli import console
from hmmjax.cli import options as o


@console.friendly
@o.expand
def explore(
    *,
    annotations: o.AnnotationFiles,
    out: o.Out,
    names: o.Names,
    common: o.Common,
    row_step: Annotated[int, typer.Option(help="Frames from one row to the next in files without frame numbers.")] = 25,
    step: Annotated[
        int | None, typer.Option(help="Frame numbers from one sampled frame to the next. Default: as annotated.")
    ] = None,
    title: o.Title = "What the annotations say",
    dry_run: o.DryRun = False,
) -> None:
    """Explore annotations: presence of tools, proportions and durations of phases, transitions.

    Writes explore.html, which needs no network, its pictures (pictures/) and its numbers (tables/).
    """
    console.needs("jinja2", extra="report")
    from hmmjax import explore as job
    from hmmjax import io
    from hmmjax.explore.write import PARTS

    page = out / "explore.html"
    io.refuse_existing(out, PARTS, force=common.force)
    with console.Stages() as stages:
        progress = stages.files("reading annotations")
        tracks = io.read_annotations(list(annotations), progress=progress, step=row_step, **names.arguments())
        found = job.explore(io.select(tracks, names.videos, option="--videos"), step=step)
        # The page, too, names the options of the command line.
        found = dataclasses.replace(found, notices=tuple(map(console.as_options, found.notices)))
        files = [] if dry_run else job.write_exploration(found, out, title=title, force=common.force)
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
    text = f"{size}\n{page}\n{len(files)} files written to {out}"
    if dry_run:
        text = f"{size}: would write {page}. Nothing was written."
    console.answer(answer, text, common.json)
