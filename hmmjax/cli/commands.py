"""`hmmjax stabilize` and `hmmjax evaluate`: read, call the plain functions, print, write."""

import contextlib

import typer

import hmmjax
from hmmjax import io
from hmmjax import stabilize as job
from hmmjax.cli import console, dry_runs, reading
from hmmjax.cli import options as o
from hmmjax.initialize import FAMILIES
from hmmjax.io import FormatError


@console.friendly
def stabilize(
    out: o.Out,
    predictions: o.Predictions = None,
    phases: o.Phases = None,
    tools: o.Tools = None,
    fuse: o.Fuse = None,
    kind: o.Kind = None,
    phase_kind: o.PhaseKind = None,
    tool_kind: o.ToolKind = None,
    fuse_kind: o.FuseKind = None,
    fuse_phase_names: o.FusePhaseNames = None,
    fuse_fps: o.FuseFps = None,
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
    annotations: o.Annotations = None,
    annotations_fps: o.TruthFps = None,
    annotations_phase_names: o.TruthPhaseNames = None,
    annotations_tool_names: o.TruthToolNames = None,
    transitions_from: o.Transitions = None,
    transition_videos: o.TransitionVideos = None,
    model: o.Model = None,
    emissions: o.Emissions = "confusion",
    folds: o.Folds = 5,
    leave_one_out: o.LeaveOneOut = False,
    iterations: o.Iterations = None,
    calibrate: o.Calibrate = None,
    durations: o.Durations = False,
    no_hidden_phases: o.NoHiddenPhases = False,
    unseen_phase_change: o.UnseenPhaseChange = 1e-8,
    threshold: o.Threshold = 0.5,
    online: o.Online = False,
    no_pictures: o.NoPictures = False,
    relaxed: o.Relaxed = False,
    force: o.Force = False,
    dry_run: o.DryRun = False,
    json: o.Json = False,
    traceback: o.Traceback = False,
) -> None:
    """Stabilize predictions with the coupled HMM.

    Writes the predictions in the files' own layouts, posteriors (stabilized.npz), the model (model.npz), the table
    M against M_H (table.csv) and a picture of each video. Annotated videos are learned from, and each is inferred by
    a model that has not seen it. A run that was killed is followed by another with the same --out; a folder of results
    is never overwritten without --force, nor written to by two runs at once.
    """
    if emissions not in FAMILIES:
        raise FormatError(f"unknown emissions {emissions!r}", fix=f"say {', '.join(FAMILIES)}")
    if model is not None and (transitions_from or leave_one_out):
        raise FormatError("a given model learns nothing", fix="drop --model, or --transitions-from and --leave-one-out")
    if model is not None and (calibrate or durations or iterations is not None or emissions != "confusion"):
        drop = "--calibrate, --durations, --iterations and --emissions"
        raise FormatError("a given model learns nothing", fix=f"drop --model, or {drop}")
    priors = o.priors(unseen_phase_change)
    if transition_videos and not transitions_from:
        raise FormatError("--transition-videos chooses among --transitions-from, which is missing")
    given = io.load_params(model) if model is not None else None
    if dry_run:
        io.check_free(out, force=force)
    claimed = contextlib.nullcontext(True) if dry_run else io.claim(out, force=force)
    with claimed as overwrite, console.Stages() as stages:
        options = reading.prediction_options(
            kind, phase_kind, tool_kind, phase_names, tool_names, fps, row_step, offset, header, lenient
        )
        said = reading.predictions(predictions, phases, tools, options, rename, None, stages)
        more = reading.further(fuse, options, fuse_kind, fuse_phase_names, fuse_fps, stages)
        said, *more = reading.choose((said, *more), videos)
        shared = reading.truth_options(
            annotations_fps, annotations_phase_names or phase_names, annotations_tool_names or tool_names, row_step
        )
        truth = reading.truth(annotations, shared, stages, "annotations")
        truth = reading.of_chosen(truth, [t for source in (said, *more) for t in source], videos)
        others = io.select(reading.truth(transitions_from, shared, stages, "transitions"), transition_videos)
        settings = job.Settings(
            emissions=emissions,
            folds=None if leave_one_out else folds,
            max_iterations=iterations,
            priors=priors,
            hidden_phases=not no_hidden_phases,
            calibrated=calibrate,
            stages=durations,
            step=time_step,
            threshold=threshold,
            relaxed=relaxed,
        )
        sources = {"fuse": more, "transitions": others, "model": given}
        like = job.originals((said, *more))
        io.plan_files(out, like)
        if dry_run:
            prepared = job.prepare_inputs(said, truth, settings, **sources)
            dry_runs.report_plan(prepared, out, settings, json)
            return
        result = job.stabilize(said, truth, settings, **sources, progress=stages)
        files = job.write_results(
            result, out, like=like, online=online, pictures=not no_pictures, force=overwrite, progress=stages
        )
    console.notices(result.notices)
    if json:
        print(job.as_json(result.table, result.notices))
        return
    if result.table:
        console.print_table(result.table, f"{console.videos(len(result.ids))}; {result.protocol}")
        for i, path in enumerate(fuse or (), 2):
            print(f"M {i}: {path}")
    else:
        print(f"{console.videos(len(result.ids))} stabilized; no annotations, so there is no table")
    print(f"{len(files)} files written to {out}")


@console.friendly
def evaluate(
    truth: o.Truth,
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
    annotations_fps: o.TruthFps = None,
    annotations_phase_names: o.TruthPhaseNames = None,
    annotations_tool_names: o.TruthToolNames = None,
    relaxed: o.Relaxed = False,
    json: o.Json = False,
    csv: o.Csv = None,
    force: o.Force = False,
    traceback: o.Traceback = False,
) -> None:
    """Print the table of any predictions against ground truth, joined on frame numbers."""
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
        labels = reading.of_chosen(reading.truth(truth, shared, stages, "truth"), said, videos)
        rows, told = job.evaluate_predictions(said, labels, relaxed=relaxed)
    console.notices(told)
    if not rows:
        raise FormatError("no predicted frame has truth", fix="check fps, step and offset of both")
    if csv is not None:
        io.write_csv(csv, job.records(rows), force=force)
    if json:
        print(job.as_json(rows, told))
    else:
        console.print_table(rows, "predictions against the truth")


def version(value: bool) -> bool:
    """Print the version and stop."""
    if value:
        print(hmmjax.__version__)
        raise typer.Exit
    return value
