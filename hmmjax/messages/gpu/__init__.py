"""Forward-backward and Viterbi by GPU kernels (Pallas, Triton), for binary tools in float32.

`sweep` runs the recursions, `pairs` computes marginals and expected counts, `best_path` the most probable path. All of
them stop at a video's end. These modules import Pallas, which is slow to import, so the functions that need them import
them. JAX has deprecated Pallas's Triton backend (docs/how-to/gpus.md): without it, `scan` runs.
"""

import dataclasses
import importlib.util
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from hmmjax._core import numerics as num
from hmmjax._core.configurations import per_tool
from hmmjax._core.packing import Packing
from hmmjax._core.typing import Array
from hmmjax.messages import batching, kronecker, scaled, scan
from hmmjax.messages.backend import Backend
from hmmjax.messages.potentials import Filtered, Path, Potentials, log_prob

STORED_BYTES = 16 * 2**30
"""Memory budget for stored messages, in bytes; larger batches are split into groups."""

LARGEST = 1024
"""Largest number of joint states whose message stays in registers."""


def supports(potentials: Potentials) -> bool:
    """Return whether the kernels support this chain: float32, no interacting tools, a message that fits registers."""
    blocks = potentials.blocks
    if not blocks or potentials.phases.dtype != jnp.float32 or any(b.shape[-1] != 2 for b in blocks):
        return False
    return _padded(potentials.phases.shape[-1]) * 2 ** len(blocks) <= LARGEST and _has_triton()


def is_fastest(potentials: Potentials) -> bool:
    """Return whether there is a GPU and the kernels support this chain."""
    return jax.default_backend() == "gpu" and supports(potentials)


@lru_cache
def _has_triton() -> bool:
    return importlib.util.find_spec("jax.experimental.pallas.triton") is not None


# The backend: batches of videos, in groups that fit the memory budget. -----------------------------------------------


def log_normalizer(potentials: Potentials, save: bool) -> tuple[Array, Any]:
    """Compute log-normalizers (B,), and with `save` the messages of both directions if the budget allows."""
    if save and not _fits(potentials):
        # Over budget: `pullback` recomputes them, one group of videos after another.
        return log_normalizer(potentials, False)[0], None
    from hmmjax.messages.gpu import sweep

    p = potentials.packed()
    likelihoods, table, blocks, initial = _prepare(p)
    rows, scale, totals, last = sweep.sweep(
        likelihoods, table, blocks, initial, p.packing, backwards_too=save, save=save
    )
    value = _log_normalizer(p, likelihoods.log_scale, totals[0], last[0])
    return value, (rows, scale) if save else None


def pullback(potentials: Potentials, residuals: Any, cotangent: Array) -> Potentials:
    """Compute the derivative of sum(cotangent * log-normalizers) in every potential; cotangent is (B,)."""
    if residuals is not None:
        return _pullback(potentials, residuals, cotangent)

    def recompute(potentials: Potentials, cotangent: Array) -> Potentials:
        return _pullback(potentials, log_normalizer(potentials, True)[1], cotangent)

    def by_scan(potentials: Potentials, cotangent: Array) -> Potentials:
        return scan.pullback(potentials, scan.log_normalizer(potentials, True)[1], cotangent)

    return _split(potentials, _in_groups(recompute, by_scan, potentials, cotangent))


def filter(potentials: Potentials) -> Filtered:
    """Compute each frame's marginals given that frame and all before it."""
    return _in_groups(_filter, scan.filter, potentials)


def viterbi(potentials: Potentials) -> Path:
    """Compute the most probable paths; their log-probability is summed along the path found."""
    return _in_groups(_viterbi, scan.viterbi, potentials)


BACKEND = Backend(
    "gpu",
    supports,
    is_fastest,
    log_normalizer,
    pullback,
    filter,
    viterbi,
    derivatives_from=scan.REFERENCE,
    sums_tools=True,
    packs=True,
)


def _frame_bytes(potentials: Potentials) -> int:
    """Return the size of the messages of one frame, of both directions."""
    values = potentials.num_configs * _padded(potentials.phases.shape[-1])
    return 2 * values * potentials.phases.dtype.itemsize


