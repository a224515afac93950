"""User inputs as one padded batch, and answers back in the form that the inputs had."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core import validation
from hmmjax._core.checks import check_array, check_label_dtype, check_mask, is_concrete, is_float
from hmmjax._core.pytree import pytree, static
from hmmjax._core.split import Split, is_local, split_of
from hmmjax._core.typing import Array
from hmmjax.emissions.base import Emission
from hmmjax.types import Labels, Observations, Params


@dataclasses.dataclass(frozen=True)
class Layout:
    """The form in which videos were passed, to answer in the same form.

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

    Attributes:
        phases: observations of the phases, (B, T) int, (B, T, ...) float or a tuple with one entry per recognizer;
            None without observations.
        tools: observations of the tools, (B, T, ...), a tuple or None.
        observed: (B, T) bool.
        phase_labels: (B, T) int32 with -1 for unknown, or None.
        tool_labels: (B, T, K) int32 with -1 for unknown, or None.
        split: how videos are split over devices; None on a single device.
        layout: the form that the user's arrays had.
    """

    phases: Any
    tools: Any
    observed: Any
    phase_labels: Any
    tool_labels: Any
    split: Split | None = static(default=None)
    layout: Layout = static(default=Layout())

    @classmethod
    def unobserved(cls, num_frames: int) -> "Batch":
        """Return one video without observations or labels."""
        return cls(None, None, np.zeros((1, num_frames), bool), None, None)

    @property
    def lengths(self) -> Array:
        """(B,) int32 frames up to and including the last observed one; the frames after it are padding."""
        xp = np if isinstance(self.observed, np.ndarray) else jnp
        frames = xp.arange(1, self.observed.shape[1] + 1, dtype=np.int32)
        return xp.max(xp.where(self.observed, frames, 0), axis=1, initial=0)

    @property
    def valid(self) -> Array:
        """(B, T) bool, False in padding."""
        xp = np if isinstance(self.observed, np.ndarray) else jnp
        return xp.arange(self.observed.shape[1], dtype=np.int32) < self.lengths[:, None]

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
            if layout.lengths is not None:
                return [jnp.asarray(x[(*lead, i, slice(n))]) for i, n in enumerate(layout.lengths)]
            return jnp.asarray(x[(*lead, slice(None) if layout.batched else 0, slice(layout.num_frames))])

        return per_video, jax.tree.map(restore_frames, per_frame)


def dtype_of(params: Params) -> Any:
    """Return the precision of inference: the parameters' own, and at least float32."""
    leaves = [x for x in jax.tree.leaves(params) if hasattr(x, "dtype") and is_float(x)]
    return jnp.result_type(*leaves, jnp.float32) if leaves else jnp.dtype(jnp.float32)


def canonical(params: Params) -> Params:
    """Cast parameters to the precision of inference.

    The result is never weakly typed, so that programs compiled for one model serve every other of its shape.
    """
    dtype = dtype_of(params)
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), params)


