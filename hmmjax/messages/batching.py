"""How scans over time go through a batch: frames in chunks, videos in groups, neither further than it must.

Sizes are by measurement (benchmarks/hmm.py).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core.typing import Array
from hmmjax.messages.potentials import Potentials

CHUNK = 128
"""Frames whose messages are worked on at once; their counts are a few matrix products per chunk."""

LANES = 8
"""Phases are padded to a multiple of this."""

STEP = 1024
"""Numbers in one step's state up to which a CPU runs it as a few fused loops, one tool at a time."""

STORED_BYTES = 2**30
"""Above this many bytes of forward messages only one message per chunk is kept, and the rest computed again."""


def size(p: Potentials) -> int:
    """Numbers in one video's message."""
    return p.configs.shape[-1] * -(-p.phases.shape[-1] // LANES) * LANES


def too_large(p: Potentials) -> bool:
    """Whether two messages of every frame are more than is kept."""
    videos, num_frames, _ = p.configs.shape
    return 2 * videos * num_frames * size(p) * p.phases.dtype.itemsize > STORED_BYTES


def loop(body: Callable, carry: Any, inputs: Any, number: Any, reverse: bool = False) -> tuple[Any, Any]:
    """`lax.scan` over the first `number` inputs only; outputs of the others are zero.

    With None over all of them, and differentiation keeps one carry an input and computes the rest again.
    """
    total = len(jax.tree.leaves(inputs)[0])
    if total == 1:
        carry, output = body(carry, jax.tree.map(lambda x: x[0], inputs))
        return carry, jax.tree.map(lambda x: x[None], output)
    if number is None:
        return lax.scan(jax.checkpoint(body), carry, inputs, reverse=reverse)

    def one(i: Any, state: tuple) -> tuple:
        carry, outputs = state
        at = number - 1 - i if reverse else i
        carry, output = body(carry, jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, at, keepdims=False), inputs))
        return carry, jax.tree.map(lambda all, x: lax.dynamic_update_index_in_dim(all, x, at, 0), outputs, output)

    shapes = jax.eval_shape(lambda c, x: body(c, jax.tree.map(lambda x: x[0], x))[1], carry, inputs)
    outputs = jax.tree.map(lambda x: jnp.zeros((total, *x.shape), x.dtype), shapes)
    return lax.fori_loop(0, number, one, (carry, outputs))


def in_chunks(x: Array) -> Array:
    """(T, ...) to (T / CHUNK, CHUNK, ...), padded with zeros."""
    chunk = min(CHUNK, x.shape[0])
    x = jnp.pad(x, [(0, -x.shape[0] % chunk)] + [(0, 0)] * (x.ndim - 1))
    return x.reshape(-1, chunk, *x.shape[1:])


def numbers(num_frames: int) -> Array:
    """Of the frames in chunks; padding goes on counting, so that it lies after every end."""
    chunk = min(CHUNK, num_frames)
    return jnp.arange(num_frames + -num_frames % chunk).reshape(-1, chunk)


_AXES = Potentials(None, None, None, 0, 0, 0)


def map_videos(run: Callable, potentials: Potentials, *per_video: Any, whole: bool = False) -> Any:
    """`run` for every video and the number of chunks to run, None with `whole`.

    On a CPU as many videos at a time as keep a step small, videos of like length together, so that no frame is
    computed in vain but those of a group's last chunks; elsewhere all at once.
    """
    batch = jax.vmap(run, (_AXES, None, *[0] * len(per_video)))
    lengths = potentials.lengths
    videos, num_frames = potentials.phases.shape[:2]

    def chunks(lengths: Array) -> Any:
        return None if whole else -(-jnp.max(lengths) // min(CHUNK, num_frames))

    together = max(1, STEP // size(potentials))
    if jax.default_backend() != "cpu" or videos <= together:
        return batch(potentials, chunks(lengths), *per_video)
    groups = -(-videos // together)
    together = -(-videos // groups)
    order = jnp.argsort(lengths) if together > 1 else jnp.arange(videos)

    def grouped(x: Array) -> Array:
        x = jnp.pad(x[order] if together > 1 else x, [(0, groups * together - videos)] + [(0, 0)] * (x.ndim - 1))
        return x.reshape(groups, together, *x.shape[1:])

    data = (potentials.phases, potentials.configs, lengths)

    def some(inputs: tuple) -> Any:
        (phases, configs, lengths), rest = inputs
        p = dataclasses.replace(potentials, phases=phases, configs=configs, lengths=lengths)
        return batch(p, chunks(lengths), *rest)

    out = lax.map(some, jax.tree.map(grouped, (data, per_video)))
    back = jnp.argsort(order)

    def ungrouped(x: Array) -> Array:
        x = x.reshape(-1, *x.shape[2:])[:videos]
        return x[back] if together > 1 else x

    return jax.tree.map(ungrouped, out)
