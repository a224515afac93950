"""From what a caller passes to the arrays that inference runs on: a batch axis, sane padding, known lengths."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmmjax._core.checks import check_array, is_concrete
from hmmjax._core.pytree import pytree
from hmmjax._core.typing import Array
from hmmjax.sharding import split_of
from hmmjax.types import Labels, Observations, Params


@pytree
class Data:
    """A batch of videos. Padding and unobserved frames hold harmless values.

    Attributes:
        phases: observations of the phase, (B, T) int or (B, T, L) float, or None.
        tools: observations of the tools, (B, T, K), or None.
        observed: (B, T) bool.
        phase_labels: (B, T) int32 with -1 for unknown, or None.
        tool_labels: (B, T, K) int32 with -1 for unknown, or None.
    """

    phases: Any
    tools: Any
    observed: Array
    phase_labels: Any
    tool_labels: Any

    @property
    def lengths(self) -> Array:
        """(B,) frames up to and including the last observed one."""
        xp = np if isinstance(self.observed, np.ndarray) else jnp
        frames = xp.arange(1, self.observed.shape[1] + 1, dtype=np.int32)
        return xp.max(xp.where(self.observed, frames, 0), axis=1, initial=0)


def is_float(x: Any) -> bool:
    """Whether `x` holds floating point numbers (bfloat16 included)."""
    return jnp.issubdtype(x.dtype, jnp.floating)


def dtype_of(params: Params) -> Any:
    """What to compute in: the parameters' own precision, float32 at the least."""
    leaves = [x for x in jax.tree.leaves(params) if hasattr(x, "dtype") and is_float(x)]
    return jnp.result_type(*leaves, jnp.float32) if leaves else jnp.dtype(jnp.float32)


def require_observations(obs: Any) -> None:
    """TypeError unless `Observations`."""
    if not isinstance(obs, Observations):
        raise TypeError(f"obs must be hmmjax.Observations(phases=..., tools=...), got {type(obs).__name__}.")


def collect(obs: Observations, mask: Any, labels: Labels | None) -> tuple[Data, bool]:
    """Give everything a batch axis; also say whether it had one.

    Raises:
        TypeError: something is not an array.
        ValueError: axes disagree, or there is nothing from which to tell how long the videos are.
    """
    require_observations(obs)
    if labels is not None and not isinstance(labels, Labels):
        raise TypeError(f"labels must be hmmjax.Labels(phases=..., tools=...), got {type(labels).__name__}.")
    labels = Labels() if labels is None else labels
    # name, array, axes it has with a batch axis, how the leading axes are called
    entries: list[tuple[str, Any, int]] = [("mask", mask, 2), ("labels.phases", labels.phases, 2)]
    entries.append(("labels.tools", labels.tools, 3))
    for leaf in jax.tree.leaves(obs.phases):
        check_array("obs.phases", leaf)
        entries.append(("obs.phases", leaf, 3 if is_float(leaf) else 2))
    entries += [("obs.tools", leaf, 3) for leaf in jax.tree.leaves(obs.tools)]
    entries = [(name, x, axes) for name, x, axes in entries if x is not None]
    if not entries:
        raise ValueError("obs, mask and labels are all empty, so the number of frames is unknown: pass mask (B, T).")

    lead: tuple[int, ...] | None = None
    first = ""
    for name, x, axes in entries:
        check_array(name, x)
        if x.ndim not in (axes - 1, axes):
            what = "(B, T)" if axes == 2 else "(B, T, classes)"
            raise ValueError(f"{name} has {x.ndim} axes, shape {x.shape}; it needs {what}, or the same without B.")
        shape = tuple(x.shape[: x.ndim - (axes - 2)])
        if lead is None:
            lead, first = shape, name
        elif shape != lead:
            raise ValueError(
                f"{name} has leading axes {shape} but {first} has {lead}: all must agree on (B, T), or on (T,) for a "
                "single video. Pad shorter videos and mark the padding False in mask."
            )
    assert lead is not None
    batched = len(lead) == 2

    # On the host nothing is compiled for each new shape; tracers have no choice, and what is spread over devices
    # stays there.
    xp: Any = np if is_concrete(obs, mask, labels) and split_of(obs, mask, labels) is None else jnp

    def prepare(x: Any, dtype: Any = None) -> Any:
        if x is None:
            return None
        x = xp.asarray(x) if dtype is None else xp.asarray(x).astype(dtype)
        return x if batched else x[None]

    def integers(x: Any) -> Any:
        # What does not fit int32 is out of any range, and must stay so when it is cast.
        if xp is np and x is not None and np.asarray(x).dtype.itemsize >= 4:
            x = np.clip(x, -2, 2**31 - 1)
        return prepare(x, np.int32)

    def observation(x: Any) -> Any:
        return prepare(x) if is_float(x) else integers(x)

    observed = np.ones(lead, bool) if mask is None else mask
    data = Data(
        jax.tree.map(observation, obs.phases),
        jax.tree.map(observation, obs.tools),
        prepare(observed, bool),
        integers(labels.phases),
        integers(labels.tools),
    )
    return data, batched


def bucket(num_frames: int) -> int:
    """The padded length that stands for this one: a power of two or one and a half times it, 16 at the least.

    So that a folder of videos, each of its own length, compiles a handful of programs.
    """
    if num_frames <= 16:
        return 16
    power = 1 << ((num_frames - 1).bit_length() - 1)
    return power + power // 2 if num_frames <= power + power // 2 else 2 * power


def pad_frames(data: Data, num_frames: int) -> Data:
    """Pad the time axis with unobserved frames, up to `num_frames`."""
    extra = num_frames - data.observed.shape[1]
    if extra <= 0:
        return data

    def pad(x: Any) -> Any:
        return (np if isinstance(x, np.ndarray) else jnp).pad(x, [(0, 0), (0, extra)] + [(0, 0)] * (x.ndim - 2))

    return jax.tree.map(pad, data)


def count_videos(obs: Observations, mask: Any, labels: Labels | None) -> int:
    """Videos on the leading axis; 1 where there is no such axis."""
    data, batched = collect(obs, mask, labels)
    return len(data.observed) if batched else 1


def known_frames(data: Data) -> Any:
    """(B, T) whether some state is known, on the host; padding is not, whatever its labels hold."""
    known = np.zeros(data.observed.shape, bool)
    for x in (data.phase_labels, data.tool_labels):
        if x is not None:
            known |= (np.asarray(x) >= 0).reshape(*known.shape, -1).any(-1)
    return known & (np.arange(known.shape[1]) < np.asarray(data.lengths)[:, None])


def require_known(data: Data, caller: str) -> None:
    """Raise ValueError unless some frame of some video has a known state."""
    if not known_frames(data).any():
        raise ValueError(f"{caller} needs labels, but every frame's is -1 (unknown), or there is no video at all.")
