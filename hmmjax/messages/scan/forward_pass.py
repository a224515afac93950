"""The forward recursion over one video: its log-normalizer, filtered marginals, and residuals for the backward pass."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.messages import batching, kronecker, scaled
from hmmjax.messages.potentials import Filtered, Potentials
from hmmjax.messages.scan.chain import Chain, Message, normalize, prepare


@pytree
class Residuals:
    """Per-frame quantities saved by the forward pass for the backward pass.

    Attributes:
        scale: (T, L) of the rows.
        totals: (T, L) sums of the rows over configurations, in [1, 2) or 0.
        rows: (T, C, L) filtered messages alpha_t of order one, or None if not saved.
        phase_predicted: (T, C, L) u_{t+1} of order one, over the next phase and this frame's configuration, or None.
    """

    scale: Any
    totals: Any
    rows: Any
    phase_predicted: Any


def run(chain: Chain, predicted: Message, frames: tuple, save: bool) -> tuple[Message, Residuals]:
    """Scan the forward recursion over `frames` from a predicted message; rows are stacked only with `save`.

        alpha_t(q, c) = e_t(q, c) sum_c* u_t(q, c*) P(c | c*, q),    u_{t+1}(q, c*) = sum_p A[p, q] alpha_t(p, c*)

    Returns:
        The message predicted for the frame after the last, sum_c* u(q, c*) P(c | c*, q), and the residuals.
    """

    def step(predicted: Message, frame: tuple) -> tuple:
        configs, phases, scale = frame
        rows = predicted.rows * configs[:, None] * phases
        scale, totals, factor = normalize(chain, predicted.scale + scale, rows)
        rows = rows * factor
        weights, next_scale, _ = scaled.predict_phases(scale, totals, *chain.transition)
        phase_predicted = num.einsum("cp,pq->cq", rows, weights)
        following = Message(next_scale, kronecker.push(phase_predicted, chain.step_blocks))
        # Stacked in one array, because each output costs time per step; references are computed from these later.
        sums = jnp.stack([scale, totals])
        return following, (sums, (rows, phase_predicted) if save else (None, None))

    predicted, (sums, saved) = lax.scan(step, predicted, frames)
    return predicted, Residuals(sums[:, 0], sums[:, 1], *saved)


def _run_chunks(chain: Chain, save: bool, output: Callable[[Message, Residuals], Any], num_chunks: Any) -> tuple:
    """Run the forward pass chunk by chunk, over the first `num_chunks` chunks only (None: all, differentiable).

    Returns:
        The log-normalizer, and `output` of each chunk's first predicted message and residuals.
    """

    def chunk(predicted: Message, frames: tuple) -> tuple:
        following, residuals = run(chain, predicted, frames, save)
        return following, ((residuals.scale, residuals.totals), output(predicted, residuals))

    first = Message(jnp.zeros_like(chain.likelihoods.scale[0]), chain.initial)
    frames = jax.tree.map(batching.in_chunks, chain.frames)
    _, (sums, outputs) = batching.scan_chunks(chunk, first, frames, num_chunks)
    return _log_normalizer(chain, *(x.reshape(-1, x.shape[-1]) for x in sums)), outputs


def _log_normalizer(chain: Chain, scale: Array, totals: Array) -> Array:
    """Return the log-normalizer: the scale factors removed from every frame, and the sum of the last message."""
    length, log_scale = chain.length, chain.likelihoods.log_scale
    references = scaled.predict_phases(scale, totals, *chain.transition)[2]
    last = jnp.maximum(length - 1, 0)
    references = jnp.where(jnp.arange(references.shape[0]) < length - 1, references, 0)
    log_scale = jnp.where(jnp.arange(log_scale.shape[0]) < length, log_scale, 0)
    removed = num.accurate_sum(references) * scaled.LN2 + num.accurate_sum(log_scale)
    return jnp.where(length > 0, removed + scaled.log_total(scale[last], totals[last]), 0)


def log_normalizer(
    potentials: Potentials, num_chunks: Any, *, save: Literal["all", "chunk starts", "nothing"]
) -> tuple[Array, Any]:
    """Compute one video's log-normalizer, and return residuals, each chunk's first predicted message or None."""

    def output(predicted: Message, residuals: Residuals) -> Any:
        if save == "all":
            return residuals
        return predicted if save == "chunk starts" else None

    return _run_chunks(prepare(potentials), save == "all", output, num_chunks)


def filter(potentials: Potentials, num_chunks: Any) -> Filtered:
    """Compute one video's filtered marginals."""

    def output(_: Message, residuals: Residuals) -> tuple[Array, Array]:
        return marginals(residuals.scale, residuals.totals, residuals.rows)

    value, chunks = _run_chunks(prepare(potentials), True, output, num_chunks)
    phases, configs = (m.reshape(-1, m.shape[-1])[: potentials.phases.shape[0]] for m in chunks)
    return Filtered.of_configs(phases[:, : potentials.phases.shape[-1]], configs, value)


def marginals(scale: Array, totals: Array, rows: Array) -> tuple[Array, Array]:
    """Compute filtered marginals, phases (T, L) and configurations (T, C), from messages and the sums of their rows."""
    weights = scaled.power(scale - scaled.finite_max(scale + scaled.exponent(totals), -1))
    weights = scaled.divide_by_sum(jnp.where(totals > 0, weights, 0), weights * totals, -1)
    return weights * totals, num.einsum("tcq,tq->tc", rows, weights)
