"""Scaled likelihoods: a recognizer's posterior divided by the class frequencies of its training data.

By Bayes' rule P(image | class) is P(class | image) / P(class), up to a factor that is the same for all classes. The
family needs no labels, trusts the recognizer's probabilities as they are, and works best if tempered.
"""

from types import MappingProxyType
from typing import Any, Self

import jax.numpy as jnp
import numpy as np

from hmmjax._core.checks import check_probabilities, check_rows, check_shape
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float
from hmmjax.emissions._concentration import OUTPUT_EPS
from hmmjax.emissions.base import PhaseEmission, ToolEmission


@pytree
class PhaseScaled(PhaseEmission):
    """log P(y | p) = log y[p] - log frequency[p], up to a constant.

    Attributes:
        frequency: (L,) probability of each phase in the recognizer's training frames; sums to one.

    Outputs are clipped to [1e-6, 1]. This is not a density over outputs: it cannot be sampled, its log-likelihood
    cannot be compared with that of other families, and EM does not change it. `hmmjax.estimate` takes frequencies
    from labels. Pseudo-counts (scalar or (L,)) are added to the counts of labeled frames.

    Source: Bourlard and Morgan (1994), connectionist speech recognition.
    """

    frequency: Array
    observes = "probabilities"
    constraints = MappingProxyType({"frequency": "simplex"})

    @property
    def num_phases(self) -> int:
        """Number of phases L."""
        return self.frequency.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (L,) or a scalar."""
        return self.frequency.shape

    @classmethod
    def default(cls, num_phases: int) -> Self:
        """Return equal frequencies."""
        return cls(jnp.full((num_phases,), 1 / num_phases, float))

    def log_prob(self, observations: Float[Array, "... L"]) -> Float[Array, "... L"]:
        """Return log(output / frequency), (..., L)."""
        return jnp.log(jnp.clip(observations, OUTPUT_EPS, 1)) - jnp.log(jnp.asarray(self.frequency))

    def statistics(self, observations: Float[Array, "... L"], posterior: Float[Array, "... L"]) -> Array:
        """Return the weight of each phase (L,), for `from_counts`."""
        return posterior.reshape(-1, posterior.shape[-1]).sum(0)

    def maximize(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Return the family itself: maximizing the likelihood would only shrink the recognizer's frequencies."""
        return self

    def from_counts(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Return the frequencies of labeled frames; phases without labels need a pseudo-count.

        Args:
            statistics: (L,) weights, from `statistics` with one-hot labels as the posterior.
            pseudo_counts: a scalar or (L,), added to them.

        Returns:
            A family with those frequencies; the family itself if some phase has no labels.
        """
        count = statistics + pseudo_counts
        all_seen = (count > 0).all()
        frequency = count / jnp.where(all_seen, count.sum(), 1)
        return type(self)(jnp.where(all_seen, frequency, jnp.asarray(self.frequency)))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return zero: `maximize` changes nothing, so pseudo-counts have no prior density."""
        return jnp.zeros(())

    def check(self) -> None:
        """Raise ValueError unless frequencies are a distribution without zeros."""
        check_rows("phases.emission.frequency", self.frequency)
        if not (np.asarray(self.frequency) > 0).all():
            raise ValueError(
                "phases.emission.frequency must be positive: a class without training frames cannot be scaled."
            )


@pytree
class ToolScaled(ToolEmission):
    """log P(y | tool k present) = log y[k] - log frequency[k]; absence has the complements of both.

    Attributes:
        frequency: (K,) fraction of the recognizer's training frames in which the tool was present, between 0 and 1.

    Outputs are clipped to [1e-6, 1 - 1e-6]. The caveats of `PhaseScaled` apply: this is not a density over outputs.
    Pseudo-counts (scalar or (K, 2)) are added to the counts of labeled frames.

    Source: Bourlard and Morgan (1994), connectionist speech recognition.
    """

    frequency: Array
    observes = "probabilities"
    constraints = MappingProxyType({"frequency": "unit_interval"})

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.frequency.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (K, 2) or broadcast to it."""
        return (*self.frequency.shape, 2)

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """Return frequencies of one half."""
        return cls(jnp.full((num_tools,), 0.5, float))

    def log_prob(self, observations: Float[Array, "... K"]) -> Float[Array, "... K 2"]:
        """Return log(output / frequency) under absence and presence, (..., K, 2)."""
        frequency = jnp.asarray(self.frequency)
        present = jnp.log(jnp.clip(observations, OUTPUT_EPS, 1)) - jnp.log(frequency)
        absent = jnp.log(jnp.clip(1 - observations, OUTPUT_EPS, 1)) - jnp.log1p(-frequency)
        return jnp.stack([absent, present], -1)

    def statistics(self, observations: Float[Array, "... K"], posterior: Float[Array, "... K 2"]) -> Array:
        """Return the weights of absence and presence (K, 2), for `from_counts`."""
        return posterior.reshape(-1, *posterior.shape[-2:]).sum(0)

    def maximize(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Return the family itself: maximizing the likelihood would only shrink the recognizer's frequencies."""
        return self

    def from_counts(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Return the frequencies of labeled frames; a tool that is always or never present needs a pseudo-count.

        Args:
            statistics: (K, 2) weights of absence and presence, from `statistics` with one-hot labels as the posterior.
            pseudo_counts: a scalar or an array that broadcasts to (K, 2), added to them.

        Returns:
            A family with those frequencies; a tool that is always or never present keeps its own.
        """
        count = statistics + pseudo_counts
        both = (count > 0).all(-1)
        frequency = count[:, 1] / jnp.where(both, count.sum(-1), 1)
        return type(self)(jnp.where(both, frequency, jnp.asarray(self.frequency)))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return zero: `maximize` changes nothing, so pseudo-counts have no prior density."""
        return jnp.zeros(())

    def check(self) -> None:
        """Raise ValueError unless frequencies are strictly between 0 and 1."""
        check_shape("tools.emission.frequency", self.frequency, (len(self.frequency),), "(K,)")
        check_probabilities("tools.emission.frequency", self.frequency)
        frequency = np.asarray(self.frequency)
        if not ((frequency > 0) & (frequency < 1)).all():
            raise ValueError("tools.emission.frequency must lie strictly between 0 and 1.")
