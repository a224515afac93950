"""Videos spread over devices, with JAX's own sharding: each device works on its videos, expected counts are summed."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from hmmjax._core.checks import is_concrete
from hmmjax.types import Labels, Observations


@dataclasses.dataclass(frozen=True)
class Split:
    """How the leading axis (videos) is spread over a mesh."""

    mesh: Any
    axis: Any

    def map(self, run: Callable, *, total: bool = False) -> Callable:
        """`run(params, data)` on every device's own videos.

        Its outputs have a leading axis of videos and stay where they are; with `total` they are a pair of a per-video
        vector, which every device gets whole, and of sums over videos, which are added up.
        """

        def local(params: Any, data: Any) -> Any:
            out = run(params, data)
            if not total:
                return out
            values, sums = out
            return lax.all_gather(values, self.axis, tiled=True), lax.psum(sums, self.axis)

        videos, whole = PartitionSpec(self.axis), PartitionSpec()
        out = whole if total else videos
        return jax.shard_map(local, mesh=self.mesh, in_specs=(whole, videos), out_specs=out, check_vma=False)

    def replicate(self, *params: Any) -> Any:
        """Parameters, whole, on every device."""
        return jax.device_put(params, NamedSharding(self.mesh, PartitionSpec()))


def split_of(*trees: Any) -> Split | None:
    """How these (concrete) arrays are spread over several devices by their leading axis, or None if they are not.

    Raises:
        ValueError: arrays are spread in different ways, or by another axis than the videos'.
    """
    found: dict[Split, None] = {}
    for leaf in jax.tree.leaves(trees):
        if not isinstance(leaf, jax.Array) or not is_concrete(leaf) or len(leaf.sharding.device_set) == 1:
            continue
        sharding = leaf.sharding
        if sharding.is_fully_replicated:
            continue
        spec = sharding.spec if isinstance(sharding, NamedSharding) else (None,)
        if not isinstance(sharding, NamedSharding) or spec[0] is None or any(axis is not None for axis in spec[1:]):
            raise ValueError(
                f"an array of shape {leaf.shape} is sharded as {sharding}: only the leading axis, videos, can be "
                "spread over devices. Use hmmjax.shard."
            )
        found[Split(sharding.mesh, spec[0])] = None
    if len(found) > 1:
        raise ValueError("obs, mask and labels are spread over devices in different ways. Use hmmjax.shard on all.")
    return next(iter(found), None)


def shard(
    obs: Observations, mask: Any = None, labels: Labels | None = None, *, devices: Sequence[Any] | None = None
) -> tuple[Observations, Any, Labels | None]:
    """Spread videos over devices, for `fit`, `posterior`, `filter`, `decode` and `log_likelihood`.

    Args:
        obs: (B, T, ...) observations, on the host.
        mask: (B, T) bool, True where observed; None is all.
        labels: known states or None.
        devices: where to; all there are by default (also those of other processes, after
            `jax.distributed.initialize`: each process then passes the same arrays).

    Returns:
        obs, mask and labels, with unobserved videos added at the end where B is not a multiple of the number of
        devices. Those change no log-likelihood, count or parameter.

    Raises:
        ValueError: obs, mask and labels are all empty, or of a single video without an axis of videos.
    """
    arrays = [x for x in (mask, *jax.tree.leaves((obs, labels))) if x is not None]
    if not arrays:
        raise ValueError("obs, mask and labels are all empty, so the number of videos is unknown: pass mask (B, T).")
    devices = jax.devices() if devices is None else list(devices)
    mesh = Mesh(np.array(devices), ("videos",))
    tools = jax.tree.leaves((obs.tools, None if labels is None else labels.tools))
    if any(np.ndim(x) < 2 for x in arrays) or any(np.ndim(x) < 3 for x in tools):
        raise ValueError("shard spreads videos, so arrays need a leading axis of them: x[None] of a single one.")
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


def on_host(x: Any) -> bool:
    """Whether this process holds the whole of `x` and may look at its values."""
    return not isinstance(x, jax.Array) or x.is_fully_addressable
