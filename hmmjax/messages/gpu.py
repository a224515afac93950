"""Forward-backward and the best path by GPU kernels (`kernels`), with the sums over frames left to matrix products."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core import numerics as num
from hmmjax._core.typing import Array
from hmmjax.messages import kernels, kronecker, scaled, scan
from hmmjax.messages import viterbi as best_path
from hmmjax.messages.potentials import Filtered, Path, Potentials, log_prob

STORED_BYTES = 16 * 2**30
"""Messages of so many videos are held at once; more are taken in turns."""

DENSE = 128
"""Configurations up to which pairs of them are counted by one matrix product; beyond, bits are split in groups."""

LARGEST = 1024
"""Numbers in a message up to which it stays in registers."""


def fits(num_phases: int, blocks: Any, dtype: Any) -> bool:
    """Whether the kernels run this chain: float32, tools that move one by one, and a message that fits registers."""
    if not blocks or dtype != jnp.float32 or any(b.shape[-1] != 2 for b in blocks):
        return False
    return _padded(num_phases) * 2 ** len(blocks) <= LARGEST


def _padded(num_phases: int) -> int:
    return 1 << (num_phases - 1).bit_length()


def _pad(x: Array, axis: int, value: float = 0.0) -> Array:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, _padded(x.shape[axis]) - x.shape[axis])
    return jnp.pad(x, widths, constant_values=value)


def _factors(blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    """(L, 2, 2) to (2, 2, P)."""
    return tuple(_pad(jnp.moveaxis(b, 0, -1), -1) for b in blocks)


def _prepare(p: Potentials) -> tuple:
    evidence = scaled.evidence(p.phases, p.configs)
    evidence = dataclasses.replace(evidence, phases=_pad(evidence.phases, -1), scale=_pad(evidence.scale, -1))
    table, initial = _tables(p)
    return evidence, table, _factors(p.blocks), initial


def _tables(p: Potentials) -> tuple:
    return scaled.split(_pad(_pad(p.transition, 0), 1)), _pad(p.initial, 0).astype(p.phases.dtype)


def _value(p: Potentials, top: Array, scale: Array, totals: Array, references: Array) -> Array:
    """Log-normalizers (B,) from what a forward sweep leaves."""
    frames, length = jnp.arange(top.shape[1]), p.lengths[:, None]
    last = jnp.maximum(length - 1, 0)[..., None]
    references = jnp.where(frames < length - 1, references, 0)
    whole = num.accurate_sum(references) * scaled.LN2 + num.accurate_sum(jnp.where(frames < length, top, 0))
    scale = jnp.take_along_axis(scale, last, 1)[:, 0]
    return jnp.where(p.lengths > 0, whole + scaled.log_total(scale, totals), 0)


def forward(potentials: Potentials, keep: bool) -> tuple[Array, Any]:
    """Log-normalizers (B,), and with `keep` the messages of both directions."""
    if keep and len(potentials.lengths) > _at_once(potentials):
        # Too many to hold: `backward` computes them again, a few videos at a time.
        return forward(potentials, keep=False)[0], None
    evidence, table, blocks, initial = _prepare(potentials)
    rows, scale, totals, after, references = kernels.sweep(
        evidence, table, blocks, initial, potentials.lengths, both=keep, keep=keep
    )
    value = _value(potentials, evidence.top, scale[0], totals[0], references[0])
    return value, (rows, scale, after) if keep else None


def backward(potentials: Potentials, kept: Any, cotangent: Array) -> Potentials:
    """Derivative of sum(cotangent * log-normalizers) with respect to every potential; cotangent is (B,)."""
    if kept is not None:
        return _backward(potentials, kept, cotangent)

    def again(potentials: Potentials, cotangent: Array) -> Potentials:
        return _backward(potentials, forward(potentials, keep=True)[1], cotangent)

    def sparingly(potentials: Potentials, cotangent: Array) -> Potentials:
        return scan.backward(potentials, scan.forward(potentials, keep=True)[1], cotangent)

    return _in_turns(again, sparingly, potentials, cotangent)


def _backward(potentials: Potentials, kept: Any, cotangent: Array) -> Potentials:
    rows, scale, after = kept
    table, initial = _tables(potentials)
    phases, configs, pairs, before = kernels.pair(rows, scale, table, potentials.lengths, cotangent)
    counts = pairs.sum((0, 1))
    n = potentials.transition.shape[0]
    allowed = potentials.transition > 0
    transition = counts[:n, :n] / jnp.where(allowed, potentials.transition, 1)

    grouped, regroup = jax.vjp(lambda b: kronecker.group(_factors(b), DENSE), potentials.blocks)
    (blocks,) = regroup(_gradients(before, after, grouped))

    # What all frames say of the first one's state, each video normalized by its own sum.
    first = jnp.swapaxes(after[:, :: after.shape[1] // len(cotangent), 0], 0, 1)
    first_scale = scale[1][:, 0]
    totals = jnp.sum(jnp.where(initial > 0, initial * first, 0), -1)
    top = scaled.finite(jnp.max(first_scale + scaled.exponent(totals), -1))[:, None]
    weights = scaled.to_one(scaled.power(first_scale - top), scaled.power(first_scale - top) * totals, -1)
    some = (potentials.lengths > 0)[:, None, None]
    start = jnp.where(some & (first > 0), cotangent[:, None, None] * weights[..., None] * first, 0).sum(0)
    return Potentials(start[:n], transition, blocks, phases[..., :n], configs, potentials.lengths)


def _gradients(u: Array, v: Array, blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    """As `kronecker.gradients`, of rows (P, chunks, frames, C)."""
    if len(blocks) == 1:
        # A product for each phase and chunk, then their sum: a processor for each, and short sums in float32.
        return (jnp.moveaxis(num.einsum("qntc,qntd->qncd", u, v).sum(1), 0, -1),)
    u, v = (jnp.moveaxis(x.reshape(len(x), -1, x.shape[-1]), 0, -1) for x in (u, v))
    return kronecker.gradients(u, v, blocks)


def filter(potentials: Potentials) -> Filtered:
    """Marginals given the past."""
    none = jnp.zeros_like(potentials.lengths)
    return _in_turns(lambda p, _: _filter(p), lambda p, _: scan.filter(p), potentials, none)


def _filter(potentials: Potentials) -> Filtered:
    evidence, table, blocks, initial = _prepare(potentials)
    rows, scale, totals, _, references = kernels.sweep(
        evidence, table, blocks, initial, potentials.lengths, both=False, keep=True
    )
    rows, scale = rows[0], scale[0]
    value = _value(potentials, evidence.top, scale, totals[0], references[0])
    totals = jnp.sum(rows, -1)
    # Frames after the end were never written.
    real = (jnp.arange(rows.shape[1]) < potentials.lengths[:, None])[..., None] & (totals > 0)
    top = scaled.finite(jnp.max(jnp.where(real, scale + scaled.exponent(totals), -jnp.inf), -1, keepdims=True))
    weights = jnp.where(real, scaled.power(scale - top), 0)
    weights = scaled.to_one(weights, weights * jnp.where(real, totals, 0), -1)
    phases = jnp.where(real, weights * totals, 0)
    configs = jnp.sum(jnp.where(real[..., None], weights[..., None] * rows, 0), -2)
    return Filtered(phases[..., : potentials.phases.shape[-1]], configs, value)


def viterbi(potentials: Potentials) -> Path:
    """Most probable paths; their log-probability is summed along the path found."""
    none = jnp.zeros_like(potentials.lengths)
    return _in_turns(lambda p, _: _viterbi(p), lambda p, _: best_path.viterbi(p), potentials, none)


def _viterbi(p: Potentials) -> Path:
    log_transition, log_initial = jnp.log(p.transition), jnp.log(p.initial).astype(p.phases.dtype)
    log_blocks = tuple(jnp.log(jnp.moveaxis(b, 0, -1)) for b in p.blocks)
    inputs = (
        p.configs,
        _pad(p.phases, -1, -jnp.inf),
        _pad(_pad(log_transition, 0, -jnp.inf), 1, -jnp.inf),
        tuple(_pad(b, -1, -jnp.inf) for b in log_blocks),
        _pad(log_initial, 0, -jnp.inf),
        p.lengths,
    )
    phases, configs = kernels.best_path(*inputs)
    real = jnp.arange(phases.shape[1]) < p.lengths[:, None]
    phases, configs = (jnp.where(real, x, 0) for x in (phases, configs))
    return Path(phases, configs, log_prob(p, phases, configs))


def _at_once(potentials: Potentials) -> int:
    """Videos whose messages fit; 0 where one video's do not."""
    _, num_frames, num_configs = potentials.configs.shape
    one = 4 * num_frames * num_configs * _padded(potentials.phases.shape[-1]) * potentials.phases.dtype.itemsize
    return STORED_BYTES // max(one, 1)


