"""`hmmjax stabilize`: stabilize predictions and write them."""

import contextlib

from hmmjax.cli import console
from hmmjax.cli import options as o


@console.friendly
@o.expand
def stabilize(
    *,
    out: o.Out,
    files: o.PredictionFiles,
    further: o.FuseFiles,
    annotations: o.Annotations = None,
    format: o.AnnotationFormat,
    split: o.Split,
    learning: o.Learning,
    modeling: o.Modeling,
    common: o.Common,
    online: o.Online = False,
    write: o.Write = None,
    no_pictures: o.NoPictures = False,
    relaxed: o.Relaxed = False,
    dry_run: o.DryRun = False,
) -> None:
    """Stabilize predictions with the coupled HMM.

    Writes the predictions in the layouts of the given files, posteriors (stabilized.npz), the model (model.npz, and
    model_online.npz if the filter has its own), the table that compares the recognizer M with the stabilized M_H
    (table.csv), and a picture of each video. With --learn-from val --apply-to test, the model is learned from the
    annotated validation videos, and the test videos alone are stabilized and scored. Otherwise it is learned from all
    annotated videos; each of them is stabilized by a model that has not seen its annotations (--folds).

    After an interruption, run the command again with the same --out. A folder of results is never overwritten without
    --force, and two runs never write to the same folder.
    """
    from hmmjax import io
    from hmmjax import stabilize as job
    from hmmjax.cli import dry_runs, reading

    _check(learning, modeling, split)
    for word in write or ():
        if word not in o.SEGMENT_FORMATS:
            raise console.unknown("--write", word, o.SEGMENT_FORMATS)
    settings = reading.learning_settings(
        learning,
        emissions=modeling.emissions,
        max_iterations=modeling.iterations,
        learn=modeling.learn,
        metric=modeling.metric,
        calibrated=modeling.calibrate,
        stages=modeling.durations,
        threshold=modeling.threshold,
        relaxed=relaxed,
        learn_from=split.learn_from,
        apply_to=split.apply_to,
    )
    given = io.load_params(modeling.model) if modeling.model is not None else None
    given_online = io.load_params(modeling.online_model) if modeling.online_model is not None else None
    if dry_run:
        io.check_free(out, force=common.force)
    claimed = contextlib.nullcontext(True) if dry_run else io.claim(out, force=common.force)
    with claimed as overwrite, console.Stages() as stages:
        sources = [reading.read_predictions(files, stages), *reading.read_further(further, files, stages)]
        predictions, *more = sources = reading.select_videos(sources, files.videos)
        truth = reading.read_truth(annotations, format, files, stages)
        truth = reading.of_selected(truth, [t for source in sources for t in source], files.videos)
        inputs = {
            "fuse": more,
            "transitions": reading.read_transitions(learning, format, files, stages),
            "model": given,
        }
        parts = job.find_split(sources, settings, learns=given is None)
        applied = [[t for t in s if parts is None or t.video in parts.apply_to] for s in sources]
        like = job.originals([source for source in applied if source])
        io.plan_files(out, like)
        if dry_run:
            dry_runs.report_plan(predictions, truth, settings, inputs, out, common.json)
            return
        result = job.stabilize(predictions, truth, settings, **inputs, online_model=given_online, progress=stages)
        written = job.write_results(
            result, out, like=like, online=online, pictures=not no_pictures, force=overwrite, progress=stages
        )
        if write:
            system = result.filtered if online else result.smoothed
            written += io.write_segments(job.result_tracks(result, system), out, write, force=overwrite)
    console.notices(result.notices)
    if common.json:
        print(job.as_json(result.table, [console.as_options(line) for line in result.notices]))
        return
    if result.table:
        from hmmjax.cli.tables import print_table

        print_table(result.table, f"{console.videos(len(result.ids))}; {result.protocol}")
        for i, path in enumerate(further.fuse or (), 2):
            print(f"M {i}: {path}")
    else:
        print(f"{console.videos(len(result.ids))} stabilized; no annotations, so there is no table")
    print(f"{len(written)} files written to {out}")


def _check(learning: o.Learning, modeling: o.Modeling, split: o.Split) -> None:
    """Raise ValueError if options contradict each other."""
    from hmmjax.cli import reading

    for option, value, allowed in (
        ("--emissions", modeling.emissions, (*o.EMISSIONS, "auto")),
        ("--learn", modeling.learn, ("auto", "count", "calibrate", "refine", "tune")),
        ("--metric", modeling.metric, ("log-loss", "accuracy")),
    ):
        if value not in allowed:
            raise console.unknown(option, value, allowed)
    changed = {
        "--transitions-from": learning.transitions_from,
        "--leave-one-out": learning.leave_one_out,
        "--learn-from": split.learn_from,
        "--calibrate": modeling.calibrate,
        "--durations": modeling.durations,
        "--iterations": modeling.iterations is not None,
        "--emissions": modeling.emissions != "auto",
        "--learn": modeling.learn != "auto",
        "--metric": modeling.metric != "log-loss",
    }
    given = [option for option, value in changed.items() if value]
    if modeling.model is not None and given:
        raise ValueError(f"--model learns nothing, so {', '.join(given)} cannot apply. Fix: leave out one or the other")
    if modeling.online_model is not None and modeling.model is None:
        raise ValueError("--online-model is the filter's part of a given model. Fix: give --model too")
    reading.check_learning(learning)
