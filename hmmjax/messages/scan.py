"""Forward-backward as scaled `lax.scan`s over time: the reference backend.

A message over joint states is kept as rows[q, c] and an exponent scale[q] per phase, so that
message[q, c] = exp(scale[q]) rows[q, c]. A phase that evidence makes hopeless for a while keeps its digits: in float32
a single scale for all states would lose it for good after 87 nats, and where the transition matrix has zeros nothing
could bring it back. Phases alone (C = 1) are thereby computed in logs altogether.

Rows are brought back to order one where they are mixed over phases, which costs nothing there: the L x L weights of
that mixture carry the correction.

Source: the recursions of the paper's Appendix S2.2 with its misprints put right (docs/maths.md).
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax import _numerics as num
from hmmjax._typing import Array
from hmmjax.messages import kronecker
from hmmjax.messages.potentials import Filtered, Potentials

CHUNK = 128
"""Frames whose backward messages are held at once; their counts are a few matrix products per chunk."""


@partial(jax.tree_util.register_dataclass, data_fields=["scale", "rows"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Message:
    """The message exp(scale[q]) * rows[q, c], over joint states of one frame or, with a leading axis, of many."""

    scale: Array  # (..., L)
    rows: Array  # (..., L, C)


def _mix(scale: Array, totals: Array, log_weights: Array, rows: Array) -> Message:
    """Rows mixed over phases: out[q] = sum_p exp(scale[p] + log_weights[p, q]) rows[p], with rows of order one.

    `totals` are the sums of the rows, `scale` already includes their logarithms.
    """
    exponents = scale[..., :, None] + log_weights
    top = jnp.max(exponents, -2)
    safe = jnp.where(top > -jnp.inf, top, 0)
    # A row whose sum is denormal has no digits left, and no finite reciprocal.
    alive = totals >= jnp.finfo(totals.dtype).tiny
    inverse = jnp.where(alive, 1 / jnp.where(alive, totals, 1), 0)
    weights = jnp.exp(exponents - safe[..., None, :]) * inverse[..., :, None]
    # Seven terms a state: a broadcast sum that fuses beats a call to a matrix product.
    return Message(top, jnp.sum(weights[..., None] * rows[..., :, None, :], -3))


def _scaled_configs(potentials: Potentials) -> tuple[Array, Array]:
    """Exp of the configurations' log-evidence with each frame's largest taken out, and that largest."""
    top = num.finite_max(potentials.configs, -1)
    return jnp.exp(potentials.configs - top[..., None]), top


def _run(potentials: Potentials, predicted: Message, frames: tuple, emit: str) -> tuple[Message, tuple]:
    """Scan forwards over `frames` from a predicted message.

    Stacks each frame's phase scores (L,), the exponent taken out after it, and what `emit` names.
    """
    log_transition = num.log(potentials.transition)

    def step(predicted: Message, frame: tuple) -> tuple:
        phases, configs = frame
        rows = predicted.rows * configs
        totals = rows.sum(-1)
        scores = predicted.scale + phases + jnp.log(totals)
        out = None
        if emit == "messages":
            out = Message(predicted.scale + phases, rows)
        elif emit == "marginals":
            weights = jnp.exp(scores - num.finite_max(scores, -1))
            out = jnp.sum((weights / jnp.where(totals > 0, totals, 1))[:, None] * rows, 0)
        mixed = _mix(scores, totals, log_transition, rows)
        reference = num.finite_max(mixed.scale, -1)
        mixed = Message(mixed.scale - reference, kronecker.push(mixed.rows, potentials.blocks))
        return mixed, (scores, reference, out)

    return lax.scan(step, predicted, frames)


def _first(potentials: Potentials) -> Message:
    dtype = potentials.phases.dtype
    return Message(jnp.zeros(potentials.phases.shape[-1], dtype), potentials.initial.astype(dtype))


def _forward(potentials: Potentials, emit: str) -> tuple[Array, Any]:
    """One video, forwards: its log-normaliser and, stacked over time, what `emit` names.

    "messages" are the filtered messages, "marginals" the marginals of phases and configurations, "entries" the
    predicted message at the start of each chunk (from which `_backward` computes the rest again), "nothing" None.
    """
    configs, top = _scaled_configs(potentials)
    frames = (potentials.phases, configs)
    if emit == "entries":

        def chunk(predicted: Message, frames: tuple) -> tuple:
            after, (scores, references, _) = _run(potentials, predicted, frames, "nothing")
            return after, (scores, references, predicted)

        _, (scores, references, out) = lax.scan(chunk, _first(potentials), jax.tree.map(_chunks, frames))
        scores, references = scores.reshape(-1, scores.shape[-1]), references.reshape(-1)
    else:
        _, (scores, references, out) = _run(potentials, _first(potentials), frames, emit)
    length = potentials.lengths
    last = num.logsumexp(scores[jnp.maximum(length - 1, 0)], -1)
    references = jnp.where(jnp.arange(references.shape[0]) < length - 1, references, 0)
    top = jnp.where(jnp.arange(top.shape[0]) < length, top, 0)
    value = jnp.where(length > 0, num.accurate_sum(references) + num.accurate_sum(top) + last, 0)
    if emit == "marginals":
        weights = jnp.exp(scores - num.finite_max(scores, -1)[:, None])
        total = weights.sum(-1, keepdims=True)
        total = jnp.where(total > 0, total, 1)
        out = weights / total, out / total
    return value, out


def _chunks(x: Array) -> Array:
    """(T, ...) to (T / CHUNK, CHUNK, ...), padded with zeros."""
    chunk = min(CHUNK, x.shape[0])
    x = jnp.pad(x, [(0, -x.shape[0] % chunk)] + [(0, 0)] * (x.ndim - 1))
    return x.reshape(-1, chunk, *x.shape[1:])


@partial(jax.tree_util.register_dataclass, data_fields=["scale", "rows", "pulled"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Incoming:
    """What frame t + 1 and all after it say: of its own state (rows), and of frame t's configuration (pulled)."""

    scale: Array  # (..., L)
    rows: Array  # (..., L, C)
    pulled: Array  # (..., L, C) rows pulled back through the tools' transition


