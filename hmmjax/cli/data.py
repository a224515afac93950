"""`hmmjax data check`: is a copy of a data set what it should be?"""

import json as json_
from pathlib import Path
from typing import Annotated

import typer

from hmmjax.cli import console
from hmmjax.cli import options as o
from hmmjax.data import cholec80
from hmmjax.io import FormatError

CHECKS = {"cholec80": cholec80.check}

app = typer.Typer(name="data", help="Data sets on disk.", no_args_is_help=True)


@app.callback()
def _data() -> None:
    pass


@app.command(
    epilog=console.examples("hmmjax data check cholec80 /data/cholec80", "hmmjax data check cholec80 . --json")
)
@console.friendly
def check(
    dataset: Annotated[str, typer.Argument(help=f"Which data set it should be: {', '.join(CHECKS)}.")],
    directory: Annotated[Path, typer.Argument(help="Where the copy is; holds phase_annotations/, tool_annotations/.")],
    json: o.Json = False,
    traceback: o.Traceback = False,
) -> None:
    """Compare a copy's annotations with the published counts, and print every difference; videos are not looked at.

    Exit code 0 for a faithful copy, 1 for one that differs, 2 for one that cannot be read.
    """
    if dataset not in CHECKS:
        raise FormatError(f"unknown data set {dataset!r}", fix=f"say {' or '.join(CHECKS)}")
    with console.Stages() as stages:
        lines = CHECKS[dataset](directory, progress=stages.files("reading annotations"))
    if json:
        print(json_.dumps({"dataset": dataset, "faithful": not lines, "differences": lines}, indent=1))
    else:
        for line in lines:
            print(line)
        found = f"{len(lines)} difference{'s' * (len(lines) > 1)} from {dataset}"
        print(found if lines else f"every figure agrees: this is {dataset}")
    if lines:
        raise typer.Exit(1)
