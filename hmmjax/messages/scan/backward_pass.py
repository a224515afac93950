"""The backward recursion over one video, and the gradient of the log-normalizer: marginals and expected counts.

With A the phase transition, e_t the emission likelihoods, alpha_t and beta_t the forward and backward messages and
P(c | c*, q) the tools' transition:

    u_{t+1}(q, c*) = sum_p A[p, q] alpha_t(p, c*)                    from the forward pass
    v_t(q, c*) = sum_c P(c | c*, q) e_t(q, c) beta_t(q, c)
    beta_{t-1}(p, c*) = sum_q A[p, q] v_t(q, c*)

Backward messages and the statistics of pairs of frames live for one chunk only.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.messages import batching, kronecker, scaled
from hmmjax.messages.potentials import Potentials
from hmmjax.messages.scan import forward_pass
from hmmjax.messages.scan.chain import Chain, count_blocks, normalize, prepare
from hmmjax.messages.scan.forward_pass import Residuals


@pytree
class BackwardMessage:
    """Backward message from frames t, ..., T: over the state at t (rows) and one step further back (config_summed).

    Attributes:
        scale: (..., L) of both.
        rows: (..., C, L) e_t(q, c) beta_t(q, c), of that scale when multiplied by the factor.
        factor: (..., L).
        config_summed: (..., C, L) v_t(q, c*), over the phase at t and the configuration at t - 1, of order one.
        totals: (..., L) sums of config_summed over configurations, or None if not kept.
    """

    scale: Any
    rows: Any
    factor: Any
    config_summed: Any
    totals: Any


@pytree
class Pairs:
    """Posterior of pairs of frames (t, t + 1), zero from the last frame on.

    Attributes:
        expected: (T, L, L) expected phase transitions, P(q_t = p, q_{t+1} = q | all observations).
        forbidden: (L, L) derivative with respect to A[p, q] where that is zero, summed over frames.
        phase_predicted: (T, C, L) u_{t+1}, divided by the probability of all observations in the scale of v_{t+1}.
    """

    expected: Array
    forbidden: Array
    phase_predicted: Array


def gradient(potentials: Potentials, num_chunks: Any, saved: Any, recompute: bool) -> Potentials:
    """Compute the derivative of one video's log-normalizer with respect to every potential.

    With respect to an emission log-likelihood that is the posterior marginal, and a probability table times its
    derivative is its expected count (Eisner 2016).

    Args:
        potentials: of one video.
        num_chunks: number of chunks to process; None for all of them, which JAX can differentiate.
        saved: residuals by chunk, or the first predicted message of each chunk with `recompute`.
        recompute: whether to run each chunk's forward pass again.
    """
    chain = prepare(potentials)
    back_blocks = kronecker.transposed(chain.step_blocks)
    num_frames, num_phases = potentials.phases.shape

    def counted(blocks: tuple[Array, ...]) -> tuple[Array, ...]:
        return _phases_first(count_blocks(blocks, len(chain.initial)), num_phases)

    def chunk(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
        message, totals = carry
        frames, t, residuals = inputs
        if recompute:
            residuals = forward_pass.run(chain, residuals, frames, True)[1]
        first, following = _run(chain, back_blocks, message, frames, t)
        pairs = _pairs(chain, residuals, following, t)
        rows = following.rows * following.factor[:, None]
        blocks = _block_gradients(pairs.phase_predicted, rows, chain.count_blocks, num_phases)
        marginals = _smoothed(chain.length, residuals, pairs, following.config_summed, t)
        totals = jax.tree.map(jnp.add, totals, (jnp.sum(pairs.expected, 0), pairs.forbidden, blocks))
        return (first, totals), marginals

    no_scale, no_rows = jnp.zeros_like(chain.likelihoods.scale[0]), jnp.zeros_like(chain.initial)
    start = BackwardMessage(no_scale, no_rows, no_scale, no_rows, no_scale)
    table = chain.transition[0]
    totals = jax.tree.map(jnp.zeros_like, (table, table, counted(potentials.blocks)))
    inputs = (jax.tree.map(batching.in_chunks, chain.frames), batching.frame_indices(num_frames), saved)
    carry, marginals = batching.scan_chunks(chunk, (start, totals), inputs, num_chunks, reverse=True)
    first, (counts, forbidden, blocks) = carry
    phases, configs = (m.reshape(-1, m.shape[-1])[:num_frames] for m in marginals)
    return Potentials(
        _initial_gradient(chain, first).T[:num_phases],
        _transition_gradient(counts, forbidden, potentials.transition),
        jax.vjp(counted, potentials.blocks)[1](blocks)[0],
        phases[:, :num_phases],
        configs,
        chain.length,
    )


def _run(
    chain: Chain, back_blocks: tuple[Array, ...], message: BackwardMessage, frames: tuple, t: Array
) -> tuple[BackwardMessage, BackwardMessage]:
    """Scan the backward recursion over frames t of one chunk, from the message of the frame after the chunk.

    Returns:
        The message of the chunk's first frame, and for every frame t the message of frame t + 1, without totals.
    """

    def step(following: BackwardMessage, frame: tuple) -> tuple[BackwardMessage, tuple]:
        configs, phases, scale, t = frame
        weights, beta_scale, _ = scaled.predict_phases(following.scale, following.totals, *chain.transposed)
        # The backward message is one at the last valid frame; padding is ignored.
        last = t >= chain.length - 1
        beta_scale = jnp.where(last, 0, beta_scale)
        beta = jnp.where(last, 1, num.einsum("cq,qp->cp", following.config_summed, weights))
        rows = beta * configs[:, None] * phases
        config_summed = kronecker.push(rows, back_blocks)
        scale, totals, factor = normalize(chain, beta_scale + scale, config_summed)
        message = BackwardMessage(scale, rows, factor, config_summed * factor, totals)
        # Scale and factor are stacked in one array, because each output costs time per step.
        return message, (jnp.stack([following.scale, following.factor]), following.config_summed, following.rows)

    first, (sums, config_summed, rows) = lax.scan(step, message, (*frames, t), reverse=True)
    return first, BackwardMessage(sums[:, 0], rows, sums[:, 1], config_summed, None)


def _pairs(chain: Chain, residuals: Residuals, following: BackwardMessage, t: Array) -> Pairs:
    """Compute the posterior of pairs of frames, xi_t(p, q) = A[p, q] sum_c* alpha_t(p, c*) v_{t+1}(q, c*) / Z_t.

    Each frame is normalized by its own two-sided sum Z_t, so that counts add up to the number of frames.
    """
    mantissas, exponents = chain.transition
    _, next_scale, reference = scaled.predict_phases(residuals.scale, residuals.totals, *chain.transition)
    # Sums over configurations are matrix products: CPUs run those well, large reductions badly.
    pairs = num.einsum("tcp,tcq->tpq", residuals.rows, following.config_summed)
    shift = residuals.scale[:, :, None] + following.scale[:, None, :]
    top = scaled.finite_max(shift + exponents + scaled.exponent(pairs), (-1, -2))
    possible = (pairs > 0) & (t < chain.length - 1)[:, None, None]
    weights = jnp.where(possible, mantissas * scaled.power(shift + exponents - top), 0)
    total = jnp.sum(weights * pairs, (-1, -2), keepdims=True)
    total = jnp.where(total > 0, total, 1)
    expected = weights * pairs / total
    # At a structural zero, return the one-sided derivative.
    forbidden = jnp.sum(jnp.where(possible, scaled.power(shift - top) * pairs / total, 0), 0)
    norm = scaled.power(next_scale + reference[:, None] + following.scale - top[..., 0]) / total[..., 0]
    phase_predicted = residuals.phase_predicted * jnp.where(jnp.any(possible, 1), norm, 0)[:, None]
    return Pairs(expected, forbidden, phase_predicted)


def _smoothed(length: Array, residuals: Residuals, pairs: Pairs, config_summed: Array, t: Array) -> tuple[Array, Array]:
    """Compute the smoothed marginals of phases (T, L) and configurations (T, C) of one chunk's frames t.

    They are sums of the posterior of pairs; at the last frame they equal the filtered marginals.
    """
    ones = jnp.ones(config_summed.shape[-1], config_summed.dtype)
    paired = jnp.sum(pairs.expected, -1), num.einsum("tcq,q->tc", pairs.phase_predicted * config_summed, ones)
    end = jnp.clip(length - 1 - t[0], 0, len(t) - 1)
    messages = residuals.scale, residuals.totals, residuals.rows
    last = forward_pass.marginals(*(lax.dynamic_slice_in_dim(x, end, 1) for x in messages))
    is_last = (t == length - 1)[:, None]
    return jax.tree.map(lambda x, y: jnp.where(is_last, y, x), paired, last)


def _initial_gradient(chain: Chain, first: BackwardMessage) -> Array:
    """Compute the derivative (C, L) in the initial probabilities: e_1(q, c) beta_1(q, c) / Z.

    Rows are of order one where the initial probability is positive. Elsewhere they may overflow: the derivative at a
    zero that the observations strongly favor.
    """
    totals = jnp.sum(jnp.where(chain.initial > 0, chain.initial * first.rows, 0), 0)
    scale, factor = scaled.normalize(first.scale + scaled.exponent(first.factor), totals)
    totals = totals * factor
    weights = scaled.power(scale - scaled.finite_max(scale + scaled.exponent(totals), -1))
    weights = scaled.divide_by_sum(weights, weights * totals, -1)
    rows = first.rows * factor
    return jnp.where((chain.length > 0) & (rows > 0), weights * rows, 0)


def _transition_gradient(counts: Array, forbidden: Array, table: Array) -> Array:
    n = table.shape[0]
    allowed = table > 0
    return jnp.where(allowed, counts[:n, :n] / jnp.where(allowed, table, 1), forbidden[:n, :n])


def _block_gradients(u: Array, v: Array, blocks: tuple[Array, ...], num_phases: int) -> tuple[Array, ...]:
    """Compute `kronecker.gradients` with phases first and without their padding."""
    if len(blocks) == 1:
        return (num.einsum("qtc,qtd->qcd", *_phases_first((u, v), num_phases)),)
    return _phases_first(kronecker.gradients(u, v, blocks), num_phases)


def _phases_first(arrays: tuple[Array, ...], num_phases: int) -> tuple[Array, ...]:
    return tuple(jnp.moveaxis(x[..., :num_phases], -1, 0) for x in arrays)
