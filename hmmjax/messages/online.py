"""One frame at a time: the recursions for whoever cannot wait for the whole video, and for drawing paths.

Messages are kept in logarithms, (S, C). They are pushed on as numbers of order one, a scale for each phase; where the
tools cannot switch that could lose the only path (`hmmjax._core.lowering.scaled_is_exact`), and everything is summed in logarithms.
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
    """A chain's tables over (S, C) states: log initial (S, C), log transition (S, S), blocks (S, n, n).

    Attributes:
        initial: logarithms.
        transition: logarithms.
        blocks: probabilities.
        exact: whether to sum in logarithms.
    """

    initial: Any
    transition: Any
    blocks: Any
    exact: bool = static(True)


def chain_of(potentials: Potentials, exact: bool) -> Chain:
    """The tables of a chain; what was observed is left out."""
    last = tuple(jnp.moveaxis(b, 0, -1) for b in potentials.blocks)
    blocks = tuple(jnp.moveaxis(b, -1, 0) for b in kronecker.group(last, 16))
    return Chain(num.log(potentials.initial), num.log(potentials.transition), blocks, exact)


def push(chain: Chain, message: Array) -> Array:
    """A filtered log-message (S, C) one frame on."""
    if chain.exact:
        mixed = num.logsumexp(message[:, None, :] + chain.transition[:, :, None], 0)
        return logspace.push(mixed, tuple(num.log(b) for b in chain.blocks))
    top, rows = _mixed(chain.transition, *_scaled(message))
    return jnp.log(_product(rows, chain.blocks)) + top[:, None]


def pull(chain: Chain, message: Array) -> Array:
    """What a frame's log-message (S, C) says of the frame before it."""
    if chain.exact:
        before = logspace.push(message, tuple(num.log(jnp.swapaxes(b, -1, -2)) for b in chain.blocks))
        return num.logsumexp(before[None] + chain.transition[:, :, None], 1)
    scale, rows = _scaled(message)
    top, rows = _mixed(chain.transition.T, scale, _product(rows, tuple(jnp.swapaxes(b, -1, -2) for b in chain.blocks)))
    return jnp.log(rows) + top[:, None]


def _product(rows: Array, blocks: tuple[Array, ...]) -> Array:
    """Rows (S, C) times the Kronecker product of each phase's blocks (S, n, n)."""
    return kronecker.push(rows.T, tuple(jnp.moveaxis(b, 0, -1) for b in blocks)).T


def _scaled(message: Array) -> tuple[Array, Array]:
    """Each phase's largest log-entry (S,), -inf where it has none, and the rest relative to it (S, C)."""
    top = jnp.max(message, -1)
    return top, jnp.exp(message - jnp.where(top > -jnp.inf, top, 0)[:, None])


def _mixed(log_weights: Array, scale: Array, rows: Array) -> tuple[Array, Array]:
    """Rows mixed over phases, out[q] = sum_p exp(scale[p] + log_weights[p, q]) rows[p], as scale and rows."""
    exponents = scale[:, None] + log_weights
    top = num.finite_max(exponents, 0)
    return top, num.einsum("pq,pc->qc", jnp.exp(exponents - top), rows)


def column(chain: Chain, phase: Array, config: Array) -> Array:
    """Log-probability (S, C) of moving into one joint state from every other."""
    out, right = jnp.zeros((1,), chain.initial.dtype), chain.initial.shape[-1]
    for block in chain.blocks:
        n = block.shape[-1]
        right //= n
        own = (config // right) % n
        out = (out[:, None] + num.log(block[phase][:, own])[None, :]).reshape(-1)
    return chain.transition[:, phase][:, None] + out[None]


def normalize(message: Array) -> tuple[Array, Array]:
    """A log-message that sums to one, and the logarithm of what it summed to; all -inf stays so."""
    total = num.logsumexp(message.reshape(-1), 0)
    return message - jnp.where(jnp.isfinite(total), total, 0), total


def filtered_messages(chain: Chain, phases: Array, configs: Array, length: Array) -> tuple[Array, Array]:
    """One video's filtered log-messages (T, S, C), and its log-normalizer; padding repeats the last frame's message."""

    def step(state: tuple, frame: tuple) -> tuple:
        predicted, last = state
        phase, config, t = frame
        message, total = normalize(predicted + phase[:, None] + config)
        message = jnp.where(t < length, message, last)
        return (push(chain, message), message), (message, jnp.where(t < length, total, 0))

    frames = (phases, configs, jnp.arange(phases.shape[0]))
    _, (messages, totals) = lax.scan(step, (chain.initial, chain.initial), frames)
    return messages, num.accurate_sum(totals)


def sample_back(chain: Chain, messages: Array, length: Array, key: jax.Array) -> tuple[Array, Array]:
    """One path (T,), (T,) of phases and configurations drawn from the posterior, from the last frame backwards.

    Source: forward filtering, backward sampling (Carter & Kohn 1994; Frühwirth-Schnatter 1994).
    """
    num_frames, _, num_configs = messages.shape

    def draw(key: jax.Array, scores: Array) -> tuple[Array, Array]:
        flat = jax.random.categorical(key, scores.reshape(-1))
        return flat // num_configs, flat % num_configs

    def back(state: tuple, inputs: tuple) -> tuple:
        message, t, key = inputs
        # At the last frame, and in the padding, which repeats it, nothing is known of what comes next.
        scores = jnp.where(t >= length - 1, message, message + column(chain, *state))
        state = draw(key, scores)
        return state, state

    keys = jax.random.split(key, num_frames)
    start = draw(key, messages[-1])
    _, path = lax.scan(back, start, (messages, jnp.arange(num_frames), keys), reverse=True)
    return path
