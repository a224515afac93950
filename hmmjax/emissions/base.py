"""The protocol of emission families.

A family gives the probability (density) of an observation under each hidden state, and fits itself to weighted
observations. To add one, write a frozen dataclass decorated with `hmmjax.pytree` that derives from `PhaseEmission` or
`ToolEmission`, in one file, and export it from ``hmmjax/emissions/__init__.py``; the conformance suite in
``tests/test_emissions.py`` and ``tests/test_emissions_learning.py`` then covers it. ``hmmjax/emissions/gaussian.py`` is
the worked example.

**Memory.** A network's errors last: an error in one frame makes the same error in the next more probable. A family may
therefore condition a frame's observation on those of the frames before it: P(y_t | x_t, y_{t-1}, ..., y_{t-lag}). The
hidden states remain a Markov chain given all observations, because observations are known; inference costs the same.
Such a family declares `lag`, the number of previous frames that it sees, and takes one argument more, `past`, in
`log_prob`, `statistics` and `sample`:

    class PhaseRepeating(PhaseEmission):
        observes, lag = "labels", 1

        def log_prob(self, observations, past=None):      # observations (...,), past.values (1, ...)
            alone = ...                                     # (..., L), of a frame whose past is not observed
            if past is None:
                return alone
            after = ... past.values[0] ...                  # (..., L), given the observation of the frame before
            return jnp.where(past.observed[0][..., None], after, alone)

`Past` holds the observations of the `lag` previous frames and which of them are observed, with an axis of lags before
the leading axes of the observations. The library gathers it; a family sees single frames with their past, never whole
videos, so that padding, batches, streams and samples need no code of their own. The rules:

1. A previous frame may be unobserved: before the first frame of a video, in a gap of the mask, or if the output of a
   fused recognizer or of one tool is missing. The family must return the density given what is observed, and must not
   depend on `past.values` where `past.observed` is False. The simplest way is a part without memory, as above.
2. `past=None` means that no previous frame is observed.
3. The density is normalized over the frame's own observation, whatever the past.
4. The past is of the same recognizer, on the grid of frames that the model runs on: a family with memory belongs to the
   frame rate at which it was learned.

``hmmjax/emissions/autoregressive.py`` is the worked example. A window of n frames has ``lag = n``; `lag` may depend on
fields that `hmmjax.static` marks.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import jax
import numpy as np

from hmmjax._core.checks import no_log_prior
from hmmjax._core.typing import Array
from hmmjax.emissions import _observations as observed_values

OBSERVES = ("labels", "probabilities", "reals")
"""Kinds of observations that a family may declare."""

NO_M_STEP = (
    "{} cannot be fitted by EM: define statistics and maximize, or freeze it in fit. To calibrate it without them, "
    "pass folds=0."
)


class Emission:
    """Base class of all emission families. ``...`` below stands for any leading axes, usually (B, T).

    A family must declare `track` and `observes` and define `log_prob` and its number of states (`num_phases` or
    `num_tools`). Everything else has a default, or raises a TypeError that names what to define.

    Attributes:
        track: "phases" or "tools".
        observes: "labels" (integers), "probabilities" (floats in [0, 1]) or "reals" (any finite floats).
        constraints: constraint of each field that `hmmjax.refine` may move: "simplex" (probabilities, the last axis
            sums to one), "unit_interval" (each entry between 0 and 1), "positive", "positive_definite" (the last two
            axes) or "real". A field without a constraint is never moved.
        lag: number of previous frames whose observations the family conditions on; 0 is a family without memory.
        is_joint: whether the probability of a tool's observation depends on the presence of all K tools. Tables
            (..., K, 2) over each tool's own states, in `log_prob` and `statistics`, are then (..., K, 2**K) over
            configurations, tool 0 the slowest bit.
        accepts_anchor: whether `maximize` and `log_prior` take a `hmmjax.emissions.Anchor` as pseudo-counts.
        anchor_frames: labeled frames per state that it takes to outweigh a starting family, when `hmmjax.fit` anchors
            emissions of partly labeled videos.
    """

    track: ClassVar[str]
    observes: ClassVar[str]
    constraints: ClassVar[Mapping[str, str]] = MappingProxyType({})
    is_joint: ClassVar[bool] = False
    accepts_anchor: ClassVar[bool] = False
    anchor_frames: ClassVar[float] = 300.0
    lag: Any = 0

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError if a family (a class that defines `log_prob`) does not declare its track and observations."""
        super().__init_subclass__(**options)
        if "log_prob" not in cls.__dict__:
            return
        if not hasattr(cls, "track"):
            raise TypeError(f"{cls.__name__} must declare its track: derive it from PhaseEmission or ToolEmission.")
        declared = getattr(cls, "observes", None)
        if not isinstance(declared, property) and declared not in OBSERVES:
            raise TypeError(
                f"{cls.__name__} must declare what it observes: add observes = {' or '.join(map(repr, OBSERVES))} to "
                f"its class body{'' if declared is None else f' (it has {declared!r})'}."
            )

    # Shapes.

    @property
    def size(self) -> int:
        """Number of phases L, or of tools K."""
        raise TypeError(f"{type(self).__name__} must derive from PhaseEmission or ToolEmission")

    @property
    def table_shape(self) -> tuple[int, ...]:
        """Shape of `log_prob` per frame: (L,) for phases, (K, 2) or (K, 2**K) for tools."""
        raise TypeError(f"{type(self).__name__} must derive from PhaseEmission or ToolEmission")

    @property
    def event_shape(self) -> Any:
        """Shape of one frame's observation.

        () for phase labels, (L,) for phase probabilities, (K,) for tool labels and probabilities. A family over reals
        defines its own: (D,) for D features per frame, (K, D) for D features per tool. `Fused` has one per family.
        """
        raise TypeError(f"{type(self).__name__} must define event_shape, the shape of one frame's observation")

    @property
    def num_symbols(self) -> int:
        """Number of different labels that a family of labels observes: labels are 0, ..., num_symbols - 1."""
        raise TypeError(f"{type(self).__name__} must define num_symbols")

    @property
    def prior_shape(self) -> Any:
        """Shape to which pseudo-counts broadcast; None if any shape will do. `Fused` has a tuple, one per family."""
        return None

    # Composition.

    @property
    def sources(self) -> "tuple[Emission, ...]":
        """The families of the recognizers on this track: the family itself, or the members of a `Fused` one."""
        return (self,)

    @property
    def unwrapped(self) -> "Emission":
        """The family without powers: the innermost one of a `Tempered` family, otherwise itself."""
        return self

    # Observations.

    def check_observations(self, name: str, values: Any, observed: np.ndarray) -> None:
        """Raise if an observed frame is outside the family's domain.

        Args:
            name: name of the observations in messages, such as "obs.phases".
            values: (B, T, *event_shape) concrete array.
            observed: (B, T) bool; the values of other frames are ignored.

        Raises:
            TypeError: integers instead of floats or the reverse, or several sources for one family.
            ValueError: a wrong shape, or a value outside the domain, with its place and the fix.
        """
        kind = type(self).__name__
        if isinstance(values, tuple):
            raise TypeError(
                f"{name} is a tuple of {len(values)} sources, but params.{self.track}.emission is one {kind}. Give the "
                "chain a tuple of emission families, one per source, or pass one array."
            )
        observed_values.check_kind(name, values, kind, self.observes)
        observed_values.check_event_shape(name, values, kind, self.track, self.event_shape)
        if self.observes == "labels":
            observed_values.check_symbols(name, values, observed, self.num_symbols)
        elif self.observes == "probabilities":
            observed_values.check_probabilities(name, values, observed, sum_to_one=self.track == "phases")
        else:
            axes = ("video", "frame", *(("tool",) if self.track == "tools" else ()), "feature")
            observed_values.check_reals(name, values, observed, axes)

    def log_prob(self, observations: Any, past: Any = None) -> Array:
        """Return the log-density of each observation under each state.

        Args:
            observations: (..., *event_shape) array.
            past: `Past` of each frame, or None if no previous frame is observed. Families without memory do not take
                it.

        Returns:
            (..., L) for phases, (..., K, 2) for the absence and presence of each tool; (..., K, 2**K) if `is_joint`.

        Raises:
            TypeError: the family does not define it.
        """
        raise TypeError(f"{type(self).__name__} must define log_prob")

    def sample(self, key: jax.Array, states: Array, past: Any = None) -> Array:
        """Draw one observation for each hidden state.

        Args:
            key: a `jax.random` key.
            states: int (...,) for phases, 0 or 1 (..., K) for tools.
            past: as in `log_prob`; families without memory do not take it.

        Returns:
            (..., *event_shape) observations.

        Raises:
            TypeError: the family is not a density over observations, or does not define it.
        """
        raise TypeError(f"{type(self).__name__} must define sample")

    # Learning.

    def statistics(self, observations: Any, posterior: Array, past: Any = None) -> Any:
        """Return sufficient statistics, weighted and summed over ``...``.

        They must be additive: the statistics of two sets of frames are the sum of the two. They may depend on the
        parameters, as moments about the current means do. Frames of weight zero must not count.

        Args:
            observations: (..., *event_shape) array.
            posterior: weight of each state in each frame, in the shape of `log_prob`.
            past: as in `log_prob`; families without memory do not take it.

        Returns:
            An array, or a tree of arrays, for `maximize`.

        Raises:
            TypeError: the family does not define it.
        """
        raise TypeError(NO_M_STEP.format(type(self).__name__))

    def maximize(self, statistics: Any, pseudo_counts: Any = 0.0) -> Self:
        """Return the family that maximizes expected log-density plus `log_prior`; unvisited states keep their value.

        Args:
            statistics: from `statistics` of this family, with its current parameters.
            pseudo_counts: strength of the prior, defined by the family; 0 means no prior.

        Returns:
            A family of the same class and shapes.

        Raises:
            TypeError: the family does not define it.
        """
        raise TypeError(NO_M_STEP.format(type(self).__name__))

    def from_counts(self, statistics: Any, pseudo_counts: Any = 0.0) -> Self:
        """Return the family estimated from labeled frames, for `hmmjax.estimate`: by default `maximize`.

        A family whose `maximize` changes nothing, because its likelihood is not a density, may still learn from labels
        here.

        Args:
            statistics: from `statistics`, with one-hot labels as the weights.
            pseudo_counts: strength of the prior, defined by the family; 0 means no prior.

        Returns:
            A family of the same class and shapes.

        Raises:
            TypeError: the family does not define `maximize`.
        """
        return self.maximize(statistics, pseudo_counts)

    @property
    def has_prior(self) -> bool:
        """Whether the family defines `log_prior`, and so accepts pseudo-counts."""
        return type(self).log_prior is not Emission.log_prior

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the logarithm of the (unnormalized) prior density that `pseudo_counts` stand for.

        Args:
            pseudo_counts: strength of the prior, defined by the family; 0 means no prior.

        Returns:
            A scalar, in nats. A family that does not define it has no prior: 0 for pseudo-counts of 0; inside
            `jax.jit`, where their values are unknown, NaN for any others.

        Raises:
            TypeError: the family has no prior and some pseudo-count is not 0.
        """
        return no_log_prior(self, pseudo_counts)

    def warnings(self) -> list[str]:
        """Return reasons, each a sentence, why the (concrete, fitted) parameters should not be trusted."""
        return []

    def check(self) -> None:
        """Raise ValueError, naming the field, if the (concrete) parameters are not valid."""


def own_past(family: Emission, past: Any) -> tuple:
    """Return the last argument of a family's methods: its past, or nothing if it has no memory."""
    return (past,) if family.lag else ()


