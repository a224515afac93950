"""Dirichlet emissions with point masses, for recognizers that are sometimes completely certain."""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.categorical import dirichlet_log_prior, normalize_counts
from hmmjax._core.checks import check_positive, check_rows, check_shape, check_square
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float
from hmmjax.emissions._concentration import cap_warnings
from hmmjax.emissions.base import PhaseEmission
from hmmjax.emissions.dirichlet import PhaseDirichlet


@pytree
class PhaseInflatedDirichlet(PhaseEmission):
    """The softmax output given phase p is all on class q with probability mass[p, q], and otherwise Dirichlet.

    Outputs that are rounded to few digits, saturated or majority votes are exactly (0, .., 1, .., 0) in many frames.

    Attributes:
        mass: (L, L + 1) probabilities of certainty about each class and, last, of no certainty; rows sum to one.
        concentration: (L, L) positive, for outputs without certainty; one row per hidden phase, one column per class.

    An output within 1e-6 of 1 counts as certain. Pseudo-counts (scalar or (L,)): pseudo-frames per phase in each of
    the L + 1 cases; outputs without certainty are uniform on the simplex.

    Source: Ospina and Ferrari (2010), inflated beta distributions, with a Dirichlet in place of the Beta.
    """

    mass: Array
    concentration: Array
    observes = "probabilities"
    constraints = MappingProxyType({"mass": "simplex", "concentration": "positive"})

    @property
    def num_phases(self) -> int:
        """Number of phases L."""
        return self.mass.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (L,) or a scalar."""
        return (self.mass.shape[0],)

    @classmethod
    def default(cls, num_phases: int) -> Self:
        """Return a recognizer that is certain in half of the frames, and then right nine times in ten."""
        wrong = 0.05 / max(num_phases - 1, 1)
        certain = jnp.where(jnp.eye(num_phases, dtype=bool), 0.45 if num_phases > 1 else 0.5, wrong)
        mass = jnp.concatenate([certain, jnp.full((num_phases, 1), 0.5)], -1)
        return cls(jnp.asarray(mass, float), PhaseDirichlet.default(num_phases).concentration)

    def log_prob(self, observations: Float[Array, "... L"]) -> Float[Array, "... L"]:
        """Return the log-probability or log-density (..., L) of each softmax output (..., L) under each phase."""
        certain, filled = _certain(observations)
        log_mass = num.log(jnp.asarray(self.mass))
        about = log_mass[:, jnp.argmax(observations, -1)]
        inside = log_mass[:, -1] + PhaseDirichlet(self.concentration).log_prob(filled)
        return jnp.where(certain[..., None], jnp.moveaxis(about, 0, -1), inside)

    def statistics(self, observations: Float[Array, "... L"], posterior: Float[Array, "... L"]) -> dict[str, Any]:
        """Return weights of the cases (L, L + 1), and `PhaseDirichlet`'s statistics of the uncertain outputs."""
        certain, filled = _certain(observations)
        n = posterior.shape[-1]
        case = jnp.where(certain, jnp.argmax(observations, -1), n)
        onehot = jax.nn.one_hot(case, n + 1, dtype=posterior.dtype)
        cases = num.einsum("np,nj->pj", posterior.reshape(-1, n), onehot.reshape(-1, n + 1))
        rest = jnp.where(certain[..., None], 0, posterior)
        return {"cases": cases, "uncertain": PhaseDirichlet(self.concentration).statistics(filled, rest)}

    def maximize(self, statistics: dict[str, Any], pseudo_counts: Any = 0.0) -> Self:
        """Return normalized weights of the cases, and `PhaseDirichlet`'s estimate."""
        mass = normalize_counts(statistics["cases"], self.mass, jnp.asarray(pseudo_counts)[..., None])
        rest = PhaseDirichlet(self.concentration).maximize(statistics["uncertain"], pseudo_counts)
        return type(self)(mass, rest.concentration)

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the log-density of the pseudo-frames."""
        cases = dirichlet_log_prior(self.mass, jnp.asarray(pseudo_counts)[..., None])
        return cases + PhaseDirichlet(self.concentration).log_prior(pseudo_counts)

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw softmax outputs (..., L) for phases (...,)."""
        key_case, key_rest = jax.random.split(key)
        case = jax.random.categorical(key_case, num.log(jnp.asarray(self.mass))[states])
        rest = PhaseDirichlet(self.concentration).sample(key_rest, states)
        size = rest.shape[-1]
        return jnp.where((case < size)[..., None], jax.nn.one_hot(case, size, dtype=rest.dtype), rest)

    def warnings(self) -> list[str]:
        """Return a warning if a state's concentrations reached their cap."""
        return cap_warnings(self.track, self.concentration)

    def check(self) -> None:
        """Raise ValueError unless masses are distributions and concentrations positive."""
        size = len(self.mass)
        check_shape("phases.emission.mass", self.mass, (size, size + 1), "(L, L + 1)")
        check_rows("phases.emission.mass", self.mass)
        check_square("phases.emission.concentration", self.concentration, 2)
        check_shape("phases.emission.concentration", self.concentration, (size, size), "(L, L)")
        check_positive("phases.emission.concentration", self.concentration)


def _certain(outputs: Array) -> tuple[Array, Array]:
    """Return which outputs are certain, and the outputs with certain ones replaced by uniform ones."""
    certain = outputs.max(-1) >= 1 - 1e-6
    return certain, jnp.where(certain[..., None], 1 / outputs.shape[-1], outputs)
