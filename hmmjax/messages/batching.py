"""Chunk frames for scans over time, and group videos.

Sizes were chosen by measurement (benchmarks/hmm.py).
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from hmmjax._core.typing import Array
from hmmjax.messages.potentials import VIDEOS, Potentials

CHUNK = 128
"""Number of frames per chunk; a chunk's expected counts are a few matrix products."""

LANES = 8
"""Phases are padded to a multiple of this number, one vector register."""

STORED_BYTES = 2**30
"""Memory budget for stored messages, in bytes. Beyond it one message per chunk is stored, the others recomputed."""


def message_size(p: Potentials) -> int:
    """Return the number of values in one video's message, padding of phases included."""
    return p.configs.shape[-1] * -(-p.phases.shape[-1] // LANES) * LANES


def exceeds_budget(p: Potentials) -> bool:
    """Return whether two messages per frame of all videos take more than `STORED_BYTES`."""
    videos, num_frames, _ = p.configs.shape
    return 2 * videos * num_frames * message_size(p) * p.phases.dtype.itemsize > STORED_BYTES


def in_chunks(x: Array, chunk: int | None = None) -> Array:
    """Reshape (T, ...) to (num_chunks, chunk, ...), padded with zeros; chunks are of `CHUNK` frames by default."""
    chunk = min(chunk or CHUNK, x.shape[0])
    x = jnp.pad(x, [(0, -x.shape[0] % chunk)] + [(0, 0)] * (x.ndim - 1))
    return x.reshape(-1, chunk, *x.shape[1:])


def frame_indices(num_frames: int, chunk: int | None = None) -> Array:
    """Return frame indices, (num_chunks, chunk).

    Padded frames continue the count, so they always lie past every video's length.
    """
    chunk = min(chunk or CHUNK, num_frames)
    return jnp.arange(num_frames + -num_frames % chunk).reshape(-1, chunk)


def scan_chunks(body: Callable, carry: Any, inputs: Any, number: Any, reverse: bool = False) -> tuple[Any, Any]:
    """Run `lax.scan` over the first `number` inputs only; the other inputs' outputs are zero.

    `number` may be traced. None runs all inputs and can be differentiated, which stores one carry per input and
    recomputes the rest.
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


def in_groups(run: Callable, num_groups: int, potentials: Potentials, *per_video: Any) -> Any:
    """Call `run(potentials, *per_video)` for one group of videos after another.

    Groups are of equal size; the last one is padded with videos of length 0. Outputs get a leading axis of groups.
    """
    videos = len(potentials.lengths)
    size = -(-videos // num_groups)

    def grouped(x: Array) -> Array:
        x = jnp.pad(x, [(0, num_groups * size - videos)] + [(0, 0)] * (x.ndim - 1))
        return x.reshape(num_groups, size, *x.shape[1:])

    def one_group(inputs: tuple) -> Any:
        (phases, configs, lengths), per_video = inputs
        return run(dataclasses.replace(potentials, phases=phases, configs=configs, lengths=lengths), *per_video)

    data = (potentials.phases, potentials.configs, potentials.lengths)
    return lax.map(one_group, jax.tree.map(grouped, (data, per_video)))


def ungroup(outputs: Any, num_videos: int) -> Any:
    """Merge the axes of groups and of videos in a group, and drop the padding."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:num_videos], outputs)


def map_videos(run: Callable, potentials: Potentials, *per_video: Any, include_padding: bool = False) -> Any:
    """Map `run(potentials, num_chunks, *per_video)` over videos, all at once.

    Args:
        run: function of one video; the number of chunks to process is that of the longest video.
        potentials: all videos.
        per_video: further arguments with a leading axis of videos.
        include_padding: pass None for the number of chunks: all are processed, and the result is differentiable.

    Returns:
        The outputs with a leading axis of videos.
    """
    num_frames = potentials.phases.shape[1]
    num_chunks = None if include_padding else -(-jnp.max(potentials.lengths, initial=0) // min(CHUNK, num_frames))
    return jax.vmap(run, (VIDEOS, None, *[0] * len(per_video)))(potentials, num_chunks, *per_video)
