"""Messages as numbers of order one and a power of two per phase: the arithmetic that the fast backends share.

    message[q, c] = 2**scale[q] * rows[q, c]

A per-phase exponent preserves precision for phases that are temporarily very unlikely: in float32, a single scale for
all states would lose them for good after 87 nats, and if the transition matrix has zeros nothing could bring them back.
Scales are integers kept as floats (-inf marks an impossible phase), so scaling never rounds and the recursions need
neither logarithms nor exponentials. The same functions run in XLA and in GPU kernels.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.configurations import add_over_tools, multiply_over_tools
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array

LN2 = float(np.log(2.0))

LIFT = 108.0
"""The largest likelihood of a configuration is scaled to 2**LIFT: float32 then resolves 162 nats below it, not 87.

If every configuration is reached from every other at a cost of at most R nats, a configuration whose likelihood is more
than 2 R nats below the best one's is never needed: the path through the best one and back is more probable. A message
is of order one before it is multiplied by the likelihoods, so no sum overflows.
"""


SAFE_NATS = 70.0
"""Largest cost of a transition of the tools, in nats, for which the recursions count as exact.

Float32 resolves 87 nats below one; 17 of them are kept for the digits of sums.
"""


@dataclasses.dataclass(frozen=True)
class _Format:
    integer: Any
    fraction_bits: int
    bias: int


_FORMATS = {"float32": _Format(jnp.int32, 23, 127), "float64": _Format(jnp.int64, 52, 1023)}


def exponent(x: Array) -> Array:
    """Return floor(log2(x)) of positive normal numbers as a float; -inf for zero and for denormals."""
    f = _FORMATS[x.dtype.name]
    bits = lax.bitcast_convert_type(x, f.integer) >> f.fraction_bits
    return jnp.where(x >= jnp.finfo(x.dtype).tiny, bits.astype(x.dtype) - f.bias, -jnp.inf)


def power(n: Array) -> Array:
    """Return 2**n of an integer kept as a float: 0 below the normal range, saturating above it."""
    f = _FORMATS[n.dtype.name]
    biased = jnp.clip(n, -float(f.bias), float(f.bias)).astype(f.integer) + f.bias
    return lax.bitcast_convert_type(biased << f.fraction_bits, n.dtype)


def split(x: Array) -> tuple[Array, Array]:
    """Split a table of probabilities into mantissas in [1, 2), 0 for 0, and exponents, -inf for 0."""
    e = exponent(x)
    return jnp.where(e > -jnp.inf, x * power(-finite(e)), 0), e


def finite(scale: Array) -> Array:
    """Return the scale, and 0 where it is -inf."""
    return jnp.where(scale > -jnp.inf, scale, 0)


def finite_max(scale: Array, axis: int | tuple[int, ...]) -> Array:
    """Return the largest scale along `axis`, which is kept; 0 where all are -inf."""
    return finite(jnp.max(scale, axis, keepdims=True))


@pytree
class Likelihoods:
    """Emission likelihoods of one video's frames as factors that neither overflow nor vanish.

    The likelihood of (q, c) in frame t is exp(log_scale[t]) * 2**scale[t, q] * phases[t, q] * configs[t, c].

    Attributes:
        configs: (T, C) factors of configurations, the largest of each frame 2**LIFT.
        phases: (T, L) factors of phases without their power of two, in [0.7, 1.5) or 0.
        scale: (T, L) that power, less LIFT; that of the most probable phase is 0 before.
        log_scale: (T,) logarithm of the factors that were removed from configs and phases, in nats.
    """

    configs: Any
    phases: Any
    scale: Any
    log_scale: Any


def likelihoods(phases: Array, configs: Array) -> Likelihoods:
    """Scale emission log-likelihoods (..., T, L) and (..., T, C)."""
    (phases, removed), (configs, log_scale) = num.relative(phases), num.relative(configs)
    factor, below = _factor_and_power(configs)
    phase_factor, scale = _factor_and_power(phases)
    return Likelihoods(factor * power(below + LIFT), phase_factor, scale - LIFT, log_scale + removed)


def likelihoods_of_tools(phases: Array, tools: Array) -> Likelihoods:
    """Scale emission log-likelihoods (..., T, L) and (..., T, K, 2), the latter of each tool by itself."""
    (phases, removed), (tools, log_scale) = num.relative(phases), num.relative(tools)
    factors, below = _factor_and_power(tools)
    phase_factor, scale = _factor_and_power(phases)
    configs = multiply_over_tools(factors) * power(add_over_tools(below) + LIFT)
    return Likelihoods(configs, phase_factor, scale - LIFT, log_scale.sum(-1) + removed)


def _factor_and_power(nats: Array) -> tuple[Array, Array]:
    """Split exp(nats) into a factor in [0.7, 1.5) and a power of two; 0 and 0 for -inf."""
    possible = nats > -jnp.inf
    known = jnp.where(possible, nats, 0)
    scale = jnp.round(known / LN2)
    # ln 2 in two parts, the first with few enough bits that its product is exact.
    high = float(np.float32(0.693359375))
    rest = (known - scale * high) - scale * (LN2 - high)
    factor = jnp.exp(jnp.clip(rest, -0.5, 0.5))
    return jnp.where(possible, factor, 0), scale


def normalize(scale: Array, totals: Array) -> tuple[Array, Array]:
    """Return the scale and the factor that bring rows to sums in [1, 2), where products of messages keep precision.

    Args:
        scale: (..., L) scale of the rows.
        totals: (..., L) sums of the rows.

    Returns:
        The new scale (..., L), and the power of two (..., L) by which the rows must be multiplied.
    """
    e = finite(exponent(totals))
    return scale + e, power(-e)


def predict_phases(scale: Array, totals: Array, mantissas: Array, exponents: Array) -> tuple[Array, Array, Array]:
    """Return weights and scales with which the phase transition A maps scaled rows to scaled rows.

        sum_p A[p, q] 2**scale[p] rows[p] = 2**(reference + new_scale[q]) sum_p weights[p, q] rows[p]

    Rows must be of order one. Weights that also removed the factor 2**LIFT would underflow for a phase that is a
    million times less probable than another.

    Args:
        scale: (..., L) scale of the rows.
        totals: (..., L) sums of the rows, in [1, 2) or 0.
        mantissas: (L, L) mantissas of A, from `split`.
        exponents: (L, L) exponents of A, from `split`.

    Returns:
        weights (..., L, L), new_scale (..., L), at most 0, and reference (...).
    """
    shifts = jnp.where(totals > 0, scale, -jnp.inf)[..., :, None] + exponents
    top = jnp.max(shifts, -2)
    # Shifts are at most the top, so that each power is at most one.
    weights = mantissas * power(shifts - finite(top)[..., None, :])
    reference = finite(jnp.max(top, -1))
    return weights, top - reference[..., None], reference


def log_total(scale: Array, totals: Array) -> Array:
    """Compute log(sum_q 2**scale[q] totals[q]) in nats over the last axis; -inf if all is zero."""
    scale, factor = normalize(scale, totals)
    return num.logsumexp(scale * LN2 + num.log(totals * factor), -1)


def divide_by_sum(weights: Array, terms: Array, axis: int | tuple[int, ...]) -> Array:
    """Divide weights by the sum of `terms` over `axis`; zero if that is zero."""
    total = jnp.sum(terms, axis, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)
