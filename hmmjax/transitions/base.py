"""What a transition model of the tools is."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from hmmjax._core.checks import no_log_prior
from hmmjax._core.typing import Array


class ToolTransition:
    """Base of the transition models: how the K tools move, given the phase they move into.

    A model offers probability `tables`, from which `blocks` builds what the messages use: the joint transition of the
    tools in each phase, as Kronecker factors. `blocks` is differentiable, so the messages' gradient reaches the
    tables, and a table times its gradient is its expected count: that is all that EM needs.

    Attributes:
        is_joint: whether the tools move together, in one block over all configurations, rather than each on its own.
        constraints: where the fields live, as in `hmmjax.emissions.base.Emission`.
    """

    is_joint: ClassVar[bool] = False
    constraints: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @property
    def num_tools(self) -> int:
        """K."""
        raise TypeError(f"{type(self).__name__} must define num_tools")

    @property
    def prior_shape(self) -> tuple[int, ...] | None:
        """Shape that pseudo-counts broadcast to; None where the model itself decides."""
        return None

    def tables(self) -> Any:
        """Probability tables.

        Returns:
            An array or a tree of them, differentiable in the fields.

        Raises:
            TypeError: the model does not define it.
        """
        raise TypeError(f"{type(self).__name__} must define tables")

    @staticmethod
    def blocks(tables: Any) -> tuple[Array, ...]:
        """Kronecker factors of the joint tool transition, the finest there are.

        The messages group them as suits the hardware.

        Args:
            tables: from `tables`.

        Returns:
            One factor (L, 2, 2) a tool, the first tool slowest, or a single (L, 2**K, 2**K) of a model whose tools
            interact. Without phases there is no axis L.

        Raises:
            TypeError: the model does not define it.
        """
        raise TypeError("a transition model must define blocks")

    def count(self, before: Array, after: Array, phases: Any) -> Any:
        """Counts, as `maximize` takes them, of labeled moves.

        Args:
            before: (B, T, K, 2) one-hot states of the tools; zeros where unknown, which then counts for nothing.
            after: (B, T, K, 2) the same a frame later.
            phases: (B, T, L) one-hot phases that they move into; None in a model without phases.

        Returns:
            An array or a tree of them.

        Raises:
            TypeError: the model does not define it.
        """
        raise TypeError(f"{type(self).__name__} cannot be counted: define count, or learn it with hmmjax.fit")

    def maximize(self, counts: Any, pseudo_counts: Any = 0.0) -> Self:
        """The model that maximizes the expected log-probability of `counts` plus `log_prior`.

        Args:
            counts: expected counts in the shape of `tables`, or what `count` answers.
            pseudo_counts: the prior, see the model; 0 is none.

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
        """Logarithm of the (unnormalized) prior density that `pseudo_counts` stand for.

        Args:
            pseudo_counts: as in `maximize`.

        Returns:
            A scalar, in nats.

        Raises:
            TypeError: the model has no prior.
        """
        return no_log_prior(self, pseudo_counts)

    def min_log_prob(self) -> np.ndarray:
        """Log-probability of the least probable joint move of the tools, (L,) one a phase moved into or one for all.

        It says whether the fast, scaled recursions are exact; -inf, as here, is always safe and takes the slow ones.
        """
        return np.array(-np.inf)

    def check(self) -> None:
        """Raise ValueError, naming the field, when the (concrete) parameters are not valid."""

    def check_size(self, num_tools: int, num_phases: int | None) -> None:
        """Raise unless over so many tools and phases.

        Args:
            num_tools: K.
            num_phases: L; None in a model without phases.

        Raises:
            ValueError: naming the field.
        """
