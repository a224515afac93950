"""One cell of the grid: train a system, predict, stabilize, measure."""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hmmjax.io import save_npz, save_params
from models.data.cache import read_cache
from models.data.frames import FrameTable
from models.data.scenarios import Scenario
from models.experiment.choice import choose, gains
from models.experiment.cost import boxes_seen, cost
from models.experiment.lane_runs import Run
from models.experiment.lanes import train_lanes
from models.experiment.measure import measure, truth_changes
from models.experiment.plan import AUTO, Cell, Plan
from models.settings import Config, read_config
from models.stabilize import TRACKS, Predictions, apply_hmm, gather_lessons, learn_hmm, pad, unpad, videos_of
from models.systems import SYSTEMS
from models.training.checkpoint import any_checkpoint
from models.training.loop import fit
from models.training.recognizer import Recognizer, cached_features, predict_cached
from models.training.run import commit, write_text
from models.training.setup import one_fold
from models.weights import export_state, save_state


def predict_cell(plan: Plan, cell: Cell, view: Path, scenario: Scenario) -> None:
    """Train a system and predict the validation and test videos.

    Writes ``predictions.npz``, then ``predicted.json``.

    Args:
        plan: the experiment.
        cell: the cell of its grid.
        view: cache of the scenario's frames and labels.
        scenario: everything that was labeled, for the cost.
    """
    source = read_cache(view)
    table = source.table
    train_rows = table.parts == "train"
    config = read_config(None, list(cell.settings))
    heads = SYSTEMS[config.system].heads
    tracks = [t for t in ("phases", "tools") if t in heads and (getattr(table, t)[train_rows] >= 0).any()]
    if cell.mean:
        begin = time.perf_counter()
        predicted, elapsed = average(cell, table, tracks)
    else:
        config, elapsed = train(plan, cell, view)
        begin = time.perf_counter()
        predicted = predict_cached(cell.folder / "run", source, ("val", "test"), tracks)
    took = time.perf_counter() - begin
    if plan.rates and any(spec.get("frozen") == cell.name for spec in plan.systems.values()):
        # Here and not in each of the processes that read them.
        cached_features(cell.folder / "run", source, batch=config.eval_batch)
    _finish(cell, config, table, scenario, predicted, tracks, {"train_seconds": elapsed, "predict_seconds": took})


def predict_lanes(
    plan: Plan, cells: Sequence[Cell], views: Sequence[tuple[Path, Scenario]], seconds: float = math.inf
) -> None:
    """Train a system on the frozen backbones of several seeds at once, and predict as `predict_cell` does.

    Args:
        plan: the experiment, with `rates`.
        cells: of one system and scenario, one per seed.
        views: by seed, see `predict_cell`.
        seconds: see `models.experiment.lanes.train_lanes`.
    """
    begin = time.perf_counter()
    runs = []
    for cell, (view, _) in zip(cells, views, strict=True):
        config = read_config(None, [*cell.settings, f"seed={cell.seed}", f"frozen={_run_of(cell, cell.on)}"])
        source = read_cache(view)
        features = cached_features(config.frozen or "", source, batch=config.eval_batch)
        runs.append(Run(config, one_fold(source, config).table, features))
    chosen = train_lanes(runs, plan.rates, seconds=seconds)
    # Each seed's share of the time; lanes cost hardly more together than one alone.
    took = (time.perf_counter() - begin) / len(runs)
    for cell, run, (_, scenario), choice in zip(cells, runs, views, chosen, strict=True):
        tracks = [track for track in TRACKS if track in next(iter(choice.predicted.values()))]
        about = {"train_seconds": _seconds_before(cell) + took, "choice": choice.record()}
        _finish(cell, run.config, run.table, scenario, choice.predicted, tracks, about)


def _finish(
    cell: Cell,
    config: Config,
    table: FrameTable,
    scenario: Scenario,
    predicted: Predictions,
    tracks: list[str],
    more: dict[str, Any],
) -> None:
    """Write the files of `predict_cell`."""
    _save(cell.folder / "predictions.npz", predicted, table)
    about = {
        "system": cell.name,
        "scenario": cell.scenario,
        "seed": cell.seed,
        "settings": {"system": config.system, "backbone": config.backbone, "epochs": config.epochs},
        "tracks": tracks,
        "cost": cost(scenario, tracks) | boxes_seen(cell, config, table),
        **{name: round(x, 2) if isinstance(x, float) else x for name, x in more.items()},
        "device": jax.devices()[0].device_kind,
        "commit": commit(),
    }
    _write(cell.folder / "predicted.json", about)


def average(cell: Cell, table: FrameTable, tracks: Sequence[str]) -> tuple[Predictions, float]:
    """Return the mean of the probabilities that other cells predicted, and the seconds of their training."""
    parts, seconds = [], 0.0
    for name in cell.mean:
        other = cell.folder.parent / name
        parts.append(_load(other / "predictions.npz", table, tracks))
        seconds += json.loads((other / "predicted.json").read_text(encoding="utf-8"))["train_seconds"]
    found = {
        video: {"frames": first["frames"], **{t: np.mean([part[video][t] for part in parts], 0) for t in tracks}}
        for video, first in parts[0].items()
    }
    return found, seconds


