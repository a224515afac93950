"""Sequence models on frozen features, trained for several seeds and learning rates at once, as lanes of one program.

One such model leaves an accelerator idle between its many small kernels; lanes share each of them. The validation
videos choose the learning rate and the number of updates of each seed, so that neither is a guess.
"""

import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax import numpy as jnp

from models.data.frames import take
from models.data.loader import epoch_order
from models.experiment.lane_runs import Chosen, Run, by_video, check_runs, stack, whole_videos
from models.stabilize import Predictions
from models.systems import SYSTEMS, make_system, probabilities
from models.training.feeds import score
from models.training.losses import Criterion, class_weights
from models.training.step import TrainState, apply_updates, init_state, make_optimizer, schedule


class Lanes:
    """Compiled functions for all seeds and learning rates.

    Arrays have the axes (seeds, rates, ...), data (seeds, videos, frames, ...).

    Args:
        runs: one per seed, with equal numbers of videos in each part.
        rates: factors of `Config.optimizer.learning_rate`.

    Raises:
        ValueError: for runs that a lane cannot train: with clips, accumulated gradients or an HMM loss, or with other
            numbers of videos than the first.
    """

    def __init__(self, runs: Sequence[Run], rates: Sequence[float]):
        check_runs(runs)
        self.runs, self.rates, self.config = runs, jnp.asarray(rates, jnp.float32), runs[0].config
        config, names = self.config, (runs[0].table.phase_names, runs[0].table.tool_names)
        parts = {part: [run.sequences(part) for run in runs] for part in ("train", "val", "test")}
        #: Row numbers (B, T) of the frames of the validation and test videos, by part and seed.
        self.rows = {part: [sequences.rows for sequences in parts[part]] for part in ("val", "test")}
        # Videos to train on are often shorter than the longest test video.
        self.train_data = jax.device_put(stack(whole_videos(parts["train"])))
        count, whole = len(runs), whole_videos([*parts["val"], *parts["test"]])
        self.inputs = {"val": whole[:count], "test": whole[count:]}
        self.videos = self.train_data["mask"].shape[1]
        self.per_epoch = len(epoch_order(np.arange(self.videos), config.batch, 0, 0))
        total = self.per_epoch * config.epochs
        self.optimizer = make_optimizer(config.optimizer, schedule(config.optimizer, total, self.per_epoch))
        width = runs[0].features.shape[1]
        systems = [make_system(run.config, *map(len, names), width=width) for run in runs]
        self.weights = stack([_class_weights(run) for run in runs])
        self.seeds = jnp.asarray([run.config.seed for run in runs], jnp.uint32)
        first = systems[0]
        first.eval()
        self.eval_graph = nnx.split(first)[0]
        for system in systems:
            system.train()
        self.train_graph = nnx.split(first, nnx.Param, ...)[0]
        each = [init_state(system, self.optimizer) for system in systems]
        self.state: TrainState = jax.tree.map(lambda *x: jnp.repeat(jnp.stack(x)[:, None], len(rates), 1), *each)
        self.best = jax.tree.map(jnp.copy, (self.state.params, self.state.rest))
        self._advance = jax.jit(self._scan, donate_argnums=0)
        self._decide = jax.jit(jax.vmap(jax.vmap(self._probabilities, (0, 0, None, None))))
        self._keep = jax.jit(_select)

    def _probabilities(self, params: nnx.State, rest: nnx.State, features: Any, mask: Any) -> dict[str, jax.Array]:
        system = nnx.merge(self.eval_graph, params, rest, copy=True)
        return {name: x.astype(jnp.float32) for name, x in probabilities(system.decide(features, mask)).items()}

    def _scan(self, state: TrainState, data: Any, orders: Any) -> TrainState:
        update = jax.vmap(jax.vmap(self._update, (0, 0, None, None, None)), (0, None, 0, 0, 0))

        def step(state: TrainState, order: Any) -> tuple[TrainState, None]:
            batch = jax.vmap(lambda data, order: jax.tree.map(lambda x: x[order], data))(data, order)
            return update(state, self.rates, batch, self.seeds, self.weights), None

        return jax.lax.scan(step, state, orders)[0]

    def _update(self, state: TrainState, rate: Any, batch: Any, seed: Any, weights: Any) -> TrainState:
        """Update one lane."""
        criterion = Criterion(self.config.loss, weights, None, SYSTEMS[self.config.system].tool_reduction)
        key = jax.random.fold_in(jax.random.key(seed), state.step)

        def loss(params: nnx.State) -> tuple[jax.Array, nnx.State]:
            system = nnx.merge(self.train_graph, params, state.rest, copy=True)
            value, _ = system.training_loss(batch, criterion, key=key)
            _, _, rest = nnx.split(system, nnx.Param, ...)
            return value, rest

        grads, rest = jax.grad(loss, has_aux=True)(state.params)
        updates, optimizer = self.optimizer.update(grads, state.optimizer, state.params)
        params = apply_updates(state.params, jax.tree.map(lambda x: rate * x, updates))
        return TrainState(state.step + 1, params, rest, optimizer)

    def advance(self, epochs: Sequence[int]) -> None:
        """Train for some epochs."""
        size = self.config.batch
        orders = np.stack(
            [
                np.concatenate([epoch_order(np.arange(self.videos), size, run.config.seed, epoch) for epoch in epochs])
                for run in self.runs
            ],
            1,
        )
        self.state = self._advance(self.state, self.train_data, orders)

    def keep(self, better: np.ndarray) -> None:
        """Make the current networks of some lanes (seeds, rates) the best ones."""
        self.best = self._keep(better, (self.state.params, self.state.rest), self.best)

    def predict(self, networks: tuple[nnx.State, nnx.State], part: str) -> list[dict[str, np.ndarray]]:
        """Return, for each seed, probabilities by track (rates, n, ...) of the frames of a part, video by video."""
        count = self.inputs["val"][0]["mask"].shape[0]
        found: list[list[dict[str, np.ndarray]]] = [[] for _ in self.runs]
        total = self.inputs[part][0]["mask"].shape[0]
        for start in range(0, total, count):
            # The last group is filled up with its first video: one compiled program serves both parts.
            chosen = np.arange(start, start + count)
            chosen = np.where(chosen < total, chosen, start)
            batch = stack([{k: x[k][chosen] for k in ("features", "mask")} for x in self.inputs[part]])
            outputs = jax.device_get(self._decide(*networks, batch["features"], batch["mask"]))
            for seed, mask in enumerate(batch["mask"]):
                mask = mask & (np.arange(start, start + count) < total)[:, None]
                found[seed].append({name: x[seed][:, mask] for name, x in outputs.items()})
        return [{name: np.concatenate([x[name] for x in each], 1) for name in each[0]} for each in found]