def _backward(potentials: Potentials, saved: Message, entries: bool) -> Potentials:
    """One video, backwards: the derivative of its log-normaliser with respect to every potential.

    With respect to log-evidence that is the posterior marginal, and a probability table times its derivative is its
    expected count (Eisner 2016). Backward messages and pairs of frames live for one chunk only.
    """
    configs, _ = _scaled_configs(potentials)
    log_transition = num.log(potentials.transition)
    length = potentials.lengths

    def step(after: Incoming, frame: tuple) -> tuple[Incoming, tuple]:
        phases, evidence, t = frame
        totals = after.pulled.sum(-1)
        beta = _mix(after.scale + jnp.log(totals), totals, log_transition.T, after.pulled)
        # Nothing comes after the last frame, whatever the padding holds.
        last = t >= length - 1
        scale = jnp.where(last, 0, beta.scale - num.finite_max(beta.scale, -1))
        beta = Message(scale, jnp.where(last, 1, beta.rows))
        rows = beta.rows * evidence
        incoming = Incoming(scale + phases, rows, kronecker.pull(rows, potentials.blocks))
        return incoming, (beta, after.scale, after.pulled)

    def sweep(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
        after, totals = carry
        (phases, evidence, t), kept = inputs
        alpha = kept
        if entries:
            alpha = _run(potentials, kept, (phases, evidence), "messages")[1][2]
        first, (beta, scale, pulled) = lax.scan(step, after, (phases, evidence, t), reverse=True)
        rows = jnp.concatenate([beta.rows[1:] * evidence[1:, None], after.rows[None]])

        joint = jnp.sum(alpha.rows * beta.rows, -1)
        shift, possible = _normaliser(alpha.scale + beta.scale, joint)
        weights = jnp.exp(alpha.scale + beta.scale - shift[:, None])
        weights = jnp.where((possible & (t < length))[:, None], weights, 0)
        weights = _to_one(weights, weights * joint, -1)
        marginals = weights * joint, jnp.sum(weights[..., None] * alpha.rows * beta.rows, -2)

        # Pairs (t, t + 1), each frame normalised by its own two-sided sum so that counts add up to the frames.
        pairs = num.einsum("tpc,tqc->tpq", alpha.rows, pulled)
        exponents = alpha.scale[:, :, None] + scale[:, None, :]
        flat = (t.shape[0], pairs.shape[-1] ** 2)
        shift, possible = _normaliser((exponents + log_transition).reshape(flat), pairs.reshape(flat))
        possible = possible & (t < length - 1)
        weights = jnp.exp(exponents + log_transition - shift[:, None, None])
        weights = jnp.where(possible[:, None, None], weights, 0)
        weights = _to_one(weights, weights * pairs, (-1, -2))
        # Where the table is zero its derivative still is what a little probability there would be worth.
        forbidden = jnp.exp(exponents - shift[:, None, None]) * pairs
        forbidden = jnp.where(possible[:, None, None] & (pairs > 0), forbidden, 0).sum(0)
        allowed = potentials.transition > 0
        counts = jnp.sum(weights * pairs, 0)
        transition = jnp.where(allowed, counts / jnp.where(allowed, potentials.transition, 1), forbidden)
        mixed = num.einsum("tpq,tpc->tqc", weights, alpha.rows)
        blocks = kronecker.gradients(mixed, rows, potentials.blocks)
        return (first, jax.tree.map(jnp.add, totals, (transition, blocks))), marginals

    frames = (potentials.phases, configs, jnp.arange(configs.shape[0]))
    nothing = jnp.zeros_like(potentials.initial, potentials.phases.dtype)
    after = Incoming(jnp.zeros_like(potentials.phases[0]), nothing, nothing)
    totals = jax.tree.map(jnp.zeros_like, (potentials.transition, potentials.blocks))
    kept = saved if entries else jax.tree.map(_chunks, saved)
    inputs = (jax.tree.map(_chunks, frames), kept)
    (first, (transition, blocks)), marginals = lax.scan(sweep, (after, totals), inputs, reverse=True)

    phases, configs = (m.reshape(-1, m.shape[-1])[: frames[0].shape[0]] for m in marginals)
    shift, possible = _normaliser(first.scale, jnp.sum(potentials.initial * first.rows, -1))
    weights = jnp.where(possible & (length > 0), jnp.exp(first.scale - shift), 0)
    return Potentials(weights[:, None] * first.rows, transition, blocks, phases, configs, length)


def _to_one(weights: Array, terms: Array, axis: int | tuple[int, ...]) -> Array:
    """Weights whose terms sum to one over `axis`: exponents of hundreds of nats leave a rounding to take out."""
    total = jnp.sum(terms, axis, keepdims=True)
    return weights / jnp.where(total > 0, total, 1)


def _normaliser(exponents: Array, values: Array) -> tuple[Array, Array]:
    """log(sum(exp(exponents) * values)) over the last axis, 0 where that is -inf, and whether it was finite."""
    total = num.logsumexp(exponents + num.log(values), -1)
    finite = jnp.isfinite(total)
    return jnp.where(finite, total, 0), finite


# The backend's interface: batches of videos. ----------------------------------------------------------------------

_AXES = Potentials(None, None, None, 0, 0, 0)

STORED_BYTES = 2**30
"""Above this many bytes of forward messages only one message per chunk is kept, and the rest computed again."""


def _keeps_entries(potentials: Potentials) -> bool:
    b, t, c = potentials.configs.shape
    return b * t * c * potentials.phases.shape[-1] * potentials.phases.dtype.itemsize > STORED_BYTES


def forward(potentials: Potentials, keep: bool) -> tuple[Array, Any]:
    """Log-normalisers (B,), and with `keep` whatever `backward` needs again."""
    emit = "nothing" if not keep else "entries" if _keeps_entries(potentials) else "messages"
    return jax.vmap(partial(_forward, emit=emit), (_AXES,))(potentials)


def backward(potentials: Potentials, kept: Any, cotangent: Array) -> Potentials:
    """Derivative of sum(cotangent * log-normalisers) with respect to every potential; cotangent is (B,)."""
    entries = _keeps_entries(potentials)
    grads = jax.vmap(partial(_backward, entries=entries), (_AXES, 0))(potentials, kept)

    def weighted(g: Array) -> Array:
        return g * cotangent.reshape(-1, *[1] * (g.ndim - 1))

    shared = (grads.initial, grads.transition, grads.blocks)
    initial, transition, blocks = jax.tree.map(lambda g: weighted(g).sum(0), shared)
    phases, configs = weighted(grads.phases), weighted(grads.configs)
    return Potentials(initial, transition, blocks, phases, configs, potentials.lengths)


def filter(potentials: Potentials) -> Filtered:
    """Marginals given the past. Memory: T (L + C) floats a video."""
    log_normalizer, (phases, configs) = jax.vmap(partial(_forward, emit="marginals"), (_AXES,))(potentials)
    return Filtered(phases, configs, log_normalizer)
