"""Several processes, one per host or per device: join them, divide the rows of batches, let the first one write.

Processes train one run together: each reads its own rows of every batch, and all compute the same parameters. The run's
folder is on a file system that all of them see; the first process writes to it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

T = TypeVar("T")


def join(coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Join the other processes; call it before JAX first uses a device.

    Args:
        coordinator: HOST:PORT of the first process, the same in all; None asks the cluster (SLURM, Open MPI,
            Kubernetes).
        processes: their number; None asks the cluster.
        process: this one's number, from 0; None asks the cluster.

    Raises:
        ValueError: if only some of the three are given, a number is out of range, or there is no cluster to ask.
    """
    given = (coordinator, processes, process)
    if any(x is not None for x in given) and (processes is None or process is None or coordinator is None):
        raise ValueError(
            "--coordinator, --processes and --process belong together. Fix: give all three, or --distributed alone on "
            "a cluster that JAX knows (SLURM, Open MPI, Kubernetes)"
        )
    if processes is not None and process is not None and not 0 <= process < processes:
        raise ValueError(f"--process {process} of --processes {processes}. Fix: count processes from 0")
    try:
        jax.distributed.initialize(coordinator, processes, process)
    except (ValueError, RuntimeError) as error:
        if coordinator is None:
            raise ValueError(
                f"no cluster tells the other processes ({error}). Fix: give --coordinator HOST:PORT, --processes N and "
                "--process I"
            ) from error
        raise ValueError(
            f"cannot join the {processes} processes at {coordinator} ({error}). Fix: check that all of them have been "
            "started and reach that address"
        ) from error


def is_first() -> bool:
    """Return whether this process writes: the only one, or the first of several."""
    return jax.process_index() == 0


def own_rows(batch: np.ndarray) -> np.ndarray:
    """Return this process's rows of a batch, or of batches (..., rows): those that its devices hold."""
    size, number = batch.shape[-1] // jax.process_count(), jax.process_index()
    return batch[..., number * size : (number + 1) * size]


def in_turn(work: Callable[[], T]) -> T:
    """Run `work` in the first process, and after that in the others, which find the files that it has written."""
    if jax.process_count() == 1:
        return work()
    found = work() if is_first() else None
    wait("files")
    return found if is_first() else work()  # type: ignore[return-value]


def wait(name: str) -> None:
    """Wait until all processes are here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def to_devices(tree: Any, place: jax.sharding.Sharding) -> Any:
    """Put arrays on the devices of all processes.

    Args:
        tree: arrays; of sharded ones, this process's rows.
        place: how they are sharded or replicated.
    """
    if jax.process_count() == 1:
        return jax.device_put(tree, place)
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(place, np.asarray(x)), tree)
