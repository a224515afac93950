"""What an emission family is.

A family says how probable an observation is under each hidden state, and how to fit itself to weighted observations.
To add one, write a frozen dataclass decorated with `hmmjax.pytree` that derives from `PhaseEmission` or
`ToolEmission`, in one file, and export it from ``hmmjax/emissions/__init__.py``; the conformance suite in
``tests/test_emissions.py`` then runs over it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import jax

from hmmjax._core.typing import Array


class Emission:
    """Base of every family. ``...`` below stands for any leading axes, usually (B, T).

    Attributes:
        track: "phases" or "tools".
        observes: "labels" (integers) or "probabilities" (floats), what the family accepts.
        constraints: where the fields live, for `hmmjax.refine` to move them: "simplex" (probabilities, the last axis sums to
            one), "unit_interval" (between 0 and 1, each by itself), "positive" or "real". A field without one stays.
        is_joint: whether what is said of a tool depends on all K tools that are there. Tables (..., K, 2) over a tool's
            own states, in and out, are then (..., K, 2**K) over configurations, tool 0 the slowest bit.
    """

    track: ClassVar[str]
    observes: ClassVar[str]
    constraints: ClassVar[Mapping[str, str]] = MappingProxyType({})
    is_joint: ClassVar[bool] = False

    def log_prob(self, observations: Any) -> Array:
        """Log-density of each observation under each state.

        Args:
            observations: of phases (...,) int labels or (..., L) probabilities, of tools (..., K) either.

        Returns:
            (..., L) for phases, (..., K, 2) absent and present for tools; (..., K, 2**K) of a `is_joint` family.

        Raises:
            TypeError: the family does not define it.
        """
        raise TypeError(f"{type(self).__name__} must define log_prob")

    def statistics(self, observations: Any, posterior: Array) -> Any:
        """Sufficient statistics, weighted and summed over ``...``.

        Must add up: the statistics of two sets of frames are the sum of theirs. Frames of weight zero must not count.

        Args:
            observations: as in `log_prob`.
            posterior: weight of each state in each frame, in the shape of `log_prob`'s answer.

        Returns:
            An array, or a tree of them, for `maximize`.

        Raises:
            TypeError: the family does not define it.
        """
        raise TypeError(f"{type(self).__name__} cannot be fitted by EM: define statistics and maximize, or freeze it")

    def maximize(self, statistics: Any, pseudo_counts: Any = 0.0) -> Self:
        """The family that maximizes expected log-density plus `log_prior`; states of weight zero keep their value.

        Args:
            statistics: from `statistics`.
            pseudo_counts: the prior, see the family; 0 is none.

        Returns:
            A family of the same class and shapes.

        Raises:
            TypeError: the family does not define it.
        """
        raise TypeError(f"{type(self).__name__} cannot be fitted by EM: define statistics and maximize, or freeze it")

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Logarithm of the (unnormalized) prior density that `pseudo_counts` stand for.

        Args:
            pseudo_counts: as in `maximize`.

        Returns:
            A scalar, in nats.

        Raises:
            TypeError: the family has no prior.
        """
        raise TypeError(f"{type(self).__name__} has no prior: leave its pseudo-counts at 0")

    def sample(self, key: jax.Array, states: Array) -> Array:
        """Draw one observation for each hidden state.

        Args:
            key: a `jax.random` key.
            states: int (...,) for phases, 0 or 1 (..., K) for tools.

        Returns:
            Observations, as `log_prob` takes them.

        Raises:
            TypeError: the family is no density to draw from, or does not define it.
        """
        raise TypeError(f"{type(self).__name__} must define sample")

    def check(self) -> None:
        """Raise ValueError, naming the field, when the (concrete) parameters are not valid."""


class PhaseEmission(Emission):
    """A family over the L phases."""

    track = "phases"

    @classmethod
    def default(cls, num_phases: int) -> Self:
        """Where to start before anything is known; `hmmjax.init_params` takes it.

        Args:
            num_phases: L.

        Returns:
            A valid family over so many phases.

        Raises:
            TypeError: the family has no such start.
        """
        raise TypeError(f"{cls.__name__} must define default")

    @property
    def num_phases(self) -> int:
        """L."""
        raise TypeError(f"{type(self).__name__} must define num_phases")


class ToolEmission(Emission):
    """A family over the two states of each of the K tools."""

    track = "tools"

    @classmethod
    def default(cls, num_tools: int) -> Self:
        """Where to start before anything is known; `hmmjax.init_params` takes it.

        Args:
            num_tools: K.

        Returns:
            A valid family over so many tools.

        Raises:
            TypeError: the family has no such start.
        """
        raise TypeError(f"{cls.__name__} must define default")

    @property
    def num_tools(self) -> int:
        """K."""
        raise TypeError(f"{type(self).__name__} must define num_tools")
