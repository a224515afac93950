"""Prediction on all devices of a process: each computes its rows of a batch with its own copy of the parameters."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

PER_DEVICE = 64
"""Frames per device and call of a network, unless the user gives another number."""


class LocalDevices:
    """The devices of this process."""

    def __init__(self):
        devices = jax.local_devices()
        mesh = Mesh(np.array(devices), ("data",))
        self._count = len(devices)
        self._everywhere, self._rows = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("data",)))

    def copy(self, tree: Any) -> Any:
        """Put a copy of every array in a tree on each device."""
        return tree if self._count == 1 else jax.device_put(tree, self._everywhere)

    def divide(self, array: Any) -> Any:
        """Divide an array among the devices along its first axis; put a copy on each if it cannot be divided evenly."""
        if self._count == 1:
            return array
        return jax.device_put(array, self._everywhere if len(array) % self._count else self._rows)


def batch_size(given: int | None) -> int:
    """Return the number of frames per call of a network: the given one, or `PER_DEVICE` for each device.

    Raises:
        ValueError: if the devices of this process do not divide it.
    """
    count = jax.local_device_count()
    if given is None:
        return PER_DEVICE * count
    if given % count:
        raise ValueError(
            f"--batch {given} cannot be divided among the {count} devices of this process. Fix: give a multiple of "
            f"{count}, or show the process fewer devices (CUDA_VISIBLE_DEVICES)"
        )
    return given
