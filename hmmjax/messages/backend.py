"""The interface that every backend implements."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from hmmjax._core.typing import Array
from hmmjax.messages.potentials import Filtered, Path, Potentials


@dataclasses.dataclass(frozen=True)
class Backend:
    """One implementation of the recursions, as functions of a batch of B videos.

    Attributes:
        name: the name by which callers select it.
        supports: return whether it can run potentials of these shapes and this dtype, whatever their values.
        is_fastest: return whether benchmarks favor it for these shapes on the current hardware.
        log_normalizer: given potentials and whether `pullback` will follow, return the log-normalizers (B,) and the
            residuals that `pullback` takes (any pytree; None if nothing is needed).
        pullback: given potentials, residuals and a cotangent (B,), return the derivative of
            sum(cotangent * log-normalizers) with respect to every potential, as `Potentials`.
        filter: return each frame's marginals given that frame and all before it.
        viterbi: return the most probable paths; among tied paths it returns one path, not a mixture of several.
        derivatives_from: the backend whose `log_normalizer`, `pullback` and `filter` JAX differentiates in place of
            this one's, which contain kernels or loops of unknown length; None if JAX can differentiate this one's.
        sums_tools: whether it takes `Potentials.tools`; otherwise it gets potentials that are `joined`.
        skips_tables: whether `log_normalizer` is told what `pullback` will be asked for: "all" derivatives, or those
            with respect to the log-likelihoods of "frames" alone, those of tables being zero; "" if it does not follow.
        packs: whether it takes `Potentials.packing`; otherwise it gets potentials that are `padded`.
    """

    name: str
    supports: Callable[[Potentials], bool]
    is_fastest: Callable[[Potentials], bool]
    log_normalizer: Callable[[Potentials, Any], tuple[Array, Any]]
    pullback: Callable[[Potentials, Any, Array], Potentials]
    filter: Callable[[Potentials], Filtered]
    viterbi: Callable[[Potentials], Path]
    derivatives_from: "Backend | None" = None
    sums_tools: bool = False
    skips_tables: bool = False
    packs: bool = False

    def takes(self, potentials: Potentials) -> Potentials:
        """Return the same potentials in a form that this backend takes.

        Args:
            potentials: of a padded or packed batch, with or without log-likelihoods of tools.

        Returns:
            `Potentials`, joined unless `sums_tools` and padded unless `packs`.
        """
        potentials = potentials if self.sums_tools else potentials.joined()
        return potentials if self.packs else potentials.padded()


def with_derivatives_of(reference: Callable, run: Callable) -> Callable:
    """Return a function that computes `run` and is differentiated as `reference`."""
    function = jax.custom_jvp(lambda *inputs: run(*inputs))  # custom_jvp would take run's defaults for inputs
    function.defjvp(lambda primals, tangents: (run(*primals), jax.jvp(reference, primals, tangents)[1]))
    return function
