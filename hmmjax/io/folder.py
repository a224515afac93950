"""A folder that one run writes to, which a killed run may be followed by another, and two never share."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks: an unfinished folder is told from its marker alone
    fcntl = None

#: There while a run writes to a folder, and left behind by one that was killed.
MARKER = ".hmmjax-unfinished"


def is_free(folder: str | os.PathLike[str], *, force: bool = False) -> bool:
    """Raise unless `claim` may have a folder; writes nothing.

    Args:
        folder: need not exist.
        force: take it although it holds results.

    Returns:
        Whether a run that did not finish left something in it.

    Raises:
        FileExistsError: when it is a file, or holds anything else.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file. Fix: choose another --out")
    unfinished = (folder / MARKER).exists()
    if folder.exists() and any(folder.iterdir()) and not (force or unfinished):
        raise _taken(folder)
    return unfinished


def refuse_existing(folder: str | os.PathLike[str], names: Sequence[str], *, force: bool = False) -> None:
    """Raise where something would be written over.

    Args:
        folder: need not exist.
        names: of files and folders in it that are to be written.
        force: write over them.

    Raises:
        FileExistsError: when one of them exists and `force` is False.
    """
    for path in (Path(folder) / name for name in names):
        if path.exists() and not force:
            raise FileExistsError(f"{path} exists. Fix: choose another --out, or say --force")


def is_unfinished(folder: str | os.PathLike[str]) -> bool:
    """Whether a run writes to a folder, or was killed while it did.

    Args:
        folder: need not exist.

    Returns:
        True also where the run goes on.
    """
    return (Path(folder) / MARKER).exists()


def _taken(folder: Path) -> FileExistsError:
    return FileExistsError(f"{folder} exists and is not empty. Fix: choose another --out, or say --force")


def _sweep(folder: Path) -> None:
    """Remove the half-written files that a killed run left (`hmmjax.io.atomic`)."""
    for file in folder.rglob(".*"):
        if re.fullmatch(r"\.(.+)\.[a-z0-9_]{8}(\.\w+)", file.name) and file.is_file():
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def claim(folder: str | os.PathLike[str], *, force: bool = False) -> Iterator[bool]:
    """Have a folder for oneself while writing results to it.

    Args:
        folder: made if missing.
        force: take it although it holds results.

    Yields:
        Whether files in it may be overwritten: by `force`, or because they are of a run that did not finish.

    Raises:
        FileExistsError: when it holds anything else, or another run is writing to it now.
    """
    folder = Path(folder)
    marker = folder / MARKER
    unfinished = is_free(folder, force=force)
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    with open(marker, "a", encoding="utf-8") as handle:
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise FileExistsError(f"another run is writing to {folder}. Fix: choose another --out") from None
        if not marker.exists() or not os.path.samestat(os.fstat(handle.fileno()), os.stat(marker)):
            # Another run finished between our look and our lock.
            raise _taken(folder)
        if unfinished:
            _sweep(folder)
        try:
            yield force or unfinished
        except BaseException:
            # A run that wrote nothing leaves nothing, not even an empty folder.
            if [path.name for path in folder.iterdir()] == [MARKER]:
                marker.unlink()
                if made:
                    folder.rmdir()
            raise
        marker.unlink()
