"""Several recognizers on the same track: their emission log-likelihoods are added."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import configurations
from hmmjax._core.checks import is_float
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.emissions._observations import check_missing, over_events, present
from hmmjax.emissions.base import Emission, own_past


@pytree
class Fused(Emission):
    """The product of several families on one track; an observation is a tuple with one entry per family.

    Given the hidden state the recognizers' errors are taken to be independent. If they are not, temper the families
    (`hmmjax.calibrate` finds a power for each). An observation may be missing: an entry is None if the recognizer has
    no output at all, and single frames (of tools also single tools) are NaN for probabilities and features or -1 for
    labels.

    Attributes:
        families: of one track, tempered or not. A tuple given as a chain's emission is converted to this.
    """

    families: Any

    @property
    def track(self) -> str:  # type: ignore[override]
        """The families' track."""
        return self.families[0].track

    @property
    def observes(self) -> tuple[str, ...]:  # type: ignore[override]
        """What each family observes."""
        return tuple(family.observes for family in self.families)

    @property
    def is_joint(self) -> bool:  # type: ignore[override]
        """Whether any family is joint; the other families' tables are then expanded over configurations."""
        return any(family.is_joint for family in self.families)

    @property
    def lag(self) -> int:  # type: ignore[override]
        """Largest number of previous frames that a family conditions on."""
        return max(family.lag for family in self.families)

    @property
    def size(self) -> int:
        """Number of phases L, or of tools K."""
        return self.families[0].size

    @property
    def num_phases(self) -> int:
        """Number of phases L."""
        return self.families[0].num_phases

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        return self.families[0].num_tools

    @property
    def table_shape(self) -> tuple[int, ...]:
        """Shape of `log_prob` per frame: (L,), (K, 2), or (K, 2**K) if any family is joint."""
        return next((f.table_shape for f in self.families if f.is_joint), self.families[0].table_shape)

    @property
    def event_shape(self) -> tuple[tuple[int, ...], ...]:
        """Shape of one frame's observation, one per family."""
        return tuple(family.event_shape for family in self.families)

    @property
    def prior_shape(self) -> tuple[tuple[int, ...] | None, ...]:
        """Shape to which pseudo-counts broadcast, one per family."""
        return tuple(family.prior_shape for family in self.families)

    @property
    def sources(self) -> tuple[Emission, ...]:
        """The families."""
        return self.families

    @property
    def unwrapped(self) -> "Fused":
        """The same families without their powers."""
        return type(self)(tuple(family.unwrapped for family in self.families))

    def check_observations(self, name: str, values: Any, observed: np.ndarray) -> None:
        """Raise unless there is one source per family, each within its family's domain where it is not missing."""
        if not isinstance(values, tuple):
            raise TypeError(
                f"{name} is one array, but params.{self.track}.emission fuses {len(self.families)} sources: pass a "
                "tuple with one array (or None) per source."
            )
        if len(values) != len(self.families):
            raise TypeError(
                f"{name} is a tuple of {len(values)} sources, but params.{self.track}.emission has "
                f"{len(self.families)}: give one emission family per source."
            )
        if all(x is None for x in values):
            raise ValueError(f"{name} holds no source: pass None instead of the tuple.")
        for i, (family, x) in enumerate(zip(self.families, values, strict=True)):
            if x is not None:
                check_source(family, f"{name}[{i}]", x, observed)

    def log_prob(self, observations: Any, past: Any = None) -> Array:
        """Return the sum of the families' log-densities; a missing observation contributes 0.

        Args:
            observations: a tuple with one entry per family, None if that recognizer has no output at all.
            past: a tuple with one `Past` per family, None for families without memory; None without any past.

        Returns:
            (..., *table_shape) log-densities.

        Raises:
            ValueError: every entry is None.
        """
        pasts = self._pasts(past)
        tables = [self._log_prob(i, x, pasts[i]) for i, x in enumerate(observations) if x is not None]
        if not tables:
            raise ValueError("every source is None: leave out the track's observations altogether.")
        total = tables[0]
        for table in tables[1:]:
            total = total + table
        return total

    def _log_prob(self, source: int, observations: Any, past: Any) -> Array:
        family = self.families[source]
        observed, filled = fill_missing(observations, family)
        table = family.log_prob(filled, *own_past(family, past))
        if self.is_joint and not family.is_joint:
            table = configurations.per_config(table, self.num_tools)
        return jnp.where(over_events(observed, table), table, 0)

    def sample(self, key: jax.Array, states: Array, past: Any = None) -> Any:
        """Draw one observation per recognizer, independently given the states."""
        keys = jax.random.split(key, len(self.families))
        triples = zip(self.families, keys, self._pasts(past), strict=True)
        return tuple(family.sample(key, states, *own_past(family, own)) for family, key, own in triples)

    def statistics(self, observations: Any, posterior: Array, past: Any = None) -> Any:
        """Return each family's sufficient statistics; None for absent sources. Missing frames have weight zero."""
        out = []
        for family, x, own in zip(self.families, observations, self._pasts(past), strict=True):
            if x is None:
                out.append(None)
                continue
            observed, filled = fill_missing(x, family)
            weights = jnp.where(over_events(observed, posterior), posterior, 0)
            if self.is_joint and not family.is_joint:
                weights = configurations.per_state(weights, self.num_tools)
            out.append(family.statistics(filled, weights, *own_past(family, own)))
        return tuple(out)

    def maximize(self, statistics: Any, pseudo_counts: Any = 0.0) -> Self:
        """Return each family's M-step, with the same pseudo-counts for all or a tuple with one entry per family."""
        triples = zip(self.families, statistics, self._pseudo(pseudo_counts), strict=True)
        return type(self)(tuple(f if s is None else f.maximize(s, p) for f, s, p in triples))

    def from_counts(self, statistics: Any, pseudo_counts: Any = 0.0) -> Self:
        """Return each family estimated from labeled frames; absent sources keep their parameters."""
        triples = zip(self.families, statistics, self._pseudo(pseudo_counts), strict=True)
        return type(self)(tuple(f if s is None else f.from_counts(s, p) for f, s, p in triples))

    @property
    def has_prior(self) -> bool:
        """Whether every family accepts pseudo-counts."""
        return all(family.has_prior for family in self.families)

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the sum of the families' log-priors."""
        pseudo = self._pseudo(pseudo_counts)
        return sum((f.log_prior(p) for f, p in zip(self.families, pseudo, strict=True)), jnp.zeros(()))

    def _pasts(self, past: Any) -> tuple[Any, ...]:
        return (None,) * len(self.families) if past is None else past

    def _pseudo(self, pseudo_counts: Any) -> tuple[Any, ...]:
        return pseudo_counts if isinstance(pseudo_counts, tuple) else (pseudo_counts,) * len(self.families)

    def warnings(self) -> list[str]:
        """Return the families' warnings."""
        return [warning for family in self.families for warning in family.warnings()]

    def check(self) -> None:
        """Raise TypeError or ValueError unless there are families, of one track and one size, all valid."""
        if not isinstance(self.families, tuple) or not self.families:
            raise TypeError("a fused emission needs a tuple of at least one family.")
        for family in self.families:
            if not isinstance(family, Emission) or isinstance(family, Fused) or family.track != self.track:
                raise TypeError(f"{type(family).__name__} cannot be fused with families over {self.track}.")
            family.check()
            if family.size != self.size:
                raise ValueError(f"fused families differ in size: {family.size} and {self.size} {self.track}.")


