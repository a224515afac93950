"""Report what `hmmjax stabilize --dry-run` would learn, infer and write."""

from pathlib import Path
from typing import Any

from hmmjax import stabilize as job
from hmmjax._core.size import model_size
from hmmjax.cli import console


def report_plan(prepared: job.Prepared, out: Path, settings: job.Settings, as_json: bool) -> None:
    """Print what a run with these inputs and settings would do."""
    index, obs = prepared.index, prepared.examples.obs
    ids, count = list(index.ids), len(prepared.outputs)
    tracks = [track for track in ("phases", "tools") if getattr(obs, track) is not None]
    frames = sum(len(f) for f in index.frames)
    plan: dict[str, Any] = {"would_stabilize": ids, "tracks": tracks, "frames": frames, "recognizers": count}
    text = f"would stabilize {' and '.join(tracks)} of {console.videos(len(ids))}, {frames:,} frames"
    text += f", predicted by {count} recognizers" if count > 1 else ""
    phases, tools = _model_shape(prepared)
    size = model_size(phases, tools, index.length, len(ids))
    plan |= {"states": size.states, "bytes": size.memory, "seconds_per_pass": round(size.seconds, 3)}
    text += f" ({size})"
    if prepared.given is not None:
        plan["models"] = 0
        text += ", with the given model"
    else:
        learning, words = _learning(prepared, settings)
        plan |= learning
        text += words
    plan |= {"would_write_to": str(out), "notices": list(prepared.notices)}
    console.notices(prepared.notices)
    console.answer(plan, f"{text}. Results would go to {out}; nothing was written.", as_json)


def _model_shape(prepared: job.Prepared) -> tuple[int, int]:
    """Return the numbers of phases, or of their stages together, and of tools of the model."""
    if prepared.given is not None:
        return prepared.given.num_stages, prepared.given.num_tools
    return prepared.classes["phases"], prepared.classes["tools"]


def _learning(prepared: job.Prepared, settings: job.Settings) -> tuple[dict[str, Any], str]:
    """Return how the models would be learned: as values, and in words."""
    preview = job.preview_folds(prepared, settings)
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
    if settings.calibrates is False or not preview["annotated"]:
        return ""
    if preview["em"]:
        return " (emissions learned by EM are not calibrated)"
    return f" (each model learns from {preview['left']} annotated video(s); {job.ENOUGH_VIDEOS} are needed)"
