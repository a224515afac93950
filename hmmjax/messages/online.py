"""The recursions of single frames, for streaming, and forward filtering with backward sampling.

Messages are log-probabilities (S, C). A step computes with numbers of order one and a scale per phase; for models in
which the only possible path could underflow (`hmmjax._core.lowering.scaled_is_exact`), it sums in logarithms.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree, static
from hmmjax._core.typing import Array
from hmmjax.messages import kronecker, logspace
from hmmjax.messages.potentials import Potentials


@pytree
class Chain:
    """A chain's tables over states (S, C).

    Attributes:
        initial: (S, C) log-probabilities.
        transition: (S, S) log-probabilities.
        blocks: (S, n, n) probabilities, the Kronecker factors of the tools' transition.
        in_logs: whether to sum in logarithms throughout, rather than with a scale per phase.
    """

    initial: Any
    transition: Any
    blocks: Any
    in_logs: bool = static(True)


def chain_of(potentials: Potentials, in_logs: bool) -> Chain:
    """Return a chain's tables; the emission log-likelihoods are left out."""
    grouped = kronecker.group(kronecker.phases_last(potentials.blocks), kronecker.GROUP)
    blocks = tuple(jnp.moveaxis(b, -1, 0) for b in grouped)
    return Chain(num.log(potentials.initial), num.log(potentials.transition), blocks, in_logs)


def push(chain: Chain, message: Array) -> Array:
    """Predict the next frame's log-message (S, C) from a filtered one.

    out(q, c) = sum_{p, c*} A[p, q] P(c | c*, q) message(p, c*), in logarithms.
    """
    if chain.in_logs:
        phase_predicted = num.logsumexp(message[:, None, :] + chain.transition[:, :, None], 0)
        return logspace.push(phase_predicted, tuple(num.log(b) for b in chain.blocks))
    top, rows = _predict_phases(chain.transition, *_scaled(message))
    return jnp.log(_push_rows(rows, chain.blocks)) + top[:, None]


def pull(chain: Chain, message: Array) -> Array:
    """Compute the previous frame's backward log-message (S, C) from this one's, emission likelihoods included.

    out(p, c*) = sum_{q, c} A[p, q] P(c | c*, q) message(q, c), in logarithms.
    """
    if chain.in_logs:
        before = logspace.push(message, tuple(num.log(jnp.swapaxes(b, -1, -2)) for b in chain.blocks))
        return num.logsumexp(before[None] + chain.transition[:, :, None], 1)
    scale, rows = _scaled(message)
    rows = _push_rows(rows, tuple(jnp.swapaxes(b, -1, -2) for b in chain.blocks))
    top, rows = _predict_phases(chain.transition.T, scale, rows)
    return jnp.log(rows) + top[:, None]


def _push_rows(rows: Array, blocks: tuple[Array, ...]) -> Array:
    """Multiply rows (S, C) by the Kronecker product of each phase's blocks (S, n, n)."""
    return kronecker.push(rows.T, kronecker.phases_last(blocks)).T


def _scaled(message: Array) -> tuple[Array, Array]:
    """Return each phase's largest log-entry (S,), possibly -inf, and the rows relative to it (S, C)."""
    top = jnp.max(message, -1)
    return top, jnp.exp(message - jnp.where(top > -jnp.inf, top, 0)[:, None])


def _predict_phases(log_weights: Array, scale: Array, rows: Array) -> tuple[Array, Array]:
    """Compute sum_p exp(scale[p] + log_weights[p, q]) rows[p] as scale and rows."""
    exponents = scale[:, None] + log_weights
    top = num.finite_max(exponents, 0)
    return top, num.einsum("pq,pc->qc", jnp.exp(exponents - top), rows)


def normalize(message: Array) -> tuple[Array, Array]:
    """Return a log-message that sums to one and the logarithm of its sum before; one that is all -inf stays so."""
    total = num.logsumexp(message.reshape(-1), 0)
    return message - jnp.where(jnp.isfinite(total), total, 0), total


def observe(predicted: Array, phases: Array, configs: Array) -> tuple[Array, Array]:
    """Return the filtered log-message (S, C) and the logarithm of its sum before it was normalized.

    Args:
        predicted: (S, C) log-message.
        phases: (S,) log-likelihoods.
        configs: (C,) log-likelihoods.
    """
    (phases, above), (configs, top) = num.relative(phases), num.relative(configs)
    message, total = normalize(predicted + phases[:, None] + configs)
    return message, total + above + top


def filtered_messages(chain: Chain, phases: Array, configs: Array, length: Array) -> tuple[Array, Array]:
    """Compute one video's filtered log-messages (T, S, C) and its log-normalizer.

    Padded frames repeat the message of the last real one.
    """

    def step(state: tuple, frame: tuple) -> tuple:
        predicted, last = state
        phase, config, t = frame
        message, total = observe(predicted, phase, config)
        message = jnp.where(t < length, message, last)
        return (push(chain, message), message), (message, jnp.where(t < length, total, 0))

    frames = (phases, configs, jnp.arange(phases.shape[0]))
    _, (messages, totals) = lax.scan(step, (chain.initial, chain.initial), frames)
    return messages, num.accurate_sum(totals)


def sample_back(chain: Chain, messages: Array, length: Array, key: jax.Array) -> tuple[Array, Array]:
    """Draw one path, phases (T,) and configurations (T,), from the posterior, from the last frame backwards.

    Source: forward filtering, backward sampling (Carter & Kohn 1994; Frühwirth-Schnatter 1994).
    """
    num_frames, _, num_configs = messages.shape
    log_blocks = kronecker.phases_last(tuple(num.log(b) for b in chain.blocks))

    def draw(key: jax.Array, scores: Array) -> tuple[Array, Array]:
        flat = jax.random.categorical(key, scores.reshape(-1))
        return flat // num_configs, flat % num_configs

    def back(state: tuple, inputs: tuple) -> tuple:
        message, t, key = inputs
        phase, config = state
        column = kronecker.log_column(log_blocks, phase, config, message.dtype)
        into = chain.transition[:, phase][:, None] + column[None]
        # At the last frame, and in the padding that repeats it, the next state is unknown.
        state = draw(key, jnp.where(t >= length - 1, message, message + into))
        return state, state

    keys = jax.random.split(key, num_frames)
    start = draw(key, messages[-1])  # only gives the shape: the last frame does not depend on a later state
    _, path = lax.scan(back, start, (messages, jnp.arange(num_frames), keys), reverse=True)
    return path
