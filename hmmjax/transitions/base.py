"""The protocol of transition models of the tools."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from hmmjax._core.checks import no_log_prior
from hmmjax._core.typing import Array


class ToolTransition:
    """Base class of the transition models of the K tools, given the phase of the next frame.

    A model provides probability `tables`, from which `blocks` builds the joint transition of the tools in each phase as
    Kronecker factors. `blocks` is differentiable, so that gradients of the log-likelihood reach the tables; a table
    times its gradient is its expected count, which is all that EM needs.

    Attributes:
        is_joint: whether the tools interact, with one block over all configurations rather than one block per tool.
        constraints: constraint of each field that `hmmjax.refine` may move: "simplex" (probabilities, the last axis
            sums to one), "unit_interval" (each entry between 0 and 1), "positive" or "real". A field without a
            constraint is never moved.
    """

    is_joint: ClassVar[bool] = False
    constraints: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @property
    def num_tools(self) -> int:
        """Number of tools K."""
        raise TypeError(f"{type(self).__name__} must define num_tools")

    @property
    def prior_shape(self) -> tuple[int, ...] | None:
        """Shape to which pseudo-counts broadcast; None if any shape will do."""
        return None

    def tables(self) -> Any:
        """Return the probability tables.

        Returns:
            An array or a tree of them, differentiable in the fields.

        Raises:
            TypeError: the model does not define it.
        """
        raise TypeError(f"{type(self).__name__} must define tables")

    @staticmethod
    def blocks(tables: Any) -> tuple[Array, ...]:
        """Return the Kronecker factors of the joint tool transition, as small as possible.

        Backends multiply them in groups that suit the hardware.

        Args:
            tables: from `tables`.

        Returns:
            One factor (L, 2, 2) per tool, the first tool slowest, or a single (L, 2**K, 2**K) if tools interact.
            Without phases there is no axis L.

        Raises:
            TypeError: the model does not define it.
        """
        raise TypeError("a transition model must define blocks")

    def count(self, before: Array, after: Array, phases: Any) -> Any:
        """Return counts of labeled transitions, for `maximize`.

        Args:
            before: (B, T, K, 2) one-hot states of the tools; zeros if unknown, which add nothing to the counts.
            after: (B, T, K, 2) one-hot states one frame later.
            phases: (B, T, L) one-hot phases of the later frame; None in a model without phases.

        Returns:
            An array or a tree of them.

        Raises:
            TypeError: the model does not define it.
        """
        raise TypeError(f"{type(self).__name__} cannot be counted: define count, or learn it with hmmjax.fit")

    def maximize(self, counts: Any, pseudo_counts: Any = 0.0) -> Self:
        """Return the model that maximizes the expected log-probability of `counts` plus `log_prior`.

        Args:
            counts: expected counts, in the shape of `tables` or as returned by `count`.
            pseudo_counts: strength of the prior, defined by the model; 0 means no prior.

        Returns:
            A model of the same class and shapes.

        Raises:
            TypeError: the model does not define it.
        """
        raise TypeError(f"{type(self).__name__} cannot be fitted by EM: define maximize, or freeze it")

    @property
    def has_prior(self) -> bool:
        """Whether the model defines `log_prior`, and so accepts pseudo-counts."""
        return type(self).log_prior is not ToolTransition.log_prior

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Return the logarithm of the (unnormalized) prior density that `pseudo_counts` stand for.

        Args:
            pseudo_counts: strength of the prior, defined by the model; 0 means no prior.

        Returns:
            A scalar, in nats. A model that does not define it has no prior: 0 for pseudo-counts of 0; inside
            `jax.jit`, where their values are unknown, NaN for any others.

        Raises:
            TypeError: the model has no prior and some pseudo-count is not 0.
        """
        return no_log_prior(self, pseudo_counts)

    def min_log_prob(self) -> np.ndarray:
        """Return the log-probability of the least probable joint transition, (L,) per next phase or one for all.

        It decides whether the fast scaled recursions are exact; the default of -inf is always safe and selects the
        slower recursions in logarithms.
        """
        return np.array(-np.inf)

    def check(self) -> None:
        """Raise ValueError, naming the field, if the (concrete) parameters are not valid."""

    def check_size(self, num_tools: int, num_phases: int | None) -> None:
        """Raise ValueError unless the model is over this number of tools and phases.

        Args:
            num_tools: K.
            num_phases: L; None in a model without phases.

        Raises:
            ValueError: another size, naming the field.
        """
