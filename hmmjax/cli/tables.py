"""Tables on standard output: metrics of systems, and ranked emission families."""

import sys
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hmmjax.ranking import Ranking
from hmmjax.stabilize import Row

_WIDTH = 100
"""Columns of a table of families if standard output is not a terminal."""

_SYSTEMS = {
    "M": "the recognizer",
    "M_H": "stabilized, given the whole video",
    "M_H online": "stabilized, given past and present frames only",
}


def print_table(rows: Sequence[Row], title: str) -> None:
    """Print a table of metrics on standard output, with the convention of each metric below it."""
    console = Console(highlight=False)
    systems = list(dict.fromkeys(name for row in rows for name in row.metrics))
    with_truth = any(row.truth is not None for row in rows)
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("metric", no_wrap=True)
    for name in systems:
        table.add_column(name, justify="right", no_wrap=True)
    if with_truth:
        table.add_column("truth", justify="right", style="dim")
    for row in rows:
        cells = [_cell(row, name) for name in systems]
        truth = "" if row.truth is None else f"{row.truth:,.0f}"
        table.add_row(row.figure, *cells, *([truth] if with_truth else []))
    # Lines that the terminal wraps are better than numbers that are cut off.
    console.width = max(console.width, console.measure(table, options=console.options.update(max_width=10_000)).maximum)
    console.print(table)
    # Wrap for a terminal only; a pipe gets whole lines.
    if meanings := [f"{name}: {_SYSTEMS[name]}" for name in systems if name in _SYSTEMS]:
        console.print(f"[dim]{'; '.join(meanings)}[/]", soft_wrap=not sys.stdout.isatty())
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
        return f"{metric.value:,.{1 if metric.unit in ('seconds', 'ratio') else 0}f}"
    return f"{metric.value:.4f}"


def print_ranking(ranking: Ranking, title: str) -> None:
    """Print ranked emission families on standard output, with the meaning of the columns below them."""
    out = Console(highlight=False, soft_wrap=True)
    width = out.width if out.is_terminal else _WIDTH
    table = _ranking_table(ranking, title)
    free = out.options.update(max_width=10_000)
    if out.measure(table, options=free).maximum > width:
        table = _ranking_table(ranking, title, break_names=True)
    # Lines that the terminal wraps are better than numbers that are cut off.
    out.width = max(width, out.measure(table, options=free).maximum)
    out.print(table)
    for line in (
        "conditional: log-probability of the labels given the predictions, with calibrated powers; uncalibrated: with "
        "powers of one",
        "behind: difference to the first; ±: its standard error over held-out videos",
        "marginal: log-density of the predictions. It ranks only families of the same observations: 'confusion' sees "
        "labels, and 'scaled' is no density",
        "accuracy (of phases, pooled frames), F1 (of tools, at 0.5, mean over tools): agreement with the annotations "
        "of held-out videos, with powers of one / calibrated; last row: the recognizer",
    ):
        out.print(f"[dim]{line}[/]")


def _ranking_table(ranking: Ranking, title: str, break_names: bool = False) -> Table:
    """Return the table; `break_names` puts long names of families on two lines."""
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE, padding=(0, 1, 0, 0))
    titles, *rows = ranking.rows()
    for i, column in enumerate(titles):
        table.add_column(column, justify="right" if i else "left", no_wrap=True)
    for name, *cells in rows[:-1]:
        table.add_row(name.replace("regressive-", "regressive-\n") if break_names else name, *cells)
    table.add_section()
    table.add_row(*rows[-1])
    return table
