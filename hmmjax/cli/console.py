"""Progress, notices, errors and answers. Only answers go to standard output."""

import contextlib
import functools
import importlib.util
import json
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

BAD_INPUT = 2


def errors_console() -> Console:
    """Return a console on standard error, looked up at the time of use."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def friendly(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: print errors as one message; exit with code 2 for bad input, 1 for unexpected errors."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with _quiet_warnings():
                command(*args, **kwargs)
                sys.stdout.flush()
        except BrokenPipeError:
            raise  # the reader closed the pipe (e.g. head); click exits quietly
        except (ValueError, TypeError, OSError) as error:
            if kwargs.get("traceback"):
                raise
            errors_console().print(f"[bold red]error:[/] {escape(as_options(str(error)))}")
            raise typer.Exit(BAD_INPUT) from None
        except (typer.Exit, typer.Abort, KeyboardInterrupt):
            raise
        except Exception as error:
            if kwargs.get("traceback"):
                raise
            text = f"{type(error).__name__}: {error}"
            errors_console().print(
                f"[bold red]unexpected error:[/] {escape(text)}\nRun again with --traceback to see where."
            )
            raise typer.Exit(1) from None

    # Unwrap docstring paragraphs; the terminal wraps them again.
    paragraphs = (command.__doc__ or "").split("\n\n")
    run.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return run


def _as_option(argument: re.Match[str]) -> str:
    """Return the option that has the name of an argument."""
    return f"--{argument[1].replace('_', '-')}{' ' * bool(argument[2])}"


#: Arguments as the library's messages name them, and the options of the command line that stand for them.
_SPELLINGS: tuple[tuple[re.Pattern[str], Any], ...] = (
    (
        re.compile(r"pass track='phases' or track='tools'"),
        "give the file with --phases or --tools, or name its classes",
    ),
    # Both spellings of one option: "strict=False (--lenient)", "(force=True, --force)", "learn_from (--learn-from)".
    (re.compile(r"\b\w+_\w+ (?:or|and) \w+_\w+ \((--[\w-]+), (--[\w-]+)\)"), r"\1 or \2"),
    (re.compile(r"\b(?:\w+=\w+|\w+_\w+) \((--[\w-]+)\)"), r"\1"),
    (re.compile(r"\((?:\w+(?:=\w*)?(?: and \w+)?), (--[^)]*)\)"), r"(\1)"),
    (re.compile(r"\(step=\)"), "(--time-step of stabilize and compare, --step of explore)"),
    (re.compile(r"pass pseudo-counts \(hmmjax\.Priors\) when estimating them"), "raise --unseen-phase-change"),
    (re.compile(r"\bmax_iterations=(?=-?\d)"), "--iterations "),
    (re.compile(r"rename=\{'([^']+)': '([^']+)'\}"), r"--rename \1=\2"),
    (re.compile(r"\bstep=(\d+)"), r"--row-step \1"),
    (re.compile(r"\bfirst_index(?:=(?=\d))?"), "--first-index "),
    (re.compile(r"\btrack='(\w+)'"), r"--\1"),
    (re.compile(r"\btraining_videos=True"), "--training-videos"),
    (re.compile(r"\b(learn_from|apply_to|online_model)\b(?!\.npz)(=?)"), _as_option),
    (re.compile(r"\brows='(\w+)'"), r"--rows \1"),
    (re.compile(r"\bkind=\{'(phase|tool)s': '(\w+)'\}"), r"--\1-kind \2"),
    (re.compile(r"\bannotations_shift=(-?\d+)"), r"--annotations-shift \1"),
    (re.compile(r"\b(phase|tool)_names=(?:'([^']+)'|(?=, or))"), r"--\1-names \2"),
    (re.compile(r"\b(phase|tool)_names\b(?!=)"), r"--\1-names"),
    (
        re.compile(r"\b(kind|header|fps|offset|emissions|folds|seed|threshold|learn|metric)='?([\w.-]+)'?"),
        r"--\1 \2",
    ),
)


def as_options(message: str) -> str:
    """Rewrite a message of the library with the options of the command line."""
    for python, option in _SPELLINGS:
        message = python.sub(option, message)
    return message


@contextlib.contextmanager
def _quiet_warnings() -> Iterator[None]:
    """Print warnings as notices of one line, each once."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            errors_console().print(f"[yellow]note:[/] {escape(as_options(str(message)))}")

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def notices(lines: Iterable[str]) -> None:
    """Print notices to standard error, one for all that differ in numbers only."""
    from hmmjax.io.notices import merge_alike

    console = errors_console()
    for line in merge_alike(lines):
        console.print(f"[yellow]note:[/] {escape(as_options(line))}")


LINE_SECONDS = 20.0
"""Seconds between lines of progress in a log."""


class Stages:
    """Progress on standard error: a bar per stage, removed when done; in a log, a line now and then."""

    def __init__(self) -> None:
        console = errors_console()
        self._in_log, self._last = not console.is_terminal, time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=self._in_log,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> "Stages":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report that `done` parts of `total` (0: unknown) of a stage are done."""
        if self._in_log:
            if time.monotonic() - self._last >= LINE_SECONDS:
                self._last = time.monotonic()
                errors_console().print(escape(f"{stage}: {done:,}" + (f" of {total:,}" if total else "")))
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total or None)
        self._progress.update(self._tasks[stage], completed=done, total=total or None)

    def files(self, stage: str) -> Callable[[Iterable[str]], Iterator[str]]:
        """Return a wrapper that reports progress while iterating over files."""

        def wrap(items: Iterable[str]) -> Iterator[str]:
            items = list(items)
            for i, item in enumerate(items):
                self(stage, i, len(items))
                yield item
            self(stage, len(items), len(items))

        return wrap


def needs(module: str, *, extra: str) -> None:
    """Raise ValueError, naming the extra to install, if a module is not installed."""
    if importlib.util.find_spec(module) is None:
        raise ValueError(f"this command needs {module}. Fix: pip install 'hmmjax[{extra}]'")


def answer(values: Mapping[str, Any], text: str, as_json: bool) -> None:
    """Print a command's result on standard output, as JSON or as text; notices name options."""
    if as_json and "notices" in values:
        values = {**values, "notices": [as_options(line) for line in values["notices"]]}
    print(json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) if as_json else text)


def counts(names: Sequence[str] | None, frames: Any) -> dict[str, int]:
    """Return the number of frames of each class, from (B, C) counts; empty without names."""
    return {} if names is None else {n: int(f) for n, f in zip(names, frames.sum(0), strict=True)}


def examples(*commands: str) -> str:
    """Format the examples at the end of a command's help."""
    return "Examples:\n\n" + "\n\n".join(f"  $ {command}" for command in commands)


def videos(count: int) -> str:
    """Return "1 video" or "n videos"."""
    return f"{count} video{'s' * (count != 1)}"


def unknown(what: str, value: str, choices: Iterable[str]) -> ValueError:
    """Return the error for a value that is not among the choices."""
    return ValueError(f"unknown {what} {value!r}. Fix: choose among {', '.join(choices)}")


def refuse_existing(path: Path | None, option: str, force: bool) -> None:
    """Raise FileExistsError if a file exists that the command would overwrite."""
    if path is not None and path.exists() and not force:
        raise FileExistsError(f"{path} exists. Fix: choose another {option}, or overwrite it with --force")
