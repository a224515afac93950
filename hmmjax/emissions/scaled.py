"""Scaled likelihood: a recognizer's posterior divided by the class frequencies that it was trained with.

By Bayes' rule P(picture | class) is P(class | picture) / P(class) up to a factor that is the same for all classes. It
needs no labels at all, trusts the recognizer's probabilities as they are, and is at its best tempered.
"""

from types import MappingProxyType
from typing import Any, Self

import jax.numpy as jnp

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

    Outputs are clipped to [1e-6, 1]. It is no density over outputs: it cannot be sampled, its log-likelihood is not to
    be compared with other families', and EM leaves it alone. `counted` takes frequencies from labels.

    Source: Bourlard and Morgan (1994), connectionist speech recognition.
    """

    frequency: Array
    observes = "probabilities"
    constraints = MappingProxyType({"frequency": "simplex"})

    @property
    def num_phases(self) -> int:
        """L."""
        return self.frequency.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (L,) or a scalar."""
        return self.frequency.shape

    @classmethod
    def default(cls, num_phases: int) -> Self:
        """All phases alike."""
        return cls(jnp.full((num_phases,), 1 / num_phases))

    def log_prob(self, observations: Float[Array, "... L"]) -> Float[Array, "... L"]:
        """Log of output over frequency (..., L)."""
        return jnp.log(jnp.clip(observations, OUTPUT_EPS, 1)) - jnp.log(jnp.asarray(self.frequency))

    def statistics(self, observations: Float[Array, "... L"], posterior: Float[Array, "... L"]) -> Array:
        """Weight of each phase (L,), for `counted`."""
        return posterior.reshape(-1, posterior.shape[-1]).sum(0)

    def maximize(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Itself: the frequencies are the recognizer's, and raising the likelihood would only shrink them."""
        return self

    def from_counts(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Frequencies of labeled frames; phases never seen need a pseudo-count.

        Args:
            statistics: (L,) weights, from `statistics` with labels for posterior.
            pseudo_counts: a scalar or (L,), added to them.

        Returns:
            A family with those shares; itself where some phase was never seen.
        """
        count = statistics + pseudo_counts
        some = (count > 0).all()
        return type(self)(jnp.where(some, count / jnp.where(some, count.sum(), 1), jnp.asarray(self.frequency)))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Zero: there is nothing to learn."""
        return jnp.zeros(())

    def check(self) -> None:
        """Raise ValueError unless a distribution without zeros."""
        check_rows("phases.emission.frequency", self.frequency)
        if not (jnp.asarray(self.frequency) > 0).all():
            raise ValueError("phases.emission.frequency must be positive: a class never trained on cannot be scaled.")


@pytree
class ToolScaled(ToolEmission):
    """log P(y | presence of k) = log y[k] - log frequency[k], and of its absence with both complements.

    Attributes:
        frequency: (K,) share of the recognizer's training frames that showed the tool, between 0 and 1.

    Outputs are clipped to [1e-6, 1 - 1e-6]. What `PhaseScaled` is not, this is not either.

    Source: Bourlard and Morgan (1994), connectionist speech recognition.
    """

    frequency: Array
    observes = "probabilities"
    constraints = MappingProxyType({"frequency": "unit_interval"})

    @property
    def num_tools(self) -> int:
        """K."""
        return self.frequency.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (K, 2) or broadcast to it."""
        return (*self.frequency.shape, 2)

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """Present and absent alike."""
        return cls(jnp.full((num_tools,), 0.5))

    def log_prob(self, observations: Float[Array, "... K"]) -> Float[Array, "... K 2"]:
        """Log of output over frequency under absence and presence (..., K, 2)."""
        frequency = jnp.asarray(self.frequency)
        present = jnp.log(jnp.clip(observations, OUTPUT_EPS, 1)) - jnp.log(frequency)
        absent = jnp.log(jnp.clip(1 - observations, OUTPUT_EPS, 1)) - jnp.log1p(-frequency)
        return jnp.stack([absent, present], -1)

    def statistics(self, observations: Float[Array, "... K"], posterior: Float[Array, "... K 2"]) -> Array:
        """Weight of absence and presence (K, 2), for `counted`."""
        return posterior.reshape(-1, *posterior.shape[-2:]).sum(0)

    def maximize(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Itself, as `PhaseScaled.maximize`."""
        return self

    def from_counts(self, statistics: Array, pseudo_counts: Any = 0.0) -> Self:
        """Frequencies of labeled frames; a tool always or never seen needs a pseudo-count.

        Args:
            statistics: (K, 2) weights of absence and presence, from `statistics` with labels for posterior.
            pseudo_counts: a scalar or what broadcasts to (K, 2), added to them.

        Returns:
            A family with those shares; a tool always or never seen keeps its own.
        """
        count = statistics + pseudo_counts
        some = (count > 0).all(-1)
        share = count[:, 1] / jnp.where(some, count.sum(-1), 1)
        return type(self)(jnp.where(some, share, jnp.asarray(self.frequency)))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Zero: there is nothing to learn."""
        return jnp.zeros(())

    def check(self) -> None:
        """Raise ValueError unless strictly between 0 and 1."""
        check_shape("tools.emission.frequency", self.frequency, (len(self.frequency),), "(K,)")
        check_probabilities("tools.emission.frequency", self.frequency)
        frequency = jnp.asarray(self.frequency)
        if not ((frequency > 0) & (frequency < 1)).all():
            raise ValueError("tools.emission.frequency must lie strictly between 0 and 1, not at an end.")
