"""What a person sees: progress, notices, the table, errors. Only the table goes to standard output."""

import contextlib
import functools
import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hmmjax.stabilize import Row

BAD_INPUT = 2


def errors_console() -> Console:
    """Standard error, looked up at the time of use."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def friendly(command: Callable[..., None]) -> Callable[..., None]:
    """Errors of input as one message and exit code 2; anything else as a short one and exit code 1."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            with _quiet_warnings():
                command(*args, **kwargs)
                sys.stdout.flush()
        except BrokenPipeError:
            raise  # whoever reads has had enough, as head does; click ends quietly
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
            errors_console().print(f"[bold red]unexpected error:[/] {escape(text)}\nSee more with --traceback.")
            raise typer.Exit(1) from None

    # A terminal wraps by itself; a paragraph's line ends in the source are not its.
    paragraphs = (command.__doc__ or "").split("\n\n")
    run.__doc__ = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    return run


#: Arguments of the library as its messages write them, and how the commands spell them.
_SPELLINGS = (
    (re.compile(r"strict=False \(--lenient\)"), "--lenient"),
    (re.compile(r"folds=None \(--leave-one-out\)"), "--leave-one-out"),
    (re.compile(r"rename=\{'([^']+)': '([^']+)'\}"), r"--rename \1=\2"),
    (re.compile(r"\bstep=(\d+)"), r"--row-step \1"),
    (re.compile(r"\b(kind|header|fps|offset|emissions|folds|seed)='?([\w.-]+)'?"), r"--\1 \2"),
)


def as_options(message: str) -> str:
    """A message of the library with its arguments written as on the command line."""
    for python, option in _SPELLINGS:
        message = python.sub(option, message)
    return message


@contextlib.contextmanager
def _quiet_warnings() -> Iterator[None]:
    """Warnings as notices of one line, each once."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            errors_console().print(f"[yellow]note:[/] {escape(as_options(str(message)))}")

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = show  # type: ignore[assignment]
        yield


def notices(lines: Iterable[str]) -> None:
    """Print notices to standard error."""
    console = errors_console()
    for line in dict.fromkeys(lines):
        console.print(f"[yellow]note:[/] {escape(as_options(line))}")


class Stages:
    """One progress bar for each stage that reports, on standard error, gone when done."""

    def __init__(self) -> None:
        console = errors_console()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> "Stages":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report that `done` parts of `total` (0: unknown) of a stage are done."""
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total or None)
        self._progress.update(self._tasks[stage], completed=done, total=total or None)

    def files(self, stage: str) -> Callable[[Iterable[str]], Iterator[str]]:
        """A wrapper for an iteration over files."""

        def wrap(items: Iterable[str]) -> Iterator[str]:
            items = list(items)
            for i, item in enumerate(items):
                self(stage, i, len(items))
                yield item
            self(stage, len(items), len(items))

        return wrap


def needs(module: str, *, extra: str) -> None:
    """ValueError, naming the extra, when a module is not installed."""
    if importlib.util.find_spec(module) is None:
        raise ValueError(f"this command needs {module}. Fix: pip install 'hmmjax[{extra}]'")


def answer(values: Mapping[str, Any], text: str, as_json: bool) -> None:
    """A command's answer on standard output: JSON for scripts, or text for people."""
    print(json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) if as_json else text)


def counts(names: Sequence[str] | None, frames: Any) -> dict[str, int]:
    """Frames of each class, from (B, C) counts; empty without names."""
    return {} if names is None else {n: int(f) for n, f in zip(names, frames.sum(0), strict=True)}


def examples(*commands: str) -> str:
    """The end of a command's help."""
    return "Examples:\n\n" + "\n\n".join(f"  $ {command}" for command in commands)


def videos(count: int) -> str:
    """Count videos, with an s where it belongs."""
    return f"{count} video{'s' * (count != 1)}"


def print_table(rows: Sequence[Row], title: str) -> None:
    """The table on standard output, with the convention of every figure below it."""
    console = Console(highlight=False)
    systems = list(dict.fromkeys(name for row in rows for name in row.metrics))
    with_truth = any(row.truth is not None for row in rows)
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("figure", no_wrap=True)
    for name in systems:
        table.add_column(name, justify="right", no_wrap=True)
    if with_truth:
        table.add_column("truth", justify="right", style="dim")
    for row in rows:
        cells = [_cell(row, name) for name in systems]
        truth = "" if row.truth is None else f"{row.truth:,.0f}"
        table.add_row(row.figure, *cells, *([truth] if with_truth else []))
    # Better lines that a terminal folds than figures that are cut.
    console.width = max(console.width, console.measure(table, options=console.options.update(max_width=10_000)).maximum)
    console.print(table)
    # Wrapping is the terminal's business: a pipe gets whole lines.
    for row in rows:
        for convention in row.conventions:
            console.print(f"[dim]{row.figure}: {escape(convention)}[/]", soft_wrap=not sys.stdout.isatty())
        if spread := [f"{n} {m.spread:.3f}" for n, m in row.metrics.items() if m.spread == m.spread and not m.unit]:
            over = next(iter(row.metrics.values())).spread_over
            text = f"[dim]{row.figure}: ± over {over}: {', '.join(spread)}[/]"
            console.print(text, soft_wrap=not sys.stdout.isatty())


def _cell(row: Row, name: str) -> str:
    metric = row.metrics.get(name)
    if metric is None or metric.value != metric.value:
        return "-"
    if metric.unit:
        return f"{metric.value:,.0f}"
    return f"{metric.value:.4f}"
