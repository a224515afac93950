"""The compiled functions of a run: one update of the parameters, and one batch of validation."""

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import jax
import numpy as np
import optax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.settings import Config, Optimizer
from models.systems import SYSTEMS, Logits, System, Terms, probabilities
from models.training.augment import augment, augment_boxes, resize
from models.training.losses import Criterion, HMMLoss, Weights
from models.training.processes import to_devices

#: "images" (N, H, W, 3) uint8, or clips (N, T, H, W, 3), or "features" (N, T, D) with their "mask" (N, T); "phases"
#: (N,) or (N, T), "tools" with a further axis K; and if known "boxes" (N, M, 4), "box_tools" (N, M), "phase_weights"
#: and "tool_weights".
Batch = dict[str, Array]
Metrics = dict[str, Array]


class TrainState(NamedTuple):
    """The state that an update changes; together with the seed it determines the rest of the run.

    Attributes:
        step: number of updates so far.
        params: trained variables.
        rest: other variables of the system, such as running statistics.
        optimizer: state of optax.
    """

    step: Array
    params: nnx.State
    rest: nnx.State
    optimizer: Any


class Program(NamedTuple):
    """The compiled functions of a run.

    Attributes:
        train: (state, batch) to (state, metrics); the given state is donated.
        evaluate: (state, batch of images) to (probabilities by track, losses by name).
        features: (state, images (N, H, W, 3)) to the backbone's features (N, D).
        decide: (state, batch of features) to (probabilities by track, losses by name).
    """

    train: Callable[[TrainState, Batch], tuple[TrainState, Metrics]]
    evaluate: Callable[[TrainState, Batch], tuple[dict[str, Array], Metrics]]
    features: Callable[[TrainState, Array], Array]
    decide: Callable[[TrainState, Batch], tuple[dict[str, Array], Metrics]]


def schedule(config: Optimizer, steps: int, steps_per_epoch: int) -> optax.Schedule:
    """Return the heads' learning rate as a function of the update: linear warm-up, then half a cosine."""
    warmup = min(round(config.warmup_epochs * steps_per_epoch), max(steps - 1, 0))
    return optax.warmup_cosine_decay_schedule(
        0.0 if warmup else config.learning_rate,
        config.learning_rate,
        warmup,
        max(steps, warmup + 1),
        config.final_scale * config.learning_rate,
    )


def make_optimizer(config: Optimizer, learning_rate: optax.Schedule) -> optax.GradientTransformation:
    """Return the chain of gradient clipping, Adam, decay of kernels, and the learning rates of backbone and heads."""
    parts = [optax.clip_by_global_norm(config.clip)] if config.clip else []
    parts.append(optax.scale_by_adam())
    if config.name == "adamw":
        parts.append(optax.add_decayed_weights(config.weight_decay, mask=_kernels))
    scale = 1.0 if config.backbone_scale is None else config.backbone_scale
    parts += [_scale_backbone(scale), optax.scale_by_learning_rate(learning_rate)]
    return optax.chain(*parts)


def _kernels(params: Any) -> Any:
    """Mark the kernels of layers: biases, normalization and tables of positions do not decay."""

    def is_kernel(path: tuple[Any, ...], _: jax.Array) -> bool:
        return any(getattr(entry, "key", None) == "kernel" for entry in path)

    return jax.tree_util.tree_map_with_path(is_kernel, params)


def _scale_backbone(factor: float) -> optax.GradientTransformation:
    def scale(path: tuple[Any, ...], update: jax.Array) -> jax.Array:
        return factor * update if path[0].key == "backbone" else update

    return optax.stateless(lambda updates, _: jax.tree_util.tree_map_with_path(scale, updates))


def apply_updates(params: nnx.State, updates: optax.Updates) -> nnx.State:
    """Return trained variables after an update of the optimizer."""
    # optax returns the structure that it is given, which its annotations do not say.
    return cast(nnx.State, optax.apply_updates(params, updates))


def init_state(system: System, optimizer: optax.GradientTransformation) -> TrainState:
    """Return the state before the first update."""
    _, params, rest = nnx.split(system, nnx.Param, ...)
    return TrainState(jnp.zeros((), jnp.int32), params, rest, optimizer.init(params))


def make_program(
    system: System,
    optimizer: optax.GradientTransformation,
    learning_rate: optax.Schedule,
    config: Config,
    weights: Weights | None,
    mesh: Mesh,
) -> Program:
    """Compile a system's update and validation.

    Args:
        system: defines the structure; its parameters are not read.
        optimizer: from `make_optimizer`.
        learning_rate: recorded in the metrics; the optimizer has its own.
        config: seed, size, accumulation, augmentation and loss.
        weights: of classes, or None.
        mesh: of devices on which states are replicated and batches are sharded.
    """
    validation = _Validation(system, config, weights)
    update = _Update(system, optimizer, learning_rate, config, weights)
    replicated = NamedSharding(mesh, PartitionSpec())
    others = (
        jax.jit(f, out_shardings=replicated) for f in (validation.evaluate, validation.features, validation.decide)
    )
    return Program(jax.jit(update.train, donate_argnums=0, out_shardings=replicated), *others)


