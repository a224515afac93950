"""Batches in an order that seed and epoch alone decide, read by this process or by Grain's threads."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from models.data.cache import ArrayImages
from models.data.frames import OPTIONAL, Source

Arrays = dict[str, np.ndarray]
T = TypeVar("T")
U = TypeVar("U")


def epoch_order(rows: np.ndarray, batch: int, seed: int, epoch: int) -> np.ndarray:
    """Row numbers of one pass, shuffled, in whole batches: (batches, batch).

    What is left over at the end is dropped; with fewer rows than a batch, rows repeat.

    Raises:
        ValueError: without any row.
    """
    if not len(rows):
        raise ValueError("no rows to make batches of. Fix: check the part that they are taken from")
    order = np.random.default_rng((seed, epoch)).permutation(rows)
    if len(order) < batch:
        order = np.resize(order, batch)
    return order[: len(order) // batch * batch].reshape(-1, batch)


def even_batches(rows: np.ndarray, batch: int) -> np.ndarray:
    """Row numbers in their order, in whole batches; the last is filled up with the first row."""
    return np.concatenate([rows, np.repeat(rows[:1], -len(rows) % batch)]).reshape(-1, batch)


def read_batches(source: Source, order: np.ndarray, *, workers: int = 0) -> Iterator[Arrays]:
    """Frames with their labels.

    Args:
        source: of frames in one size.
        order: (batches, batch) row numbers.
        workers: Grain's reading threads; 0 reads here, without Grain.

    Yields:
        images (batch, H, W, 3) uint8, phases (batch,), tools (batch, K), and where the table has them boxes
        (batch, M, 4), box_tools (batch, M), phase_weights (batch,) and tool_weights (batch, K).
    """
    known = {name: x for name in ("phases", "tools", *OPTIONAL) if (x := getattr(source.table, name)) is not None}
    for images, rows in zip(_images(source, order, workers), order, strict=True):
        yield {"images": images, **{name: x[rows] for name, x in known.items()}}


def _images(source: Source, order: np.ndarray, workers: int) -> Iterable[np.ndarray]:
    if workers == 0:
        if isinstance(source, ArrayImages):
            return (source.images[rows] for rows in order)
        return (np.stack([source[row] for row in rows]) for rows in order)
    import grain

    options = grain.ReadOptions(num_threads=workers, prefetch_buffer_size=4 * order.shape[1])
    dataset = grain.MapDataset.source(_Ordered(source, order.reshape(-1)))
    return dataset.to_iter_dataset(options).batch(order.shape[1])


class _Ordered:
    """A source's pictures in a given order, as Grain asks for them."""

    def __init__(self, source: Source, order: np.ndarray):
        self._source = source
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> np.ndarray:
        return self._source[int(self._order[index])]


def prefetch(items: Iterable[T], prepare: Callable[[T], U], depth: int = 2) -> Iterator[U]:
    """Prepare items in a thread, `depth` ahead of their use: reading and copying overlap with computing."""
    ready: queue.Queue = queue.Queue(depth)
    stop = threading.Event()
    end = object()

    def put(item: object) -> None:
        while not stop.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put((prepare(item), None))
                if stop.is_set():
                    return
        except BaseException as error:  # handed over to whoever waits for items
            put((end, error))
        else:
            put((end, None))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is end:
                return
            yield item
    finally:
        stop.set()
        thread.join()
