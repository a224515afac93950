"""Emission family wrapper that raises a likelihood to a power, so that each frame counts for less (or more)."""

from types import MappingProxyType
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core.checks import check_positive
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.emissions.base import Emission, own_past
from hmmjax.emissions.fused import Fused


@pytree
class Tempered(Emission):
    """`family` with log-likelihoods multiplied by `power`.

    A network's errors are correlated over time and its probabilities are overconfident. A chain treats frames as
    independent given the states, and so overweights such a recognizer. A power below one reduces the weight of each
    frame; `hmmjax.calibrate` finds it.

    Attributes:
        family: the family that is tempered; not a `Fused` one, whose members are tempered one by one.
        power: positive; a scalar, (L,) with one power per phase, or (K,) with one per tool.
    """

    family: Any
    power: Any
    constraints = MappingProxyType({"power": "power"})

    @property
    def track(self) -> str:  # type: ignore[override]
        """The family's track."""
        return self.family.track

    @property
    def observes(self) -> str:  # type: ignore[override]
        """What the family observes."""
        return self.family.observes

    @property
    def is_joint(self) -> bool:  # type: ignore[override]
        """Whether the family is joint."""
        return self.family.is_joint

    @property
    def lag(self) -> int:  # type: ignore[override]
        """Number of previous frames that the family conditions on."""
        return self.family.lag

    @property
    def size(self) -> int:
        """Number of phases L, or of tools K."""
        return self.family.size

    @property
    def num_phases(self) -> int:
        """Number of phases L."""
        return self.family.num_phases

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.family.num_tools

    @property
    def table_shape(self) -> tuple[int, ...]:
        """Shape of the family's `log_prob` per frame."""
        return self.family.table_shape

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one frame's observation."""
        return self.family.event_shape

    @property
    def num_symbols(self) -> int:
        """Number of different labels that the family observes."""
        return self.family.num_symbols

    @property
    def prior_shape(self) -> tuple[int, ...] | None:
        """Shape to which the family's pseudo-counts broadcast."""
        return self.family.prior_shape

    @property
    def accepts_anchor(self) -> bool:  # type: ignore[override]
        """Whether the family takes an anchor."""
        return self.family.accepts_anchor

    @property
    def unwrapped(self) -> Emission:
        """The family without its power."""
        return self.family.unwrapped

    def check_observations(self, name: str, values: Any, observed: np.ndarray) -> None:
        """Raise if an observed frame is outside the family's domain."""
        self.family.check_observations(name, values, observed)

    def _weights(self) -> Array:
        power = jnp.asarray(self.power)
        return power[..., None] if self.track == "tools" and power.ndim else power

    def log_prob(self, observations: Any, past: Any = None) -> Array:
        """Return the family's log-likelihoods times the power; impossible states stay impossible."""
        table = self.family.log_prob(observations, *own_past(self.family, past))
        possible = table > -jnp.inf
        return jnp.where(possible, self._weights() * jnp.where(possible, table, 0), -jnp.inf)

    def sample(self, key: jax.Array, states: Array, past: Any = None) -> Array:
        """Draw from the family itself: a tempered likelihood is not a density over observations."""
        return self.family.sample(key, states, *own_past(self.family, past))

    def statistics(self, observations: Any, posterior: Array, past: Any = None) -> Any:
        """Return the family's statistics with every frame weighted by its power."""
        return self.family.statistics(observations, posterior * self._weights(), *own_past(self.family, past))

    def maximize(self, statistics: Any, pseudo_counts: Any = 0.0) -> Self:
        """Return the family's M-step with the same power, which EM cannot fit: a tempered density is not normalized."""
        return type(self)(self.family.maximize(statistics, pseudo_counts), self.power)

    def from_counts(self, statistics: Any, pseudo_counts: Any = 0.0) -> Self:
        """Return the family estimated from labeled frames, with the same power."""
        return type(self)(self.family.from_counts(statistics, pseudo_counts), self.power)

    @property
    def has_prior(self) -> bool:
        """Whether the family accepts pseudo-counts."""
        return self.family.has_prior

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the family's log-prior."""
        return self.family.log_prior(pseudo_counts)

    def warnings(self) -> list[str]:
        """Return the family's warnings."""
        return self.family.warnings()

    def check(self) -> None:
        """Raise TypeError or ValueError unless the power is positive and the family valid."""
        if not isinstance(self.family, Emission) or isinstance(self.family, Fused):
            raise TypeError(
                f"{type(self.family).__name__} cannot be tempered as a whole: temper each of the fused families."
            )
        check_positive(f"{self.track}.emission.power", np.asarray(self.power))
        if np.shape(self.power) not in ((), (self.size,)):
            shape = np.shape(self.power)
            raise ValueError(f"{self.track}.emission.power has shape {shape}; give a scalar or ({self.size},).")
        self.family.check()
