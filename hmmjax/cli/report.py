"""`hmmjax report`: a folder of results as a page."""

from pathlib import Path

from hmmjax import io
from hmmjax import stabilize as job
from hmmjax.cli import console
from hmmjax.cli import options as o


@console.friendly
def report(
    results: o.Results,
    out: o.ReportOut = None,
    title: o.Title = "Stabilized recognition of surgical phases and tools",
    frames: o.Frames = None,
    costs: o.Costs = None,
    no_intervals: o.NoIntervals = False,
    no_pictures: o.NoPictures = False,
    force: o.Force = False,
    dry_run: o.DryRun = False,
    json: o.Json = False,
    traceback: o.Traceback = False,
) -> None:
    """One page about a folder of results, and a folder of its figures and tables.

    report.html needs no network and no other file: figures with their conventions, every video to zoom into, what the
    model changed and why, minutes of phases and tool use, what was learned. pictures/ has PNG and SVG, tables/ csv and
    LaTeX.
    """
    console.needs("jinja2", extra="report")
    from hmmjax import report as pages
    from hmmjax.report.write import PARTS

    out = results / "report" if out is None else out
    found = job.read_results(results)
    points = None if costs is None else pages.read_costs(costs)
    page = out / "report.html"
    io.refuse_existing(out, PARTS, force=force)
    if dry_run:
        answer = {"would_write": str(page), "exists": page.exists(), "videos": list(found.ids)}
        console.answer(answer, f"would write {page}: {console.videos(len(found.ids))}, nothing written", json)
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
            force=force,
            progress=stages,
        )
    answer = {"page": str(page), "files": [str(Path(f)) for f in files]}
    console.answer(answer, f"{page}\n{len(files)} files written to {out}", json)
