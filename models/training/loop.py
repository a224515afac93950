"""The training loop: epochs of updates, validations, checkpoints and records."""

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from hmmjax.io import FormatError
from models.data.cache import open_source
from models.data.frames import Source, take
from models.data.loader import epoch_order, even_batches, prefetch, read_batches
from models.detection import DETECTORS, Detector, build_detector
from models.systems import System, build_system
from models.training.checkpoint import Checkpoints
from models.training.config import Config
from models.training.losses import class_weights
from models.training.optimizer import make_optimizer, schedule
from models.training.record import Record
from models.training.scores import score
from models.training.step import Program, TrainState, data_mesh, init_state, make_program, replicate, spread


def make_system(config: Config, phases: int, tools: int, *, pretrained: bool = True) -> System | Detector:
    """The system that a configuration describes, with its initial parameters."""
    common: dict[str, Any] = dict(
        backbone=config.backbone,
        options=config.options,
        tools=tools,
        pretrained=config.pretrained if pretrained else None,
        mean=config.mean,
        std=config.std,
        dtype=jnp.dtype(config.dtype),
        rngs=nnx.Rngs(config.seed),
    )
    if config.system in DETECTORS:
        return build_detector(config.system, config=config.detection, **common)
    return build_system(config.system, phases=phases, **common)


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
    """
    folder = Path(config.run)
    if not resume and (folder / "checkpoints").exists():
        raise FileExistsError(f"{folder} holds a run already. Fix: choose another run=..., or go on with --resume")
    source, val = open_source(config.data.train, config.data.load), open_source(config.data.val, config.data.load)
    rows = source.table.rows(config.data.train_part)
    if config.system == "frcnn" and source.table.boxes is None:
        raise FormatError("frames without boxes", file=config.data.train, fix="train fcn, which needs none")
    mesh = data_mesh()
    for name, count in (("batch", config.batch // config.accumulate), ("eval_batch", config.eval_batch)):
        if count % mesh.size:
            raise ValueError(f"{name}: {count} frames cannot be spread evenly over {mesh.size} devices")
    per_epoch = len(epoch_order(rows, config.batch, 0, 0))
    total = per_epoch * config.epochs
    table = source.table
    system = make_system(config, len(table.phase_names), len(table.tool_names), pretrained=not resume)
    learning_rate = schedule(config.optimizer, total, per_epoch)
    optimizer = make_optimizer(config.optimizer, learning_rate)
    weights = None
    if config.loss.balance:
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
    run = _Run(config, program, source, rows, val, mesh, checkpoints, record, progress)
    try:
        with _bar(total, int(state.step), quiet) as bar:
            run.train(state, per_epoch, total, bar)
    finally:
        record.close()
        checkpoints.close()
    return run.figures


class _Run:
    def __init__(
        self,
        config: Config,
        program: Program,
        source: Source,
        rows: np.ndarray,
        val: Source,
        mesh: Any,
        checkpoints: Checkpoints,
        record: Record,
        progress: Progress,
    ):
        self.config, self.program, self.source, self.rows, self.val = config, program, source, rows, val
        self.mesh, self.checkpoints, self.record, self.progress = mesh, checkpoints, record, progress
        self.figures: dict[str, float] = {}

    def train(self, state: TrainState, per_epoch: int, total: int, bar: Any) -> None:
        config, step = self.config, int(state.step)
        end = min(total, config.stop_after or total)
        while step < end and not self.progress.stopped:
            epoch, done = divmod(step, per_epoch)
            order = epoch_order(self.rows, config.batch, config.seed, epoch)[done:]
            batches = read_batches(self.source, order, workers=config.data.workers)
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
        rows = self.val.table.rows(config.data.val_part)
        predicted, losses = predict_rows(self.program, state, self.val, rows, config, self.mesh)
        figures = {"loss": losses["loss"], **score(predicted, take(self.val.table, rows))}
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


def predict_rows(
    program: Program, state: TrainState, source: Source, rows: np.ndarray, config: Config, mesh: Any
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Probabilities (n, ...) of some frames of a source by track, and the mean losses of their batches.

    The frame that fills up the last batch is unlabelled, so that it costs nothing.
    """
    order = even_batches(rows, config.eval_batch)
    batches = read_batches(source, order, workers=config.data.workers)
    spare = order.size - len(rows)
    predicted: list[dict[str, np.ndarray]] = []
    sums: dict[str, float] = {}
    for number, batch in enumerate(batches, 1):
        used = config.eval_batch - (spare if number == len(order) else 0)
        for name in ("phases", "tools"):
            batch[name] = np.concatenate([batch[name][:used], np.full_like(batch[name][used:], -1)])
        answer, losses = program.evaluate(state, spread(batch, mesh))
        predicted.append({name: np.asarray(x)[:used] for name, x in answer.items()})
        for name, value in losses.items():
            sums[name] = sums.get(name, 0.0) + float(value) * used
    joined = {name: np.concatenate([part[name] for part in predicted]) for name in predicted[0]}
    return joined, {name: value / len(rows) for name, value in sums.items()}


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