def stabilize_cell(plan: Plan, cell: Cell, view: Path) -> dict[str, Any]:
    """Stabilize and measure the predictions of `predict_cell`; versions that a finished cell has are kept.

    Returns:
        The contents of ``result.json``: cost, seconds, commit, and metrics by version ("M", and by emission family
        "M_H" and "M_H online").
    """
    kept = cell.folder / "result.json"
    done = read_result(kept) if kept.exists() else None
    families = missing(plan, done)
    if done is not None and not families:
        return done
    about = json.loads((cell.folder / "predicted.json").read_text(encoding="utf-8"))
    with np.load(view / "table.npz", allow_pickle=False) as arrays:
        table = FrameTable.from_arrays(dict(arrays))
    begin = time.perf_counter()
    predicted = _load(cell.folder / "predictions.npz", table, about["tracks"])
    found = stabilize(table, predicted, about["tracks"], families, plan.dynamics)
    took, before = time.perf_counter() - begin, done or {}
    result = {**about, **before, **found, "hmm": {**before.get("hmm", {}), **found["hmm"]}}
    result["stabilize_seconds"] = round(before.get("stabilize_seconds", 0.0) + took, 2)
    result["stabilize_commits"] = {**before.get("stabilize_commits", {}), **dict.fromkeys(families, commit())}
    _write(kept, result)
    return result


def missing(plan: Plan, result: dict[str, Any] | None) -> list[str]:
    """Return the families of a plan with which a cell, whose result is given if it has one, is not stabilized yet."""
    return [family for family in plan.emissions if result is None or f"M_H, {family}" not in result]


def read_result(path: Path) -> dict[str, Any]:
    """Read a cell's ``result.json``; its key "stabilise_seconds", as older versions wrote it, is renamed."""
    result = json.loads(path.read_text(encoding="utf-8"))
    return {"stabilize_seconds" if key == "stabilise_seconds" else key: value for key, value in result.items()}


def train(plan: Plan, cell: Cell, view: Path) -> tuple[Config, float]:
    """Train a cell's system, or resume; return its configuration and seconds, including those of a frozen backbone."""
    run = cell.folder / "run"
    words = [*cell.settings, f"run={run}", f"seed={cell.seed}", f"data.train={view}", f"data.val={view}"]
    before = _seconds_before(cell)
    if cell.on is not None:
        words.append(f"frozen={_run_of(cell, cell.on)}")
    if cell.weights is not None:
        words.append(f"pretrained={backbone_weights(cell)}")
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


def _run_of(cell: Cell, name: str | None) -> Path:
    return cell.folder.parent / str(name) / "run"


def _seconds_before(cell: Cell) -> float:
    """Return the seconds of training of the backbone that a cell reads or begins with."""
    name = cell.on or cell.weights
    if name is None:
        return 0.0
    about = json.loads((cell.folder.parent / name / "predicted.json").read_text(encoding="utf-8"))
    return about["train_seconds"]


def backbone_weights(cell: Cell) -> Path:
    """Return the file of weights of the trained backbone with which a cell begins."""
    path = cell.folder / "backbone.safetensors"
    if not path.exists():
        save_state(path, export_state(Recognizer(_run_of(cell, cell.weights)).backbone()))
    return path


def hmm_model(plan: Plan, cell: Cell, view: Path) -> Path:
    """Return the model file for a cell with an HMM loss, learned from another cell's predictions."""
    path, other = cell.folder / "model.npz", cell.folder.parent / str(cell.hmm)
    if not path.exists():
        about = json.loads((other / "predicted.json").read_text(encoding="utf-8"))
        table = read_cache(view).table
        predicted = _load(other / "predictions.npz", table, about["tracks"])
        lessons = gather_lessons(table, predicted, about["tracks"], plan.dynamics)
        params, _ = learn_hmm(lessons, "probability")
        names = {f"{t[:-1]}_names": getattr(table, f"{t[:-1]}_names") for t in lessons.tracks}
        save_params(path, params, fps=1.0, **names)
    return path


def stabilize(
    table: FrameTable,
    predicted: Predictions,
    tracks: list[str],
    families: Sequence[str],
    others: str | None = None,
) -> dict[str, Any]:
    """Measure M and its stabilized versions on the test videos.

    Args:
        table: labels as the scenario knows them, and all labels of the test videos.
        predicted: the network's predictions of the validation and test videos.
        tracks: the tracks that the network learned.
        families: of emissions, or "auto".
        others: annotations of other videos in which transitions are counted, see `models.experiment.plan.Plan`.

    Returns:
        Metrics by version; "truth", changes in the labels; "hmm", by emission family how the model was learned.
    """
    test = videos_of(table, "test")
    raw = {video: predicted[video] for video in test}
    found: dict[str, Any] = {"truth": truth_changes(table, test), "M": measure(raw, table, tracks), "hmm": {}}
    lessons = gather_lessons(table, predicted, tracks, others)
    batch = pad(table, test, predicted, lessons.tracks)
    for family in families:
        if family == AUTO:
            chosen, how = choose(table, predicted, tracks, test, others)
            found["hmm"][family] = {"method": how, "gains": {}}
            for name, values in chosen.items():
                found[f"{name}, {family}"] = measure(values, table, tracks)
                found["hmm"][family]["gains"][name] = gains(raw, values, table, tracks)
            continue
        params, how = learn_hmm(lessons, family)
        found["hmm"][family] = how
        for name, posterior in apply_hmm(params, batch, family).items():
            found[f"{name}, {family}"] = measure(unpad(table, test, posterior, tracks), table, tracks)
    return found


def _save(path: Path, predicted: Predictions, table: FrameTable) -> None:
    arrays: dict[str, Any] = {"fps": np.float64(table.fps)}
    for video, tracks in predicted.items():
        arrays |= {f"{track}_{video.removeprefix('video')}": x for track, x in tracks.items()}
        for track, names in (("phases", table.phase_names), ("tools", table.tool_names)):
            if track in tracks:
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
    write_text(path, json.dumps(value, indent=1) + "\n")
