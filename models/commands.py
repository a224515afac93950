"""What the command lines of this package share: errors in one line, checks before the work begins, progress."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hmmjax.io import FormatError


def explain(error: BaseException) -> str:
    """An error as a person wants to read it: without its class, and without the number of a system's error."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}"
    return str(error)


@contextmanager
def reported(stopped: str = "stopped") -> Iterator[None]:
    """End the process with one line where files, settings or a missing package are at fault, or a person stops it.

    Args:
        stopped: what is said when a person does.

    Raises:
        SystemExit: in the place of a ValueError, an OSError or an ImportError (status 1), and of a KeyboardInterrupt
            (status 130).
    """
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        sys.exit(f"error: {explain(error)}")
    except KeyboardInterrupt:
        print(f"\n{stopped}", file=sys.stderr)
        sys.exit(130)


def count(text: str) -> int:
    """A whole number above 0, for argparse.

    Raises:
        argparse.ArgumentTypeError: for anything else.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def rate(text: str) -> float:
    """A number above 0, for argparse.

    Raises:
        argparse.ArgumentTypeError: for anything else.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def check_out(path: str | Path, *, force: bool) -> None:
    """See that an NPZ can be written, before hours are spent on what is to be in it.

    Args:
        path: the file.
        force: whether one that is there may be written over.

    Raises:
        FormatError: for a folder, and for a name that readers would take for another kind of file.
        FileExistsError: when it is there.
    """
    path = Path(path)
    if path.is_dir() or path.suffix != ".npz":
        raise FormatError("no name for a predictions file", file=path, fix="give --out a name that ends in .npz")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already. Fix: give another --out, or write over it with --force")


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str, int], None]]:
    """Shows how many frames of each video are done, on standard error.

    Args:
        quiet: show nothing.

    Yields:
        What is to be called with a video's name and the number of its frames so far.
    """
    if quiet:
        yield lambda video, frames: None
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), TextColumn("{task.completed:,} frames"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as shown:
        tasks: dict[str, int] = {}

        def show(video: str, frames: int) -> None:
            if video not in tasks:
                tasks[video] = shown.add_task(video, total=None)
            shown.update(tasks[video], completed=frames)

        yield show
