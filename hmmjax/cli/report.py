"""`hmmjax report`: a folder of results as one page."""

from pathlib import Path
from typing import Annotated

import typer

from hmmjax.cli import console
from hmmjax.cli import options as o


@console.friendly
@o.expand
def report(
    *,
    results: Annotated[Path, typer.Argument(help="A folder that hmmjax stabilize wrote.")],
    common: o.Common,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the report. Default: report/ in the results.", rich_help_panel="Output"),
    ] = None,
    title: o.Title = "Stabilized recognition of surgical phases and tools",
    frames: Annotated[
        Path | None,
        typer.Option(
            "--frames",
            help="A folder with one folder of pictures per video, named by frame number (video41/000025.jpg): adds "
            "thumbnails to the list of changes.",
            rich_help_panel="Output",
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(
            "--costs",
            help="A csv with name, cost, value (and low, high, cost_unit, figure): adds a picture of cost against "
            "benefit.",
            rich_help_panel="Output",
        ),
    ] = None,
    no_intervals: Annotated[
        bool,
        typer.Option(
            "--no-intervals",
            help="Leave out the model's intervals of minutes: much faster for long videos with phases and tools.",
            rich_help_panel="Output",
        ),
    ] = False,
    no_pictures: o.NoPictures = False,
    dry_run: o.DryRun = False,
) -> None:
    """Write one page about a folder of results, and its pictures and tables as files.

    report.html needs no network and no other file: metrics and how they are measured, every video to zoom into, what
    the model changed and why, minutes of phases and tool use, and what was learned. pictures/ holds PNG and SVG files,
    tables/ csv and LaTeX files.
    """
    console.needs("jinja2", extra="report")
    from hmmjax import io
    from hmmjax import report as pages
    from hmmjax import stabilize as job
    from hmmjax.report.write import PARTS

    out = results / "report" if out is None else out
    found = job.read_results(results)
    points = None if costs is None else pages.read_costs(costs)
    page = out / "report.html"
    io.refuse_existing(out, PARTS, force=common.force)
    if dry_run:
        answer = {"would_write": str(page), "exists": page.exists(), "videos": list(found.ids)}
        text = f"would write {page} about {console.videos(len(found.ids))}. Nothing was written."
        console.answer(answer, text, common.json)
        return
    with console.Stages() as stages:
        files = pages.write_report(
            found,
            out,
            title=title,
            frames=frames,
            costs=points,
            intervals=not no_intervals,
            videos=not no_pictures,
            force=common.force,
            progress=stages,
        )
    answer = {"page": str(page), "files": [str(Path(f)) for f in files]}
    console.answer(answer, f"{page}\n{len(files)} files written to {out}", common.json)
