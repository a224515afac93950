"""Forward-backward as scaled `lax.scan`s over time: the reference backend.

A message over joint states is kept as rows a[q, :] that sum to one and an exponent s[q] per phase, so that
message[q, c] = exp(s[q]) a[q, c]. A phase that evidence makes hopeless for a while keeps its digits: in float32 a
single scale for all states would lose it for good after 87 nats, and where the transition matrix has zeros nothing
could bring it back. Phases alone (C = 1) are thereby computed in logs altogether.

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
"""Frames whose backward messages are held at once; their counts are one matrix product per chunk."""


@partial(jax.tree_util.register_dataclass, data_fields=["scale", "rows"], meta_fields=[])
@dataclasses.dataclass(frozen=True)
class Message:
    """exp(scale[q]) * rows[q, c], over joint states of one frame or, with a leading axis, of many."""

    scale: Array  # (..., L)
    rows: Array  # (..., L, C)


def _normalise_rows(scale: Array, rows: Array) -> Message:
    total = rows.sum(-1)
    alive = total > 0
    rows = rows / jnp.where(alive, total, 1)[..., None]
    return Message(jnp.where(alive, scale + jnp.log(jnp.where(alive, total, 1)), -jnp.inf), rows)


def _mix(scale: Array, log_weights: Array, rows: Array) -> Message:
    """Rows mixed over phases: out[q] = sum_p exp(scale[p] + log_weights[p, q]) rows[p], not yet normalised."""
    exponents = scale[..., :, None] + log_weights
    top = num.finite_max(exponents, -2)
    return Message(top, num.einsum("...pq,...pc->...qc", jnp.exp(exponents - top[..., None, :]), rows))


def _condition(predicted: Message, phases: Array, configs: Array) -> tuple[Message, Array]:
    """Take in one frame's evidence; also the log-probability of that evidence given the past."""
    filtered = _normalise_rows(predicted.scale, predicted.rows * configs)
    scale = filtered.scale + phases
    step = num.logsumexp(scale, -1)
    return Message(scale - jnp.where(jnp.isfinite(step), step, 0), filtered.rows), step


def _scaled_configs(potentials: Potentials) -> tuple[Array, Array]:
    """Exp of the configurations' log-evidence with each frame's largest taken out, and that largest."""
    top = num.finite_max(potentials.configs, -1)
    return jnp.exp(potentials.configs - top[..., None]), top


def _run(potentials: Potentials, predicted: Message, frames: tuple, emit: str) -> tuple[Message, tuple]:
    """Scan forwards over `frames` from a predicted message; stack what `emit` names beside each step's log."""
    log_transition = num.log(potentials.transition)

    def step(predicted: Message, frame: tuple) -> tuple:
        phases, configs, t = frame
        filtered, log_step = _condition(predicted, phases, configs)
        log_step = jnp.where(t < potentials.lengths, log_step, 0)
        out = None
        if emit == "messages":
            out = filtered
        elif emit == "marginals":
            weights = jnp.exp(filtered.scale)
            out = weights, num.einsum("q,qc->c", weights, filtered.rows)
        mixed = _mix(filtered.scale, log_transition, filtered.rows)
        return Message(mixed.scale, kronecker.push(mixed.rows, potentials.blocks)), (log_step, out)

    return lax.scan(step, predicted, frames)


def _first(potentials: Potentials) -> Message:
    dtype = potentials.phases.dtype
    return Message(jnp.zeros(potentials.phases.shape[-1], dtype), potentials.initial.astype(dtype))


