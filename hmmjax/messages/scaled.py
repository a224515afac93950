"""Messages as rows of order one and a power of two per phase: the arithmetic that the fast backends share.

message[q, c] = 2**scale[q] * rows[q, c]. A phase that evidence makes hopeless for a while keeps its digits: in float32
a single scale for all states would lose it for good after 87 nats, and where the transition matrix has zeros nothing
could bring it back. Scales are whole numbers kept as floats (-inf is a phase that cannot be), so scaling never rounds
and needs neither logarithms nor exponentials inside a recursion; the same functions run in XLA and in GPU kernels.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array

LN2 = float(np.log(2.0))

LIFT = 108.0
"""Evidence about configurations is at most 2**LIFT, so that float32 holds 162 nats below the best one and not 87.

As long as any configuration is reached from any other at a cost of R nats, one that evidence puts 2 R below the best
may be on the only good path: in to the best and out again. A message is of order one before evidence, so no sum
overflows.
"""


@dataclasses.dataclass(frozen=True)
class _Format:
    integer: Any
    fraction_bits: int
    bias: int


_FORMATS = {"float32": _Format(jnp.int32, 23, 127), "float64": _Format(jnp.int64, 52, 1023)}


def exponent(x: Array) -> Array:
    """floor(log2(x)) of positive normal numbers as a float; -inf for zero (and denormals, which have no digits)."""
    f = _FORMATS[x.dtype.name]
    bits = lax.bitcast_convert_type(x, f.integer) >> f.fraction_bits
    return jnp.where(x >= jnp.finfo(x.dtype).tiny, bits.astype(x.dtype) - f.bias, -jnp.inf)


def power(n: Array) -> Array:
    """2**n of a whole number kept as a float: 0 below the normal range, saturating above it."""
    f = _FORMATS[n.dtype.name]
    biased = jnp.clip(n, -float(f.bias), float(f.bias)).astype(f.integer) + f.bias
    return lax.bitcast_convert_type(biased << f.fraction_bits, n.dtype)


def split(x: Array) -> tuple[Array, Array]:
    """Mantissa in [1, 2) (0 for 0) and exponent (-inf for 0) of a table of probabilities."""
    e = exponent(x)
    return jnp.where(e > -jnp.inf, x * power(-finite(e)), 0), e


def finite(scale: Array) -> Array:
    """The scale, or 0 where it is -inf."""
    return jnp.where(scale > -jnp.inf, scale, 0)


@pytree
class Evidence:
    """Log-evidence of one video's frames as factors that neither overflow nor vanish.

    Attributes:
        configs: (T, C) evidence about configurations, the largest of each frame 2**LIFT.
        phases: (T, L) evidence about phases without its power of two, in [0.7, 1.5) or 0.
        scale: (T, L) that power, less LIFT.
        top: (T,) what was taken out of configs, in nats.
    """

    configs: Any
    phases: Any
    scale: Any
    top: Any


def evidence(phases: Array, configs: Array) -> Evidence:
    """From (..., T, L) and (..., T, C) log-evidence."""
    top = num.finite_max(configs, -1)
    near, below = _powers(configs - top[..., None])
    factor, scale = _powers(phases)
    return Evidence(near * power(below + LIFT), factor, scale - LIFT, top)


def _powers(nats: Array) -> tuple[Array, Array]:
    """exp(nats) as a factor in [0.7, 1.5) and a power of two, 0 and 0 for -inf."""
    possible = nats > -jnp.inf
    known = jnp.where(possible, nats, 0)
    scale = jnp.round(known / LN2)
    # ln 2 in two parts, the first with few enough bits that its product is exact.
    high = float(np.float32(0.693359375))
    rest = (known - scale * high) - scale * (LN2 - high)
    factor = jnp.exp(jnp.clip(rest, -0.5, 0.5))
    return jnp.where(possible, factor, 0), scale


def order_one(scale: Array, totals: Array) -> tuple[Array, Array]:
    """Scale and factor of rows brought to sums in [1, 2), which is where products of two messages keep their digits.

    Args:
        scale: (..., L) of the rows.
        totals: (..., L) their sums.

    Returns:
        Their new scale, and the power of two to multiply them by.
    """
    e = finite(exponent(totals))
    return scale + e, power(-e)


def reweigh(scale: Array, totals: Array, mantissas: Array, exponents: Array) -> tuple[Array, Array, Array]:
    """Weights that mix rows over phases and keep them of order one.

    The mixture's row q is sum_p weights[p, q] rows[p], of scale `scale[q]`. Rows must be of order one themselves: a
    weight that also took 2**LIFT out of them would vanish for a phase a millionth as probable as another.

    Args:
        scale: (..., L) of the rows.
        totals: (..., L) their sums, in [1, 2) or 0.
        mantissas: (L, L) of the table, `split`.
        exponents: (L, L) likewise.

    Returns:
        weights (..., L, L), scale of the mixture (..., L) less the largest, and that largest (...).
    """
    shifts = jnp.where(totals > 0, scale, -jnp.inf)[..., :, None] + exponents
    top = jnp.max(shifts, -2)
    # Shifts are at most the top, so that each power is at most one.
    weights = mantissas * power(shifts - finite(top)[..., None, :])
    reference = finite(jnp.max(top, -1))
    return weights, top - reference[..., None], reference


def log_total(scale: Array, totals: Array) -> Array:
    """log(sum_q 2**scale[q] totals[q]) in nats over the last axis; -inf where all is zero."""
    scale, factor = order_one(scale, totals)
    return num.logsumexp(scale * LN2 + num.log(totals * factor), -1)


def to_one(weights: Array, terms: Array, axis: int | tuple[int, ...]) -> Array:
    """Weights divided by the sum of their terms over `axis`; zero where that is zero."""
    total = jnp.sum(terms, axis, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)
