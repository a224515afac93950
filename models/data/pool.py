"""Reading several sources at a time in threads, for one consumer."""

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Failure(NamedTuple):
    """A source that cannot be read to its end, because of `error`."""

    error: Exception


class End(NamedTuple):
    """A source that has been read to its end."""


def read_together(
    sources: Iterable[T], read: Callable[[T], Iterator[U]], *, workers: int, depth: int
) -> Generator[tuple[T, U | Failure | End], None, None]:
    """Read sources in threads, each source by one thread, and yield what they hold as soon as it is read.

    Args:
        sources: taken one by one, and not ahead of the threads.
        read: yields the pieces of a source, in order.
        workers: number of threads.
        depth: maximum number of pieces that wait for the consumer.

    Yields:
        The source and a piece of it; after the last piece `End`, or `Failure` in its place.

    Raises:
        Exception: of `sources` itself.
    """
    ready: queue.Queue = queue.Queue(depth)
    stop, turn = threading.Event(), threading.Lock()
    waiting = iter(sources)

    def put(item: object) -> None:
        while not stop.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        while not stop.is_set():
            try:
                with turn:
                    source = next(waiting)
            except StopIteration:
                break
            except BaseException as error:  # re-raised in the consuming thread
                put(error)
                break
            try:
                for piece in read(source):
                    put((source, piece))
                    if stop.is_set():
                        return
            except Exception as error:
                put((source, Failure(error)))
            else:
                put((source, End()))
        put(None)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        stop.set()
        for thread in threads:
            thread.join()
