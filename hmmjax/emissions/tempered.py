"""Any family, trusted less: its likelihood raised to a power."""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core.checks import check_positive
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.emissions.base import Emission


@pytree
class Tempered(Emission):
    """`family` with log-likelihoods multiplied by `power`.

    A network's errors come in runs and its probabilities are over-confident; a chain that takes every frame for fresh
    evidence trusts it far too much. A power below one says how much a frame is worth. `hmmjax.calibrate` finds it.

    Attributes:
        family: the family that is tempered.
        power: positive; a scalar, or (L,) one a hidden phase, or (K,) one a tool.
    """

    family: Any
    power: Any
    constraints = MappingProxyType({"power": "power"})

    @property
    def track(self) -> str:  # type: ignore[override]
        """The family's own."""
        return self.family.track

    @property
    def observes(self) -> str:  # type: ignore[override]
        """The family's own."""
        return self.family.observes

    @property
    def is_joint(self) -> bool:  # type: ignore[override]
        """The family's own."""
        return self.family.is_joint

    @property
    def num_phases(self) -> int:
        """L."""
        return self.family.num_phases

    @property
    def num_tools(self) -> int:
        """K."""
        return self.family.num_tools

    @property
    def prior_shape(self) -> tuple[int, ...]:
        """The family's own."""
        return self.family.prior_shape

    def _weights(self) -> Array:
        power = jnp.asarray(self.power)
        return power[..., None] if self.track == "tools" and power.ndim else power

    def log_prob(self, observations: Any) -> Array:
        """The family's log-likelihoods times the power; what is impossible stays so."""
        table = self.family.log_prob(observations)
        possible = table > -jnp.inf
        return jnp.where(possible, self._weights() * jnp.where(possible, table, 0), -jnp.inf)

    def statistics(self, observations: Any, posterior: Array) -> Any:
        """The family's statistics with every frame weighing its power."""
        return self.family.statistics(observations, posterior * self._weights())

    def maximize(self, statistics: Any, pseudo_counts: Any = 0.0) -> Self:
        """The family's M-step; the power stays, as EM's objective would only ever lower it."""
        return type(self)(self.family.maximize(statistics, pseudo_counts), self.power)

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """The family's own."""
        return self.family.log_prior(pseudo_counts)

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draws from the family itself: a tempered likelihood is not a density to draw from."""
        return self.family.sample(key, states)

    def check(self) -> None:
        """Raise ValueError unless the power is positive and the family valid."""
        if not isinstance(self.family, Emission) or isinstance(self.family.observes, tuple):
            raise TypeError(
                f"{type(self.family).__name__} cannot be tempered as a whole: temper each of the fused families."
            )
        check_positive(f"{self.track}.emission.power", np.asarray(self.power))
        size = self.num_tools if self.track == "tools" else self.num_phases
        if np.shape(self.power) not in ((), (size,)):
            shape = np.shape(self.power)
            raise ValueError(f"{self.track}.emission.power has shape {shape}; give a scalar or ({size},).")
        self.family.check()
