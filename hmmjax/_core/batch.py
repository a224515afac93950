"""Normalize user inputs into one padded batch, and restore results to the form of the inputs."""

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import validation
from hmmjax._core.arrays import native
from hmmjax._core.checks import check_label_dtype, check_mask, is_concrete, is_float
from hmmjax._core.inputs import check_records, leading_axes, pad_lists
from hmmjax._core.packing import Packing, place, row_length
from hmmjax._core.pytree import pytree, static
from hmmjax._core.size import check_size
from hmmjax._core.split import Split, is_local, split_of
from hmmjax._core.typing import Array
from hmmjax.types import Labels, Observations, Params

LEAST_SAVED = 4096
"""Videos are packed if that saves as many frames: fewer cost less than the programs for packed ones."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """The form in which videos were passed, so that results can have the same form.

    All layouts compare equal: a program that was compiled for one batch also serves another batch of the same padded
    shape. A layout is therefore only read outside of compiled functions.

    Attributes:
        batched: whether the arrays had an axis of videos.
        num_frames: frames before padding to a bucket.
        lengths: frames per video if lists of videos were passed, otherwise None.
    """

    batched: bool = dataclasses.field(default=True, compare=False)
    num_frames: int = dataclasses.field(default=0, compare=False)
    lengths: tuple[int, ...] | None = dataclasses.field(default=None, compare=False)


@pytree
class Batch:
    """B videos, padded to T frames. Padding and unobserved frames may hold any values.

    If videos are packed, they lie one after another in one row of frames, and (B, T) below is (1, N).

    Attributes:
        phases: observations of the phases, (B, T) int, (B, T, ...) float or a tuple with one entry per recognizer;
            None without observations.
        tools: observations of the tools, (B, T, ...), a tuple or None.
        observed: (B, T) bool.
        phase_labels: (B, T) int32 with -1 for unknown, or None.
        tool_labels: (B, T, K) int32 with -1 for unknown, or None.
        split: how videos are split over devices; None on a single device.
        layout: the form that the user's arrays had.
        packing: positions of the videos if they are packed.
    """

    phases: Any
    tools: Any
    observed: Any
    phase_labels: Any
    tool_labels: Any
    split: Split | None = static(default=None)
    layout: Layout = static(default=Layout())
    packing: Packing | Any = None

    @classmethod
    def unobserved(cls, num_frames: int) -> "Batch":
        """Return one video without observations or labels."""
        return cls(None, None, np.zeros((1, num_frames), bool), None, None)

    @property
    def lengths(self) -> Array:
        """(B,) int32 frames up to and including the last observed one; the frames after it are padding."""
        if self.packing is not None:
            return self.packing.lengths
        xp = np if isinstance(self.observed, np.ndarray) else jnp
        frames = xp.arange(1, self.observed.shape[1] + 1, dtype=np.int32)
        return xp.max(xp.where(self.observed, frames, 0), axis=1, initial=0)

    @property
    def valid(self) -> Array:
        """(B, T) bool, False in padding."""
        if self.packing is not None:
            return self.packing.inside(self.observed.shape[1])[None]
        xp = np if isinstance(self.observed, np.ndarray) else jnp
        return xp.arange(self.observed.shape[1], dtype=np.int32) < self.lengths[:, None]

    def packed(self) -> "Batch":
        """Return the (concrete) videos packed, if that saves frames; of a split batch, each device packs its own."""
        videos, num_frames = self.observed.shape
        devices = 1 if self.split is None else self.split.size
        lengths = np.asarray(self.lengths if self.split is None else self.split.gather(_lengths)(self))
        size = row_length(int(lengths.reshape(devices, -1).sum(1).max(initial=0)))
        if videos <= devices or videos * num_frames - devices * size < LEAST_SAVED:
            return self
        if self.split is not None:
            return _pack_on_devices(self.split, size)(self)
        return self._pack(size)

    def _pack(self, size: int) -> "Batch":
        packing = place(self.lengths, self.observed.shape[1])
        row = jax.tree.map(partial(packing.gather, num_frames=size), dataclasses.replace(self, packing=None))
        return dataclasses.replace(row, packing=packing)

    def spread(self, per_frame: Any) -> Any:
        """Return a tree of results per frame (1, N, ...) of a packed batch as (B, T, ...), zero in padding."""
        return per_frame if self.packing is None else jax.tree.map(self.packing.spread, per_frame)

    def without_labels(self) -> "Batch":
        """Return the batch with every state unknown."""
        return dataclasses.replace(self, phase_labels=None, tool_labels=None)

    def restore(self, per_video: Any, per_frame: Any, axis: int = 0) -> tuple[Any, Any]:
        """Return results in the form of the user's input: without added padding or axis, and as lists for lists.

        Args:
            per_video: tree of arrays (..., B).
            per_frame: tree of arrays (..., B, T, ...).
            axis: position of the axis of videos.
        """
        layout, lead = self.layout, (slice(None),) * axis
        if not layout.batched:
            per_video = jax.tree.map(lambda x: x[(*lead, 0)], per_video)

        def restore_frames(x: Any) -> Any:
            # Slicing on the host compiles nothing for each new length.
            on_cpu = isinstance(x, jax.Array) and is_concrete(x) and all(d.platform == "cpu" for d in x.devices())
            x = np.asarray(x) if on_cpu and self.split is None else x
            put = jax.device_put if isinstance(x, np.ndarray) else jnp.asarray  # the latter compiles even for NumPy
            if layout.lengths is not None:
                return [put(x[(*lead, i, slice(n))]) for i, n in enumerate(layout.lengths)]
            return put(x[(*lead, slice(None) if layout.batched else 0, slice(layout.num_frames))])

        return per_video, jax.tree.map(restore_frames, per_frame)


def _lengths(batch: Batch) -> Array:
    return batch.lengths


@lru_cache(maxsize=64)
def _pack_on_devices(split: Split, size: int) -> Callable:
    return jax.jit(split.map_batch(partial(Batch._pack, size=size)))


def dtype_of(params: Params) -> Any:
    """Return the precision of inference: the parameters' own, and at least float32."""
    leaves = [x for x in jax.tree.leaves(params) if hasattr(x, "dtype") and is_float(x)]
    return jnp.result_type(*leaves, jnp.float32) if leaves else jnp.dtype(jnp.float32)


