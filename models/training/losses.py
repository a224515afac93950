"""Losses of phases and tools; unknown labels (-1) cost nothing."""

from collections.abc import Mapping

import numpy as np
import optax
from jax import Array
from jax import numpy as jnp

from models.settings import Loss

Weights = Mapping[str, np.ndarray]


def class_weights(phases: np.ndarray, tools: np.ndarray, num_phases: int) -> dict[str, np.ndarray]:
    """Median class frequency over each class's own (Eigen & Fergus 2015); 1 for a class that never occurs.

    Args:
        phases: (n,) labels, -1 unknown.
        tools: (n, K) presence, -1 unknown.
        num_phases: L.

    Returns:
        Weights of phases (L,), and of present tools (K,).
    """
    known = phases[phases >= 0]
    share = {
        "phases": np.bincount(known, minlength=num_phases) / max(len(known), 1),
        "tools": (tools == 1).sum(0) / np.maximum((tools >= 0).sum(0), 1),
    }
    return {
        name: np.where(x > 0, np.median(x[x > 0]) / np.where(x > 0, x, 1), 1.0).astype(np.float32)
        if (x > 0).any()
        else np.ones(len(x), np.float32)
        for name, x in share.items()
    }


def phase_loss(
    logits: Array,
    labels: Array,
    weights: np.ndarray | None = None,
    smoothing: float = 0.0,
    trust: Array | None = None,
) -> Array:
    """Cross-entropy, averaged over known frames by class weight and trust.

    Args:
        logits: (..., L).
        labels: (...), -1 unknown.
        weights: (L,) of classes.
        smoothing: probability spread evenly over the classes.
        trust: (...), how much each label counts; None is 1 throughout.

    Returns:
        A scalar; 0 when nothing is known.
    """
    count = logits.shape[-1]
    known = labels >= 0
    safe = jnp.where(known, labels, 0)
    # What is said where nothing is known may be NaN, and 0 times NaN would reach the gradient.
    logits = jnp.where(known[..., None], logits, 0)
    target = optax.smooth_labels(jnp.eye(count)[safe], smoothing)
    share = known.astype(logits.dtype) if weights is None else known * jnp.asarray(weights)[safe]
    share = share if trust is None else share * trust
    return (optax.softmax_cross_entropy(logits, target) * share).sum() / jnp.maximum(share.sum(), 1e-6)


def tool_loss(
    logits: Array,
    labels: Array,
    weights: np.ndarray | None = None,
    smoothing: float = 0.0,
    trust: Array | None = None,
) -> Array:
    """Binary cross-entropy, averaged over known labels by trust; `weights` multiply the loss of present tools.

    Args:
        logits: (..., K).
        labels: (..., K), -1 unknown.
        weights: (K,) of present tools.
        smoothing: probability moved to one half.
        trust: (..., K), how much each label counts; None is 1 throughout.

    Returns:
        A scalar; 0 when nothing is known.
    """
    known = labels >= 0
    logits = jnp.where(known, logits, 0)
    target = jnp.where(known, labels, 0) * (1 - smoothing) + smoothing / 2
    loss = optax.sigmoid_binary_cross_entropy(logits, target)
    if weights is not None:
        loss = loss * jnp.where(labels == 1, jnp.asarray(weights), 1)
    if trust is not None:
        return jnp.where(known, loss * trust, 0).sum() / jnp.maximum(jnp.where(known, trust, 0).sum(), 1e-6)
    return jnp.where(known, loss, 0).sum() / jnp.maximum(known.sum(), 1)


def total_loss(
    logits: Mapping[str, Array], labels: Mapping[str, Array], config: Loss, weights: Weights | None
) -> tuple[Array, dict[str, Array]]:
    """The weighted sum of the losses of the tracks in `logits`, and each of them by name.

    `labels` may hold trust in them beside, as "phase_weights" and "tool_weights".
    """
    measure = {"phases": phase_loss, "tools": tool_loss}
    parts = {
        name: measure[name](
            x,
            labels[name],
            None if weights is None else weights[name],
            config.smoothing,
            labels.get(f"{name[:-1]}_weights"),
        )
        for name, x in logits.items()
    }
    total = sum(getattr(config, name) * part for name, part in parts.items())
    return jnp.asarray(total), {f"loss/{name}": part for name, part in parts.items()}