def check_source(family: Emission, name: str, values: Any, observed: np.ndarray) -> None:
    """Raise unless each observation of one recognizer is missing or within its family's domain.

    Args:
        family: the recognizer's family, not `Fused`.
        name: name of the observations in messages.
        values: (B, T, *event_shape) concrete array; NaN or -1 mark missing observations.
        observed: (B, T) bool; the values of other frames are ignored.
    """
    values = np.asarray(values)
    # Families refuse other kinds and shapes in their own words.
    if values.ndim == 2 + len(family.event_shape) and is_float(values) == (family.observes != "labels"):
        check_missing(name, values, observed, _event_axes(family))
        # Any value inside the domain may stand for a missing one; a softmax must sum to one.
        softmax = family.track == "phases" and family.observes == "probabilities"
        values = fill_missing(values, family, 1 / family.size if softmax else 0.5)[1]
    family.check_observations(name, values, observed)


def fill_missing(observations: Any, family: Emission, value: float = 0.5) -> tuple[Any, Any]:
    """Return which observations are present, and the observations with a valid value in place of missing ones.

    Args:
        observations: (..., *event_shape) array of one source; missing entries are NaN (floats) or -1 (labels).
        family: the source's family.
        value: what replaces missing floats; missing labels become 0.

    Returns:
        Presence, (...,) for phases and (..., K) for tools, and the filled observations.
    """
    xp: Any = np if isinstance(observations, np.ndarray) else jnp
    axes = _event_axes(family)
    observed = present(observations, axes)
    over = observed.reshape(*observed.shape, *[1] * axes) if axes else observed
    return observed, xp.where(over, observations, value if is_float(observations) else 0)


def _event_axes(family: Emission) -> int:
    """Return the number of trailing axes that make up one observation: classes or features, but not tools."""
    return len(family.event_shape) - (family.track == "tools")
