"""Additional loss terms of published systems, computed only in training.

A penalty is called as ``penalty(logits, sequences, labels, mask, key=key)`` and returns a scalar. `logits` are
(B, T, classes) by track, `sequences` the temporal model's features (B, T, width) by track, and `labels` by track are -1
where unknown.
"""

from collections.abc import Mapping

import jax
from flax import nnx
from jax import Array
from jax import numpy as jnp

from models.backbones.attention import dense, truncated_normal
from models.backbones.layers import Dropout, LayerNorm, fold, gelu
from models.temporal.attention import Stack
from models.temporal.base import sinusoids

Tracks = Mapping[str, Array]


class Correlation(nnx.Module):
    """MTRCNet-CL's correlation loss: tools predicted from phase features should agree with the predicted tools.

    A linear map from the LSTM's phase features to tools is trained with its own cross-entropy, without gradients to the
    features (MTRCNet-CL trains it in a separate stage). The penalty pulls the predicted tools towards its output.

    Args:
        width: length of the temporal features.
        sizes: number of classes by track.
        form: "kl", the Kullback-Leibler divergence between Bernoulli distributions of the predicted and the implied
            tools; or "source", the formula in MTRCNet-CL's code: the absolute sum of ``q (log q - p)``, because it
            passes p instead of log p to torch's KLDivLoss.
        rngs: for the initial parameters.
    """

    def __init__(self, width: int, sizes: Mapping[str, int], *, form: str = "kl", rngs: nnx.Rngs):
        if form not in ("kl", "source"):
            raise ValueError(f"form is {form!r}: choose kl or source")
        self.imply = nnx.Linear(width, sizes["tools"], kernel_init=nnx.initializers.xavier_uniform(), rngs=rngs)
        self.form = form

    def __call__(
        self, logits: Tracks, sequences: Tracks, labels: Tracks, mask: Array, *, key: Array | None = None
    ) -> Array:
        """Compute the mean over labeled frames of the sum over their labeled tools, as MTRCNet-CL sums its losses."""
        del key
        implied = self.imply(jax.lax.stop_gradient(sequences["phases"].astype(jnp.float32)))
        predicted, known = logits["tools"], (labels["tools"] >= 0) & mask[..., None]
        count = jnp.maximum(known.any(-1).sum(), 1)
        present = labels["tools"] == 1
        learn = jnp.where(present, jax.nn.softplus(-implied), jax.nn.softplus(implied))
        target = jax.lax.stop_gradient(jax.nn.sigmoid(implied))
        if self.form == "source":
            each = target * (jnp.log(jnp.maximum(target, 1e-12)) - jax.nn.sigmoid(predicted))
            divergence = jnp.abs(jnp.where(known, each, 0).sum())
        else:
            entropy = -jax.scipy.special.xlogy(target, target) - jax.scipy.special.xlogy(1 - target, 1 - target)
            each = target * jax.nn.softplus(-predicted) + (1 - target) * jax.nn.softplus(predicted) - entropy
            divergence = jnp.where(known, each, 0).sum()
        return (jnp.where(known, learn, 0).sum() + divergence) / count


class SequenceVAE(nnx.Module):
    """LAST's transformer VAE: the predictions and the labels of a video should have the same latent distribution.

    A transformer encodes the sequence of phase and tool probabilities to one Gaussian and the sequence of labels to
    another; the penalty is the Kullback-Leibler divergence between them. The published code replaces the attention
    logits of future frames by 0, which does not hide the future; here they are -inf.

    Args:
        width: length of the temporal features, which are not used.
        sizes: number of classes by track; their sum is the transformer's width.
        layers: number of blocks of the transformer.
        rngs: for the initial parameters.
    """

    def __init__(self, width: int, sizes: Mapping[str, int], *, layers: int = 3, rngs: nnx.Rngs):
        del width
        size = sum(sizes.values())
        self.stack = Stack(layers, size, 1, None, 4, 0.1, dtype=jnp.float32, rngs=rngs)
        self.norm = LayerNorm(size)
        self.drop = Dropout(0.1)
        # One attention query and one readout each for predictions and for labels.
        self.look = nnx.Param(truncated_normal(rngs.params(), (2, size), jnp.float32))
        self.read = nnx.List([dense(size, 2 * size, bias=False, dtype=jnp.float32, rngs=rngs) for _ in range(2)])

    def __call__(
        self, logits: Tracks, sequences: Tracks, labels: Tracks, mask: Array, *, key: Array | None = None
    ) -> Array:
        """Compute the mean over videos; frames with an unknown label are skipped."""
        del sequences
        phases, tools = labels["phases"], labels["tools"]
        known = mask & (phases >= 0) & (tools >= 0).all(-1)
        predicted = jnp.concatenate([jax.nn.softmax(logits["phases"]), jax.nn.sigmoid(logits["tools"])], -1)
        count = logits["phases"].shape[-1]
        true = jnp.concatenate([jax.nn.one_hot(phases, count), (tools == 1).astype(jnp.float32)], -1)
        mean, log_var = self._summary(predicted, known, 0, fold(key, 0))
        true_mean, true_log_var = self._summary(true, known, 1, fold(key, 1))
        ratio = log_var - true_log_var
        each = (mean - true_mean) ** 2 * jnp.exp(-true_log_var) + jnp.exp(ratio) - ratio - 1
        videos = known.any(1)
        return 0.5 * jnp.where(videos[:, None], each, 0).sum() / jnp.maximum(videos.sum(), 1)

    def _summary(self, x: Array, known: Array, which: int, key: Array | None) -> tuple[Array, Array]:
        """Encode sequences (B, T, size): mean and log-variance (B, size)."""
        x = self.drop(x + sinusoids(*x.shape[1:]), fold(key, 0))
        x = self.norm(self.stack(x, known, fold(key, 1)))
        scores = jnp.where(known, gelu(x @ self.look[...][which]), -jnp.inf)
        # A video without a labeled frame has no summary; zeros keep NaN out of the gradient.
        weights = jax.nn.softmax(jnp.where(known.any(1, keepdims=True), scores, 0), axis=1)
        mean, log_var = jnp.split(self.read[which](jnp.einsum("bt,btc->bc", weights, x)), 2, -1)
        return mean, jnp.clip(log_var, -20, 20)
