"""What published systems add to their losses; only training computes it.

A penalty is called as ``penalty(logits, sequences, labels, mask, key=key)`` and answers a scalar: `logits` by track
(B, T, classes), `sequences` the temporal model's features by track (B, T, width), `labels` by track with -1 unknown.
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
    """MTRCNet-CL's correlation loss: the tools that the phase's features imply should be those that are seen.

    A linear map from the LSTM's features to tools learns by its own cross-entropy, which does not reach the features
    (MTRCNet-CL trains it in a stage of its own), and the seen tools are drawn to what it says.

    Args:
        width: of the temporal features.
        sizes: number of classes by track.
        form: "kl", the divergence of Bernoullis from the seen tools to the implied ones; or "source", what MTRCNet-CL's
            code computes: the absolute sum of ``q (log q - p)``, since it hands torch's KLDivLoss p in place of log p.
        rngs: for the initial parameters.
    """

    def __init__(self, width: int, sizes: Mapping[str, int], *, form: str = "kl", rngs: nnx.Rngs):
        if form not in ("kl", "source"):
            raise ValueError(f"form is {form!r}: choose one of kl, source")
        self.imply = nnx.Linear(width, sizes["tools"], kernel_init=nnx.initializers.xavier_uniform(), rngs=rngs)
        self.form = form

    def __call__(
        self, logits: Tracks, sequences: Tracks, labels: Tracks, mask: Array, *, key: Array | None = None
    ) -> Array:
        """Mean over known (frame, tool) pairs."""
        del key
        implied = self.imply(jax.lax.stop_gradient(sequences["phases"].astype(jnp.float32)))
        seen, known = logits["tools"], (labels["tools"] >= 0) & mask[..., None]
        count = jnp.maximum(known.sum(), 1)
        present = labels["tools"] == 1
        learn = jnp.where(present, jax.nn.softplus(-implied), jax.nn.softplus(implied))
        target = jax.lax.stop_gradient(jax.nn.sigmoid(implied))
        if self.form == "source":
            each = target * (jnp.log(jnp.maximum(target, 1e-12)) - jax.nn.sigmoid(seen))
            drawn = jnp.abs(jnp.where(known, each, 0).sum())
        else:
            entropy = -jax.scipy.special.xlogy(target, target) - jax.scipy.special.xlogy(1 - target, 1 - target)
            each = target * jax.nn.softplus(-seen) + (1 - target) * jax.nn.softplus(seen) - entropy
            drawn = jnp.where(known, each, 0).sum()
        return (jnp.where(known, learn, 0).sum() + drawn) / count


class SequenceVAE(nnx.Module):
    """LAST's transformer VAE: a video's predictions and its labels should have the same summary.

    A transformer encodes the sequence of phase and tool probabilities to one Gaussian, and the sequence of labels,
    through the same transformer, to another; the penalty is the divergence from the one to the other. The source's
    attention replaces the logits of future frames by 0, and so sees the future; here they are -inf.

    Args:
        width: of the temporal features, which are not read.
        sizes: number of classes by track; their sum is the transformer's width.
        layers: of the transformer.
        rngs: for the initial parameters.
    """

    def __init__(self, width: int, sizes: Mapping[str, int], *, layers: int = 3, rngs: nnx.Rngs):
        del width
        size = sum(sizes.values())
        self.stack = Stack(layers, size, 1, None, 4, 0.1, dtype=jnp.float32, rngs=rngs)
        self.norm = LayerNorm(size)
        self.drop = Dropout(0.1)
        # Of predictions and of labels: where each looks, and what it reads there.
        self.look = nnx.Param(truncated_normal(rngs.params(), (2, size), jnp.float32))
        self.read = nnx.List([dense(size, 2 * size, bias=False, dtype=jnp.float32, rngs=rngs) for _ in range(2)])

    def __call__(
        self, logits: Tracks, sequences: Tracks, labels: Tracks, mask: Array, *, key: Array | None = None
    ) -> Array:
        """Mean over videos; frames whose labels are not all known are left out."""
        del sequences
        phases, tools = labels["phases"], labels["tools"]
        known = mask & (phases >= 0) & (tools >= 0).all(-1)
        said = jnp.concatenate([jax.nn.softmax(logits["phases"]), jax.nn.sigmoid(logits["tools"])], -1)
        count = logits["phases"].shape[-1]
        true = jnp.concatenate([jax.nn.one_hot(phases, count), (tools == 1).astype(jnp.float32)], -1)
        mean, log_var = self._summary(said, known, 0, fold(key, 0))
        true_mean, true_log_var = self._summary(true, known, 1, fold(key, 1))
        ratio = log_var - true_log_var
        each = (mean - true_mean) ** 2 * jnp.exp(-true_log_var) + jnp.exp(ratio) - ratio - 1
        videos = known.any(1)
        return 0.5 * jnp.where(videos[:, None], each, 0).sum() / jnp.maximum(videos.sum(), 1)

    def _summary(self, x: Array, known: Array, which: int, key: Array | None) -> tuple[Array, Array]:
        """Mean and log-variance (B, size) of a sequence (B, T, size)."""
        x = self.drop(x + sinusoids(*x.shape[1:]), fold(key, 0))
        x = self.norm(self.stack(x, known, fold(key, 1)))
        scores = jnp.where(known, gelu(x @ self.look[...][which]), -jnp.inf)
        # A video without any known frame has no summary; zeros keep NaN out of the gradient.
        weights = jax.nn.softmax(jnp.where(known.any(1, keepdims=True), scores, 0), axis=1)
        mean, log_var = jnp.split(self.read[which](jnp.einsum("bt,btc->bc", weights, x)), 2, -1)
        return mean, jnp.clip(log_var, -20, 20)