def train_lanes(runs: Sequence[Run], rates: Sequence[float], *, seconds: float = math.inf) -> list[Chosen]:
    """Train sequence models, one per seed and learning rate, and let validation choose among them.

    Every `eval_every` epochs all lanes are scored on the validation videos. Training ends after `epochs`, when no lane
    has improved for `patience` validations, or when the time is up; a seed's network is the best of all its lanes.

    Args:
        runs: one per seed.
        rates: factors of the learning rate.
        seconds: time after which no further epochs start, compilation included; the first ones always do.

    Returns:
        For each run, what was chosen.

    Raises:
        ValueError: for runs that lanes cannot train, see `Lanes`, and for a seed without a network of finite score.
    """
    begin, config = time.perf_counter(), runs[0].config
    lanes = Lanes(runs, rates)
    best, at = np.full((len(runs), len(rates)), -np.inf), np.zeros((len(runs), len(rates)), int)
    history: list[list[list[list[float]]]] = [[[] for _ in rates] for _ in runs]
    stale = 0
    for epoch in range(0, config.epochs, config.eval_every):
        # At least one validation has to choose.
        if epoch and (stale >= (config.patience or math.inf) or time.perf_counter() - begin > seconds):
            break
        lanes.advance(range(epoch, min(epoch + config.eval_every, config.epochs)))
        updates = min(epoch + config.eval_every, config.epochs) * lanes.per_epoch
        scores = _scores(lanes)
        for seed, lane in np.ndindex(scores.shape):
            history[seed][lane].append([updates, round(float(scores[seed, lane]), 4)])
        better = scores > best
        best, at = np.where(better, scores, best), np.where(better, updates, at)
        stale = 0 if better.any() else stale + 1
        lanes.keep(better)
        print(f"{time.perf_counter() - begin:5.0f} s  {updates} updates  best {best.max(1).round(3)}", flush=True)
    if not np.isfinite(best.max(1)).all():
        seed = runs[int(best.max(1).argmin())].config.seed
        raise ValueError(
            f"seed {seed} has no network with a finite validation score. Fix: set a lower optimizer.learning_rate or "
            "smaller rates, and check that its validation videos are labeled"
        )
    chosen = best.argmax(1)
    predicted: list[Predictions] = [{} for _ in runs]
    for part in ("val", "test"):
        for seed, outputs in enumerate(lanes.predict(lanes.best, part)):
            predicted[seed] |= by_video(runs[seed].table, lanes.rows[part][seed], outputs, int(chosen[seed]))
    return [
        Chosen(
            predicted[seed],
            int(at[seed, lane]),
            float(rates[lane]),
            round(float(best[seed, lane]), 4),
            {f"{rate:g}": history[seed][number] for number, rate in enumerate(rates)},
        )
        for seed, lane in enumerate(chosen)
    ]


def _scores(lanes: Lanes) -> np.ndarray:
    """Return the validation score of every lane (seeds, rates); -inf if it is not finite."""
    found = lanes.predict((lanes.state.params, lanes.state.rest), "val")
    scores = np.full((len(lanes.runs), len(lanes.rates)), -np.inf)
    for seed, outputs in enumerate(found):
        rows = lanes.rows["val"][seed]
        rows, table = rows[rows >= 0], lanes.runs[seed].table
        labeled = table.parts[rows] == "val"
        for lane in range(scores.shape[1]):
            predicted = {name: x[lane][labeled] for name, x in outputs.items()}
            if all(np.isfinite(x).all() for x in predicted.values()):
                value = score(predicted, take(table, rows[labeled]))["score"]
                scores[seed, lane] = value if math.isfinite(value) else -np.inf
    return scores


def _class_weights(run: Run) -> dict[str, np.ndarray]:
    """Return the weights of the classes that the loss of a run balances, by track; empty for none."""
    if not run.config.loss.balance:
        return {}
    table, rows = run.table, run.table.rows("train")
    both = class_weights(table.phases[rows], table.tools[rows], len(table.phase_names))
    return {track: both[track] for track in run.config.loss.balance_tracks}


def _select(better: jax.Array, new: Any, old: Any) -> Any:
    """Take the leaves (seeds, rates, ...) of `new` where a lane is better."""

    def select(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(better.reshape(better.shape + (1,) * (a.ndim - 2)), a, b)

    return jax.tree.map(select, new, old)
