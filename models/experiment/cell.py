"""One cell of the grid: train a system, predict, stabilize, measure."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hmmjax.io import save_npz, save_params
from hmmjax.stabilize import Examples
from models.data.cache import read_cache
from models.data.frames import FrameTable
from models.data.scenarios import Scenario
from models.experiment.figures import measure, truth_changes
from models.experiment.plan import Cell, Plan
from models.experiment.stabilize import (
    Predictions,
    apply_model,
    learn_model,
    pad,
    read_dynamics,
    rows_of,
    seconds,
)
from models.recognizer import Recognizer
from models.settings import Config, read_config
from models.systems import SYSTEMS
from models.training.checkpoint import any_checkpoint
from models.training.features import cached_features
from models.training.feeds import video_rows
from models.training.loop import fit


def predict_cell(plan: Plan, cell: Cell, view: Path, scenario: Scenario) -> None:
    """Train, and predict the validation and test videos: writes ``predictions.npz``, then ``predicted.json``.

    Args:
        plan: of the experiment.
        cell: of the grid.
        view: cache of the scenario's frames and labels.
        scenario: all that was labeled.
    """
    config, elapsed = train(plan, cell, view)
    table = read_cache(view).table
    train_rows = table.parts == "train"
    heads = SYSTEMS[config.system].heads
    tracks = [t for t in ("phases", "tools") if t in heads and (getattr(table, t)[train_rows] >= 0).any()]
    begin = time.perf_counter()
    predicted = predict(cell.folder / "run", view, ("val", "test"), tracks)
    took = time.perf_counter() - begin
    _save(cell.folder / "predictions.npz", predicted, table)
    about = {
        "system": cell.name,
        "scenario": cell.scenario,
        "seed": cell.seed,
        "settings": {"system": config.system, "backbone": config.backbone, "epochs": config.epochs},
        "tracks": tracks,
        "cost": cost(scenario, tracks) | boxes_seen(cell, config, table),
        "train_seconds": round(elapsed, 2),
        "predict_seconds": round(took, 2),
        "device": jax.devices()[0].device_kind,
    }
    _write(cell.folder / "predicted.json", about)


def stabilize_cell(plan: Plan, cell: Cell, view: Path) -> dict[str, Any]:
    """Stabilize and measure what `predict_cell` left; a finished cell is read back.

    Returns:
        What is kept in ``result.json``: cost, seconds, and figures by version ("M", "M_H" and "M_H online" by family).
    """
    kept = cell.folder / "result.json"
    if kept.exists():
        return json.loads(kept.read_text(encoding="utf-8"))
    about = json.loads((cell.folder / "predicted.json").read_text(encoding="utf-8"))
    with np.load(view / "table.npz", allow_pickle=False) as arrays:
        table = FrameTable.from_arrays(dict(arrays))
    begin = time.perf_counter()
    predicted = _load(cell.folder / "predictions.npz", table, about["tracks"])
    result = about | stabilize(table, predicted, about["tracks"], plan.emissions, plan.dynamics)
    result["stabilize_seconds"] = round(time.perf_counter() - begin, 2)
    _write(kept, result)
    return result


def train(plan: Plan, cell: Cell, view: Path) -> tuple[Config, float]:
    """Train, or go on where a run stopped; the configuration, and seconds, those of the frozen backbone included."""
    run = cell.folder / "run"
    words = [*cell.settings, f"run={run}", f"seed={cell.seed}", f"data.train={view}", f"data.val={view}"]
    before = 0.0
    if cell.on is not None:
        words.append(f"frozen={cell.folder.parent / cell.on / 'run'}")
        about = json.loads((cell.folder.parent / cell.on / "predicted.json").read_text(encoding="utf-8"))
        before = about["train_seconds"]
    if cell.hmm is not None:
        words.append(f"loss.hmm_model={hmm_model(plan, cell, view)}")
    config = read_config(None, ["tensorboard=false", *words])
    done = cell.folder / "trained.json"
    if not done.exists():
        begun = any_checkpoint(run / "checkpoints")
        begin = time.perf_counter()
        fit(config, resume=begun, quiet=True)
        _write(done, {"seconds": time.perf_counter() - begin, "resumed": begun})
    return config, before + json.loads(done.read_text(encoding="utf-8"))["seconds"]


def hmm_model(plan: Plan, cell: Cell, view: Path) -> Path:
    """The model file of a cell that learns through the hidden Markov model of another cell's predictions."""
    path, other = cell.folder / "model.npz", cell.folder.parent / str(cell.hmm)
    if not path.exists():
        about = json.loads((other / "predicted.json").read_text(encoding="utf-8"))
        table = read_cache(view).table
        predicted = _load(other / "predictions.npz", table, about["tracks"])
        val, dynamics, sizes = lessons(table, predicted, about["tracks"], plan.dynamics)
        params, _ = learn_model(val, dynamics, sizes, "probability")
        names = {f"{t[:-1]}_names": getattr(table, f"{t[:-1]}_names") if sizes[t] else None for t in sizes}
        save_params(path, params, fps=1.0, **names)
    return path


