"""One video's potentials and messages in the layout of the scans."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.messages import batching, kronecker, scaled
from hmmjax.messages.potentials import Potentials


@pytree
class Message:
    """2**scale[q] * rows[c, q] over the joint states of one frame, or of many with a leading axis."""

    scale: Array  # (..., L)
    rows: Array  # (..., C, L)


@pytree
class Chain:
    """One video's potentials: phases last and padded, tables split into mantissas and exponents, tools grouped."""

    initial: Any  # (C, L)
    transition: Any  # mantissas and exponents of A[p, q]
    transposed: Any  # those of its transpose
    step_blocks: Any  # tool blocks (n, n, L) that push one message
    count_blocks: Any  # tool blocks (n, n, L) whose transitions are counted
    likelihoods: Any
    length: Any
    ones: Any  # (C,)

    @property
    def frames(self) -> tuple:
        """Per-frame inputs of the recursions: configs (T, C), phases (T, L) and scale (T, L)."""
        return self.likelihoods.configs, self.likelihoods.phases, self.likelihoods.scale


def prepare(p: Potentials) -> Chain:
    """Lay out one video's potentials."""
    dtype = p.phases.dtype
    table = scaled.split(_pad(_pad(p.transition, 0), 1))
    step_blocks = kronecker.group(_factors(p.blocks), kronecker.GROUP)
    x = scaled.likelihoods(p.phases, p.configs)
    likelihoods = scaled.Likelihoods(x.configs, _pad(x.phases, -1), _pad(x.scale, -1), x.log_scale)
    initial, blocks = _pad(p.initial.T.astype(dtype), -1), count_blocks(p.blocks, p.configs.shape[-1])
    # Behind a barrier, or XLA would write the constant again in every step.
    ones = lax.optimization_barrier(jnp.ones(len(initial), dtype))
    transposed = jax.tree.map(jnp.transpose, table)
    return Chain(initial, table, transposed, step_blocks, blocks, likelihoods, p.lengths, ones)


def count_blocks(blocks: tuple[Array, ...], num_configs: int) -> tuple[Array, ...]:
    """Return the blocks (n, n, L) whose transitions are counted, from tool blocks (L, n, n)."""
    limit = kronecker.DENSE if num_configs <= kronecker.DENSE else kronecker.GROUP
    return kronecker.group(_factors(blocks), limit)


def normalize(chain: Chain, scale: Array, rows: Array) -> tuple[Array, Array, Array]:
    """Return the new scale (L,), sums (L,) and factor (L,) of rows that are brought to sums in [1, 2)."""
    # The sum over configurations as a matrix product: one kernel, where a reduction would be two.
    totals = num.einsum("c,cq->q", chain.ones, rows)
    scale, factor = scaled.normalize(scale, totals)
    return scale, totals * factor, factor


def _factors(blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(_pad(b, -1) for b in kronecker.phases_last(blocks))


def _pad(x: Array, axis: int) -> Array:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % batching.LANES)
    return jnp.pad(x, widths)