def _forward(potentials: Potentials, emit: str) -> tuple[Array, Any]:
    """One video, forwards: its log-normaliser and, stacked over time, what `emit` names.

    "messages" are the filtered messages, "marginals" their marginals, "entries" the predicted message at the start
    of each chunk (from which `_backward` can recompute the rest), "nothing" None.
    """
    configs, top = _scaled_configs(potentials)
    t = jnp.arange(configs.shape[0])
    frames = (potentials.phases, configs, t)
    if emit == "entries":

        def chunk(predicted: Message, frames: tuple) -> tuple:
            after, (steps, _) = _run(potentials, predicted, frames, "nothing")
            return after, (steps, predicted)

        _, (steps, out) = lax.scan(chunk, _first(potentials), jax.tree.map(_chunks, frames))
        steps = steps.reshape(-1)
    else:
        _, (steps, out) = _run(potentials, _first(potentials), frames, emit)
    top = jnp.where(t < potentials.lengths, top, 0)
    return num.accurate_sum(steps) + num.accurate_sum(top), out


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
        mixed = _mix(after.scale, log_transition.T, after.pulled)
        beta = _normalise_rows(mixed.scale, mixed.rows)
        # Nothing comes after the last frame, whatever the padding holds.
        last = t >= length - 1
        scale = jnp.where(last, 0, beta.scale - num.finite_max(beta.scale, -1))
        beta = Message(scale, jnp.where(last, 1, beta.rows))
        rows = beta.rows * evidence
        return Incoming(beta.scale + phases, rows, kronecker.pull(rows, potentials.blocks)), (beta, after)

    def sweep(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
        after, totals = carry
        frames, kept = inputs
        t = frames[2]
        alpha = _run(potentials, kept, frames, "messages")[1][1] if entries else kept
        first, (beta, after) = lax.scan(step, after, frames, reverse=True)

        joint = num.einsum("tqc,tqc->tq", alpha.rows, beta.rows)
        shift, possible = _normaliser(alpha.scale + beta.scale, joint)
        weights = jnp.exp(alpha.scale + beta.scale - shift[:, None])
        weights = jnp.where((possible & (t < length))[:, None], weights, 0)
        marginals = weights * joint, num.einsum("tq,tqc,tqc->tc", weights, alpha.rows, beta.rows)

        # Pairs (t, t + 1), each frame normalised by its own two-sided sum so that counts add up to the frames.
        pairs = num.einsum("tpc,tqc->tpq", alpha.rows, after.pulled)
        exponents = alpha.scale[:, :, None] + after.scale[:, None, :]
        flat = (chunk_length(t), -1)
        shift, possible = _normaliser((exponents + log_transition).reshape(flat), pairs.reshape(flat))
        possible = possible & (t < length - 1)
        transition = jnp.exp(exponents - shift[:, None, None]) * pairs
        transition = jnp.where(possible[:, None, None] & (pairs > 0), transition, 0).sum(0)
        mixed = _mix(alpha.scale, log_transition, alpha.rows)
        weights = jnp.exp(mixed.scale + after.scale - shift[:, None])
        weights = jnp.where(possible[:, None], weights, 0)
        blocks = kronecker.gradients(mixed.rows * weights[..., None], after.rows, potentials.blocks)
        return (first, jax.tree.map(jnp.add, totals, (transition, blocks))), marginals

    def chunk_length(t: Array) -> int:
        return t.shape[0]

    frames = (potentials.phases, configs, jnp.arange(configs.shape[0]))
    nothing = jnp.zeros_like(potentials.initial, potentials.phases.dtype)
    after = Incoming(jnp.zeros_like(potentials.phases[0]), nothing, nothing)
    totals = jax.tree.map(jnp.zeros_like, (potentials.transition, potentials.blocks))
    kept = saved if entries else jax.tree.map(_chunks, saved)
    inputs = (jax.tree.map(_chunks, frames), kept)
    (first, (transition, blocks)), marginals = lax.scan(sweep, (after, totals), inputs, reverse=True)

    phases, configs = (m.reshape(-1, m.shape[-1])[: frames[0].shape[0]] for m in marginals)
    shift, possible = _normaliser(first.scale, num.einsum("qc,qc->q", potentials.initial, first.rows))
    weights = jnp.where(possible & (length > 0), jnp.exp(first.scale - shift), 0)
    return Potentials(weights[:, None] * first.rows, transition, blocks, phases, configs, length)


def _normaliser(exponents: Array, values: Array) -> tuple[Array, Array]:
    """log(sum(exp(exponents) * values)) over the last axis, 0 where that is -inf, and whether it was finite."""
    total = num.logsumexp(exponents + num.log(values), -1)
    finite = jnp.isfinite(total)
    return jnp.where(finite, total, 0), finite


# The backend's interface: batches of videos. ----------------------------------------------------------------------

_AXES = Potentials(None, None, None, 0, 0, 0)  # type: ignore[arg-type]

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

    shared = jax.tree.map(lambda g: weighted(g).sum(0), (grads.initial, grads.transition, grads.blocks))
    return Potentials(*shared, weighted(grads.phases), weighted(grads.configs), potentials.lengths)


def filter(potentials: Potentials) -> Filtered:
    """Marginals given the past. Memory: T (L + C) floats a video."""
    log_normalizer, (phases, configs) = jax.vmap(partial(_forward, emit="marginals"), (_AXES,))(potentials)
    return Filtered(phases, configs, log_normalizer)
