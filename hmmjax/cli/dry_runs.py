"""What `hmmjax stabilize --dry-run` says: how it would learn, infer and write."""

from pathlib import Path

from hmmjax import stabilize as job
from hmmjax.cli import console


def say(
    prepared: job.Prepared,
    out: Path,
    emissions: str,
    folds: int | None,
    iterations: int | None,
    calibrate: bool | None,
    durations: bool,
    as_json: bool,
) -> None:
    """Print what would be done with what was read; the options are the command's."""
    index, obs = prepared.index, prepared.examples.obs
    ids, count = list(index.ids), len(prepared.said)
    tracks = [track for track in ("phases", "tools") if getattr(obs, track) is not None]
    frames = sum(len(f) for f in index.frames)
    plan = {"would_stabilize": ids, "tracks": tracks, "frames": frames, "recognizers": count}
    text = f"would stabilize {' and '.join(tracks)} of {console.videos(len(ids))}, {frames:,} frames"
    text += f", as {count} recognizers see them" if count > 1 else ""
    if prepared.given is not None:
        plan |= {"models": 0, "would_write_to": str(out)}
        text += "; nothing is learned, the model is given"
    else:
        found = job.outlook(
            prepared.examples, index.ids, prepared.counts, prepared.classes, iterations, folds, calibrate
        )
        counted = list(prepared.counts[0]) if prepared.counts else []
        plan |= {**found, "emissions": emissions, "durations": durations, "transitions_from": counted}
        plan |= {"would_write_to": str(out)}
        text += f"; {len(found['annotated'])} of them annotated, {found['protocol']} ({found['models']} model"
        text += f"{'s' * (found['models'] > 1)} to learn); {emissions} emissions, "
        text += "by EM" if found["em"] else "counted in labeled frames"
        text += ", calibrated" if found["calibrated"] else f", not calibrated{_why(found, calibrate)}"
        text += "; transitions of "
        text += f"{console.videos(len(counted))} of --transitions-from" if counted else "the annotated videos"
        text += "; phases in stages" if durations else ""
    console.notices(prepared.notices)
    plan["notices"] = list(prepared.notices)
    console.answer(plan, f"{text}; results to {out}. Nothing was written.", as_json)


def _why(found: dict, calibrate: bool | None) -> str:
    """Why nothing is calibrated, where nobody forbade it."""
    if calibrate is False or not found["annotated"]:
        return ""
    if found["em"]:
        return " (EM would undo it)"
    return f" ({found['left']} annotated videos are left to learn from, {job.ENOUGH_VIDEOS} needed)"
