"""Forward-backward as scaled `lax.scan`s over time: the backend for CPUs, and for whatever has no kernel of its own.

Messages are `scaled`: a power of two per phase. Rows are (C, L), phases last and padded to a whole vector register.
Videos are taken few at a time (`batching`): on a CPU small steps fuse into a handful of loops, large ones do not.

Source: the recursions of the paper's Appendix S2.2 with its misprints put right (docs/maths.md).
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.messages import batching, kronecker, scaled
from hmmjax.messages.potentials import Filtered, Potentials

DENSE = 128
"""Configurations up to which pairs of them are counted by one matrix product a phase; beyond, bits are in groups."""

GROUP = 16
"""Configurations of such a group."""


@pytree
class Message:
    """2**scale[q] * rows[c, q] over joint states of one frame or, with a leading axis, of many."""

    scale: Array  # (..., L)
    rows: Array  # (..., C, L)


@pytree
class Stacks:
    """What the way there leaves of each frame; the way back needs all of it again.

    Attributes:
        scale: (T, L) of the rows.
        totals: (T, L) their sums.
        rows: (T, C, L) what the past and the frame itself say, of order one, or None.
        mixed: (T, C, L) the same of the next frame's phase and this one's configuration, or None.
    """

    scale: Any
    totals: Any
    rows: Any
    mixed: Any


@pytree
class Chain:
    """One video's potentials as the recursions want them: phases last and padded, tables split, tools grouped."""

    initial: Any  # (C, L)
    forwards: Any  # mantissas and exponents of the phase transition (p, q)
    backwards: Any  # of its transpose
    steps: Any  # tool blocks for one message
    blocks: Any  # tool blocks whose pairs are counted
    evidence: Any
    lengths: Any
    ones: Any  # (C,)


def _pad(x: Array, axis: int) -> Array:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, -x.shape[axis] % batching.LANES)
    return jnp.pad(x, widths)


