"""The training loop: epochs of updates, validations, checkpoints and records."""

import dataclasses
import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hmmjax.io import FormatError
from models.data.cache import open_source
from models.data.loader import prefetch
from models.recogniser import Recogniser
from models.systems import SYSTEMS, System
from models.training.checkpoint import Checkpoints
from models.training.config import Config
from models.training.features import cached_features
from models.training.feeds import Feed, make_feed
from models.training.losses import class_weights
from models.training.optimizer import make_optimizer, schedule
from models.training.record import Record
from models.training.scores import score
from models.training.step import Program, TrainState, data_mesh, init_state, make_program, replicate, spread
from models.training.system import make_system


@dataclasses.dataclass
class Progress:
    """What a run remembers beside its state.

    Attributes:
        best: best monitored figure so far.
        best_step: updates after which it was reached.
        stale: validations since.
        stopped: whether the run has ended early.
    """

    best: float = -math.inf
    best_step: int = 0
    stale: int = 0
    stopped: bool = False


def fit(config: Config, *, resume: bool = False, quiet: bool = False) -> dict[str, float]:
    """Train a system.

    Args:
        config: what to do.
        resume: go on from the last checkpoint in `config.run`, bit for bit as if the run had never stopped.
        quiet: show no progress bar.

    Returns:
        The figures of the best validation.

    Raises:
        FileExistsError: when the run's folder already holds a run and `resume` is False.
        FileNotFoundError: when there is nothing to resume.
        FormatError: when boxes are needed and not known.
        ValueError: for settings that do not go together.
    """
    folder = Path(config.run)
    if not resume and (folder / "checkpoints").exists():
        raise FileExistsError(f"{folder} holds a run already. Fix: choose another run=..., or go on with --resume")
    source, val = open_source(config.data.train, config.data.load), open_source(config.data.val, config.data.load)
    if config.system in SYSTEMS and SYSTEMS[config.system].boxes and source.table.boxes is None:
        raise FormatError("frames without boxes", file=config.data.train, fix="train fcn, which needs none")
    mesh = data_mesh()
    for name, count in (("batch", config.batch // config.accumulate), ("eval_batch", config.eval_batch)):
        if count % mesh.size:
            raise ValueError(f"{name}: {count} frames cannot be spread evenly over {mesh.size} devices")
    table = source.table
    read = {} if config.frozen is None else _freeze(config, resume)
    system = make_system(config, len(table.phase_names), len(table.tool_names), pretrained=not resume, **read)
    temporal = isinstance(system, System) and system.temporal is not None
    if not temporal and config.clip > 1:
        raise ValueError(f"{config.system} decides each frame alone. Fix: set temporal, or clip=1")
    if temporal and config.clip == 1 and config.frozen is None:
        raise ValueError(f"{config.system} learns from sequences. Fix: set frozen to a run of frames, or clip above 1")
    features = None
    if config.frozen is not None:
        features = tuple(cached_features(config.frozen, x, batch=config.eval_batch) for x in (source, val))
    feed = make_feed(config, source, val, features, mesh)
    total = feed.per_epoch * config.epochs
    if config.start is not None and not resume:
        begin = Checkpoints(Path(config.start) / "checkpoints")
        begin.restore_model("best", system)
        begin.close()
    learning_rate = schedule(config.optimizer, total, feed.per_epoch)
    optimizer = make_optimizer(config.optimizer, learning_rate)
    weights = None
    if config.loss.balance:
        rows = table.rows(config.data.train_part)
        weights = class_weights(table.phases[rows], table.tools[rows], len(table.phase_names))
    state = replicate(init_state(system, optimizer), mesh)
    program = make_program(system, optimizer, learning_rate, config, weights, mesh)
    checkpoints, progress = Checkpoints(folder / "checkpoints"), Progress()
    if resume:
        kept = checkpoints.restore("last", state)
        if kept is None:
            raise FileNotFoundError(f"{folder} holds no checkpoint. Fix: train without --resume")
        state, progress = kept[0], Progress(**kept[1])
    classes = {"phases": table.phase_names, "tools": table.tool_names}
    record = Record(config, classes, int(state.step))
    run = _Run(config, program, feed, mesh, checkpoints, record, progress)
    try:
        with _bar(total, int(state.step), quiet) as bar:
            run.train(state, total, bar)
    finally:
        record.close()
        checkpoints.close()
    return run.figures


def _freeze(config: Config, resume: bool) -> dict[str, Any]:
    """Keep a copy of the frozen run, so that this run is whole by itself; what `make_system` is told of it.

    Raises:
        ValueError: when that run is on a frozen backbone itself.
    """
    frozen, copy = Path(config.frozen or ""), Path(config.run) / "frozen"
    if (frozen / "frozen").exists():
        raise ValueError(f"{frozen} has no backbone of its own. Fix: give the run that it is built on as frozen")
    if not resume:
        # What an attempt that failed left may be of another run.
        shutil.rmtree(copy, ignore_errors=True)
    if not (copy / "classes.json").exists():
        best = Path("checkpoints") / "best"
        shutil.copytree(frozen / best, copy / best, ignore=shutil.ignore_patterns("optimizer"), dirs_exist_ok=True)
        for name in ("config.yaml", "classes.json"):
            shutil.copy(frozen / name, copy / name)
    kept = Recogniser(copy)
    return {"width": kept.width, "cells": kept.cells}


class _Run:
    def __init__(
        self,
        config: Config,
        program: Program,
        feed: Feed,
        mesh: Any,
        checkpoints: Checkpoints,
        record: Record,
        progress: Progress,
    ):
        self.config, self.program, self.feed = config, program, feed
        self.mesh, self.checkpoints, self.record, self.progress = mesh, checkpoints, record, progress
        self.figures: dict[str, float] = {}

    def train(self, state: TrainState, total: int, bar: Any) -> None:
        config, step, per_epoch = self.config, int(state.step), self.feed.per_epoch
        end = min(total, config.stop_after or total)
        while step < end and not self.progress.stopped:
            epoch, done = divmod(step, per_epoch)
            batches = self.feed.batches(epoch, done)
            waiting: list[tuple[int, Any]] = []
            for batch in prefetch(batches, lambda batch: spread(batch, self.mesh)):
                state, metrics = self.program.train(state, batch)
                step += 1
                bar(step, "")
                if step % config.log_every == 0:
                    # Reading a figure waits for the device: read the one before, which is done.
                    waiting.append((step, metrics))
                    self._log(waiting[:-1])
                    waiting = waiting[-1:]
                if config.save_every and step % config.save_every == 0 and step % per_epoch:
                    self._log(waiting)
                    waiting = []
                    self.checkpoints.save("last", state, dataclasses.asdict(self.progress))
                if step == end:
                    break
            self._log(waiting)
            if step % per_epoch == 0:
                epoch = step // per_epoch
                if epoch % config.eval_every == 0 or step == total:
                    self._validate(state, step, bar)
                    self.checkpoints.save("last", state, dataclasses.asdict(self.progress))

    def _log(self, waiting: list[tuple[int, Any]]) -> None:
        for step, metrics in waiting:
            self.record.write(step, {f"train/{name}": float(value) for name, value in metrics.items()})

    def _validate(self, state: TrainState, step: int, bar: Any) -> None:
        config, progress = self.config, self.progress
        predicted, truth, losses = self.feed.validate(self.program, state)
        figures = {"loss": losses["loss"], **score(predicted, truth)}
        self.record.write(step, {f"val/{name}": value for name, value in figures.items()})
        better = -figures["loss"] if config.monitor == "loss" else figures["score"]
        if better > progress.best or not progress.best_step:
            progress.best, progress.best_step, progress.stale = better, step, 0
            self.figures = figures
            self.checkpoints.save("best", state, dataclasses.asdict(progress))
        else:
            progress.stale += 1
            progress.stopped = bool(config.patience) and progress.stale >= config.patience
        bar(step, f"val loss {figures['loss']:.3f}, score {figures['score']:.3f}, best {progress.best:.3f}")


@contextmanager
def _bar(total: int, done: int, quiet: bool) -> Iterator[Any]:
    if quiet:
        yield lambda step, words: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("training", total=total, completed=done)

        def show(step: int, words: str) -> None:
            bar.update(task, completed=step, **({"description": words} if words else {}))

        yield show
