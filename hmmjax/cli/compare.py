"""`hmmjax compare`: which emission family suits these predictions?"""

import json as json_
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from hmmjax import io
from hmmjax import stabilize as job
from hmmjax.cli import console, reading
from hmmjax.cli import options as o
from hmmjax.comparison import Ranking
from hmmjax.initialize import FAMILIES
from hmmjax.io import FormatError


@console.friendly
def compare(
    annotations: Annotated[
        list[Path],
        typer.Option("--annotations", help="Ground truth of two or more of the videos; files or folders.",
                     rich_help_panel="Annotations"),
    ],
    predictions: o.Predictions = None,
    phases: o.Phases = None,
    tools: o.Tools = None,
    kind: o.Kind = None,
    phase_kind: o.PhaseKind = None,
    tool_kind: o.ToolKind = None,
    phase_names: o.PhaseNames = None,
    tool_names: o.ToolNames = None,
    fps: o.Fps = None,
    row_step: o.RowStep = 25,
    offset: o.Offset = None,
    header: o.Header = "auto",
    lenient: o.Lenient = False,
    rename: o.Rename = None,
    videos: o.Videos = None,
    time_step: o.TimeStep = None,
    annotations_fps: o.TruthFps = None,
    annotations_phase_names: o.TruthPhaseNames = None,
    annotations_tool_names: o.TruthToolNames = None,
    transitions_from: o.Transitions = None,
    transition_videos: o.TransitionVideos = None,
    emissions: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this family; repeatable: {', '.join(FAMILIES)}. Left out: all that the predictions "
                     "allow.", rich_help_panel="Learning"),
    ] = None,
    folds: o.Folds = 5,
    leave_one_out: o.LeaveOneOut = False,
    no_hidden_phases: o.NoHiddenPhases = False,
    unseen_phase_change: o.UnseenPhaseChange = 1e-8,
    csv: o.Csv = None,
    force: o.Force = False,
    dry_run: o.DryRun = False,
    json: o.Json = False,
    traceback: o.Traceback = False,
) -> None:  # fmt: skip
    """Rank emission families on held-out videos, in one table.

    Each family and its powers are learned from some annotated videos and asked about the others: how probable are the
    labels given the predictions (conditional: what stabilizing needs), how probable are the predictions (marginal),
    and how many labels come out right? What comes first, or is tied with it and gets more labels right, is what to
    give hmmjax stabilize as --emissions; with --calibrate where that gets more right than as it is. Families take a
    minute or two each.
    """
    for name in emissions or ():
        if name not in FAMILIES:
            raise FormatError(f"unknown emissions {name!r}", fix=f"say {', '.join(FAMILIES)}")
    if transition_videos and not transitions_from:
        raise FormatError("--transition-videos chooses among --transitions-from, which is missing")
    if csv is not None and csv.exists() and not force:
        raise FileExistsError(f"{csv} exists. Fix: choose another --csv, or say --force")
    with console.Stages() as stages:
        options = reading.prediction_options(
            kind, phase_kind, tool_kind, phase_names, tool_names, fps, row_step, offset, header, lenient
        )
        said = reading.predictions(predictions, phases, tools, options, rename, videos, stages)
        shared = reading.truth_options(
            annotations_fps, annotations_phase_names or phase_names, annotations_tool_names or tool_names, row_step
        )
        truth = reading.of_chosen(reading.truth(annotations, shared, stages, "annotations"), said, videos)
        others = io.select(reading.truth(transitions_from, shared, stages, "transitions"), transition_videos)
        settings = job.Settings(
            folds=None if leave_one_out else folds,
            priors=o.priors(unseen_phase_change),
            hidden_phases=not no_hidden_phases,
            step=time_step,
        )
        asked = {"transitions": others, "families": emissions}
        if dry_run:
            question = job.prepare_ranking(said, truth, settings, **asked)
            plan = {
                "would_compare_on": question.ids,
                "tracks": question.tracks,
                "families": question.families,
                "protocol": question.protocol,
                "notices": question.notices,
            }
            console.notices(question.notices)
            text = f"would compare {', '.join(question.families)} on {' and '.join(question.tracks)}"
            console.answer(plan, f"{text}; {question.protocol}. Nothing was written.", json)
            return
        found = job.rank_families(said, truth, settings, **asked, progress=stages)
    console.notices(found.notices)
    if csv is not None:
        rows = [{**row, "powers": json_.dumps(row["powers"]), "split": found.protocol} for row in found.records()]
        io.write_csv(csv, rows, force=force)
    if json:
        content = {"protocol": found.protocol, "videos": found.ids, "unit": "nats a frame", "table": found.records()}
        content["recognizer"] = {name: job.finite_or_none(x) for name, x in found.ranking.recognizer._asdict().items()}
        console.answer({**content, "notices": found.notices}, "", True)
        return
    frames = sum(count for _, count in found.ranking[0].videos)
    what = f"{' and '.join(found.tracks)}; {found.protocol}, {frames:,} labeled frames"
    _print(found.ranking, f"{what}; nats a frame, larger is better")


def _print(ranking: Ranking, title: str) -> None:
    table = Table(title=title, title_justify="left", title_style="bold")
    titles, *rows = ranking.rows()
    for i, column in enumerate(titles):
        table.add_column(column, justify="right" if i else "left", no_wrap=not i)
    for row in rows[:-1]:
        table.add_row(*row)
    table.add_section()
    table.add_row(*rows[-1])
    out = Console(highlight=False, soft_wrap=True)
    out.print(table)
    for line in (
        "conditional: log-probability of the labels given the predictions, with powers found by calibration; "
        "uncalibrated: with powers of one",
        "behind: how much less than the first; ±: its standard error over held-out videos",
        "marginal: log-density of the predictions. It ranks families that see the same numbers: 'confusion' sees "
        "labels and stands alone, 'scaled' is no density",
        "accuracy (of phases, pooled frames), F1 (of tools, at 0.5, mean over tools): held-out labels against the "
        "annotations, with powers of one and calibrated; last row: what was predicted",
    ):
        out.print(f"[dim]{line}[/]")
