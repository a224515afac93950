"""The training loop: epochs of updates, validations, checkpoints and records."""

import dataclasses
import gc
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from hmmjax.io import lock
from models.data.loader import prefetch
from models.settings import Config
from models.training.checkpoint import Checkpoints
from models.training.feeds import score
from models.training.processes import is_first
from models.training.run import Record, Silent, read_metrics
from models.training.setup import Setup, set_up
from models.training.step import TrainState, spread

#: Called with the number of updates so far and a text, which may be empty.
ProgressBar = Callable[[int, str], None]


@dataclasses.dataclass
class Progress:
    """What a checkpoint remembers in addition to the training state.

    Attributes:
        best: best value of the monitored metric so far.
        best_step: number of updates at which it was reached.
        stale: number of validations since then.
        stopped: whether the run has stopped early.
        per_epoch: updates per epoch, which locate a resumed run within its epoch.
    """

    best: float = -math.inf
    best_step: int = 0
    stale: int = 0
    stopped: bool = False
    per_epoch: int = 0


def fit(config: Config, *, resume: bool = False, quiet: bool = False) -> dict[str, float]:
    """Train a system.

    Args:
        config: the settings of the run.
        resume: continue from the newest checkpoint in `config.run`, bit for bit as if the run had never stopped.
        quiet: do not show a progress bar.

    Returns:
        The metrics of the best validation; empty if there has been none yet.

    Raises:
        FileExistsError: if the run's folder already holds a checkpoint and `resume` is False, or if another process
            trains in it.
        FileNotFoundError: if there is no checkpoint to resume from.
        FormatError: if boxes are needed and unknown, or if datasets, runs and the HMM differ in their classes.
        ValueError: for settings that contradict each other, for a resumed run of another network or on other frames,
            and if training diverges.
    """
    folder = Path(config.run)
    folder.mkdir(parents=True, exist_ok=True)
    first = is_first()
    with lock(folder, fix="wait for it to finish, or choose another run=...") if first else nullcontext():
        setup = set_up(config, resume=resume)
        checkpoints, state, progress = Checkpoints(folder / "checkpoints"), setup.state, Progress()
        if resume:
            state, progress = _restore(config, setup, checkpoints)
        progress.per_epoch = setup.feed.per_epoch
        record = Record(config, setup.classes, int(state.step)) if first else Silent()
        run = _Run(config, setup, checkpoints, record, progress)
        run.metrics = _validated(folder, progress.best_step)
        try:
            with _progress_bar(setup.total, int(state.step), quiet or not first) as bar:
                run.train(state, bar)
        finally:
            gc.unfreeze()
            record.close()
            checkpoints.close()
        return run.metrics


def _restore(config: Config, setup: Setup, checkpoints: Checkpoints) -> tuple[TrainState, Progress]:
    kept = checkpoints.restore(setup.state)
    if kept is None:
        raise FileNotFoundError(f"{config.run} holds no checkpoint. Fix: train without --resume")
    state, progress = kept[0], Progress(**kept[1])
    if progress.per_epoch not in (0, setup.feed.per_epoch):
        raise ValueError(
            f"an epoch of this run had {progress.per_epoch} updates and would now have {setup.feed.per_epoch}. Fix: "
            f"leave batch, clip and data as they were, or begin another run with start={config.run}"
        )
    # Evaluate early stopping again: `patience` may have been increased.
    progress.stopped = _out_of_patience(config, progress)
    return state, progress


