"""`hmmjax data check`: check a local copy of a data set; `hmmjax data formats`: list layouts of files."""

import json as json_
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hmmjax.cli import console
from hmmjax.cli import options as o

if TYPE_CHECKING:
    from hmmjax.data.check import Checked

DATASETS = ("cholec80",)

app = typer.Typer(
    name="data", help="Check files and data sets on disk, and list the layouts of files.", no_args_is_help=True
)


@app.callback()
def _data() -> None:
    pass


@app.command(
    epilog=console.examples(
        "hmmjax data check /data/autolaparo/labels",
        "hmmjax data check predictions/ --kind probabilities",
        "hmmjax data check cholec80 . --json",
    )
)
@console.friendly
def check(
    where: Annotated[
        list[str],
        typer.Argument(
            metavar="[DATASET] FOLDER",
            help=f"Folder or file of annotations or predictions. Before it, the data set that it should be "
            f"({', '.join(DATASETS)}), if wanted.",
        ),
    ],
    kind: o.Kind = None,
    phase_names: o.PhaseNames = None,
    tool_names: o.ToolNames = None,
    fps: o.Fps = None,
    first_index: o.FirstIndex = None,
    rows: o.Rows = "auto",
    row_step: Annotated[int, typer.Option(help="Frames from one row to the next in files without frame numbers.")] = 25,
    json: o.Json = False,
    traceback: o.Traceback = False,
) -> None:
    """Say which of the known layouts a folder of annotations has, how many videos are there, and what is wrong.

    Files hold annotations, unless --kind says probabilities or logits. Options take the place of what layouts imply.

    A copy of Cholec80 is compared with the published counts, of other data sets names, lengths and ranges of labels are
    checked. Videos are not read. Exit code 0 for a complete copy without problems, 1 for another, 2 for one that cannot
    be read.
    """
    if len(where) > 2:
        raise ValueError(f"{where[2]!r} is one too many. Fix: give one folder, and a data set before it if wanted")
    dataset, directory = where[0], Path(where[1]) if len(where) > 1 else None
    if directory is None and dataset not in DATASETS:
        dataset, directory = "", Path(dataset)
        if not directory.exists():
            raise ValueError(
                f"{directory} is neither a folder nor a data set. Fix: check the path, or give a data set first"
            )
        if (directory / "phase_annotations").is_dir() or (directory / "tool_annotations").is_dir():
            dataset = "cholec80"
    if directory is None:
        raise ValueError(f"the folder of {dataset} is missing. Fix: hmmjax data check {dataset} FOLDER")
    if dataset not in (*DATASETS, ""):
        raise ValueError(
            f"unknown data set {dataset!r}. Fix: leave it out, since layouts are recognized; only "
            f"{' and '.join(DATASETS)} is compared with published counts"
        )
    with console.Stages() as stages:
        files = stages.files("reading annotations")
        if dataset:
            from hmmjax.data import cholec80

            summary, *lines = cholec80.check(directory, progress=files)
        else:
            from hmmjax.data.check import check_folder

            options = {"kind": kind, "phase_names": phase_names, "tool_names": tool_names, "fps": fps}
            options |= {"first_index": first_index, "rows": rows, "step": row_step}
            found = check_folder(directory, options=options, progress=files)
    if not dataset:
        _answer(found, json)
        return
    if json:
        print(
            json_.dumps({"dataset": dataset, "faithful": not lines, "summary": summary, "differences": lines}, indent=1)
        )
    else:
        for line in (f"{dataset}: {summary}", *lines):
            print(line)
        count = f"{len(lines)} difference{'s' * (len(lines) > 1)} from {dataset}"
        print(count if lines else f"all counts agree: this is {dataset}")
    if lines:
        raise typer.Exit(1)


def _answer(found: "Sequence[Checked]", json: bool) -> None:
    """Print what a folder holds; exit with code 1 unless it is complete."""
    if json:
        rows = [{**c._asdict(), "complete": c.complete} for c in found]
        for row in rows:
            row |= {key: [console.as_options(line) for line in row[key]] for key in ("problems", "notes")}
        print(json_.dumps({"layouts": rows}, indent=1))
    else:
        for checked in found:
            print(checked.summary)
        for line in (line for checked in found for line in checked.problems):
            print(console.as_options(line))
        notes = [line for checked in found for line in checked.notes]
        for line in notes:
            print(f"note: {console.as_options(line)}")
        count = sum(len(checked.problems) for checked in found)
        text = f"{count} problem{'s' * (count != 1)}" if count else "no problems"
        print(text + (f", {len(notes)} note{'s' * (len(notes) > 1)}" if notes else ""))
    if not all(checked.complete for checked in found):
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
