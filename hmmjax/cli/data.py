"""`hmmjax data check`: check a local copy of a data set; `hmmjax data formats`: list layouts of files."""

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from hmmjax.cli import console
from hmmjax.cli import options as o

DATASETS = ("cholec80",)

app = typer.Typer(name="data", help="Check data sets on disk, and list the layouts of files.", no_args_is_help=True)


@app.callback()
def _data() -> None:
    pass


@app.command(
    epilog=console.examples("hmmjax data check cholec80 /data/cholec80", "hmmjax data check cholec80 . --json")
)
@console.friendly
def check(
    dataset: Annotated[str, typer.Argument(help=f"The data set that it should be: {', '.join(DATASETS)}.")],
    directory: Annotated[
        Path, typer.Argument(help="Folder of the copy, with phase_annotations/ and tool_annotations/.")
    ],
    json: o.Json = False,
    traceback: o.Traceback = False,
) -> None:
    """Compare a copy's annotations with the published counts and print every difference. Videos are not checked.

    Exit code 0 for a faithful copy, 1 for one that differs, 2 for one that cannot be read.
    """
    from hmmjax.data import cholec80

    if dataset not in DATASETS:
        raise ValueError(f"unknown data set {dataset!r}. Fix: only {' and '.join(DATASETS)} is supported")
    with console.Stages() as stages:
        lines = cholec80.check(directory, progress=stages.files("reading annotations"))
    if json:
        print(json_.dumps({"dataset": dataset, "faithful": not lines, "differences": lines}, indent=1))
    else:
        for line in lines:
            print(line)
        found = f"{len(lines)} difference{'s' * (len(lines) > 1)} from {dataset}"
        print(found if lines else f"all counts agree: this is {dataset}")
    if lines:
        raise typer.Exit(1)


@app.command(epilog=console.examples("hmmjax data formats", "hmmjax data formats --json"))
@console.friendly
def formats(json: o.Json = False, traceback: o.Traceback = False) -> None:
    """List the layouts of files that hmmjax reads, with some lines of each and the command that reads it."""
    from hmmjax.data.formats import FORMATS

    if json:
        print(json_.dumps([{**f._asdict(), "command": f.command} for f in FORMATS], indent=1))
        return
    for layout in FORMATS:
        print(f"{layout.name}: {layout.file}" + (f" ({layout.note})" if layout.note else ""))
        print("".join(f"    {line}\n" for line in layout.lines.splitlines()), end="")
        print(f"  $ {layout.command}\n")
