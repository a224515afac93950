"""Figures printed in the README and the results page are those of the committed benchmark results."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def load(name):
    return json.loads((RESULTS / f"{name}.json").read_text())


def tables(page):
    """The tables of a page: a row of titles and rows of cells, each without emphasis."""
    text = (ROOT / page).read_text()
    found = []
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.M):
        rows = [[cell.strip(" *") for cell in line.strip("|\n ").split("|")] for line in block.splitlines()]
        found.append((rows[0], rows[2:]))
    return found


def printed(value):
    """As the README prints a fraction or a count."""
    return f"{value:,.0f}" if value > 1 else f"{value:.4f}".removeprefix("0")


# Column of the README's tables: (file, path to its metrics).
PHASES = {
    "raw": ("real", "tmrnet", "raw"),
    "hmmjax, auto": ("auto", "tmrnet", "contiguous, offline"),
    "online, auto": ("auto", "tmrnet", "contiguous, online"),
    "confusion, calibrated": ("calibrated", "tmrnet", "five in a row, calibrated", "smoothed"),
    "not calibrated": ("real", "tmrnet", "smoothed"),
    "its filter": ("real", "tmrnet", "filtered"),
}
TOOLS = {
    "raw": ("real", "frcnn", "raw"),
    "hmmjax, auto": ("auto", "frcnn", "offline"),
    "confusion, coupled": ("real", "frcnn", "coupled, phases unobserved, smoothed"),
    "confusion, tools only": ("real", "frcnn", "tools only, smoothed"),
}
# Row of the README's tables: key of the metric.
METRICS = {
    "accuracy, pooled": "accuracy, pooled over frames",
    "Jaccard, strict": "Jaccard, strict, per video then mean over phases",
    "phase changes": "phase changes",
    "mAP": "mAP, scikit-learn step AP, pooled over videos",
    "F1, macro": "F1, macro over tools, pooled, threshold 0.5",
    "on/off changes": "on/off changes",
    "phase accuracy, inferred": "phase accuracy from tools alone, pooled over frames",
}


@pytest.mark.parametrize(("first", "columns"), [("TMRNet", PHASES), ("Faster R-CNN", TOOLS)])
def test_figures_of_the_readme_are_measured(first, columns):
    titles, rows = next(t for t in tables("README.md") if t[0][0].startswith(first))
    assert titles[1:] == list(columns)
    checked = 0
    for name, *cells in rows:
        metric = next(key for start, key in METRICS.items() if name.startswith(start))
        for cell, (file, *path) in zip(cells, columns.values(), strict=True):
            values = load(file)
            for key in path:
                values = values[key]
            if cell in ("", "\N{EN DASH}"):
                assert metric not in values or file == "auto", f"{name}: {metric} of {path} is missing"
                continue
            assert cell == printed(values[metric]), f"{name}, {path}"
            checked += 1
    assert checked >= 13


def numbers(x):
    if isinstance(x, dict):
        return [n for v in x.values() for n in numbers(v)]
    if isinstance(x, list):
        return [n for v in x for n in numbers(v)]
    return [x] if isinstance(x, int | float) and not isinstance(x, bool) else []


FILES = ("auto", "real", "calibrated", "sensitivity")


def test_four_digits_on_the_results_page_are_measured():
    """Weaker than above: each fraction of four digits is one of those of the files that the page names."""
    known = {f"{abs(n):.4f}".removeprefix("0") for name in FILES for n in numbers(load(name))}
    rows = re.findall(r"^\|.*", (ROOT / "docs" / "results" / "real.md").read_text(), re.M)
    shown = re.findall(r"(?<![\d.])\.\d{4}(?!\d)", "\n".join(rows))
    assert len(shown) > 80 and len(known) < 3000
    assert not [number for number in shown if number not in known]
