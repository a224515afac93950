"""Tables on standard output: metrics of systems, and ranked emission families."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hmmjax.comparison import Ranking
from hmmjax.stabilize import Row

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
    table = Table(title=title, title_justify="left", title_style="bold")
    titles, *rows = ranking.rows()
    for i, column in enumerate(titles):
        # Titles wrap between words, and are never cut.
        longest = max(map(len, column.split()))
        table.add_column(column, justify="right" if i else "left", no_wrap=not i, min_width=longest)
    for row in rows[:-1]:
        table.add_row(*row)
    table.add_section()
    table.add_row(*rows[-1])
    out = Console(highlight=False, soft_wrap=True)
    # Lines that the terminal wraps are better than numbers that are cut off.
    out.width = max(out.width, out.measure(table, options=out.options.update(max_width=10_000)).minimum)
    out.print(table)
    for line in (
        "conditional: log-probability of the labels given the predictions, with calibrated powers; uncalibrated: with "
        "powers of one",
        "behind: difference to the first; ±: its standard error over held-out videos",
        "marginal: log-density of the predictions. It ranks only families of the same observations: 'confusion' sees "
        "labels, and 'scaled' is no density",
        "accuracy (of phases, pooled frames), F1 (of tools, at 0.5, mean over tools): agreement with the annotations "
        "of held-out videos, with powers of one and calibrated; last row: the recognizer",
    ):
        out.print(f"[dim]{line}[/]")
