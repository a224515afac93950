"""One process at a time in the folder of a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def claimed(folder: str | Path) -> Iterator[None]:
    """Keep other processes on this machine out of a folder; a process that dies, however it does, lets it go.

    Where the system or its file system has no locks, nothing is kept out.

    Args:
        folder: made where there is none.

    Raises:
        FileExistsError: when another process has it.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FileExistsError(
                f"another process trains in {folder}. Fix: wait for it, or choose another run=..."
            ) from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)
