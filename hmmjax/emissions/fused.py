"""Several recognizers that watch the same track: their evidence adds up."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import configurations
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.emissions.base import Emission


@pytree
class Fused(Emission):
    """Families side by side; an observation is a tuple with one entry a family.

    Given the hidden state the recognizers err independently of each other; where they do not, temper them
    (`hmmjax.calibrate` finds a power for each). A source may be missing: None for all videos, and in single frames
    NaN for probabilities or -1 for labels (for tools also in single tools).

    Attributes:
        families: of one track, tempered or not. A tuple given as a chain's emission is taken for this.
    """

    families: Any

    @property
    def track(self) -> str:  # type: ignore[override]
        """The families' own."""
        return self.families[0].track

    @property
    def observes(self) -> tuple[str, ...]:  # type: ignore[override]
        """Of each family."""
        return tuple(family.observes for family in self.families)

    @property
    def is_joint(self) -> bool:  # type: ignore[override]
        """Whether any family's is; the others' tables are then read off the configurations."""
        return any(family.is_joint for family in self.families)

    @property
    def num_phases(self) -> int:
        """L."""
        return self.families[0].num_phases

    @property
    def num_tools(self) -> int:
        """K."""
        return self.families[0].num_tools

    def log_prob(self, observations: Any) -> Array:
        """Sum over the sources that are there.

        Args:
            observations: a tuple with one entry a family, None where that recognizer says nothing at all.

        Returns:
            As each family's; a frame in which one says nothing adds nothing.

        Raises:
            ValueError: every entry is None.
        """
        tables = [self._evidence(i, x) for i, x in enumerate(observations) if x is not None]
        if not tables:
            raise ValueError("every source is None: leave out the track's observations altogether.")
        total = tables[0]
        for table in tables[1:]:
            total = total + table
        return total

    def _evidence(self, source: int, observations: Any) -> Array:
        seen, harmless = present(observations, self.track)
        family = self.families[source]
        table = family.log_prob(harmless)
        if self.is_joint and not family.is_joint:
            table = configurations.per_config(table, self.num_tools)
        return jnp.where(_over(seen, table), table, 0)

    def statistics(self, observations: Any, posterior: Array) -> Any:
        """Of each family, a missing frame weighing nothing; None for a source that is not there."""
        out = []
        for family, x in zip(self.families, observations, strict=True):
            if x is None:
                out.append(None)
                continue
            seen, harmless = present(x, self.track)
            weights = jnp.where(_over(seen, posterior), posterior, 0)
            if self.is_joint and not family.is_joint:
                weights = configurations.per_state(weights, self.num_tools)
            out.append(family.statistics(harmless, weights))
        return tuple(out)

    def maximize(self, statistics: Any, pseudo_counts: Any = 0.0) -> Self:
        """Each family's M-step; the same pseudo-counts for all, or a tuple of them."""
        pseudo = self._pseudo(pseudo_counts)
        pairs = zip(self.families, statistics, pseudo, strict=True)
        return type(self)(tuple(f if s is None else f.maximize(s, p) for f, s, p in pairs))

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Sum over families."""
        pseudo = self._pseudo(pseudo_counts)
        return sum((f.log_prior(p) for f, p in zip(self.families, pseudo, strict=True)), jnp.zeros(()))

    def _pseudo(self, pseudo_counts: Any) -> tuple[Any, ...]:
        return pseudo_counts if isinstance(pseudo_counts, tuple) else (pseudo_counts,) * len(self.families)

    def sample(self, key: jax.Array, states: Array) -> Any:
        """What each recognizer would say."""
        keys = jax.random.split(key, len(self.families))
        return tuple(family.sample(key, states) for family, key in zip(self.families, keys, strict=True))

    def check(self) -> None:
        """Raise TypeError or ValueError unless there are families, of one track and one size, all valid."""
        if not isinstance(self.families, tuple) or not self.families:
            raise TypeError("a fused emission needs a tuple of at least one family.")
        for family in self.families:
            if not isinstance(family, Emission) or isinstance(family, Fused) or family.track != self.track:
                raise TypeError(f"{type(family).__name__} cannot be fused with families over {self.track}.")
            family.check()
            size = "num_phases" if self.track == "phases" else "num_tools"
            sizes = [getattr(f, size) for f in (family, self.families[0])]
            if sizes[0] != sizes[1]:
                raise ValueError(f"fused families differ in size: {sizes[0]} and {sizes[1]} {self.track}.")


def present(observations: Any, track: str) -> tuple[Any, Any]:
    """Where a source says something, (...,) for phases and (..., K) for tools, and its observations made harmless."""
    xp: Any = np if isinstance(observations, np.ndarray) else jnp
    if xp.issubdtype(observations.dtype, np.floating):
        there = ~xp.isnan(observations)
        if track == "phases":
            there = there.all(-1)
            return there, xp.where(there[..., None], observations, 0.5)
        return there, xp.where(there, observations, 0.5)
    there = observations >= 0
    return there, xp.where(there, observations, 0)


def _over(seen: Any, table: Any) -> Any:
    return seen.reshape(*seen.shape, *[1] * (table.ndim - seen.ndim))
