"""Lay out videos of uneven lengths one after another in one row of frames, so that cost follows real frames."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from hmmjax._core.pytree import pytree, static
from hmmjax._core.typing import Array


@pytree
class Packing:
    """Positions of B videos in a row of N frames, whose arrays are (1, N, ...).

    Attributes:
        starts: (B,) int32 position of each video's first frame: that after the last frame of the video before, unless
            `is_padded`.
        lengths: (B,) int32 number of frames of each video.
        max_frames: T, at least as large as every length.
        is_padded: whether video b starts at b * T: the row is a padded batch (B, T, ...), reshaped.
    """

    starts: Any
    lengths: Any
    max_frames: int = static()
    is_padded: bool = static(default=False)

    def owner(self, num_frames: int) -> Array:
        """Return the video (N,) int32 of each frame; outside of videos, that of the one before."""
        if self.is_padded:
            return jnp.arange(num_frames, dtype=jnp.int32) // max(self.max_frames, 1)
        begins = jnp.zeros(num_frames, jnp.int32).at[self.starts].add(1, mode="drop")
        return jnp.maximum(jnp.cumsum(begins) - 1, 0)

    def position(self, num_frames: int) -> Array:
        """Return the number (N,) int32 of each frame in its video, from 0."""
        return jnp.arange(num_frames, dtype=jnp.int32) - jnp.asarray(self.starts)[self.owner(num_frames)]

    def inside(self, num_frames: int) -> Array:
        """Return (N,) bool, whether the frame belongs to a video."""
        position = self.position(num_frames)
        return (position >= 0) & (position < jnp.asarray(self.lengths)[self.owner(num_frames)])

    def spread(self, x: Array) -> Array:
        """Return (B, T, ...) from (1, N, ...), zero after each video's end."""
        frame = jnp.arange(self.max_frames)
        inside = frame < jnp.asarray(self.lengths)[:, None]
        if self.is_padded:
            keep = inside.reshape(*inside.shape, *[1] * (x.ndim - 2))
            return jnp.where(keep, x.reshape(*inside.shape, *x.shape[2:]), 0)
        at = jnp.where(inside, jnp.asarray(self.starts)[:, None] + frame, x.shape[1])
        # Positions do not repeat: the transpose of this is a parallel scatter.
        return x[0].at[at].get(mode="fill", fill_value=0, unique_indices=True)

    def gather(self, x: Array, num_frames: int) -> Array:
        """Return (1, N, ...) from (B, T, ...), zero outside of videos; NumPy's arrays stay NumPy's."""
        if isinstance(x, np.ndarray):
            row = np.zeros((1, num_frames, *x.shape[2:]), x.dtype)
            for video, start, length in zip(x, self.starts, self.lengths, strict=True):
                row[0, start : start + length] = video[:length]
            return row
        at = self.owner(num_frames), jnp.clip(self.position(num_frames), 0, x.shape[1] - 1)
        inside = self.inside(num_frames).reshape(-1, *[1] * (x.ndim - 2))
        return jnp.where(inside, x[at], 0)[None]

    def twice(self) -> "Packing":
        """Return the positions of the videos and of a second copy of them, whose frames `join` has put after theirs."""
        lengths = jnp.asarray(self.lengths)
        starts = jnp.concatenate([self.starts, self.starts + lengths.sum()])
        return Packing(starts, jnp.concatenate([lengths, lengths]), self.max_frames)

    def join(self, first: Array, second: Array) -> Array:
        """Return (1, 2 N, ...): the videos of `first` (1, N, ...) and, right after them, those of `second`."""
        row = jnp.concatenate([first, jnp.zeros_like(first)], 1)
        begin = (0, jnp.asarray(self.lengths).sum(), *[0] * (first.ndim - 2))
        return lax.dynamic_update_slice(row, second, begin)


def of_padded(lengths: Array, max_frames: int) -> Packing:
    """Return the positions of videos in a padded batch (B, T, ...) that is reshaped to (1, B * T, ...)."""
    return Packing(jnp.arange(len(lengths), dtype=jnp.int32) * max_frames, lengths, max_frames, is_padded=True)


def place(lengths: Any, max_frames: int) -> Packing:
    """Return the positions of videos one after another from the first frame on; NumPy's lengths stay NumPy's."""
    xp: Any = np if isinstance(lengths, np.ndarray) else jnp
    starts = xp.cumsum(lengths) - lengths
    return Packing(starts.astype(np.int32), lengths.astype(np.int32), max_frames)


def row_length(num_frames: int) -> int:
    """Round a number of frames up, by an eighth at most, to one of eight per octave, so that programs are few."""
    step = 1 << max((num_frames - 1).bit_length() - 4, 4)
    return -(-max(num_frames, 1) // step) * step
