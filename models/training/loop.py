"""The training loop: epochs of updates, validations, checkpoints and records."""

import dataclasses
import gc
import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hmmjax.io import FormatError
from models.data.cache import open_source
from models.data.loader import prefetch
from models.recognizer import Recognizer
from models.settings import Config
from models.systems import SYSTEMS, System
from models.training.checkpoint import Checkpoints, any_checkpoint
from models.training.checks import check_classes, check_model, check_tables
from models.training.claim import claimed
from models.training.features import cached_features
from models.training.feeds import Feed, make_feed
from models.training.losses import class_weights
from models.training.optimizer import make_optimizer, schedule
from models.training.record import Record, read_metrics
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
        per_epoch: updates in a pass, by which the run's place in it is found again.
    """

    best: float = -math.inf
    best_step: int = 0
    stale: int = 0
    stopped: bool = False
    per_epoch: int = 0


def fit(config: Config, *, resume: bool = False, quiet: bool = False) -> dict[str, float]:
    """Train a system.

    Args:
        config: what to do.
        resume: go on from the newest checkpoint in `config.run`, bit for bit as if the run had never stopped.
        quiet: show no progress bar.

    Returns:
        The figures of the best validation; none when there has been none yet.

    Raises:
        FileExistsError: when the run's folder already holds a checkpoint and `resume` is False, and when another
            process trains in it.
        FileNotFoundError: when there is nothing to resume.
        FormatError: when boxes are needed and not known, and when train, val, a run that is gone on with and a hidden
            Markov model are not of the same classes.
        ValueError: for settings that do not go together, for a resumed run of another network or other frames, and
            when training diverges.
    """
    with claimed(config.run):
        return _fit(config, resume, quiet)


def _fit(config: Config, resume: bool, quiet: bool) -> dict[str, float]:
    folder = Path(config.run)
    if not resume and any_checkpoint(folder / "checkpoints"):
        raise FileExistsError(f"{folder} holds a run already. Fix: choose another run=..., or go on with --resume")
    source, val = open_source(config.data.train, config.data.load), open_source(config.data.val, config.data.load)
    check_tables(source.table, val.table)
    for other in (folder if resume else None, config.start):
        if other is not None:
            check_classes(other, source.table)
    if config.loss.hmm:
        if config.loss.hmm_model is None:
            raise ValueError("loss.hmm needs a model. Fix: set loss.hmm_model to a model file")
        check_model(config.loss.hmm_model, source.table)
    if config.system in SYSTEMS and SYSTEMS[config.system].boxes and source.table.boxes is None:
        raise FormatError("frames without boxes", file=config.data.train, fix="train fcn, which needs none")
    mesh = data_mesh()
    for name, count in (("batch", config.batch // config.accumulate), ("eval_batch", config.eval_batch)):
        if count % mesh.size:
            raise ValueError(f"{name}: {count} frames cannot be spread evenly over {mesh.size} devices")
    table = source.table
    read = {} if config.frozen is None else _freeze(config, resume)
    # Weights that are replaced at once need not be there any more.
    pretrained = not resume and config.start is None
    system = make_system(config, len(table.phase_names), len(table.tool_names), pretrained=pretrained, **read)
    temporal = isinstance(system, System) and system.temporal is not None
    if not temporal and config.clip > 1:
        raise ValueError(f"{config.system} decides each frame alone. Fix: set temporal, or clip=1")
    if not temporal and config.loss.hmm:
        raise ValueError(f"{config.system} decides each frame alone, and loss.hmm is of sequences. Fix: set temporal")
    if temporal and config.clip == 1 and config.frozen is None:
        raise ValueError(f"{config.system} learns from sequences. Fix: set frozen to a run of frames, or clip above 1")
    features = None
    if config.frozen is not None:
        features = tuple(cached_features(config.frozen, x, batch=config.eval_batch) for x in (source, val))
    feed = make_feed(config, source, val, features, mesh)
    total = feed.per_epoch * config.epochs
    if config.start is not None and not resume:
        begin = Checkpoints(Path(config.start) / "checkpoints", write=False)
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
        kept = checkpoints.restore(state)
        if kept is None:
            raise FileNotFoundError(f"{folder} holds no checkpoint. Fix: train without --resume")
        state, progress = kept[0], Progress(**kept[1])
        if progress.per_epoch not in (0, feed.per_epoch):
            raise ValueError(
                f"a pass of this run had {progress.per_epoch} updates and would have {feed.per_epoch}. Fix: leave "
                f"batch, clip and data as they were, or begin another run with start={folder}"
            )
        # Who resumes with more patience wants to go on.
        progress.stopped = _out_of_patience(config, progress)
    progress.per_epoch = feed.per_epoch
    classes = {"phases": table.phase_names, "tools": table.tool_names}
    record = Record(config, classes, int(state.step))
    run = _Run(config, program, feed, mesh, checkpoints, record, progress)
    run.figures = _validated(folder, progress.best_step)
    try:
        with _bar(total, int(state.step), quiet) as bar:
            run.train(state, total, bar)
    finally:
        gc.unfreeze()
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
    kept = Recognizer(copy)
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
        first, end = step, min(total, config.stop_after or total)
        while step < end and not self.progress.stopped:
            epoch, done = divmod(step, per_epoch)
            batches = self.feed.batches(epoch, done)
            waiting: list[tuple[int, Any]] = []
            for batch in prefetch(batches, lambda batch: spread(batch, self.mesh)):
                state, metrics = self.program.train(state, batch)
                if step == first:
                    # Compilation leaves millions of objects, and each search of Python's among them for garbage lets
                    # the accelerator wait (0.2 s at a time, with ResNet50 on an H100).
                    gc.collect()
                    gc.freeze()
                step += 1
                bar(step, "")
                if step % config.log_every == 0:
                    # Reading a figure waits for the device: read the one before, which is done.
                    waiting.append((step, metrics))
                    self._log(waiting[:-1])
                    waiting = waiting[-1:]
                judged = step % per_epoch == 0 and (step // per_epoch % config.eval_every == 0 or step == total)
                if judged or (config.save_every and step % config.save_every == 0):
                    self._log(waiting)
                    waiting = []
                    _check_finite(step, metrics)
                    if judged:
                        self._validate(state, step, bar)
                    self.checkpoints.save("last", state, dataclasses.asdict(self.progress))
                if step == end:
                    break
            self._log(waiting)

    def _log(self, waiting: list[tuple[int, Any]]) -> None:
        for step, metrics in waiting:
            self.record.write(step, {f"train/{name}": float(value) for name, value in metrics.items()})
            _check_finite(step, metrics)

    def _validate(self, state: TrainState, step: int, bar: Any) -> None:
        config, progress = self.config, self.progress
        predicted, truth, losses = self.feed.validate(self.program, state)
        figures = {"loss": losses["loss"], **score(predicted, truth)}
        self.record.write(step, {f"val/{name}": value for name, value in figures.items()})
        better = -figures["loss"] if config.monitor == "loss" else figures["score"]
        # Where nothing is known there is no score; any score is better than none.
        if better > progress.best or not progress.best_step or (math.isnan(progress.best) and not math.isnan(better)):
            progress.best, progress.best_step, progress.stale = better, step, 0
            self.figures = figures
            self.checkpoints.save("best", state, dataclasses.asdict(progress))
        else:
            progress.stale += 1
            progress.stopped = _out_of_patience(config, progress)
        bar(step, f"val loss {figures['loss']:.3f}, score {figures['score']:.3f}, best {progress.best:.3f}")


def _out_of_patience(config: Config, progress: Progress) -> bool:
    return bool(config.patience) and progress.stale >= config.patience


def _validated(run: Path, step: int) -> dict[str, float]:
    """The figures of an earlier validation, by the run's record; none where it has none."""
    lines = [line for line in read_metrics(run) if line["step"] == step]
    found = {name: value for line in lines for name, value in line.items() if name.startswith("val/")}
    return {name.removeprefix("val/"): math.nan if value is None else value for name, value in found.items()}


def _check_finite(step: int, metrics: Mapping[str, Any]) -> None:
    """See that training goes on from here; NaN in the loss or the gradient stays in the parameters for good.

    Raises:
        ValueError: when it does not.
    """
    for name in ("loss", "gradient"):
        if not math.isfinite(metrics[name]):
            raise ValueError(
                f"training has diverged: the {name} of update {step} is {float(metrics[name])}. Fix: set a lower "
                "optimizer.learning_rate; checkpoints are from before"
            )


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