def prepare(params: Params, obs: Observations, mask: Any, labels: Labels | None) -> Batch:
    """Check inputs and make them one batch, padded to a bucketed length unless something is traced.

    Raises:
        TypeError, ValueError: bad input, with its place and what to do. Values are checked of concrete arrays only.
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
    if not concrete:
        return pad_frames(dataclasses.replace(batch, split=None), 1)
    # Videos that other processes hold are checked there.
    if all(map(is_local, jax.tree.leaves((obs, mask, labels)))):
        observations, known = Observations(batch.phases, batch.tools), Labels(batch.phase_labels, batch.tool_labels)
        validation.check_data(params, observations, known, np.asarray(batch.observed), np.asarray(batch.valid))
    return pad_frames(batch, bucket(batch.observed.shape[1]))


def pad_lists(
    obs: Observations, mask: Any, labels: Labels | None
) -> tuple[Observations, Any, Any, tuple[int, ...] | None]:
    """Pad lists of videos, one (T_i, ...) array each, to arrays (B, T, ...); other inputs are returned unchanged.

    Returns:
        obs, mask and labels, and the number of frames of each video, or None if no list was given. The padding of
        lists is False in `mask`.

    Raises:
        TypeError: an entry of a list is not an array, or some hold floats and others integers.
        ValueError: lists alongside arrays, or lists whose videos disagree.
    """
    _check_records(obs, labels)
    given = dict(_entries(obs, mask, labels))
    lists = {name: x for name, x in given.items() if isinstance(x, list)}
    if not lists:
        return obs, mask, labels, None
    if arrays := [name for name in given if name not in lists]:
        raise ValueError(
            f"{next(iter(lists))} is a list of videos but {arrays[0]} is one array. Pass lists of (T, ...) arrays for "
            "all of obs, mask and labels, or pad all of them to (B, T, ...)."
        )
    lengths = _list_lengths(lists)

    def pad(videos: Any, fill: int) -> Any:
        xp: Any = np if is_concrete(videos) else jnp
        total = max(lengths)
        rows = [xp.asarray(x) for x in videos]
        fill = fill if rows[0].dtype.kind == "i" else 0
        pads = [[(0, total - len(x)), *[(0, 0)] * (x.ndim - 1)] for x in rows]
        return xp.stack([xp.pad(x, p, constant_values=fill) for x, p in zip(rows, pads, strict=True)])

    def tree(x: Any, fill: int = 0) -> Any:
        if isinstance(x, tuple):
            return tuple(tree(source, fill) for source in x)
        return None if x is None else pad(x, fill)

    mask = np.arange(max(lengths)) < np.array(lengths)[:, None] if mask is None else pad(mask, 0)
    if labels is not None:
        labels = Labels(tree(labels.phases, -1), tree(labels.tools, -1))
    return Observations(tree(obs.phases), tree(obs.tools)), mask, labels, lengths


def _list_lengths(lists: dict[str, list[Any]]) -> tuple[int, ...]:
    """Return the frames of each video; raise unless all lists agree on them."""
    first, videos = next(iter(lists.items()))
    if not videos:
        raise ValueError(f"{first} is an empty list of videos. Pass arrays (0, T, ...) for a batch without videos.")
    for name, x in lists.items():
        if len(x) != len(videos):
            raise ValueError(f"{name} is a list of {len(x)} videos but {first} of {len(videos)}: all must agree.")
        for i, video in enumerate(x):
            check_array(f"{name}[{i}]", video)
            if not video.ndim or video.shape[1:] != x[0].shape[1:]:
                raise ValueError(
                    f"{name}[{i}] has shape {video.shape} but {name}[0] has {x[0].shape}: videos of a list may differ "
                    "only in the number of frames, their first axis."
                )
            if is_float(video) != is_float(x[0]):
                raise TypeError(f"{name}[{i}] is {video.dtype} but {name}[0] is {x[0].dtype}: cast one of them.")
            if len(video) != len(videos[i]):
                raise ValueError(
                    f"{name}[{i}] has {len(video)} frames but {first}[{i}] has {len(videos[i])}: all arrays of a video "
                    "must have the same number of frames."
                )
    return tuple(len(video) for video in videos)


def collect(obs: Observations, mask: Any, labels: Labels | None, params: Params | None = None) -> Batch:
    """Make inputs one batch, without checking values or padding to a bucket.

    `params` declare the axes of observations that are neither labels nor probabilities.

    Raises:
        TypeError: something is not an array.
        ValueError: axes disagree, or nothing tells the number of frames.
    """
    return _collect(*pad_lists(obs, mask, labels), params)


def _collect(
    obs: Observations, mask: Any, labels: Labels | None, lengths: tuple[int, ...] | None, params: Params | None
) -> Batch:
    _check_records(obs, labels)
    labels = Labels() if labels is None else labels
    lead = _leading_axes(obs, mask, labels, params)
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
        # Values that do not fit int32 are out of any range, and must stay so when they are cast.
        if xp is np and x is not None and np.asarray(x).dtype.itemsize >= 4:
            x = np.clip(x, -2, 2**31 - 1)
        return add_axis(x, np.int32)

    def observation(x: Any) -> Any:
        return add_axis(x) if is_float(x) else integers(x)

    return Batch(
        jax.tree.map(observation, obs.phases),
        jax.tree.map(observation, obs.tools),
        add_axis(np.ones(lead, bool) if mask is None else mask, bool),
        integers(labels.phases),
        integers(labels.tools),
        split,
        Layout(batched, lead[-1], lengths),
    )


def _check_records(obs: Any, labels: Any) -> None:
    validation.require_observations(obs)
    if labels is not None and not isinstance(labels, Labels):
        raise TypeError(f"labels must be hmmjax.Labels(phases=..., tools=...), got {type(labels).__name__}.")


def _entries(obs: Observations, mask: Any, labels: Labels | None) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of everything that is given."""
    labels = Labels() if labels is None else labels
    named = [("mask", mask), ("labels.phases", labels.phases), ("labels.tools", labels.tools)]
    for track in ("phases", "tools"):
        x = getattr(obs, track)
        if isinstance(x, tuple):
            named += [(f"obs.{track}[{i}]", source) for i, source in enumerate(x)]
        else:
            named.append((f"obs.{track}", x))
    return ((name, x) for name, x in named if x is not None)


