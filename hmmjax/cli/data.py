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


@app.command(epilog=console.examples("hmmjax data check /data/cholec80", "hmmjax data check cholec80 . --json"))
@console.friendly
def check(
    dataset: Annotated[
        str, typer.Argument(help=f"The data set that it should be: {', '.join(DATASETS)}. May be left out.")
    ],
    directory: Annotated[
        Path | None, typer.Argument(help="Folder of the copy, with phase_annotations/ and tool_annotations/.")
    ] = None,
    json: o.Json = False,
    traceback: o.Traceback = False,
) -> None:
    """Compare a copy's annotations with the published counts and print every difference. Videos are not checked.

    Exit code 0 for a faithful copy, 1 for one that differs, 2 for one that cannot be read.
    """
    from hmmjax.data import cholec80

    if directory is None and dataset not in DATASETS:
        dataset, directory = _recognized(Path(dataset)), Path(dataset)
    if directory is None:
        raise ValueError(f"the folder of {dataset} is missing. Fix: hmmjax data check {dataset} FOLDER")
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


def _recognized(folder: Path) -> str:
    """Return the data set whose layout a folder has; raise ValueError if it has none."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is neither a folder nor a data set. Fix: check the path, or give a data set first")
    if (folder / "phase_annotations").is_dir() or (folder / "tool_annotations").is_dir():
        return "cholec80"
    raise ValueError(
        f"{folder} has neither phase_annotations/ nor tool_annotations/, so it is no copy of Cholec80, the only data "
        "set with published counts here. Fix: give the folder that holds them, or look at other annotations with "
        "hmmjax explore FOLDER --out explored"
    )


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