def _fits(potentials: Potentials) -> bool:
    """Return whether the messages of all videos fit the budget."""
    videos, num_frames, _ = potentials.phases.shape
    return videos * num_frames * _frame_bytes(potentials) <= STORED_BYTES


def _group_size(potentials: Potentials) -> int:
    """Return the number of padded videos whose messages fit the budget; 0 if not even one video's do."""
    return STORED_BYTES // max(potentials.phases.shape[1] * _frame_bytes(potentials), 1)


def _in_groups(run: Callable[..., Any], fallback: Callable[..., Any], potentials: Potentials, *per_video: Array) -> Any:
    """Call `run(potentials, *per_video)` for all videos, in groups whose messages fit the budget.

    Derivatives of tables that videos share are added up. If not even one video's messages fit, call `fallback`, which
    stores fewer of them.
    """
    if _fits(potentials):
        return run(potentials, *per_video)
    potentials, given = potentials.joined().padded(), potentials
    if given.packing is not None:
        return given.pack_like(_in_groups(run, fallback, potentials, *per_video))
    size, videos = _group_size(potentials), len(potentials.lengths)
    if size == 0:
        return fallback(potentials, *per_video)
    out = batching.in_groups(run, -(-videos // size), potentials, *per_video)
    merged = batching.ungroup(out, videos)
    if isinstance(out, Potentials):
        initial, transition, blocks = jax.tree.map(lambda x: x.sum(0), (out.initial, out.transition, out.blocks))
        merged = dataclasses.replace(merged, initial=initial, transition=transition, blocks=blocks)
    return merged


# Preparation and what is left to XLA. --------------------------------------------------------------------------------


def _padded(num_phases: int) -> int:
    return 1 << (num_phases - 1).bit_length()


def _pad(x: Array, axis: int, value: float = 0.0) -> Array:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, _padded(x.shape[axis]) - x.shape[axis])
    return jnp.pad(x, widths, constant_values=value)


def _factors(blocks: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return (L, 2, 2) blocks as (2, 2, P)."""
    return tuple(_pad(b, -1) for b in kronecker.phases_last(blocks))


def _prepare(p: Potentials) -> tuple:
    """Return what the kernels read, of packed potentials; arrays of N frames have no other leading axis."""
    from hmmjax.messages.gpu import launch

    if p.tools is not None and p.configs is None:
        x = scaled.likelihoods_of_tools(p.phases[0], p.tools[0])
    else:
        p = p.joined()
        x = scaled.likelihoods(p.phases[0], p.configs[0])
    # The exponent of the most probable phase is 0, so that kernels add up small integers.
    scale = jnp.maximum(x.scale + scaled.LIFT, launch.NEVER // 4)
    return dataclasses.replace(x, phases=_pad(x.phases, -1), scale=_pad(scale, -1)), *_tables(p)


def _tables(p: Potentials) -> tuple:
    """Return the phase transition, the tools' blocks and the start as the kernels read them."""
    from hmmjax.messages.gpu import launch

    table = launch.integers(scaled.split(_pad(_pad(p.transition, 0), 1)))
    return table, _factors(p.blocks), _pad(p.initial, 0).astype(p.phases.dtype)


def _log_normalizer(p: Potentials, log_scale: Array, totals: Array, last: Array) -> Array:
    """Return log-normalizers (B,): factors removed from each frame (N,) and on the way, and the last message's sum."""
    scale, removed = last[:, 0].astype(totals.dtype), last[:, 1, 0]
    removed = (removed - int(scaled.LIFT) * p.lengths).astype(totals.dtype) * scaled.LN2
    removed = removed + num.accurate_sum(p.packing.spread(log_scale[None]))
    return jnp.where(p.lengths > 0, removed + scaled.log_total(scale, totals), 0)


def _pullback(potentials: Potentials, residuals: Any, cotangent: Array) -> Potentials:
    from hmmjax.messages.gpu import launch, pairs

    rows, scale = residuals
    p = potentials.packed()
    table, factors, initial = _tables(p)
    phases, configs, counts, gradients = pairs.statistics(rows, scale, table, factors, initial, p.packing, cotangent)
    n = potentials.transition.shape[0]
    allowed = potentials.transition > 0
    transition = counts[:n, :n] / jnp.where(allowed, potentials.transition, 1)
    blocks = tuple(jnp.moveaxis(g[..., :n], -1, 0) for g in gradients)

    # The first frame's e_1(q, c) beta_1(q, c), each video normalized by its own sum.
    some, begin = (p.lengths > 0)[:, None, None], launch.starts(p.packing, rows.shape[1])
    first = jnp.where(some, jnp.moveaxis(rows[1, begin], -2, 1).reshape(-1, *initial.shape), 0)
    first_scale = scale[1, begin].astype(first.dtype)
    totals = jnp.sum(jnp.where(initial > 0, initial * first, 0), -1)
    top = scaled.finite(jnp.max(first_scale + scaled.exponent(totals), -1))[:, None]
    weights = scaled.divide_by_sum(scaled.power(first_scale - top), scaled.power(first_scale - top) * totals, -1)
    start = jnp.where(first > 0, cotangent[:, None, None] * weights[..., None] * first, 0).sum(0)
    gradient = dataclasses.replace(potentials, initial=start[:n], transition=transition, blocks=blocks)
    gradient = _split(potentials, dataclasses.replace(gradient, phases=phases[..., :n], configs=configs))
    phases, configs, tools = _per_frame(potentials, p.packing, gradient.phases, gradient.configs, gradient.tools)
    return dataclasses.replace(gradient, phases=phases, configs=configs, tools=tools)


def _split(given: Potentials, gradient: Potentials) -> Potentials:
    """Return a gradient in joined potentials as one in the potentials that were given."""
    configs, tools = gradient.configs, None if given.tools is None else per_tool(gradient.configs)
    return dataclasses.replace(gradient, configs=None if given.configs is None else configs, tools=tools)


def _per_frame(given: Potentials, packing: Packing, *results: Any) -> Any:
    """Return results (N, ...) as (B, T, ...), or (1, N, ...) as the potentials given, zero outside of videos."""
    inside = packing.inside(len(results[0]))

    def restore(x: Array) -> Array:
        return jnp.where(inside.reshape(-1, *[1] * (x.ndim - 1)), x, 0).reshape(*given.phases.shape[:2], *x.shape[1:])

    return jax.tree.map(restore, results)


def _filter(potentials: Potentials) -> Filtered:
    from hmmjax.messages.gpu import pairs, sweep

    p = potentials.packed()
    likelihoods, table, blocks, initial = _prepare(p)
    rows, scale, totals, last = sweep.sweep(
        likelihoods, table, blocks, initial, p.packing, backwards_too=False, save=True
    )
    phases, configs = pairs.filtered(rows, scale, p.packing)
    value = _log_normalizer(p, likelihoods.log_scale, totals[0], last[0])
    phases, configs = _per_frame(potentials, p.packing, phases[..., : p.phases.shape[-1]], configs)
    return Filtered.of_configs(phases, configs, value)


def _viterbi(potentials: Potentials) -> Path:
    from hmmjax.messages.gpu import best_path

    potentials = potentials.joined()
    p = potentials.packed()
    log_transition, log_initial = jnp.log(p.transition), jnp.log(p.initial).astype(p.phases.dtype)
    log_blocks = kronecker.phases_last(tuple(jnp.log(b) for b in p.blocks))
    phases, configs = best_path.best_path(
        num.relative(p.configs[0])[0],
        _pad(num.relative(p.phases[0])[0], -1, -jnp.inf),
        _pad(_pad(log_transition, 0, -jnp.inf), 1, -jnp.inf),
        tuple(_pad(b, -1, -jnp.inf) for b in log_blocks),
        _pad(log_initial, 0, -jnp.inf),
        p.packing,
    )
    phases, configs = _per_frame(potentials, p.packing, phases, configs)
    return Path(phases, configs, log_prob(potentials, phases, configs))