def _leading_axes(obs: Observations, mask: Any, labels: Labels, params: Params | None) -> tuple[int, ...]:
    """Return (B, T), or (T,) of a single video; raise unless all arrays agree on it."""
    first: tuple[str, tuple[int, ...]] | None = None
    for name, x in _entries(obs, mask, labels):
        check_array(name, x)
        axes = event_axes(name, x, params)
        if x.ndim not in (axes + 1, axes + 2):
            needed = ("(B, T)", "(B, T, classes)", "(B, T, K, features)")[min(axes, 2)]
            raise ValueError(f"{name} has {x.ndim} axes, shape {x.shape}; it needs {needed}, or the same without B.")
        lead = tuple(x.shape[: x.ndim - axes])
        if first is None:
            first = name, lead
        elif lead != first[1]:
            raise ValueError(
                f"{name} has leading axes {lead} but {first[0]} has {first[1]}: all must agree on (B, T), or on (T,) "
                "for a single video. Pad shorter videos and mark the padding False in mask, or pass lists of videos."
            )
    if first is None:
        raise ValueError("obs, mask and labels are all empty, so the number of frames is unknown: pass mask (B, T).")
    return first[1]


def event_axes(name: str, x: Any, params: Params | None) -> int:
    """Return the number of axes of one frame of an input: as its emission family declares, if it is of that kind."""
    if name in ("mask", "labels.phases"):
        return 0
    if name == "labels.tools":
        return 1
    track, _, source = name.removeprefix("obs.").partition("[")
    chain = getattr(params, track, None)
    sources = chain.emission.sources if chain is not None and isinstance(chain.emission, Emission) else ()
    index = int(source.rstrip("]")) if source else 0
    if index < len(sources) and is_float(x) == (sources[index].observes != "labels"):
        return len(sources[index].event_shape)
    if track == "phases":
        return int(is_float(x))
    return 2 if x.ndim == 4 else 1


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
    """Return (B, T) whether some state is known, on the host; False in padding."""
    known = np.zeros(batch.observed.shape, bool)
    for x in (batch.phase_labels, batch.tool_labels):
        if x is not None:
            known |= (np.asarray(x) >= 0).reshape(*known.shape, -1).any(-1)
    return known & np.asarray(batch.valid)


def require_known(batch: Batch, caller: str) -> None:
    """Raise ValueError unless some frame of some video has a known state."""
    if not known_frames(batch).any():
        raise ValueError(f"{caller} needs labels, but there are no videos or every label is -1 (unknown).")
