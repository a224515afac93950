"""Shared parts of the command lines: one-line errors, checks of arguments and output files, progress."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hmmjax.io import FormatError


def explain(error: BaseException) -> str:
    """Return the message of an error, without its class and without the error number of the system."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}"
    return str(error)


@contextmanager
def reported(stopped: str = "stopped") -> Iterator[None]:
    """End the process with a one-line message if files, settings or packages are at fault, or the user stops it.

    Args:
        stopped: the message after the user stops the process.

    Raises:
        SystemExit: instead of a ValueError, an OSError or an ImportError (status 1), and of a KeyboardInterrupt
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
    """Parse a positive integer, for argparse.

    Raises:
        argparse.ArgumentTypeError: for anything else.
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive integer")
    return int(text)


def rate(text: str) -> float:
    """Parse a positive number, for argparse.

    Raises:
        argparse.ArgumentTypeError: for anything else.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return value


def shard(text: str) -> tuple[int, int]:
    """Parse i/n, the i-th of n shards.

    Raises:
        ValueError: unless i is from 0 to n - 1.
    """
    first, _, every = text.partition("/")
    if not (first.isdecimal() and every.isdecimal() and int(first) < int(every)):
        raise ValueError(f"--shard {text} is not a shard. Fix: give i/n, with i from 0 to n - 1")
    return int(first), int(every)


def check_out(path: str | Path, *, force: bool) -> None:
    """Raise if an NPZ file cannot be written, before its contents are computed.

    Args:
        path: the file.
        force: allow overwriting an existing file.

    Raises:
        FormatError: for a folder, and for a name without the suffix .npz.
        FileExistsError: if the file exists and `force` is False.
    """
    path = Path(path)
    if path.is_dir() or path.suffix != ".npz":
        raise FormatError("not a name for an output file", file=path, fix="give --out a name that ends in .npz")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already. Fix: choose another --out, or overwrite it with --force")


@contextmanager
def progress(quiet: bool = False) -> Iterator[Callable[[str, int], None]]:
    """Show the number of frames read of each video on standard error.

    Args:
        quiet: do not show anything.

    Yields:
        A function to call with a video's name and its number of frames so far.
    """
    if quiet:
        yield lambda video, frames: None
        return
    from rich.console import Console
    from rich.progress import Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), TextColumn("{task.completed:,} frames"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as shown:
        tasks: dict[str, TaskID] = {}

        def show(video: str, frames: int) -> None:
            if video not in tasks:
                tasks[video] = shown.add_task(video, total=None)
            shown.update(tasks[video], completed=frames)

        yield show
