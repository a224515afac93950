"""Split videos over devices by JAX's sharding: each device processes its videos, and expected counts are summed."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hmmjax._core.inputs import pad_lists
from hmmjax._core.typing import Array, ArrayLike
from hmmjax.types import Labels, Observations


def shard(
    obs: Observations, mask: ArrayLike = None, labels: Labels | None = None, *, devices: Sequence[Any] | None = None
) -> tuple[Observations, Array, Labels | None]:
    """Split videos over devices, for `fit`, `posterior`, `filter`, `decode` and `log_likelihood`.

    Args:
        obs: (B, T, ...) observations, or lists of (T_i, ...) arrays, on the host.
        mask: (B, T) bool, True where observed; None if all frames are.
        labels: known states, -1 for unknown.
        devices: the devices; by default all of them (including those of other processes, after
            `jax.distributed.initialize`: each process then passes the same arrays).

    Returns:
        obs, mask and labels as padded arrays. If B is not a multiple of the number of devices, unobserved videos are
        added at the end; they change no other video's result and no parameter.

    Raises:
        ValueError: obs, mask and labels are all empty, or of a single video without an axis of videos.
    """
    obs, mask, labels, _ = pad_lists(obs, mask, labels)
    arrays = [x for x in (mask, *jax.tree.leaves((obs, labels))) if x is not None]
    if not arrays:
        raise ValueError("obs, mask and labels are all empty, so the number of videos is unknown: pass mask (B, T).")
    devices = jax.devices() if devices is None else list(devices)
    mesh = Mesh(np.array(devices), ("videos",))
    tools = jax.tree.leaves((obs.tools, None if labels is None else labels.tools))
    if any(np.ndim(x) < 2 for x in arrays) or any(np.ndim(x) < 3 for x in tools):
        raise ValueError("shard splits videos, so arrays need a leading axis of videos. Pass x[None] for a single one.")
    videos, num_frames = arrays[0].shape[:2]
    mask = np.ones((videos, num_frames), bool) if mask is None else np.asarray(mask)
    extra = -videos % len(devices)
    place = NamedSharding(mesh, PartitionSpec("videos"))

    def spread(x: Any, fill: Any = 0) -> Any:
        x = np.asarray(x)
        x = np.pad(x, [(0, extra)] + [(0, 0)] * (x.ndim - 1), constant_values=fill)
        return jax.make_array_from_callback(x.shape, place, lambda index: x[index])

    def known(x: Any) -> Any:
        return spread(x, -1)

    labels = None if labels is None else jax.tree.map(known, labels)
    return jax.tree.map(spread, obs), spread(mask, False), labels
