"""Forward-backward and Viterbi as `lax.scan`s over time: the readable reference, and the backend of last resort.

`chain` prepares one video's potentials, `forward_pass`, `backward_pass` and `best_path` are the recursions. Messages
are `scaled`: rows (C, L), phases last and padded to a whole vector register, with a power of two per phase.

Source: the recursions of the paper's Appendix S2.2 with its misprints corrected (docs/concepts/model.md).
"""

import dataclasses
from functools import partial
from typing import Any

import jax

from hmmjax._core.typing import Array
from hmmjax.messages import batching
from hmmjax.messages.backend import Backend
from hmmjax.messages.potentials import Filtered, Path, Potentials
from hmmjax.messages.scan import backward_pass, best_path, forward_pass


def log_normalizer(potentials: Potentials, save: bool, include_padding: bool = False) -> tuple[Array, Any]:
    """Compute log-normalizers (B,), and with `save` the residuals of `pullback`.

    With `include_padding` padded frames are processed as well, here and below: slower, but JAX can differentiate it.
    """
    residuals = "nothing" if not save else "chunk starts" if batching.exceeds_budget(potentials) else "all"
    run = partial(forward_pass.log_normalizer, save=residuals)
    return batching.map_videos(run, potentials, include_padding=include_padding)


def pullback(potentials: Potentials, residuals: Any, cotangent: Array, include_padding: bool = False) -> Potentials:
    """Compute the derivative of sum(cotangent * log-normalizers) in every potential; cotangent is (B,)."""
    recompute = batching.exceeds_budget(potentials)

    def weighted(potentials: Potentials, chunks: Any, residuals: Any, cotangent: Array) -> Potentials:
        grads = backward_pass.gradient(potentials, chunks, residuals, recompute)
        return jax.tree.map(lambda g: g * cotangent, dataclasses.replace(grads, lengths=()))

    grads = batching.map_videos(weighted, potentials, residuals, cotangent, include_padding=include_padding)
    initial, transition, blocks = jax.tree.map(lambda g: g.sum(0), (grads.initial, grads.transition, grads.blocks))
    return Potentials(initial, transition, blocks, grads.phases, grads.configs, potentials.lengths)


def filter(potentials: Potentials, include_padding: bool = False) -> Filtered:
    """Compute each frame's marginals given that frame and all before it. Memory: T * (L + C) floats per video."""
    return batching.map_videos(forward_pass.filter, potentials, include_padding=include_padding)


def viterbi(potentials: Potentials) -> Path:
    """Compute the most probable paths (B, T), in the time of one forward pass and C + L per frame for the traceback.

    Memory: 2 * T * L * C floats per video; above `batching.STORED_BYTES` 2 * L * C floats per chunk, and a second
    forward pass.
    """
    run = partial(best_path.viterbi, recompute=batching.exceeds_budget(potentials))
    return batching.map_videos(run, potentials)


def _always(_: Potentials) -> bool:
    return True


REFERENCE = Backend(
    "scan, differentiable",
    supports=_always,
    is_fastest=lambda _: False,
    log_normalizer=partial(log_normalizer, include_padding=True),
    pullback=partial(pullback, include_padding=True),
    filter=partial(filter, include_padding=True),
    viterbi=viterbi,
)
"""The same recursions in a form that JAX can differentiate."""

BACKEND = Backend("scan", _always, _always, log_normalizer, pullback, filter, viterbi, derivatives_from=REFERENCE)
