"""What a transition model of the tools is."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

from hmmjax._typing import Array


class ToolTransition:
    """Base of the transition models: how the K tools move, given the phase they move into.

    A model offers probability `tables`, from which `blocks` builds what the messages use: the joint transition of the
    tools in each phase, as Kronecker factors. `blocks` is differentiable, so the messages' gradient reaches the
    tables, and a table times its gradient is its expected count: that is all that EM needs.

    Attributes:
        spaces: where the fields live, as in `hmmjax.emissions.base.Emission`.
    """

    spaces: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @property
    def num_tools(self) -> int:
        """K."""
        raise TypeError(f"{type(self).__name__} must define num_tools")

    def tables(self) -> Any:
        """Probability tables, an array or a tree of them."""
        raise TypeError(f"{type(self).__name__} must define tables")

    @staticmethod
    def blocks(tables: Any) -> tuple[Array, ...]:
        """Kronecker factors (L, n, n) of the joint tool transition, the first tool slowest; n multiply up to 2**K.

        The finest there are: one (L, 2, 2) a tool, or a single (L, 2**K, 2**K) of a model whose tools interact. The
        messages group them as suits the hardware.
        """
        raise TypeError("a transition model must define blocks")

    def maximize(self, counts: Any, pseudo_counts: Any = 0.0) -> Self:
        """The model that maximises the expected log-probability of `counts` plus `log_prior`."""
        raise TypeError(f"{type(self).__name__} cannot be fitted by EM: define maximize, or freeze it")

    def log_prior(self, pseudo_counts: Any = 0.0) -> Array:
        """Logarithm of the (unnormalised) prior density that `pseudo_counts` stand for."""
        raise TypeError(f"{type(self).__name__} has no prior: leave its pseudo-counts at 0")

    def check(self) -> None:
        """Raise ValueError, naming the field, when the (concrete) parameters are not valid."""