def canonical(params: Params) -> Params:
    """Cast parameters to the precision of inference.

    The result is never weakly typed, so that programs compiled for one model serve every other of its shape.
    """
    params = jax.tree.map(partial(native, "params"), params)
    dtype = dtype_of(params)

    def cast(x: Any) -> Any:
        # In `jax.grad`, a conversion would compile a program per shape even if there is nothing to convert.
        done = isinstance(x, jax.Array) and x.dtype == dtype and not x.weak_type
        return x if done else jnp.asarray(x, dtype)

    return jax.tree.map(cast, params)


def prepare(params: Params, obs: Observations, mask: Any, labels: Labels | None) -> Batch:
    """Check inputs and collect them in one batch, padded to a bucketed length unless something is traced.

    Raises:
        TypeError, ValueError: bad input, with its place and what to do. The values of traced arrays are not checked.
    """
    obs, mask, labels, lengths = pad_lists(obs, mask, labels)
    validation.check_observations(obs)
    concrete = is_concrete(params, obs, mask, labels)
    if concrete:
        validation.check_params(params)
        check_mask(mask)
        if labels is not None:
            check_label_dtype("labels.phases", labels.phases)
            check_label_dtype("labels.tools", labels.tools)
    batch = _collect(obs, mask, labels, lengths, params)
    check_size(params.num_stages, params.num_tools, batch.observed.shape[1], batch.observed.shape[0])
    if not concrete:
        validation.check_event_shapes(params, Observations(batch.phases, batch.tools))
        return pad_frames(dataclasses.replace(batch, split=None), 1)
    # Videos that other processes hold are checked there.
    if all(map(is_local, jax.tree.leaves((obs, mask, labels)))):
        observations, known = Observations(batch.phases, batch.tools), Labels(batch.phase_labels, batch.tool_labels)
        validation.check_data(params, observations, known, np.asarray(batch.observed), np.asarray(batch.valid))
    return pad_frames(batch, bucket(batch.observed.shape[1]))