def predict(run: Path, view: Path, parts: Sequence[str | None], tracks: Sequence[str]) -> Predictions:
    """What a run says of the videos of some parts: track to (n, ...), and "frames"."""
    recognizer, source = Recognizer(run), read_cache(view)
    table = source.table
    # What a frozen backbone sees is already on disk, beside its own run.
    frozen = recognizer.config.frozen
    features = cached_features(frozen or run, source, batch=recognizer.config.eval_batch)
    videos = [rows for part in parts for rows in video_rows(table, part)]
    if recognizer.temporal:
        length = -(-max(map(len, videos)) // 256) * 256
        padded = np.zeros((len(videos), length, features.shape[1]), np.float32)
        for number, rows in enumerate(videos):
            padded[number, : len(rows)] = features[rows]
        answers = recognizer.decide_all(padded, np.array(list(map(len, videos))))
    else:
        together = recognizer.decide(np.asarray(features[np.concatenate(videos)]))
        ends = np.cumsum(list(map(len, videos)))[:-1]
        split = {track: np.split(x, ends) for track, x in together.items()}
        answers = [{track: x[number] for track, x in split.items()} for number in range(len(videos))]
    return {
        str(table.videos[rows[0]]): {"frames": table.frames[rows], **{t: answer[t] for t in tracks}}
        for rows, answer in zip(videos, answers, strict=True)
    }


def stabilize(
    table: FrameTable,
    predicted: Predictions,
    tracks: list[str],
    families: Sequence[str],
    others: str | None = None,
) -> dict[str, Any]:
    """Figures of M and of its stabilized versions on the test videos, by version.

    Args:
        table: labels as the scenario knows them, and all of those of the test videos.
        predicted: of the validation and test videos.
        tracks: that the network was taught.
        families: of emissions.
        others: annotations of other videos to count transitions in, see `models.experiment.plan.Plan`.
    """
    own = {part: [str(table.videos[rows[0]]) for rows in video_rows(table, part)] for part in ("val", "test")}
    test = {video: predicted[video] for video in own["test"]}
    found: dict[str, Any] = {"truth": truth_changes(table, own["test"]), "M": measure(test, table, tracks), "hmm": {}}
    val, dynamics, sizes = lessons(table, predicted, tracks, others)
    kept = [track for track, size in sizes.items() if size]
    batch = pad(table, own["test"], predicted, kept)
    for family in families:
        params, how = learn_model(val, dynamics, sizes, family)
        found["hmm"][family] = how
        for name, answer in apply_model(params, batch, family).items():
            said = {
                video: {t: getattr(answer, t)[number, seconds(table, rows_of(table, video))] for t in tracks}
                for number, video in enumerate(own["test"])
            }
            found[f"{name}, {family}"] = measure(said, table, tracks)
    return found


def lessons(
    table: FrameTable, predicted: Predictions, tracks: list[str], others: str | None = None
) -> tuple[Examples, Examples | None, dict[str, int]]:
    """What a hidden Markov model is learned from, none of it a test video.

    Returns:
        Validation videos with predictions; videos with all labels, in which transitions are counted, or None; and the
        number of classes by track, 0 for tracks that the model lacks.
    """
    val = [str(table.videos[rows[0]]) for rows in video_rows(table, "val")]
    whole = fully_labeled(table, [*val, *(str(v) for v in np.unique(table.videos[table.parts == "train"]))])
    # Phases that are labeled somewhere join the model even where the network does not see them.
    kept = [t for t in ("phases", "tools") if t in tracks or (t == "phases" and (whole or others))]
    counts = {"phases": len(table.phase_names), "tools": len(table.tool_names)}
    dynamics = pad(table, whole, None, kept) if whole else None
    if others is not None:
        dynamics = read_dynamics(others, table, kept)
    return pad(table, val, predicted, kept), dynamics, {t: n if t in kept else 0 for t, n in counts.items()}


def fully_labeled(table: FrameTable, videos: Sequence[str]) -> list[str]:
    """The videos of which every frame's phase and tools are known."""
    known = (table.phases >= 0) & (table.tools >= 0).all(1)
    return [video for video in dict.fromkeys(videos) if known[table.videos == video].all()]


def cost(scenario: Scenario, tracks: Sequence[str]) -> dict[str, int]:
    """Labels that a system's tracks needed, and frames that somebody looked at for them."""
    counts = scenario.cost
    frames = sum(
        int(sum((a.phases >= 0) if t == "phases" else (a.tools >= 0).any(1) for t in tracks).astype(bool).sum())
        for a in scenario.annotations
    )
    return {"labels": sum(counts[track] for track in tracks), "frames": frames}


def boxes_seen(cell: Cell, config: Config, table: FrameTable) -> dict[str, int]:
    """How many "boxes" a detector, or the one whose frozen features are read, has learned from; nothing for others."""
    if SYSTEMS[config.system].boxes and table.box_tools is not None:
        return {"boxes": int((table.box_tools[table.parts == "train"] >= 0).sum())}
    if cell.on is None:
        return {}
    about = json.loads((cell.folder.parent / cell.on / "predicted.json").read_text(encoding="utf-8"))
    return {name: count for name, count in about["cost"].items() if name == "boxes"}


def _save(path: Path, predicted: Predictions, table: FrameTable) -> None:
    arrays: dict[str, Any] = {"fps": np.float64(table.fps)}
    for video, answer in predicted.items():
        arrays |= {f"{track}_{video.removeprefix('video')}": x for track, x in answer.items()}
        for track, names in (("phases", table.phase_names), ("tools", table.tool_names)):
            if track in answer:
                arrays[f"{track[:-1]}_names"] = np.array(names)
    save_npz(path, arrays, force=True)


def _load(path: Path, table: FrameTable, tracks: Sequence[str]) -> Predictions:
    with np.load(path, allow_pickle=False) as file:
        arrays = dict(file)
    found: Predictions = {}
    for video in np.unique(table.videos).tolist():
        suffix = video.removeprefix("video")
        if f"frames_{suffix}" in arrays:
            found[video] = {name: arrays[f"{name}_{suffix}"] for name in ("frames", *tracks)}
    return found


def _write(path: Path, value: dict[str, Any]) -> None:
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(unfinished, path)