class PhaseEmission(Emission):
    """A family over the L phases."""

    track = "phases"

    @classmethod
    def default(cls, num_phases: int) -> Self:
        """Return default parameters, used by `hmmjax.init_params`.

        Args:
            num_phases: L.

        Returns:
            A valid family over L phases.

        Raises:
            TypeError: the family does not define it.
        """
        raise TypeError(f"{cls.__name__} must define default")

    @property
    def num_phases(self) -> int:
        """Number of phases L."""
        raise TypeError(f"{type(self).__name__} must define num_phases")

    @property
    def size(self) -> int:
        """Number of phases L."""
        return self.num_phases

    @property
    def table_shape(self) -> tuple[int, ...]:
        """Shape of `log_prob` per frame, (L,)."""
        return (self.num_phases,)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one frame's observation: () for a label, (L,) for probabilities."""
        if self.observes == "reals":
            return super().event_shape
        return () if self.observes == "labels" else (self.num_phases,)

    @property
    def num_symbols(self) -> int:
        """Number of different labels, L by default."""
        return self.num_phases


class ToolEmission(Emission):
    """A family over the two states, absence and presence, of each of the K tools."""

    track = "tools"

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """Return default parameters, used by `hmmjax.init_params`.

        Args:
            num_tools: K.

        Returns:
            A valid family over K tools.

        Raises:
            TypeError: the family does not define it.
        """
        raise TypeError(f"{cls.__name__} must define default")

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        raise TypeError(f"{type(self).__name__} must define num_tools")

    @property
    def size(self) -> int:
        """Number of tools K."""
        return self.num_tools

    @property
    def table_shape(self) -> tuple[int, ...]:
        """Shape of `log_prob` per frame: (K, 2), or (K, 2**K) if `is_joint`."""
        return (self.num_tools, 2**self.num_tools if self.is_joint else 2)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """Shape of one frame's observation: (K,) for labels and probabilities."""
        return super().event_shape if self.observes == "reals" else (self.num_tools,)

    @property
    def num_symbols(self) -> int:
        """Number of different labels, 2 by default."""
        return 2
