"""Beta emissions with point masses at 0 and 1, for detector scores that are cut at a threshold."""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.categorical import dirichlet_log_prior, normalize_counts
from hmmjax._core.checks import check_positive, check_rows, check_shape
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float
from hmmjax.emissions._concentration import cap_warnings
from hmmjax.emissions.base import ToolEmission
from hmmjax.emissions.beta import ToolBeta


@pytree
class ToolInflatedBeta(ToolEmission):
    """The score of tool k given its presence d is exactly 0, exactly 1, or between them and then Beta-distributed.

    A detector that reports only boxes above a threshold scores exactly 0 most of the time. A Beta density would
    treat each such score as near proof of absence.

    Attributes:
        mass: (K, 2, 3) probabilities of a score of 0, between 0 and 1, and of 1; rows sum to one.
        concentration: (K, 2, 2) positive, for scores between 0 and 1; the last axis holds the exponents of (y, 1 - y),
            plus one.

    Scores within 1e-6 of 0 and of 1 count as 0 and 1. Pseudo-counts (scalar or (K, 2)): pseudo-frames per state in
    each of the three cases; scores between 0 and 1 are uniform.

    Source: Ospina and Ferrari (2010), inflated beta distributions.
    """

    mass: Array
    concentration: Array
    observes = "probabilities"
    constraints = MappingProxyType({"mass": "simplex", "concentration": "positive"})

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.mass.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (K, 2) or broadcast to it."""
        return self.mass.shape[:2]

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """Return scores that are mostly 0 for absent tools, and mostly between 0 and 1 for present ones."""
        mass = jnp.array([[0.85, 0.1, 0.05], [0.2, 0.6, 0.2]])
        return cls(jnp.broadcast_to(mass, (num_tools, 2, 3)), ToolBeta.default(num_tools).concentration)

    def log_prob(self, observations: Float[Array, "... K"]) -> Float[Array, "... K 2"]:
        """Return the log-probability or log-density (..., K, 2) of each score (..., K) under absence and presence."""
        low, high = _ends(observations)
        log_mass = num.log(jnp.asarray(self.mass))
        # The density is not evaluated at 0 and 1, where it and its derivative may be infinite.
        inside = ToolBeta(self.concentration).log_prob(jnp.where(low | high, 0.5, observations))
        end = jnp.where(low[..., None], log_mass[:, :, 0], log_mass[:, :, 2])
        return jnp.where((low | high)[..., None], end, log_mass[:, :, 1] + inside)

    def statistics(self, observations: Float[Array, "... K"], posterior: Float[Array, "... K 2"]) -> dict[str, Any]:
        """Return weights of the three cases (K, 2, 3), and `ToolBeta`'s statistics of the scores between 0 and 1."""
        low, high = _ends(observations)
        case = jnp.stack([low, ~(low | high), high], -1).astype(posterior.dtype)
        k = posterior.shape[-2]
        flat = posterior.reshape(-1, k, 2)
        cases = num.einsum("nkd,nkj->kdj", flat, case.reshape(-1, k, 3))
        inside = jnp.where((low | high)[..., None], 0, posterior)
        between = ToolBeta(self.concentration).statistics(jnp.where(low | high, 0.5, observations), inside)
        return {"cases": cases, "between": between}

    def maximize(self, statistics: dict[str, Any], pseudo_counts: Any = 0.0) -> Self:
        """Return normalized weights of the cases, and `ToolBeta`'s estimate."""
        mass = normalize_counts(statistics["cases"], self.mass, jnp.asarray(pseudo_counts)[..., None])
        between = ToolBeta(self.concentration).maximize(statistics["between"], pseudo_counts)
        return type(self)(mass, between.concentration)

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the log-density of the pseudo-frames."""
        cases = dirichlet_log_prior(self.mass, jnp.asarray(pseudo_counts)[..., None])
        return cases + ToolBeta(self.concentration).log_prior(pseudo_counts)

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw scores (..., K) for presence 0 or 1 (..., K)."""
        key_case, key_between = jax.random.split(key)
        mass = jnp.asarray(self.mass)
        chosen = jnp.where((states == 1)[..., None], mass[:, 1], mass[:, 0])
        case = jax.random.categorical(key_case, num.log(chosen))
        between = ToolBeta(self.concentration).sample(key_between, states)
        return jnp.where(case == 1, between, (case == 2).astype(between.dtype))

    def warnings(self) -> list[str]:
        """Return a warning if a state's concentrations reached their cap."""
        return cap_warnings(self.track, self.concentration)

    def check(self) -> None:
        """Raise ValueError unless masses are distributions and concentrations positive."""
        check_shape("tools.emission.mass", self.mass, (len(self.mass), 2, 3), "(K, 2, 3)")
        check_rows("tools.emission.mass", self.mass)
        shape = (len(self.mass), 2, 2)
        check_shape("tools.emission.concentration", self.concentration, shape, "(K, 2, 2)")
        check_positive("tools.emission.concentration", self.concentration)


def _ends(scores: Array) -> tuple[Array, Array]:
    """Return which scores are 0, and which are 1."""
    return scores <= 1e-6, scores >= 1 - 1e-6
