"""Exclusive output folders: one run at a time, resumable after a crash."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from hmmjax.io.atomic_write import remove_partial_files

try:
    import fcntl
except ImportError:  # Windows has no such locks; there, only the marker tells that a folder is in use
    fcntl = None

#: A file that exists while a run writes to a folder; a killed run leaves it behind.
MARKER = ".hmmjax-unfinished"

PathLike = str | os.PathLike[str]


@contextlib.contextmanager
def lock(path: PathLike, *, fix: str = "wait for it to finish, or choose another folder") -> Iterator[None]:
    """Keep other processes on this machine out of a file or folder while the block runs.

    The system releases the lock when the process ends, even if it is killed. On systems and file systems without
    locks, other processes are not kept out.

    Args:
        path: an existing file or folder. Network file systems usually lock files only.
        fix: the advice in the error message.

    Raises:
        FileExistsError: if another process holds the lock, or held it until now and removed `path`.
    """
    if fcntl is None:
        yield
        return
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    busy = FileExistsError(f"another process is writing to {folder}. Fix: {fix}")
    try:
        # Folders open only for reading; network file systems lock only files that are open for writing.
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    except FileNotFoundError:
        raise busy from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        except OSError:
            pass  # a file system without locks
        if not path.exists() or not os.path.samestat(os.fstat(handle), os.stat(path)):
            raise busy
        yield
    finally:
        os.close(handle)


@contextlib.contextmanager
def claim(folder: PathLike, *, force: bool = False) -> Iterator[bool]:
    """Reserve a folder for one run while the block writes its results.

    Args:
        folder: the output folder; created if missing.
        force: accept a folder that already holds results.

    Yields:
        Whether files in it may be overwritten, either because of `force` or because an unfinished run left them.

    Raises:
        FileExistsError: if `folder` is a file, holds results or other files, or another run is writing to it.
        PermissionError: if the user may not write to it.
    """
    folder = Path(folder)
    marker = folder / MARKER
    check_free(folder, force=force)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        marker.touch(exist_ok=False)
        unfinished = False
    except FileExistsError:
        unfinished = True
    with lock(marker, fix="choose another --out"):
        if unfinished:
            remove_partial_files(folder)
        elif not force and not _only_marker(folder):
            # Another run finished between the check and the lock.
            marker.unlink()
            raise _occupied(folder)
        try:
            yield force or unfinished
        except BaseException:
            # A run that wrote nothing leaves nothing, not even an empty folder.
            if _only_marker(folder):
                marker.unlink()
                if made:
                    folder.rmdir()
            raise
        marker.unlink()


def check_free(folder: PathLike, *, force: bool = False) -> None:
    """Raise FileExistsError if `claim` would refuse a folder because of what is in it; write nothing.

    Args:
        folder: the output folder; need not exist.
        force: accept a folder that already holds results.

    Raises:
        FileExistsError: if `folder` is a file, or holds results or other files.
        PermissionError: if the user may not write to it.
    """
    folder = Path(folder)
    check_writable(folder)
    if folder.exists() and any(folder.iterdir()) and not force and not is_unfinished(folder):
        raise _occupied(folder)


def check_writable(folder: PathLike) -> None:
    """Raise an error if files cannot be written into a folder, or into the existing one in which it would be made.

    Args:
        folder: the output folder; need not exist.

    Raises:
        FileExistsError: if `folder`, or one that it would be in, is a file.
        PermissionError: if the user may not write to it.
    """
    folder = Path(folder).absolute()
    nearest = next((path for path in (folder, *folder.parents) if path.exists()), folder)
    if not nearest.is_dir():
        raise FileExistsError(f"{nearest} is a file, not a folder. Fix: choose another --out")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"{nearest} is read-only. Fix: choose another --out, or change its permissions")


def refuse_existing(folder: PathLike, names: Sequence[str], *, force: bool = False) -> None:
    """Raise FileExistsError if writing results would overwrite something.

    Args:
        folder: the output folder; need not exist.
        names: names of the files and folders that will be written in it.
        force: allow overwriting.

    Raises:
        FileExistsError: if one of them exists and `force` is False, or `folder` is a file.
        PermissionError: if the user may not write to it.
    """
    check_writable(folder)
    for path in (Path(folder) / name for name in names):
        if path.exists() and not force:
            raise FileExistsError(f"{path} exists. Fix: choose another --out, or overwrite it with --force")


def is_unfinished(folder: PathLike) -> bool:
    """Whether a run is writing to a folder, or was killed while it did.

    Args:
        folder: the output folder; need not exist.

    Returns:
        True if the folder holds the marker of a run that has not finished.
    """
    return (Path(folder) / MARKER).exists()


def _only_marker(folder: Path) -> bool:
    return [path.name for path in folder.iterdir()] == [MARKER]


def _occupied(folder: Path) -> FileExistsError:
    return FileExistsError(f"{folder} exists and is not empty. Fix: choose another --out, or overwrite it with --force")
