"""Write files atomically: a reader sees the old file or the new one, never a part of either."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PARTIAL = re.compile(r"\..+\.[a-z0-9_]{8}(\.\w+)?")


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[str]:
    """Yield a temporary file that replaces `path` if the block succeeds and is removed if it fails.

    Args:
        path: the file to write; missing parent folders are created.
        force: overwrite an existing file.

    Yields:
        The temporary file's path, in the same folder and with the same suffix as `path`. Write to it.

    Raises:
        FileExistsError: if `path` exists and `force` is False.
    """
    path = Path(path)
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists. Fix: choose another path, or overwrite it (force=True, --force)")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp creates files that only their owner can read
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def remove_partial_files(folder: str | os.PathLike[str]) -> None:
    """Remove the temporary files that killed writers left in a folder and its subfolders."""
    for file in Path(folder).rglob(".*"):
        if _PARTIAL.fullmatch(file.name) and file.is_file():
            file.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