def _factors(blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    return tuple(_pad(jnp.moveaxis(b, 0, -1), -1) for b in blocks)


def _counted(blocks: tuple[Array, ...], num_configs: int) -> tuple[Array, ...]:
    return kronecker.group(_factors(blocks), DENSE if num_configs <= DENSE else GROUP)


def _chain(p: Potentials) -> Chain:
    dtype = p.phases.dtype
    table = scaled.split(_pad(_pad(p.transition, 0), 1))
    steps = _factors(p.blocks)
    if batching.size(p) > batching.STEP:
        steps = kronecker.group(steps, GROUP)
    evidence = scaled.evidence(p.phases, p.configs)
    evidence = scaled.Evidence(evidence.configs, _pad(evidence.phases, -1), _pad(evidence.scale, -1), evidence.top)
    initial, counted = _pad(p.initial.T.astype(dtype), -1), _counted(p.blocks, p.configs.shape[-1])
    # Held back from XLA, which would write them again in every step.
    ones = lax.optimization_barrier(jnp.ones(len(initial), dtype))
    return Chain(initial, table, jax.tree.map(jnp.transpose, table), steps, counted, evidence, p.lengths, ones)


def _frames(chain: Chain) -> tuple:
    e = chain.evidence
    return e.configs, e.phases, e.scale


def _sum_rows(chain: Chain, rows: Array) -> Array:
    """Sums over configurations, as a matrix product: one kernel where a reduction would be two."""
    return num.einsum("c,cq->q", chain.ones, rows)


def _order_one(chain: Chain, scale: Array, rows: Array) -> tuple[Array, Array, Array]:
    """New scale (L,), sums (L,) and factor (L,) of rows that are brought to order one."""
    totals = _sum_rows(chain, rows)
    scale, factor = scaled.order_one(scale, totals)
    return scale, totals * factor, factor


def _run(chain: Chain, predicted: Message, frames: tuple, keep: bool) -> tuple[Message, Stacks]:
    """Scan forwards over `frames` from a predicted message; rows are stacked with `keep` only."""

    def step(predicted: Message, frame: tuple) -> tuple:
        configs, phases, scale = frame
        rows = predicted.rows * configs[:, None] * phases
        scale, totals, factor = _order_one(chain, predicted.scale + scale, rows)
        rows = rows * factor
        weights, following, _ = scaled.reweigh(scale, totals, *chain.forwards)
        mixed = num.einsum("cp,pq->cq", rows, weights)
        # In one array, because each one costs a step time; what follows from these two is computed afterwards.
        sums = jnp.stack([scale, totals])
        return Message(following, kronecker.push(mixed, chain.steps)), (sums, (rows, mixed) if keep else (None, None))

    predicted, (sums, kept) = lax.scan(step, predicted, frames)
    return predicted, Stacks(sums[:, 0], sums[:, 1], *kept)


def _first(chain: Chain) -> Message:
    return Message(jnp.zeros_like(chain.evidence.scale[0]), chain.initial)


def _in_chunks(chain: Chain, keep: bool, out: Callable[[Message, Stacks], Any], chunks: Any) -> tuple[Array, Any]:
    """Forwards, chunk by chunk: the log-normalizer, and `out` of each chunk's first message and stacks.

    Only the first `chunks` chunks are run, a number that need not be known when compiling; None is all of them, which
    can be differentiated.
    """

    def chunk(predicted: Message, frames: tuple) -> tuple:
        after, stacks = _run(chain, predicted, frames, keep)
        return after, ((stacks.scale, stacks.totals), out(predicted, stacks))

    _, (sums, kept) = batching.loop(chunk, _first(chain), jax.tree.map(batching.in_chunks, _frames(chain)), chunks)
    return _value(chain, *(x.reshape(-1, x.shape[-1]) for x in sums)), kept


def _value(chain: Chain, scale: Array, totals: Array) -> Array:
    length, top = chain.lengths, chain.evidence.top
    references = scaled.reweigh(scale, totals, *chain.forwards)[2]
    last = jnp.maximum(length - 1, 0)
    references = jnp.where(jnp.arange(references.shape[0]) < length - 1, references, 0)
    top = jnp.where(jnp.arange(top.shape[0]) < length, top, 0)
    whole = num.accurate_sum(references) * scaled.LN2 + num.accurate_sum(top)
    return jnp.where(length > 0, whole + scaled.log_total(scale[last], totals[last]), 0)


def _forward(potentials: Potentials, chunks: Any, *, keep: str) -> tuple[Array, Any]:
    """One video, forwards: its log-normalizer, and "messages" of all frames, "entries" of chunks, or "nothing"."""
    chain = _chain(potentials)

    def out(predicted: Message, stacks: Stacks) -> Any:
        if keep == "messages":
            return stacks
        return predicted if keep == "entries" else None

    return _in_chunks(chain, keep == "messages", out, chunks)


def _filter(potentials: Potentials, chunks: Any) -> Filtered:
    chain = _chain(potentials)

    def out(_: Message, stacks: Stacks) -> tuple[Array, Array]:
        return _marginals(stacks.scale, stacks.totals, stacks.rows)

    value, marginals = _in_chunks(chain, True, out, chunks)
    phases, configs = (m.reshape(-1, m.shape[-1])[: potentials.phases.shape[0]] for m in marginals)
    return Filtered(phases[:, : potentials.phases.shape[-1]], configs, value)


@pytree
class Incoming:
    """What frame t + 1 and all after it say: of its own state (rows), and of frame t's configuration (pulled)."""

    scale: Array  # (..., L)
    rows: Array  # (..., C, L), of that scale when multiplied by the factor
    factor: Array  # (..., L)
    pulled: Array  # (..., C, L) rows pulled back through the tools' transition, of order one
    totals: Array  # (..., L) sums of pulled


def _backward(potentials: Potentials, chunks: Any, saved: Any, entries: bool) -> Potentials:
    """One video, backwards: the derivative of its log-normalizer with respect to every potential.

    With respect to log-evidence that is the posterior marginal, and a probability table times its derivative is its
    expected count (Eisner 2016). Backward messages and pairs of frames live for one chunk only.
    """
    chain = _chain(potentials)
    back, length = kronecker.transposed(chain.steps), chain.lengths
    mantissas, exponents = chain.forwards
    num_frames, num_phases = potentials.phases.shape

    def counted(blocks: tuple[Array, ...]) -> tuple[Array, ...]:
        return _phases_first(_counted(blocks, len(chain.initial)), num_phases)

    def step(after: Incoming, frame: tuple) -> tuple[Incoming, tuple]:
        configs, phases, scale, t = frame
        weights, before, _ = scaled.reweigh(after.scale, after.totals, *chain.backwards)
        # Nothing comes after the last frame, whatever the padding holds.
        last = t >= length - 1
        before = jnp.where(last, 0, before)
        beta = jnp.where(last, 1, num.einsum("cq,qp->cp", after.pulled, weights))
        rows = beta * configs[:, None] * phases
        pulled = kronecker.push(rows, back)
        scale, totals, factor = _order_one(chain, before + scale, pulled)
        incoming = Incoming(scale, rows, factor, pulled * factor, totals)
        return incoming, (jnp.stack([after.scale, after.factor]), after.pulled, after.rows)

    def sweep(carry: tuple, inputs: tuple) -> tuple[tuple, tuple]:
        after, totals = carry
        frames, t, kept = inputs
        if entries:
            kept = _run(chain, kept, frames, True)[1]
        _, following, reference = scaled.reweigh(kept.scale, kept.totals, *chain.forwards)
        own, alpha = kept.scale, kept.rows
        first, (sums, pulled, rows) = lax.scan(step, after, (*frames, t), reverse=True)
        scale, factor = sums[:, 0], sums[:, 1]

        # Pairs (t, t + 1), each frame normalized by its own two-sided sum so that counts add up to the frames. Sums
        # over configurations are matrix products: CPUs run those well, large reductions badly.
        pairs = num.einsum("tcp,tcq->tpq", alpha, pulled)
        shift = own[:, :, None] + scale[:, None, :]
        top = _top(shift + exponents + scaled.exponent(pairs), (-1, -2))
        real = (pairs > 0) & (t < length - 1)[:, None, None]
        weights = jnp.where(real, mantissas * scaled.power(shift + exponents - top), 0)
        total = jnp.sum(weights * pairs, (-1, -2), keepdims=True)
        total = jnp.where(total > 0, total, 1)
        expected = weights * pairs / total
        # Where the table is zero its derivative still is what a little probability there would be worth.
        forbidden = jnp.sum(jnp.where(real, scaled.power(shift - top) * pairs / total, 0), 0)
        norm = scaled.power(following + reference[:, None] + scale - top[..., 0]) / total[..., 0]
        before = kept.mixed * jnp.where(jnp.any(real, 1), norm, 0)[:, None]
        blocks = _pair_counts(before, rows * factor[:, None], chain.blocks, num_phases)

        # What is to come says of a frame the pairs' weights; of the last frame, nothing.
        ones = jnp.ones(pulled.shape[-1], pulled.dtype)
        seen = jnp.sum(expected, -1), num.einsum("tcq,q->tc", before * pulled, ones)
        end = jnp.clip(length - 1 - t[0], 0, len(t) - 1)
        last = _marginals(*(lax.dynamic_slice_in_dim(x, end, 1) for x in (own, kept.totals, alpha)))
        is_last = (t == length - 1)[:, None]
        marginals = jax.tree.map(lambda x, y: jnp.where(is_last, y, x), seen, last)
        return (first, jax.tree.map(jnp.add, totals, (jnp.sum(expected, 0), forbidden, blocks))), marginals

    frames = _frames(chain)
    none, nothing = jnp.zeros_like(chain.evidence.scale[0]), jnp.zeros_like(chain.initial)
    after = Incoming(none, nothing, none, nothing, none)
    totals = jax.tree.map(jnp.zeros_like, (mantissas, mantissas, counted(potentials.blocks)))
    inputs = (jax.tree.map(batching.in_chunks, frames), batching.numbers(num_frames), saved)
    carry, marginals = batching.loop(sweep, (after, totals), inputs, chunks, reverse=True)
    first, (counts, forbidden, blocks) = carry

    phases, configs = (m.reshape(-1, m.shape[-1])[:num_frames] for m in marginals)
    # The first frame's rows are brought to order one where the video may begin. Elsewhere they may overflow: the
    # derivative of a zero that evidence is all in favor of.
    possible = chain.initial > 0
    totals = jnp.sum(jnp.where(possible, chain.initial * first.rows, 0), 0)
    scale, factor = scaled.order_one(first.scale + scaled.exponent(first.factor), totals)
    totals = totals * factor
    weights = scaled.power(scale - _top(scale + scaled.exponent(totals), -1))
    weights = scaled.to_one(weights, weights * totals, -1)
    rows = first.rows * factor
    initial = jnp.where((length > 0) & (rows > 0), weights * rows, 0)
    return Potentials(
        initial.T[:num_phases],
        _derivative(counts, forbidden, potentials.transition),
        jax.vjp(counted, potentials.blocks)[1](blocks)[0],
        phases[:, :num_phases],
        configs,
        length,
    )


def _marginals(scale: Array, totals: Array, rows: Array) -> tuple[Array, Array]:
    """Of phases (T, L) and configurations (T, C), by messages of order one and the sums of their rows."""
    weights = scaled.power(scale - _top(scale + scaled.exponent(totals), -1))
    weights = scaled.to_one(jnp.where(totals > 0, weights, 0), weights * totals, -1)
    return weights * totals, num.einsum("tcq,tq->tc", rows, weights)


def _phases_first(arrays: tuple[Array, ...], num_phases: int) -> tuple[Array, ...]:
    """Without padding."""
    return tuple(jnp.moveaxis(x[..., :num_phases], -1, 0) for x in arrays)


def _pair_counts(u: Array, v: Array, blocks: tuple[Array, ...], num_phases: int) -> tuple[Array, ...]:
    """As `kronecker.gradients`, phases first."""
    if len(blocks) == 1:
        return (num.einsum("qtc,qtd->qcd", *_phases_first((u, v), num_phases)),)
    return _phases_first(kronecker.gradients(u, v, blocks), num_phases)


def _derivative(counts: Array, forbidden: Array, table: Array) -> Array:
    n = table.shape[0]
    allowed = table > 0
    return jnp.where(allowed, counts[:n, :n] / jnp.where(allowed, table, 1), forbidden[:n, :n])


def _top(x: Array, axis: int | tuple[int, ...]) -> Array:
    return scaled.finite(jnp.max(x, axis, keepdims=True))


# The backend's interface: batches of videos. ----------------------------------------------------------------------


def forward(potentials: Potentials, keep: bool, whole: bool = False) -> tuple[Array, Any]:
    """Log-normalizers (B,), and with `keep` whatever `backward` needs again.

    With `whole` the padding is run through as well, as in the functions below: slower, and differentiable.
    """
    what = "nothing" if not keep else "entries" if batching.too_large(potentials) else "messages"
    return batching.map_videos(partial(_forward, keep=what), potentials, whole=whole)


def backward(potentials: Potentials, kept: Any, cotangent: Array, whole: bool = False) -> Potentials:
    """Derivative of sum(cotangent * log-normalizers) with respect to every potential; cotangent is (B,)."""
    entries = batching.too_large(potentials)

    def weighted(potentials: Potentials, chunks: Any, kept: Any, cotangent: Array) -> Potentials:
        grads = _backward(potentials, chunks, kept, entries)
        return jax.tree.map(lambda g: g * cotangent, dataclasses.replace(grads, lengths=()))

    grads = batching.map_videos(weighted, potentials, kept, cotangent, whole=whole)
    initial, transition, blocks = jax.tree.map(lambda g: g.sum(0), (grads.initial, grads.transition, grads.blocks))
    return Potentials(initial, transition, blocks, grads.phases, grads.configs, potentials.lengths)


def filter(potentials: Potentials, whole: bool = False) -> Filtered:
    """Marginals given the past. Memory: T (L + C) floats a video."""
    return batching.map_videos(_filter, potentials, whole=whole)
