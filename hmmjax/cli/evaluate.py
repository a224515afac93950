"""`hmmjax evaluate`: compare predictions with annotations."""

from hmmjax.cli import console
from hmmjax.cli import options as o


@console.friendly
@o.expand
def evaluate(
    *,
    truth: o.Truth,
    files: o.PredictionFiles,
    format: o.AnnotationFormat,
    common: o.Common,
    relaxed: o.Relaxed = False,
    csv: o.Csv = None,
) -> None:
    """Print a table of metrics of any predictions against annotations, joined on frame numbers."""
    from hmmjax import io
    from hmmjax import stabilize as job
    from hmmjax.cli import reading
    from hmmjax.cli.tables import print_table

    console.refuse_existing(csv, "--csv", common.force)
    with console.Stages() as stages:
        predictions = reading.read_predictions(files, stages, videos=files.videos)
        labels = reading.read_truth(truth, format, files, stages, "truth")
        labels = reading.of_selected(labels, predictions, files.videos)
        rows, notices = job.evaluate_predictions(predictions, labels, relaxed=relaxed)
    console.notices(notices)
    if not rows:
        raise io.FormatError(
            "no predicted frame is annotated",
            fix="check --fps, --row-step and --offset of the predictions, --annotations-fps, and that labels are known",
        )
    if csv is not None:
        io.write_csv(csv, job.records(rows), force=common.force)
    if common.json:
        print(job.as_json(rows, [console.as_options(line) for line in notices]))
    else:
        print_table(rows, "predictions against annotations")
