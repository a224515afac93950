"""The main table in LaTeX."""

import math
from collections.abc import Sequence

from hmmjax.metrics import Metric
from hmmjax.report.tables import TITLES, convention
from hmmjax.stabilize import Row


def latex(rows: Sequence[Row], caption: str) -> str:
    """Return a booktabs table with the protocol in its caption and the conventions as notes below it.

    Args:
        rows: the metrics.
        caption: the caption, without the protocol.
    """
    names = list(dict.fromkeys(n for row in rows for n in row.metrics))
    protocol = next((m.split for row in rows for m in row.metrics.values() if m.split), "")
    body: list[str] = []
    notes: dict[str, int] = {}
    for row in rows:
        cells = [_tex_cell(row.metrics.get(name)) for name in names]
        truth = "--" if row.truth is None else f"{row.truth:,.0f}"
        number = notes.setdefault(convention(row), len(notes) + 1)
        body.append(f"{_tex(row.figure)}$^{{{number}}}$ & {' & '.join(cells)} & {truth} \\\\")
    head = " & ".join(["", *(_tex(TITLES.get(n, n)) for n in names), "truth"])
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            "\\begin{table}",
            "\\centering",
            f"\\caption{{{_tex(caption)}{f' ({_tex(protocol)})' if protocol else ''}.}}",
            "\\label{tab:hmmjax}",
            f"\\begin{{tabular}}{{l{'r' * (len(names) + 1)}}}",
            "\\toprule",
            f"{head} \\\\",
            "\\midrule",
            *body,
            "\\bottomrule",
            "\\end{tabular}",
            "",
            "\\smallskip",
            "\\raggedright\\footnotesize",
            " ".join(f"$^{{{number}}}${_tex(note)}." for note, number in notes.items()),
            "\\end{table}",
            "",
        ]
    )


def _tex_cell(metric: Metric | None) -> str:
    if metric is None or math.isnan(metric.value):
        return "--"
    places = 4 if not metric.unit else 1 if metric.unit in ("seconds", "ratio") else 0
    spread = f" $\\pm$ {metric.spread:,.{1 if metric.unit else 3}f}" if math.isfinite(metric.spread) else ""
    return f"{metric.value:,.{places}f}{spread}"


def _tex(text: str) -> str:
    marks = {"\\": "\\textbackslash{}", "^": "\\textasciicircum{}", "~": "\\textasciitilde{}", "±": "$\\pm$"}
    marks |= {mark: "\\" + mark for mark in "&%$#_{}"}
    return "".join(marks.get(letter, letter) for letter in text)