def collect(obs: Observations, mask: Any, labels: Labels | None, params: Params | None = None) -> Batch:
    """Collect inputs in one batch, without checking values or padding to a bucket.

    `params` declare the axes of observations that are neither labels nor probabilities.

    Raises:
        TypeError: something is not an array.
        ValueError: axes disagree, or the number of frames is unknown because everything is None.
    """
    return _collect(*pad_lists(obs, mask, labels), params)


def _collect(
    obs: Observations, mask: Any, labels: Labels | None, lengths: tuple[int, ...] | None, params: Params | None
) -> Batch:
    check_records(obs, labels)
    labels = Labels() if labels is None else labels
    lead = leading_axes(obs, mask, labels, params)
    batched = len(lead) == 2
    split = split_of(obs, mask, labels) if is_concrete(obs, mask, labels) else None
    # NumPy compiles nothing for each new shape; traced and split arrays stay with JAX.
    xp: Any = np if is_concrete(obs, mask, labels) and split is None else jnp

    def add_axis(x: Any, dtype: Any = None) -> Any:
        if x is None:
            return None
        x = xp.asarray(x) if dtype is None else xp.asarray(x).astype(dtype)
        return x if batched else x[None]

    def integers(x: Any) -> Any:
        # Values that do not fit int32 are out of range; without clipping, the cast could wrap them to valid labels.
        if xp is np and x is not None and np.asarray(x).dtype.itemsize >= 4:
            x = np.clip(x, -2, 2**31 - 1)
        return add_axis(x, np.int32)

    def observation(x: Any) -> Any:
        return add_axis(x) if is_float(x) else integers(x)

    if mask is None and split is None:
        # Known even if all else is traced: lengths are then constants of the program.
        observed: Any = np.ones(lead if batched else (1, *lead), bool)
    else:
        observed = add_axis(np.ones(lead, bool) if mask is None else mask, bool)
    return Batch(
        jax.tree.map(observation, obs.phases),
        jax.tree.map(observation, obs.tools),
        observed,
        integers(labels.phases),
        integers(labels.tools),
        split=split,
        layout=Layout(batched, lead[-1], lengths),
    )


def bucket(num_frames: int) -> int:
    """Round a length up to a power of two or 1.5 times one, and to at least 16.

    Few lengths remain, so that videos of many lengths share a handful of compiled programs.
    """
    if num_frames <= 16:
        return 16
    power = 1 << ((num_frames - 1).bit_length() - 1)
    return power + power // 2 if num_frames <= power + power // 2 else 2 * power


def pad_frames(batch: Batch, num_frames: int) -> Batch:
    """Pad the time axis with unobserved frames, up to `num_frames`."""
    extra = num_frames - batch.observed.shape[1]
    if extra <= 0:
        return batch

    def pad(x: Any) -> Any:
        return (np if isinstance(x, np.ndarray) else jnp).pad(x, [(0, 0), (0, extra)] + [(0, 0)] * (x.ndim - 2))

    return jax.tree.map(pad, batch)


def count_videos(obs: Observations, mask: Any, labels: Labels | None) -> int:
    """Return the number of videos; 1 without an axis of videos."""
    return len(collect(obs, mask, labels).observed)


def known_frames(batch: Batch) -> Any:
    """Return (B, T) bool on the host: whether some state of the frame is known; False in padding."""
    known = np.zeros(batch.observed.shape, bool)
    for x in (batch.phase_labels, batch.tool_labels):
        if x is not None:
            known |= (np.asarray(x) >= 0).reshape(*known.shape, -1).any(-1)
    return known & np.asarray(batch.valid)


def require_known(batch: Batch, caller: str) -> None:
    """Raise ValueError unless some frame of some video has a known state."""
    if not known_frames(batch).any():
        raise ValueError(f"{caller} needs labels, but there are no videos or every label is -1 (unknown).")