def _in_turns(
    run: Callable[[Potentials, Array], Any],
    otherwise: Callable[[Potentials, Array], Any],
    potentials: Potentials,
    per_video: Array,
) -> Any:
    """`run` for all videos, in groups whose messages fit; derivatives of shared tables add up.

    Where one video's messages do not fit, `otherwise`, which keeps less of them.
    """
    size, videos = _at_once(potentials), len(per_video)
    if size == 0:
        return otherwise(potentials, per_video)
    if videos <= size:
        return run(potentials, per_video)
    # As few turns as may be, of as even a size.
    groups = -(-videos // size)
    size = -(-videos // groups)

    def grouped(x: Array) -> Array:
        x = jnp.pad(x, [(0, groups * size - videos)] + [(0, 0)] * (x.ndim - 1))
        return x.reshape(groups, size, *x.shape[1:])

    def some(inputs: tuple) -> Any:
        phases, configs, lengths, rest = inputs
        return run(dataclasses.replace(potentials, phases=phases, configs=configs, lengths=lengths), rest)

    data = (potentials.phases, potentials.configs, potentials.lengths, per_video)
    out = lax.map(some, jax.tree.map(grouped, data))
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:videos], out)
    if isinstance(out, Potentials):
        shared = jax.tree.map(lambda x: x.sum(0), (out.initial, out.transition, out.blocks))
        flat = dataclasses.replace(flat, initial=shared[0], transition=shared[1], blocks=shared[2])
    return flat
