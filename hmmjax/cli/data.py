"""`hmmjax data check`: check a local copy of a data set."""

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from hmmjax.cli import console
from hmmjax.cli import options as o

DATASETS = ("cholec80",)

app = typer.Typer(name="data", help="Check data sets on disk.", no_args_is_help=True)


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
