"""`hmmjax compare`: rank emission families on prediction files."""

import json as json_
from typing import Any

from hmmjax.cli import console
from hmmjax.cli import options as o


@console.friendly
@o.expand
def compare(
    *,
    annotations: o.RequiredAnnotations,
    files: o.PredictionFiles,
    format: o.AnnotationFormat,
    learning: o.Learning,
    common: o.Common,
    emissions: o.Families = None,
    csv: o.Csv = None,
    dry_run: o.DryRun = False,
) -> None:
    """Rank emission families on held-out videos.

    Each family and its powers are learned from some annotated videos and scored on the others: how probable are the
    labels given the predictions (conditional: what stabilizing needs), how probable are the predictions (marginal), and
    how many labels are predicted correctly?

    Give hmmjax stabilize the first family as --emissions, or one that is tied with it and predicts more labels
    correctly; add --calibrate if the calibrated columns are better.
    """
    from hmmjax import io
    from hmmjax import stabilize as job
    from hmmjax.cli import reading

    for name in emissions or ():
        if name not in o.EMISSIONS:
            raise console.unknown("--emissions", name, o.EMISSIONS)
    reading.check_learning(learning)
    console.refuse_existing(csv, "--csv", common.force)
    settings = reading.learning_settings(learning)
    with console.Stages() as stages:
        predictions = reading.read_predictions(files, stages, videos=files.videos)
        truth = reading.of_selected(reading.read_truth(annotations, format, files, stages), predictions, files.videos)
        inputs: dict[str, Any] = {
            "transitions": reading.read_transitions(learning, format, files, stages),
            "families": emissions,
        }
        if dry_run:
            _report_plan(job.prepare_ranking(predictions, truth, settings, **inputs), common.json)
            return
        found = job.rank_families(predictions, truth, settings, **inputs, progress=stages)
    console.notices(found.notices)
    if csv is not None:
        rows = [{**row, "powers": json_.dumps(row["powers"]), "split": found.protocol} for row in found.records()]
        io.write_csv(csv, rows, force=common.force)
    if common.json:
        content = {"protocol": found.protocol, "videos": found.ids, "unit": "nats per frame", "table": found.records()}
        content["recognizer"] = {name: job.finite_or_none(x) for name, x in found.ranking.recognizer._asdict().items()}
        console.answer({**content, "notices": found.notices}, "", True)
        return
    from hmmjax.cli.tables import print_ranking

    frames = sum(count for _, count in found.ranking[0].videos)
    what = f"{' and '.join(found.tracks)}; {found.protocol}, {frames:,} labeled frames"
    print_ranking(found.ranking, f"{what}; nats per frame, larger is better")


def _report_plan(inputs: Any, as_json: bool) -> None:
    """Print what would be compared."""
    plan = {
        "would_compare_on": inputs.ids,
        "tracks": inputs.tracks,
        "families": inputs.families,
        "protocol": inputs.protocol,
        "notices": inputs.notices,
    }
    console.notices(inputs.notices)
    text = f"would compare {', '.join(inputs.families)} on {' and '.join(inputs.tracks)}; {inputs.protocol}"
    console.answer(plan, f"{text}. Nothing was written.", as_json)
