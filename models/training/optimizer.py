"""Adam and AdamW with one learning rate for the backbone and one for the rest."""

from typing import Any

import jax
import optax

from models.settings import Optimizer


def schedule(config: Optimizer, steps: int, steps_per_epoch: int) -> optax.Schedule:
    """The heads' learning rate at each update: linear warm-up, then half a cosine."""
    warmup = min(round(config.warmup_epochs * steps_per_epoch), max(steps - 1, 0))
    return optax.warmup_cosine_decay_schedule(
        0.0 if warmup else config.learning_rate,
        config.learning_rate,
        warmup,
        max(steps, warmup + 1),
        config.final_scale * config.learning_rate,
    )


def make_optimizer(config: Optimizer, learning_rate: optax.Schedule) -> optax.GradientTransformation:
    """Clipping, Adam, decay of kernels, then the learning rates."""
    parts = [optax.clip_by_global_norm(config.clip)] if config.clip else []
    parts.append(optax.scale_by_adam())
    if config.name == "adamw":
        parts.append(optax.add_decayed_weights(config.weight_decay, mask=_kernels))
    parts += [_scale_backbone(config.backbone_scale), optax.scale_by_learning_rate(learning_rate)]
    return optax.chain(*parts)


def _kernels(params: Any) -> Any:
    # Biases and normalization scales are vectors.
    return jax.tree.map(lambda p: p.ndim > 1, params)


def _scale_backbone(factor: float) -> optax.GradientTransformation:
    def scale(path: tuple[Any, ...], update: jax.Array) -> jax.Array:
        return factor * update if path[0].key == "backbone" else update

    return optax.stateless(lambda updates, _: jax.tree_util.tree_map_with_path(scale, updates))
