"""Batches of frames in an order determined by seed and epoch, read by this process or by Grain's threads."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

import numpy as np

from models.data.cache import ArrayImages
from models.data.frames import OPTIONAL, Source
from models.data.pool import End, Failure, read_together

Arrays = dict[str, np.ndarray]
T = TypeVar("T")
U = TypeVar("U")


def epoch_order(rows: np.ndarray, batch: int, seed: int, epoch: int) -> np.ndarray:
    """Return the shuffled row indices of one epoch in full batches: (batches, batch).

    An incomplete batch at the end is dropped; with fewer rows than one batch, rows repeat.

    Raises:
        ValueError: if there are no rows.
    """
    if not len(rows):
        raise ValueError("there are no frames to make batches of. Fix: choose a part of the data that has frames")
    order = np.random.default_rng((seed, epoch)).permutation(rows)
    if len(order) < batch:
        order = np.resize(order, batch)
    return order[: len(order) // batch * batch].reshape(-1, batch)


def even_batches(rows: np.ndarray, batch: int) -> np.ndarray:
    """Return row indices in order in full batches (batches, batch); the last is padded with the first row."""
    return np.concatenate([rows, np.repeat(rows[:1], -len(rows) % batch)]).reshape(-1, batch)


def read_batches(source: Source, order: np.ndarray, *, workers: int = 0) -> Iterator[Arrays]:
    """Read batches of frames with their labels.

    Args:
        source: of frames in one size.
        order: (batches, batch) row indices.
        workers: number of Grain's reading threads; 0 reads in this thread, without Grain.

    Yields:
        "images" (batch, H, W, 3) uint8, "phases" (batch,) and "tools" (batch, K); and if the table has them, "boxes"
        (batch, M, 4), "box_tools" (batch, M), "phase_weights" (batch,) and "tool_weights" (batch, K).
    """
    labels = {name: x for name in ("phases", "tools", *OPTIONAL) if (x := getattr(source.table, name)) is not None}
    for images, rows in zip(_images(source, order, workers), order, strict=True):
        yield {"images": images, **{name: x[rows] for name, x in labels.items()}}


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
    """A source's images in a given order, with the interface that Grain expects."""

    def __init__(self, source: Source, order: np.ndarray):
        self._source = source
        self._order = order

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, index: int) -> np.ndarray:
        return self._source[int(self._order[index])]


def prefetch(items: Iterable[T], prepare: Callable[[T], U], depth: int = 2) -> Iterator[U]:
    """Prepare items in a thread, up to `depth` ahead of their use, so that reading overlaps with computation."""
    with contextlib.closing(read_together([items], lambda x: map(prepare, x), workers=1, depth=depth)) as pieces:
        for _, piece in pieces:
            if isinstance(piece, Failure):
                raise piece.error
            if not isinstance(piece, End):
                yield piece
