"""Beta emissions over the recognizer's sigmoid output per tool (the paper's psi)."""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.checks import check_positive, check_shape
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array, Float
from hmmjax.emissions import _concentration
from hmmjax.emissions.anchor import Anchor
from hmmjax.emissions.base import ToolEmission


@pytree
class ToolBeta(ToolEmission):
    """The output of tool k given its presence d is Beta(concentration[k, d, 0], concentration[k, d, 1])-distributed.

    Attributes:
        concentration: (K, 2, 2) positive; the last axis holds the exponents of (y, 1 - y), plus one.

    Outputs are clipped to [1e-6, 1 - 1e-6]. Pseudo-counts (scalar or (K, 2)): pseudo-frames per state whose
    outputs are uniform on [0, 1], or as an `Anchor` says.

    Source: the paper's first extension, psi.
    """

    concentration: Array
    observes = "probabilities"
    accepts_anchor = True
    anchor_frames = _concentration.ANCHOR_FRAMES
    constraints = MappingProxyType({"concentration": "positive"})

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.concentration.shape[0]

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """Pseudo-counts are (K, 2) or broadcast to it."""
        return self.concentration.shape[:2]

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """Return low outputs for absent tools and high ones for present tools."""
        return cls(jnp.broadcast_to(jnp.array([[0.5, 2.0], [1.5, 0.5]]), (num_tools, 2, 2)))

    def log_prob(self, observations: Float[Array, "... K"]) -> Float[Array, "... K 2"]:
        """Return the log-density (..., K, 2) of each output (..., K) under absence and presence."""
        concentration = jnp.asarray(self.concentration)
        log_y = _log_pair(observations)
        return num.einsum("...kj,kdj->...kd", log_y, concentration - 1) - _concentration.log_normalizer(concentration)

    def statistics(self, observations: Float[Array, "... K"], posterior: Float[Array, "... K 2"]) -> dict[str, Array]:
        """Return total weights (K, 2) and weighted sums of log-outputs (K, 2, 2)."""
        k = posterior.shape[-2]
        posterior = posterior.reshape(-1, k, 2)
        log_y = _log_pair(observations).reshape(-1, k, 2)
        return {"weight": posterior.sum(0), "log": num.einsum("nkd,nkj->kdj", posterior, log_y)}

    def maximize(self, statistics: dict[str, Array], pseudo_counts: Any = 0.0) -> Self:
        """Return the weighted maximum likelihood (or MAP) estimate, by safeguarded Newton steps."""
        previous = jnp.asarray(self.concentration)
        weight, total = statistics["weight"], statistics["log"]
        return type(self)(_concentration.maximize(previous, weight, total, pseudo_counts, -jnp.ones_like(previous)))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the log-density of the pseudo-frames, that of an anchor relative to its reference."""
        concentration = jnp.asarray(self.concentration)
        if isinstance(pseudo_counts, Anchor):
            return _concentration.divergence(pseudo_counts, concentration)
        return jnp.sum(pseudo_counts * _concentration.log_density(concentration, -jnp.ones_like(concentration)))

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw sigmoid outputs (..., K) for presence 0 or 1 (..., K)."""
        concentration = jnp.asarray(self.concentration)
        chosen = jnp.where((states == 1)[..., None], concentration[:, 1], concentration[:, 0])
        return jax.random.beta(key, chosen[..., 0], chosen[..., 1])

    def warnings(self) -> list[str]:
        """Return a warning if a state's concentrations reached their cap."""
        return _concentration.cap_warnings(self.track, self.concentration)

    def check(self) -> None:
        """Raise ValueError unless every concentration is positive."""
        shape = (len(self.concentration), 2, 2)
        check_shape("tools.emission.concentration", self.concentration, shape, "(K, 2, 2)")
        check_positive("tools.emission.concentration", self.concentration)


def _log_pair(y: Array) -> Array:
    """Return (..., 2) logarithms of the outputs and of their complements."""
    # 1 - eps is not exact in float32: clip the complement as well, so that both logarithms have the same bound.
    present = jnp.log(jnp.clip(y, _concentration.OUTPUT_EPS, 1 - _concentration.OUTPUT_EPS))
    absent = jnp.log(jnp.clip(1 - y, _concentration.OUTPUT_EPS, 1 - _concentration.OUTPUT_EPS))
    return jnp.stack([present, absent], -1)
