"""Detect how a batch is split over devices, and run functions of a batch on each device's part."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from hmmjax._core.checks import is_concrete


@dataclasses.dataclass(frozen=True)
class Split:
    """A mesh, and the name of its axis along which the leading axis (videos) is split."""

    mesh: Any
    axis: Any

    def map(self, run: Callable, *, total: bool = False) -> Callable:
        """Return a function that runs `run(params, batch)` on each device's own videos.

        Outputs have a leading axis of videos and stay on their devices. With `total`, `run` returns a pair: a vector
        with one entry per video, which is gathered on every device, and a tree of sums over videos, which are added.
        """

        def local(params: Any, batch: Any) -> Any:
            out = run(params, dataclasses.replace(batch, split=None))
            if not total:
                return out
            values, sums = out
            return lax.all_gather(values, self.axis, tiled=True), lax.psum(sums, self.axis)

        videos, replicated = PartitionSpec(self.axis), PartitionSpec()
        out = replicated if total else videos
        return jax.shard_map(local, mesh=self.mesh, in_specs=(replicated, videos), out_specs=out, check_vma=False)

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.mesh.shape[self.axis]

    def map_batch(self, run: Callable) -> Callable:
        """Return a function that runs `run(batch)`, which returns a batch, on each device's own videos."""

        def local(batch: Any) -> Any:
            return dataclasses.replace(run(dataclasses.replace(batch, split=None)), split=self)

        videos = PartitionSpec(self.axis)
        return jax.shard_map(local, mesh=self.mesh, in_specs=videos, out_specs=videos, check_vma=False)

    def gather(self, run: Callable) -> Callable:
        """Return a compiled function that computes `run(batch)` and leaves the result on every device."""
        return jax.jit(run, out_shardings=NamedSharding(self.mesh, PartitionSpec()))

    def replicate(self, *params: Any) -> Any:
        """Copy parameters to every device."""
        return jax.device_put(params, NamedSharding(self.mesh, PartitionSpec()))


def split_of(*trees: Any) -> Split | None:
    """Return how (concrete) arrays are split over several devices by their leading axis; None if they are not.

    Raises:
        ValueError: arrays are split in different ways, or along another axis than the videos'.
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
                f"an array of shape {leaf.shape} is sharded as {sharding}, but only the leading axis (videos) can be "
                "split over devices. Use hmmjax.shard."
            )
        found[Split(sharding.mesh, spec[0])] = None
    if len(found) > 1:
        raise ValueError("obs, mask and labels are split over devices in different ways. Use hmmjax.shard on all.")
    return next(iter(found), None)


def is_local(x: Any) -> bool:
    """Whether this process holds all of `x` and may look at its values."""
    return not isinstance(x, jax.Array) or x.is_fully_addressable
