"""Scores of tools as they are: a monotone map from each tool's score to a likelihood ratio."""

from types import MappingProxyType
from typing import Any, Self

import jax.numpy as jnp
import numpy as np

from hmmjax._core.checks import check_array, is_concrete
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float
from hmmjax.emissions.base import ToolEmission

NUM_KNOTS = 101
"""Scores from 0 to 1 at which the map is stored; linear in between."""

PSEUDO_FRAMES = 21
"""Labeled frames that a tool's map starts from: their scores are spread from 0 to 1, and right as often as they say."""

SUREST = 1e-3
"""Smallest probability of presence and of absence that a score may stand for."""


@pytree
class ToolMonotone(ToolEmission):
    """log P(score | present) - log P(score | absent) as a monotone function of the score, by tool.

    Attributes:
        log_ratios: (K, M) values of that function at M scores spread evenly from 0 to 1.

    A score is used as it is, not cut at a threshold first. This is not a density over scores: it cannot be sampled, its
    log-likelihood cannot be compared with that of other families, and EM does not change it.

    Source: isotonic calibration (Zadrozny and Elkan 2002), divided by the prior odds.
    """

    log_ratios: Array
    observes = "probabilities"
    constraints = MappingProxyType({"log_ratios": "real"})

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.log_ratios.shape[0]

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """Return the map that takes scores for probabilities, of tools that are present in half of all frames."""
        scores = np.clip(np.linspace(0, 1, NUM_KNOTS), SUREST, 1 - SUREST)
        return cls(jnp.broadcast_to(jnp.asarray(np.log(scores) - np.log1p(-scores), float), (num_tools, NUM_KNOTS)))

    @classmethod
    def from_labels(cls, scores: Any, labels: Any, mask: Any = None) -> Self:
        """Fit the map of each tool to labeled frames by isotonic regression.

        Args:
            scores: (B, T, K) in [0, 1].
            labels: (B, T, K) 0, 1, or -1 for unknown.
            mask: (B, T) bool, True where observed; None if all frames are.

        Returns:
            A family whose maps start from `PSEUDO_FRAMES` frames each, so that a tool without labels keeps its scores.

        Raises:
            ImportError: scikit-learn is missing.
        """
        try:
            from sklearn.isotonic import IsotonicRegression  # slow import, rarely needed
        except ImportError:
            raise ImportError("fitting monotone maps needs scikit-learn: pip install scikit-learn.") from None

        scores, labels = np.asarray(scores, np.float64), np.asarray(labels)
        known = (labels >= 0) & np.isfinite(scores)
        if mask is not None:
            known &= np.asarray(mask)[..., None]
        prior = np.linspace(0, 1, PSEUDO_FRAMES)
        rows = []
        for k in range(labels.shape[-1]):
            keep = known[..., k]
            x = np.concatenate([scores[..., k][keep], prior])
            y = np.concatenate([labels[..., k][keep], np.clip(prior, 0.05, 0.95)])
            fitted = IsotonicRegression(y_min=SUREST, y_max=1 - SUREST, out_of_bounds="clip").fit(x, y)
            p = fitted.predict(np.linspace(0, 1, NUM_KNOTS))
            present = np.clip(y.mean(), SUREST, 1 - SUREST)
            rows.append(np.log(p) - np.log1p(-p) - np.log(present) + np.log1p(-present))
        return cls(jnp.asarray(np.stack(rows), float))

    def log_prob(self, observations: Float[Array, "... K"]) -> Float[Array, "... K 2"]:
        """Return zero under absence and the log-likelihood ratio under presence, (..., K, 2)."""
        ratios = jnp.asarray(self.log_ratios)
        place = jnp.clip(observations, 0, 1) * (ratios.shape[-1] - 1)
        below = jnp.clip(jnp.floor(place).astype(jnp.int32), 0, ratios.shape[-1] - 2)
        tools = jnp.arange(ratios.shape[0])
        low, high = ratios[tools, below], ratios[tools, below + 1]
        present = low + (place - below) * (high - low)
        return jnp.stack([jnp.zeros_like(present), present], -1)

    def statistics(self, observations: Float[Array, "... K"], posterior: Float[Array, "... K 2"]) -> Array:
        """Return zeros: `maximize` changes nothing."""
        return jnp.zeros(())

    def maximize(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Return the family itself: a likelihood ratio has no maximum-likelihood estimate without labels."""
        return self

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return zero: `maximize` changes nothing, so pseudo-counts have no prior density."""
        return jnp.zeros(())

    def check(self) -> None:
        """Raise ValueError unless there is a finite row of at least two ratios per tool."""
        check_array("tools.emission.log_ratios", self.log_ratios)
        if self.log_ratios.ndim != 2 or self.log_ratios.shape[-1] < 2:
            raise ValueError(
                f"tools.emission.log_ratios must be (K, M) with M of at least 2, got {self.log_ratios.shape}."
            )
        if is_concrete(self.log_ratios) and not np.isfinite(self.log_ratios).all():
            raise ValueError("tools.emission.log_ratios must be finite. Fit them with ToolMonotone.from_labels.")
