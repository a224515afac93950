"""Report what `hmmjax stabilize --dry-run` would learn, infer and write."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hmmjax import io
from hmmjax import stabilize as job
from hmmjax._core.size import model_size
from hmmjax.cli import console
from hmmjax.io import Track
from hmmjax.stabilize.prepare import check_rate
from hmmjax.stabilize.split import check_classes


def report_plan(
    predictions: Sequence[Track],
    annotations: Sequence[Track],
    settings: job.Settings,
    inputs: dict[str, Any],
    out: Path,
    as_json: bool,
) -> None:
    """Print what `hmmjax.stabilize.stabilize` would do with these inputs and settings.

    Args:
        predictions: of the first recognizer.
        annotations: of some of the videos.
        settings: how to learn, hold out and stabilize.
        inputs: further arguments of `hmmjax.stabilize.prepare_inputs`.
        out: the folder to which results would be written.
        as_json: print the plan as JSON.
    """
    sources = {"predictions": predictions, "annotations": annotations, "fuse": inputs["fuse"]}
    model, transitions = inputs["model"], inputs["transitions"]
    split = job.find_split((predictions, *inputs["fuse"]), settings, learns=model is None)
    learner = None
    if split is not None and model is None:
        learner = job.prepare_inputs(**split.learning(**sources, transitions=transitions), settings=settings)
    if split is not None:
        sources, transitions = split.applying(**sources), ()
    prepared = job.prepare_inputs(**sources, settings=settings, transitions=transitions, model=model)
    if learner is not None:
        _check_applied(learner, prepared, [t for s in (predictions, *inputs["fuse"]) for t in s], sources)
    index, obs = prepared.index, prepared.examples.obs
    ids, count = list(index.ids), len(prepared.outputs)
    tracks = [track for track in ("phases", "tools") if getattr(obs, track) is not None]
    frames = sum(len(f) for f in index.frames)
    plan: dict[str, Any] = {"would_stabilize": ids, "tracks": tracks, "frames": frames, "recognizers": count}
    text = f"would stabilize {' and '.join(tracks)} of {console.videos(len(ids))}, {frames:,} frames"
    text += f", predicted by {count} recognizers" if count > 1 else ""
    phases, tools = _model_shape(learner or prepared)
    size = model_size(phases, tools, index.length, len(ids))
    plan |= {"states": size.states, "bytes": size.memory, "seconds_per_pass": round(size.seconds, 3)}
    text += f" ({size})"
    if prepared.given is not None:
        plan["models"] = 0
        text += ", with the given model"
    else:
        learning, words = _learning(learner or prepared, settings, split)
        plan |= learning
        text += words
    doubts = () if split is None else split.doubts
    notices = tuple(dict.fromkeys((*doubts, *(learner.notices if learner else ()), *prepared.notices)))
    plan |= {"would_write_to": str(out), "notices": list(notices)}
    console.notices(notices)
    console.answer(plan, f"{text}. Results would go to {out}; nothing was written.", as_json)


def _check_applied(
    learner: job.Prepared, prepared: job.Prepared, tracks: Sequence[Track], applied: dict[str, Any]
) -> None:
    """Refuse what a model that was learned from some videos could not be applied to."""
    for track in ("phases", "tools"):
        if own := [t for t in tracks if t.track == track]:
            io.align_classes(own)
    check_classes([t for s in (applied["predictions"], *applied["fuse"]) for t in s], learner.classes["phases"])
    check_rate(1 / learner.index.step_seconds, prepared.index)


def _model_shape(prepared: job.Prepared) -> tuple[int, int]:
    """Return the numbers of phases, or of their stages together, and of tools of the model."""
    if prepared.given is not None:
        return prepared.given.num_stages, prepared.given.num_tools
    return prepared.classes["phases"], prepared.classes["tools"]


def _learning(prepared: job.Prepared, settings: job.Settings, split: job.Split | None) -> tuple[dict[str, Any], str]:
    """Return how the models would be learned: as values, and in words."""
    preview = job.preview_folds(prepared, settings)
    if split is not None:
        preview |= {"protocol": split.protocol, "learn_from": list(split.learn_from)}
    counted = list(prepared.counts.ids) if prepared.counts else []
    plan = {
        **preview,
        "emissions": settings.emissions,
        "durations": settings.stages,
        "transitions_from": counted,
    }
    words = (
        f". {preview['protocol'][0].upper()}{preview['protocol'][1:]}; {preview['models']} "
        f"model{'s' * (preview['models'] > 1)} to learn. Emissions: {_emissions(preview, settings)}. Transitions: "
    )
    if counted:
        words += f"from {console.videos(len(counted))} of --transitions-from"
    else:
        words += "from the annotated videos" if preview["annotated"] else "learned by EM"
    return plan, words + (", with phase durations" if settings.stages else "")


def _emissions(preview: dict[str, Any], settings: job.Settings) -> str:
    """Describe the emissions and how they would be learned."""
    if preview["chosen"]:
        return "auto, chosen on inner folds"
    how = "learned by EM" if preview["em"] else "counted in labeled frames"
    powers = "calibrated" if preview["calibrated"] else "not calibrated" + _reason(preview, settings)
    return f"{settings.family}, {how}, {powers}"


def _reason(preview: dict[str, Any], settings: job.Settings) -> str:
    """Explain why models would not be calibrated, unless the user turned calibration off."""
    if not preview["annotated"] or (settings.calibrates is False and not settings.spared_by_memory):
        return ""
    if preview["em"]:
        return " (emissions learned by EM are not calibrated)"
    if settings.spared_by_memory:
        return " (these emissions already account for errors that last)"
    return f" (each model learns from {preview['left']} annotated video(s); {job.ENOUGH_VIDEOS} are needed)"
