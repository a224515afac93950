"""What a run needs before its first update: checked settings and class names, frames, system, feed and program."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from jax.sharding import Mesh

from hmmjax.io import FormatError, load_params
from models.data.cache import open_source
from models.data.feature_files import Layout
from models.data.features import join_features
from models.data.frames import FrameTable, Source
from models.data.labels import read_labels
from models.settings import Config
from models.systems import SYSTEMS, System, make_system
from models.training.checkpoint import Checkpoints, any_checkpoint
from models.training.feeds import Feed, make_feed
from models.training.losses import class_weights
from models.training.processes import in_turn, is_first
from models.training.recognizer import Recognizer, cached_features
from models.training.run import read_parts, read_width, write_parts, write_width
from models.training.step import (
    Program,
    TrainState,
    data_mesh,
    init_state,
    make_optimizer,
    make_program,
    replicate,
    schedule,
)

_TRACKS = ("phases", "tools")


@dataclasses.dataclass(frozen=True, eq=False)
class Setup:
    """A run before its first update.

    Attributes:
        classes: class names by track.
        feed: source of batches.
        mesh: of devices.
        program: the compiled functions.
        state: the initial state.
        total: number of updates of the whole run.
    """

    classes: dict[str, tuple[str, ...]]
    feed: Feed
    mesh: Mesh
    program: Program
    state: TrainState
    total: int


def set_up(config: Config, *, resume: bool) -> Setup:
    """Check a configuration and build everything that its run needs.

    Args:
        config: of the run.
        resume: continue a run: its class names are checked, and its copy of a frozen backbone is kept.

    Raises:
        FileExistsError: if the folder already holds a checkpoint and `resume` is False.
        FormatError: if boxes are needed and unknown, or if datasets, runs and the HMM differ in their classes.
        ValueError: for settings that contradict each other.
    """
    folder = Path(config.run)
    if not resume and any_checkpoint(folder / "checkpoints"):
        raise FileExistsError(
            f"{folder} already holds a run. Fix: choose another run=..., or continue it with --resume"
        )
    source, val = _open(config)
    source = one_fold(source, config)
    table = source.table
    _check_parts(config, table, val.table, folder if resume else None)
    mesh = data_mesh()
    for name, count in (("batch", config.batch // config.accumulate), ("eval_batch", config.eval_batch)):
        if count % mesh.size:
            raise ValueError(
                f"{name}: {count} frames cannot be divided evenly among {mesh.size} devices. Fix: make it a "
                f"multiple of {mesh.size}"
            )
    read = _read_sizes(config, source, resume)
    if is_first():
        write_parts(config.run, _parts_of(config, table, val.table))
    # Weights that a checkpoint replaces need not exist any more.
    pretrained = not resume and config.start is None
    system = make_system(config, len(table.phase_names), len(table.tool_names), pretrained=pretrained, **read)
    _check_sequences(config, system)
    feed = make_feed(config, source, val, _frozen_features(config, source, val), mesh)
    total = feed.per_epoch * config.epochs
    if config.start is not None and not resume:
        start = Checkpoints(Path(config.start) / "checkpoints", write=False)
        start.restore_model("best", system)
        start.close()
    learning_rate = schedule(config.optimizer, total, feed.per_epoch)
    optimizer = make_optimizer(config.optimizer, learning_rate)
    weights = None
    if config.loss.balance:
        rows = table.rows(config.data.train_part)
        both = class_weights(table.phases[rows], table.tools[rows], len(table.phase_names))
        weights = {track: both[track] for track in config.loss.balance_tracks}
    state = replicate(init_state(system, optimizer), mesh)
    program = make_program(system, optimizer, learning_rate, config, weights, mesh)
    return Setup({"phases": table.phase_names, "tools": table.tool_names}, feed, mesh, program, state, total)


def one_fold(source: Source, config: Config) -> Source:
    """Take the videos outside the fold, if there is one, out of the part to train on.

    Raises:
        ValueError: if no video is left, or the part is not named.
    """
    if config.data.fold is None:
        return source
    (first, every), part, table = config.data.fold, config.data.train_part, source.table
    mine = table.parts == part
    videos = np.unique(table.videos[mine])[first::every]
    if part is None or not len(videos):
        raise ValueError(
            f"data.fold={list(config.data.fold)} leaves no video of data.train_part={part}. Fix: name a part with at "
            f"least {every} videos, or leave data.fold out"
        )
    parts = np.where(mine & ~np.isin(table.videos, videos), "", table.parts)
    return dataclasses.replace(source, table=dataclasses.replace(table, parts=parts))


def _check_parts(config: Config, train: FrameTable, val: FrameTable, resumed: Path | None) -> None:
    """Raise unless datasets, other runs and the HMM of a configuration fit together."""
    for track in _TRACKS:
        _check_same(_names(train)[track], _names(val)[track], track, "data.train", "data.val")
    for other in (resumed, config.start):
        if other is not None:
            _check_run(other, train)
    if config.loss.hmm:
        if config.loss.hmm_model is None:
            raise ValueError(f"loss.hmm={config.loss.hmm:g} needs a model. Fix: set loss.hmm_model to a model file")
        _check_model(config.loss.hmm_model, train)
    if config.system in SYSTEMS and SYSTEMS[config.system].boxes and train.boxes is None:
        raise FormatError(
            f"the frames have no boxes, which {config.system} needs",
            file=config.data.train,
            fix="train fcn, which needs none",
        )


def _check_run(run: str | Path, table: FrameTable) -> None:
    """Raise FormatError unless a run was trained on the classes of a table, in the same order."""
    path = Path(run) / "classes.json"
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        found = {track: kept[track] for track in _TRACKS}
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"the class names of the run cannot be read ({error})", file=path) from error
    for track in _TRACKS:
        _check_same(found[track], _names(table)[track], track, str(run), "data.train")


def _check_model(path: str | Path, table: FrameTable) -> None:
    """Raise FormatError unless an HMM has the classes of a table; one without names need only have their number."""
    model = load_params(path)
    for track, known in _names(table).items():
        names, count = getattr(model, f"{track[:-1]}_names"), getattr(model.params, f"num_{track}")
        if names is not None:
            _check_same(list(names), known, track, str(path), "data.train")
        elif count not in (0, len(known)):
            raise FormatError(
                f"the model has {count} {track}, and the frames of data.train have {len(known)}", file=path
            )


def _names(table: FrameTable) -> dict[str, list[str]]:
    return {"phases": list(table.phase_names), "tools": list(table.tool_names)}


def _check_same(first: list[str], second: list[str], track: str, here: str, there: str) -> None:
    if list(first) != list(second):
        raise FormatError(
            f"the {track} of {here} are {', '.join(first) or 'empty'}, and those of {there} are "
            f"{', '.join(second) or 'empty'}",
            fix="give both the same classes in the same order",
        )


def _check_sequences(config: Config, system: System) -> None:
    """Raise ValueError if settings of sequences meet a system without a temporal model, or the reverse."""
    if system.temporal is None and config.clip > 1:
        raise ValueError(
            f"clip={config.clip}, but {config.system} decides each frame alone. Fix: set temporal, or clip=1"
        )
    if system.temporal is None and config.loss.hmm:
        raise ValueError(
            f"loss.hmm is defined on sequences, but {config.system} decides each frame alone. Fix: set temporal, or "
            "loss.hmm=0"
        )
    if system.temporal is not None and config.clip == 1 and config.frozen is None and config.features is None:
        raise ValueError(
            f"{config.system} learns from sequences, and none are configured. Fix: set frozen to a run of single "
            "frames, features to a folder of features, or clip to 2 or more"
        )


def _open(config: Config) -> tuple[Any, Any]:
    """Open the frames to train and to validate on, or the labels and features that take their place."""
    data = config.data
    if config.features is None:
        if data.split is not None:
            raise ValueError(
                "data.split is for runs on features; a cache has parts. Fix: give --split to models.data.cache"
            )
        return open_source(data.train, data.load), open_source(data.val, data.load)
    layout = Layout(data.rate, channels_first=data.channels_first)
    places = {data.train, data.val}
    tables = {place: read_labels(place, data.split, config.features, layout) for place in places}
    pairs = ((data.train, data.train_part), (data.val, data.val_part))
    source, val = (
        join_features(config.features, tables[place], part, layout, slack=data.slack) for place, part in pairs
    )
    return source, val


def _parts_of(config: Config, train: FrameTable, val: FrameTable) -> dict[str, str]:
    """Return by video its part: "train" if the run or its frozen backbone learns from it, "val" if that chooses."""
    known = {}
    for table in (val, train):
        known |= dict(zip(table.videos.tolist(), table.parts.tolist(), strict=True))
    known |= dict.fromkeys(val.videos[val.rows(config.data.val_part)].tolist(), "val")
    if config.frozen is not None:
        known |= {video: part for video, part in read_parts(Path(config.run) / "frozen").items() if part == "train"}
    return known | dict.fromkeys(train.videos[train.rows(config.data.train_part)].tolist(), "train")


def _read_sizes(config: Config, source: Any, resume: bool) -> dict[str, Any]:
    """Return the sizes of features that take the place of a backbone, for `make_system`; empty if there is one.

    Raises:
        ValueError: for features of another width than those that a resumed or earlier run was trained on.
    """
    if config.frozen is not None:
        return _copy_frozen(config, resume)
    if config.features is None:
        return {}
    for run in (config.run if resume else None, config.start):
        if run is not None and (width := read_width(run)) != source.width:
            raise ValueError(
                f"the features in {config.features} have {source.width} channels, and {run} was trained on {width}. "
                "Fix: give features of the same encoder"
            )
    if is_first():
        write_width(config.run, source.width)
    return {"width": source.width}


def _frozen_features(config: Config, source: Any, val: Any) -> tuple[Any, Any] | None:
    if config.features is not None:
        return source, val
    if config.frozen is None:
        return None
    first, second = (cached_features(config.frozen, x, batch=config.eval_batch) for x in (source, val))
    return first, second


def _copy_frozen(config: Config, resume: bool) -> dict[str, Any]:
    """Copy the frozen run into this one, which then needs no other folder; return its sizes for `make_system`.

    Raises:
        ValueError: if that run is itself on a frozen backbone.
    """
    frozen, copy = Path(config.frozen or ""), Path(config.run) / "frozen"
    if (frozen / "frozen").exists():
        raise ValueError(
            f"frozen={frozen}: this run has no backbone of its own. Fix: set frozen to the run that it is based on"
        )
    in_turn(lambda: _copy_run(frozen, copy, replace=not resume and is_first()))
    kept = Recognizer(copy)
    return {"width": kept.width, "cells": kept.cells}


def _copy_run(frozen: Path, copy: Path, *, replace: bool) -> None:
    """Copy what `Recognizer` reads of a run, unless it is there already."""
    if replace:
        # A failed attempt may have left a copy of another run.
        shutil.rmtree(copy, ignore_errors=True)
    if not (copy / "classes.json").exists():
        best = Path("checkpoints") / "best"
        shutil.copytree(frozen / best, copy / best, ignore=shutil.ignore_patterns("optimizer"), dirs_exist_ok=True)
        for name in ("config.yaml", "classes.json", "parts.json"):
            # Runs of earlier versions have no parts.
            if name != "parts.json" or (frozen / name).exists():
                shutil.copy(frozen / name, copy / name)
