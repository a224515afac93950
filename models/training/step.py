"""One update of the parameters, and one validation batch, each a single compiled program."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from flax import nnx
from jax import Array
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from models.detection.faster_rcnn import FasterRCNN
from models.settings import Config
from models.systems import System, probabilities
from models.training.augment import augment, augment_boxes, resize
from models.training.hmm import HMMLoss
from models.training.losses import Weights, total_loss

#: "images" (N, H, W, 3) uint8, or clips of them (N, T, H, W, 3), or "features" (N, T, D) with their "mask" (N, T);
#: "phases" (N,) or (N, T), "tools" with an axis K more; and where known "boxes" (N, M, 4), "box_tools" (N, M),
#: "phase_weights" and "tool_weights".
Batch = dict[str, Array]
Metrics = dict[str, Array]


class TrainState(NamedTuple):
    """All that an update changes; with the seed it decides the rest of the run.

    Attributes:
        step: updates done.
        params: trained variables.
        rest: other variables of the system: running statistics.
        optimizer: of optax.
    """

    step: Array
    params: nnx.State
    rest: nnx.State
    optimizer: Any


class Program(NamedTuple):
    """The compiled functions of a run.

    Attributes:
        train: (state, batch) to (state, metrics); the state passed in is used up.
        evaluate: (state, batch of images) to (probabilities by track, losses by name).
        features: (state, images (N, H, W, 3)) to the backbone's features (N, D).
        decide: (state, batch of features) to (probabilities by track, losses by name).
    """

    train: Callable[[TrainState, Batch], tuple[TrainState, Metrics]]
    evaluate: Callable[[TrainState, Batch], tuple[dict[str, Array], Metrics]]
    features: Callable[[TrainState, Array], Array]
    decide: Callable[[TrainState, Batch], tuple[dict[str, Array], Metrics]]


def init_state(system: System, optimizer: optax.GradientTransformation) -> TrainState:
    """The state before the first update."""
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
        system: gives the structure; its parameters are not read.
        optimizer: from `models.training.optimizer`.
        learning_rate: for the record only.
        config: seed, size, accumulation, augmentation and loss.
        weights: of classes, or None.
        mesh: where states are replicated and batches spread.
    """
    system.eval()
    evaluated = nnx.split(system)[0]
    system.train()
    trained, *_ = nnx.split(system, nnx.Param, ...)

    hmm = HMMLoss(config.loss.hmm_model) if config.loss.hmm and config.loss.hmm_model else None

    def of_pictures(model: System, images: Array, changed: Array, dropped: Array) -> Array:
        """Features of variants of pictures; all frames of a clip are changed alike."""

        def vary(images: Array) -> Array:
            return augment(images, changed, config.augment, config.size)

        vary = vary if images.ndim == 4 else jax.vmap(vary, 1, 1)
        return model.features(vary(images), key=dropped)

    def of_system(model: System, batch: Batch, changed: Array, dropped: Array) -> tuple[Array, Metrics]:
        features = batch.get("features")
        if features is None:
            features = of_pictures(model, batch["images"], changed, dropped)
        answer = model.answer(features, batch.get("mask"), key=dropped)
        value, parts = total_loss(answer.logits, batch, config.loss, weights)
        if features.ndim == 3:
            mask = batch.get("mask", jnp.ones(features.shape[:2], bool))
            more = model.penalty(answer, batch, mask, key=dropped)
            if hmm is not None:
                more["hmm"] = config.loss.hmm * hmm(answer.logits, batch, mask)
            value = value + sum(more.values())
            parts |= {f"loss/{name}": part for name, part in more.items()}
        return value, parts

    def of_detector(model: FasterRCNN, batch: Batch, changed: Array, dropped: Array) -> tuple[Array, Metrics]:
        images = augment(batch["images"], changed, config.augment, config.size)
        boxes, real = augment_boxes(batch["boxes"], batch["box_tools"] >= 0, changed, config.augment)
        value, parts = model.loss(images, boxes, jnp.where(real, batch["box_tools"], -1), dropped)
        return value, {f"loss/{name}": part for name, part in parts.items()}

    def loss(params: nnx.State, rest: nnx.State, batch: Batch, key: Array) -> tuple[Array, tuple[nnx.State, Metrics]]:
        model = nnx.merge(trained, params, rest, copy=True)
        measure = of_system if isinstance(model, System) else of_detector
        value, parts = measure(model, batch, *jax.random.split(key))
        return value, (nnx.split(model, nnx.Param, ...)[2], {"loss": value, **parts})

    def train(state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        key = jax.random.fold_in(jax.random.key(config.seed), state.step)
        # Every device keeps its share of each part: parts take every k-th frame.
        parts = jax.tree.map(lambda x: x.reshape(-1, config.accumulate, *x.shape[1:]).swapaxes(0, 1), batch)

        def add(carry: Any, part: tuple[Batch, Array]) -> Any:
            rest, total, metrics = carry
            (_, (rest, new)), grads = jax.value_and_grad(loss, has_aux=True)(
                state.params, rest, part[0], jax.random.fold_in(key, part[1])
            )
            return (rest, *jax.tree.map(jnp.add, (total, metrics), (grads, new))), None

        first = jax.tree.map(lambda x: x[0], parts)
        (_, (rest, metrics)), grads = jax.value_and_grad(loss, has_aux=True)(
            state.params, state.rest, first, jax.random.fold_in(key, 0)
        )
        if config.accumulate > 1:
            others = (jax.tree.map(lambda x: x[1:], parts), jnp.arange(1, config.accumulate))
            (rest, grads, metrics), _ = jax.lax.scan(add, (rest, grads, metrics), others)
            grads, metrics = jax.tree.map(lambda x: x / config.accumulate, (grads, metrics))
        updates, moved = optimizer.update(grads, state.optimizer, state.params)
        metrics["gradient"] = optax.tree.norm(grads)
        metrics["learning_rate"] = jnp.asarray(learning_rate(state.step), jnp.float32)
        params = optax.apply_updates(state.params, updates)
        return TrainState(state.step + 1, params, rest, moved), metrics

    def ready(state: TrainState) -> System:
        return nnx.merge(evaluated, state.params, state.rest, copy=True)

    def measure(logits: dict[str, Array], batch: Batch) -> tuple[dict[str, Array], Metrics]:
        value, parts = total_loss(logits, batch, config.loss, weights)
        return probabilities(logits), {"loss": value, **parts}

    def evaluate(state: TrainState, batch: Batch) -> tuple[dict[str, Array], Metrics]:
        return measure(ready(state)(resize(batch["images"], config.size)), batch)

    def features(state: TrainState, images: Array) -> Array:
        return ready(state).features(resize(images, config.size))

    def decide(state: TrainState, batch: Batch) -> tuple[dict[str, Array], Metrics]:
        return measure(ready(state).decide(batch["features"], batch["mask"]), batch)

    everywhere = NamedSharding(mesh, PartitionSpec())
    others = (jax.jit(f, out_shardings=everywhere) for f in (evaluate, features, decide))
    return Program(jax.jit(train, donate_argnums=0, out_shardings=everywhere), *others)


def data_mesh() -> Mesh:
    """All visible devices in a row, along which batches are spread."""
    return Mesh(np.array(jax.devices()), ("data",))


def spread(batch: dict[str, np.ndarray], mesh: Mesh) -> Batch:
    """Put a batch on the devices of a mesh, each its share of the frames."""
    return jax.device_put(batch, NamedSharding(mesh, PartitionSpec("data")))


def replicate(tree: Any, mesh: Mesh) -> Any:
    """Put a copy of everything in a tree on each device of a mesh."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))
