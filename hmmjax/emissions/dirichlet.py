"""Dirichlet emissions over the recognizer's full softmax output (the paper's phi)."""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.checks import check_positive, check_square
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float
from hmmjax.emissions import _concentration
from hmmjax.emissions.anchor import Anchor
from hmmjax.emissions.base import PhaseEmission


@pytree
class PhaseDirichlet(PhaseEmission):
    """The softmax output given phase p is Dirichlet(concentration[p])-distributed.

    Attributes:
        concentration: (L, L) positive; one row per hidden phase, one column per class of the recognizer.

    Outputs are clipped to [1e-6, 1 - 1e-6] and renormalized. Pseudo-counts (scalar or (L,)): pseudo-frames per phase
    whose outputs are uniform on the simplex (the conjugate prior), or as an `Anchor` says. They keep the density from
    collapsing to a spike on few or identical outputs.

    Source: the paper's first extension, phi.
    """

    concentration: Array
    observes = "probabilities"
    accepts_anchor = True
    anchor_frames = _concentration.ANCHOR_FRAMES
    constraints = MappingProxyType({"concentration": "positive"})

    @property
    def num_phases(self) -> int:
        """Number of phases L."""
        return self.concentration.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (L,) or a scalar."""
        return (self.concentration.shape[0],)

    @classmethod
    def default(cls, num_phases: int) -> Self:
        """Return a recognizer that is mostly right: concentration 4 on the phase itself, 1/2 elsewhere."""
        return cls(jnp.asarray(jnp.where(jnp.eye(num_phases, dtype=bool), 4.0, 0.5), float))

    def log_prob(self, observations: Float[Array, "... L"]) -> Float[Array, "... L"]:
        """Return the log-density (..., L) of each softmax output (..., L) under each phase."""
        concentration = jnp.asarray(self.concentration)
        log_y = _log_simplex(observations)
        return num.einsum("...q,pq->...p", log_y, concentration - 1) - _concentration.log_normalizer(concentration)

    def statistics(self, observations: Float[Array, "... L"], posterior: Float[Array, "... L"]) -> dict[str, Array]:
        """Return total weights (L,) and weighted sums of log-outputs (L, L)."""
        n = posterior.shape[-1]
        posterior = posterior.reshape(-1, n)
        log_y = _log_simplex(observations).reshape(-1, n)
        return {"weight": posterior.sum(0), "log": num.einsum("np,nq->pq", posterior, log_y)}

    def maximize(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Self:
        """Return the weighted maximum likelihood (or MAP) estimate, by safeguarded Newton steps."""
        previous = jnp.asarray(self.concentration)
        weight, total = statistics["weight"], statistics["log"]
        return type(self)(_concentration.maximize(previous, weight, total, pseudo_counts, _uniform_mean_log(previous)))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the log-density of the pseudo-frames, that of an anchor relative to its reference."""
        concentration = jnp.asarray(self.concentration)
        if isinstance(pseudo_counts, Anchor):
            return _concentration.divergence(pseudo_counts, concentration)
        return jnp.sum(pseudo_counts * _concentration.log_density(concentration, _uniform_mean_log(concentration)))

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw softmax outputs (..., L) for phases (...,)."""
        return jax.random.dirichlet(key, jnp.asarray(self.concentration)[states])

    def warnings(self) -> list[str]:
        """Return a warning if a state's concentrations reached their cap."""
        return _concentration.cap_warnings(self.track, self.concentration)

    def check(self) -> None:
        """Raise ValueError unless every concentration is positive."""
        check_square("phases.emission.concentration", self.concentration, 2)
        check_positive("phases.emission.concentration", self.concentration)


def _log_simplex(y: Array) -> Array:
    """Return logarithms of the clipped, renormalized outputs."""
    y = jnp.clip(y, _concentration.OUTPUT_EPS, 1 - _concentration.OUTPUT_EPS)
    return jnp.log(y) - jnp.log(y.sum(-1, keepdims=True))


def _uniform_mean_log(concentration: Array) -> Array:
    """Return the mean log-probability under a uniform Dirichlet over n classes: digamma(1) - digamma(n)."""
    n = concentration.shape[-1]
    ones = jnp.ones_like(concentration)
    return jax.lax.digamma(ones) - jax.lax.digamma(ones * n)
