"""Losses of phases and tools, and the loss through a hidden Markov model; unknown labels (-1) do not contribute."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import jax
import numpy as np
import optax
from jax import Array
from jax import numpy as jnp

import hmmjax
from hmmjax.io import load_params
from models.settings import Loss
from models.systems import Logits, Terms

#: Weights of classes by track: phases (L,), and present tools (K,); a track that is left out is not weighted.
Weights = Mapping[str, np.ndarray]


def class_weights(phases: np.ndarray, tools: np.ndarray, num_phases: int) -> dict[str, np.ndarray]:
    """Compute the median class frequency divided by that of each class (Eigen & Fergus 2015).

    Args:
        phases: (n,) labels, -1 unknown.
        tools: (n, K) presence, -1 unknown.
        num_phases: L.

    Returns:
        Weights of phases (L,), and of present tools (K,); 1 for a class that never occurs.
    """
    known = phases[phases >= 0]
    frequency = {
        "phases": np.bincount(known, minlength=num_phases) / max(len(known), 1),
        "tools": (tools == 1).sum(0) / np.maximum((tools >= 0).sum(0), 1),
    }
    return {
        name: np.where(x > 0, np.median(x[x > 0]) / np.where(x > 0, x, 1), 1.0).astype(np.float32)
        if (x > 0).any()
        else np.ones(len(x), np.float32)
        for name, x in frequency.items()
    }


def phase_loss(
    logits: Array,
    labels: Array,
    weights: np.ndarray | None = None,
    smoothing: float = 0.0,
    trust: Array | None = None,
) -> Array:
    """Compute the cross-entropy of phases, a mean over labeled frames weighted by class weight and trust.

    Args:
        logits: (..., L).
        labels: (...), -1 unknown.
        weights: (L,) of classes.
        smoothing: probability spread evenly over the classes.
        trust: (...), weight of each label; None weights all labels alike.

    Returns:
        A scalar; 0 without any label.
    """
    count = logits.shape[-1]
    known = labels >= 0
    filled = jnp.where(known, labels, 0)
    # Logits of unlabeled frames may be NaN, and 0 times NaN would reach the gradient.
    logits = jnp.where(known[..., None], logits, 0)
    target = optax.smooth_labels(jnp.eye(count)[filled], smoothing)
    weight = known.astype(logits.dtype) if weights is None else known * jnp.asarray(weights)[filled]
    weight = weight if trust is None else weight * trust
    return (optax.softmax_cross_entropy(logits, target) * weight).sum() / jnp.maximum(weight.sum(), 1e-6)


def tool_loss(
    logits: Array,
    labels: Array,
    weights: np.ndarray | None = None,
    smoothing: float = 0.0,
    trust: Array | None = None,
    reduction: str = "mean",
) -> Array:
    """Compute the binary cross-entropy of tools, averaged over frames.

    Args:
        logits: (..., K).
        labels: (..., K), -1 unknown.
        weights: (K,), by which the loss of present tools is multiplied.
        smoothing: probability moved to one half.
        trust: (..., K), weight of each label; None weights all labels alike.
        reduction: over the known labels of a frame, "mean" or "sum"; a system of phases and tools weighs the two
            tracks by it, see `models.systems.SystemSpec.tool_reduction`.

    Returns:
        A scalar; 0 without any label.

    Raises:
        ValueError: for another reduction.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}: choose mean or sum")
    known = labels >= 0
    logits = jnp.where(known, logits, 0)
    target = jnp.where(known, labels, 0) * (1 - smoothing) + smoothing / 2
    loss = optax.sigmoid_binary_cross_entropy(logits, target)
    if weights is not None:
        loss = loss * jnp.where(labels == 1, jnp.asarray(weights), 1)
    if trust is not None:
        mean = jnp.where(known, loss * trust, 0).sum() / jnp.maximum(jnp.where(known, trust, 0).sum(), 1e-6)
    else:
        mean = jnp.where(known, loss, 0).sum() / jnp.maximum(known.sum(), 1)
    if reduction == "mean":
        return mean
    return mean * known.sum() / jnp.maximum(known.any(-1).sum(), 1)


class HMMLoss:
    """The negative conditional log-likelihood of the labels under a fixed hidden Markov model, for end-to-end training.

    A network whose predictions are stabilized afterwards need not be right in every frame; it should predict what the
    chain can use. The loss is -log P(labels | predictions), `hmmjax.conditional_log_likelihood`, differentiable in the
    network's probabilities at the cost of two E-steps.

    Args:
        path: a model file, with probability emissions for the tracks that the network predicts.

    Raises:
        ValueError: if the emissions observe labels, which have no gradient.
    """

    def __init__(self, path: str | Path):
        self.params = load_params(path).params
        for track in ("phases", "tools"):
            emission = getattr(getattr(self.params, track), "emission", None)
            if emission is not None and emission.observes != "probabilities":
                raise ValueError(
                    f"{path}: the emissions of {track} observe labels, which have no gradient. Fix: learn the model "
                    "with probability emissions"
                )

    def __call__(self, logits: Mapping[str, Array], labels: Mapping[str, Array], mask: Array) -> Array:
        """Compute -log P(labels | predictions) in nats per frame, a scalar.

        Args:
            logits: by track, (B, T, classes).
            labels: by track, (B, T) and (B, T, K), -1 unknown.
            mask: (B, T), False at missing frames.
        """
        obs, known = hmmjax.Observations(), hmmjax.Labels()
        activations = {"phases": jax.nn.softmax, "tools": jax.nn.sigmoid}
        for track in ("phases", "tools"):
            chain = getattr(self.params, track)
            if chain is None:
                continue
            known = dataclasses.replace(known, **{track: labels[track]})
            if chain.emission is not None and track in logits:
                obs = dataclasses.replace(obs, **{track: activations[track](logits[track])})
        conditional = hmmjax.conditional_log_likelihood(self.params, obs, mask, known)
        return -conditional.sum() / jnp.maximum(mask.sum(), 1)


@dataclasses.dataclass(frozen=True, eq=False)
class Criterion:
    """The loss of a run, of logits against labels; implements `models.systems.Criterion`.

    Attributes:
        config: weights of the terms, and label smoothing.
        weights: of classes, or None.
        hmm: the loss through the hidden Markov model, or None.
        tool_reduction: over the tools of a frame, "mean" or "sum", unless the configuration names one.
    """

    config: Loss
    weights: Weights | None = None
    hmm: HMMLoss | None = None
    tool_reduction: str = "mean"

    def frames(self, logits: Logits, labels: Mapping[str, Array]) -> tuple[Array, Terms]:
        """Return the weighted sum of the losses of the tracks in `logits`, and the unweighted loss of each track.

        `labels` may also hold the trust in each label, as "phase_weights" and "tool_weights".
        """
        reduction = self.config.tool_reduction or self.tool_reduction
        measure = {"phases": phase_loss, "tools": partial(tool_loss, reduction=reduction)}
        terms = {
            track: measure[track](
                x,
                labels[track],
                None if self.weights is None else self.weights.get(track),
                self.config.smoothing,
                labels.get(f"{track[:-1]}_weights"),
            )
            for track, x in logits.items()
        }
        return jnp.asarray(sum(getattr(self.config, track) * term for track, term in terms.items())), terms

    def sequences(self, logits: Logits, labels: Mapping[str, Array], mask: Array) -> Terms:
        """Return the weighted loss through the hidden Markov model, if there is one."""
        return {} if self.hmm is None else {"hmm": self.config.hmm * self.hmm(logits, labels, mask)}