class _Run:
    """The loop over updates of one run."""

    def __init__(
        self, config: Config, setup: Setup, checkpoints: Checkpoints, record: Record | Silent, progress: Progress
    ):
        self.config, self.setup = config, setup
        self.checkpoints, self.record, self.progress = checkpoints, record, progress
        self.metrics: dict[str, float] = {}

    def train(self, state: TrainState, bar: ProgressBar) -> None:
        """Update the state until the run ends, stops early, or reaches `stop_after`."""
        step, per_epoch = int(state.step), self.setup.feed.per_epoch
        first, end = step, min(self.setup.total, self.config.stop_after or self.setup.total)
        while step < end and not self.progress.stopped:
            epoch, done = divmod(step, per_epoch)
            batches = self.setup.feed.batches(epoch, done)
            waiting: list[tuple[int, Any]] = []
            for batch in prefetch(batches, lambda batch: spread(batch, self.setup.mesh)):
                state, metrics = self.setup.program.train(state, batch)
                if step == first:
                    # Freeze the millions of objects that compilation creates; otherwise each of Python's garbage
                    # collections stalls the accelerator (0.2 s at a time, with ResNet50 on an H100).
                    gc.collect()
                    gc.freeze()
                step += 1
                bar(step, "")
                if step % self.config.log_every == 0:
                    # Reading metrics waits for the device, so the previous ones are read, which are complete.
                    waiting.append((step, metrics))
                    self._log(waiting[:-1])
                    waiting = waiting[-1:]
                if self._finish_update(state, step, metrics, waiting, bar):
                    waiting = []
                if step == end:
                    break
            self._log(waiting)

    def _finish_update(
        self, state: TrainState, step: int, metrics: Any, waiting: list[tuple[int, Any]], bar: ProgressBar
    ) -> bool:
        """Validate and save a checkpoint if the update is one after which to do so; return whether it was."""
        config, per_epoch = self.config, self.setup.feed.per_epoch
        due = step // per_epoch % config.eval_every == 0 or step == self.setup.total
        validate = step % per_epoch == 0 and due
        if not (validate or (config.save_every and step % config.save_every == 0)):
            return False
        self._log(waiting)
        _check_finite(step, metrics)
        if validate:
            self._validate(state, step, bar)
        self.checkpoints.save("last", state, dataclasses.asdict(self.progress))
        return True

    def _log(self, waiting: list[tuple[int, Any]]) -> None:
        for step, metrics in waiting:
            self.record.write(step, {f"train/{name}": float(value) for name, value in metrics.items()})
            _check_finite(step, metrics)

    def _validate(self, state: TrainState, step: int, bar: ProgressBar) -> None:
        config, progress = self.config, self.progress
        predicted, truth, losses = self.setup.feed.validate(self.setup.program, state)
        metrics = {"loss": losses["loss"], **score(predicted, truth)}
        self.record.write(step, {f"val/{name}": value for name, value in metrics.items()})
        value = -metrics["loss"] if config.monitor == "loss" else metrics["score"]
        # The score is NaN without any label; every number is better than that.
        if value > progress.best or not progress.best_step or (math.isnan(progress.best) and not math.isnan(value)):
            progress.best, progress.best_step, progress.stale = value, step, 0
            self.metrics = metrics
            self.checkpoints.save("best", state, dataclasses.asdict(progress))
        else:
            progress.stale += 1
            progress.stopped = _out_of_patience(config, progress)
        bar(step, f"val loss {metrics['loss']:.3f}, score {metrics['score']:.3f}, best {progress.best:.3f}")


def _out_of_patience(config: Config, progress: Progress) -> bool:
    return bool(config.patience) and progress.stale >= config.patience


def _validated(run: Path, step: int) -> dict[str, float]:
    """Return the metrics of an earlier validation from the run's record; empty if there are none."""
    lines = [line for line in read_metrics(run) if line["step"] == step]
    found = {name: value for line in lines for name, value in line.items() if name.startswith("val/")}
    return {name.removeprefix("val/"): math.nan if value is None else value for name, value in found.items()}


def _check_finite(step: int, metrics: Mapping[str, Any]) -> None:
    """Raise ValueError if training has diverged: NaN in the loss or the gradient never leaves the parameters."""
    for name in ("loss", "gradient"):
        if not math.isfinite(metrics[name]):
            raise ValueError(
                f"training has diverged: the {name} of update {step} is {float(metrics[name])}. Fix: set a lower "
                "optimizer.learning_rate; the checkpoints are from before"
            )


@contextmanager
def _progress_bar(total: int, done: int, quiet: bool) -> Iterator[ProgressBar]:
    if quiet:
        yield lambda step, text: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("training", total=total, completed=done)

        def show(step: int, text: str) -> None:
            bar.update(task, completed=step, description=text or None)

        yield show