class _Update:
    """One update of the parameters."""

    def __init__(
        self,
        system: System,
        optimizer: optax.GradientTransformation,
        learning_rate: optax.Schedule,
        config: Config,
        weights: Weights | None,
    ):
        system.train()
        self.graph, *_ = nnx.split(system, nnx.Param, ...)
        hmm = HMMLoss(config.loss.hmm_model) if config.loss.hmm and config.loss.hmm_model else None
        self.criterion = Criterion(config.loss, weights, hmm, SYSTEMS[config.system].tool_reduction)
        self.optimizer, self.learning_rate, self.config = optimizer, learning_rate, config

    def train(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.key(self.config.seed), state.step)
        rest, grads, metrics = self._accumulate(state, batch, key)
        updates, optimizer = self.optimizer.update(grads, state.optimizer, state.params)
        metrics["gradient"] = optax.tree.norm(grads)
        metrics["learning_rate"] = jnp.asarray(self.learning_rate(state.step), jnp.float32)
        params = apply_updates(state.params, updates)
        return TrainState(state.step + 1, params, rest, optimizer), metrics

    def _accumulate(self, state: TrainState, batch: Batch, key: Array) -> tuple[nnx.State, nnx.State, Metrics]:
        """Compute the gradient of a batch in parts; return other variables, the mean gradient and mean metrics."""
        count = self.config.accumulate
        # Strided parts, so that each device holds the same number of frames of every part.
        parts = jax.tree.map(lambda x: x.reshape(len(x) // count, count, *x.shape[1:]).swapaxes(0, 1), batch)
        differentiate = jax.value_and_grad(self._loss, has_aux=True)

        def add(carry: Any, part: tuple[Batch, Array]) -> Any:
            rest, total, metrics = carry
            (_, (rest, new)), grads = differentiate(state.params, rest, part[0], jax.random.fold_in(key, part[1]))
            return (rest, *jax.tree.map(jnp.add, (total, metrics), (grads, new))), None

        first = jax.tree.map(lambda x: x[0], parts)
        (_, (rest, metrics)), grads = differentiate(state.params, state.rest, first, jax.random.fold_in(key, 0))
        if count > 1:
            others = (jax.tree.map(lambda x: x[1:], parts), jnp.arange(1, count))
            (rest, grads, metrics), _ = jax.lax.scan(add, (rest, grads, metrics), others)
            grads, metrics = jax.tree.map(lambda x: x / count, (grads, metrics))
        return rest, grads, metrics

    def _loss(
        self, params: nnx.State, rest: nnx.State, batch: Batch, key: Array
    ) -> tuple[Array, tuple[nnx.State, Metrics]]:
        system = nnx.merge(self.graph, params, rest, copy=True)
        augmentation, dropout = jax.random.split(key)
        value, terms = system.training_loss(self._augment(batch, augmentation), self.criterion, key=dropout)
        _, _, rest = nnx.split(system, nnx.Param, ...)
        return value, (rest, _losses(value, terms))

    def _augment(self, batch: Batch, key: Array) -> Batch:
        """Replace images and their boxes by random variants; all frames of a clip change alike."""
        if "images" not in batch:
            return batch
        config = self.config

        def vary(images: Array) -> Array:
            return augment(images, key, config.augment, config.size)

        vary = vary if batch["images"].ndim == 4 else jax.vmap(vary, 1, 1)
        varied = batch | {"images": vary(batch["images"])}
        if "boxes" in batch:
            boxes, real = augment_boxes(batch["boxes"], batch["box_tools"] >= 0, key, config.augment)
            varied |= {"boxes": boxes, "box_tools": jnp.where(real, batch["box_tools"], -1)}
        return varied


class _Validation:
    """Predictions and losses of one batch."""

    def __init__(self, system: System, config: Config, weights: Weights | None):
        system.eval()
        self.graph = nnx.split(system)[0]
        self.criterion = Criterion(config.loss, weights, tool_reduction=SYSTEMS[config.system].tool_reduction)
        self.size = config.size

    def evaluate(self, state: TrainState, batch: Batch) -> tuple[dict[str, Array], Metrics]:
        return self._measure(self._system(state)(resize(batch["images"], self.size)), batch)

    def features(self, state: TrainState, images: Array) -> Array:
        return self._system(state).features(resize(images, self.size))

    def decide(self, state: TrainState, batch: Batch) -> tuple[dict[str, Array], Metrics]:
        return self._measure(self._system(state).decide(batch["features"], batch["mask"]), batch)

    def _system(self, state: TrainState) -> System:
        return nnx.merge(self.graph, state.params, state.rest, copy=True)

    def _measure(self, logits: Logits, batch: Batch) -> tuple[dict[str, Array], Metrics]:
        return probabilities(logits), _losses(*self.criterion.frames(logits, batch))


def _losses(value: Array, terms: Terms) -> Metrics:
    return {"loss": value, **{f"loss/{name}": term for name, term in terms.items()}}


def data_mesh() -> Mesh:
    """Return all devices of all processes in a row, along which batches are sharded, those of a process in succession.

    Raises:
        ValueError: if processes have different numbers of devices.
    """
    devices = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
    if len(devices) != jax.process_count() * jax.local_device_count():
        raise ValueError(
            f"process {jax.process_index()} has {jax.local_device_count()} of {len(devices)} devices. Fix: give each "
            f"of the {jax.process_count()} processes the same number"
        )
    return Mesh(np.array(devices), ("data",))


def spread(batch: dict[str, np.ndarray], mesh: Mesh) -> Batch:
    """Put a batch, of which each process has its own rows, on the devices of a mesh, sharded along its first axis."""
    return to_devices(batch, NamedSharding(mesh, PartitionSpec("data")))


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Put a copy of every array in a tree on each device of a mesh."""
    return to_devices(tree, NamedSharding(mesh, PartitionSpec()))
