"""Figures printed in the README and the pages of results are those of the committed benchmark results."""

import itertools
import json
import re
from pathlib import Path

import numpy as np
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


#: A number with its digits: "1,368", ".8811", "2.36"; not part of a word, a name or a range.
_NUMBER = re.compile(r"(?<![\w.,])(?:\d{1,3}(?:,\d{3})+|\d*)\.?\d+(?![\w]|,\d|\.\d)")
#: Units in which pages print what files hold in others: percent, parts of seconds, thousands, minutes, hours, GiB.
_UNITS = (1, 100, 1e3, 1e6, 1e9, 1e-3, 1e-6, 1 / 60, 1 / 3600, 2**-20, 2**-30)
_PAGES = sorted((ROOT / "docs" / "results").glob("*.md"))


def printed_figures(text):
    """Return the numbers of three and more digits in a page's tables, by line; not those of titles and rows' names."""
    found, inside = [], False
    for i, line in enumerate(text.splitlines()):
        first, inside = not inside, line.startswith("|")
        if not inside or first or set(line) <= set("|-: "):
            continue
        for cell in line.strip("| ").split("|")[1:]:
            cell = re.sub(r"\]\([^)]*\)|`[^`]*`|\*", "", cell)
            found += [(i + 1, number) for number in _NUMBER.findall(cell) if sum(c.isdigit() for c in number) > 2]
    return found


def is_measured(number, known):
    """Whether a printed number is one of the known ones, rounded to its digits, in some unit."""
    text = number.replace(",", "")
    half = 0.5 * 10.0 ** -len(text.partition(".")[2]) * (1 + 1e-9)
    return any((np.abs(known * unit - float(text)) <= half).any() for unit in _UNITS)


@pytest.mark.parametrize("page", _PAGES, ids=lambda p: p.stem)
def test_figures_in_tables_of_results_are_measured(page):
    """Weaker than above: each is somewhere in the files that the page names, in some unit."""
    text = page.read_text()
    files = [RESULTS / f"{name}.json" for name in set(re.findall(r"(\w+)\.json", text))]
    known = np.abs([n for file in files if file.is_file() for n in numbers(json.loads(file.read_text()))])
    shown = printed_figures(text)
    assert shown, "the page has no figures"
    lost = [f"{page.name}:{line}: {number}" for line, number in shown if not is_measured(number, known)]
    assert not lost, "no file that the page names holds these; name the file or correct them:\n" + "\n".join(lost)


def test_a_wrong_figure_is_found():
    """Most numbers that differ in a digit are in no file; only grid.json holds nearly all of three digits."""
    for name in ("real", "training"):
        page = ROOT / "docs" / "results" / f"{name}.md"
        text = page.read_text()
        files = [RESULTS / f"{x}.json" for x in set(re.findall(r"(\w+)\.json", text))]
        known = np.abs([n for file in files if file.is_file() for n in numbers(json.loads(file.read_text()))])
        four = [n for _, n in printed_figures(text) if sum(c.isdigit() for c in n) > 3]
        wrong = [n[:-1] + str((int(n[-1]) + 4) % 10) for n in four]
        assert sum(is_measured(n, known) for n in wrong) < 0.7 * len(wrong), name


def test_values_of_the_grid_below_the_recognizer_are_listed():
    """Gains and standard errors of the automatic choice, counted again from the cells."""
    below, changed, count = set(), 0, 0
    for law, name in (("episodes", "grid"), ("Markov", "grid_markov")):
        for cell in load(name)["cells"]:
            for version, gains in cell["hmm"]["auto"]["gains"].items():
                for metric, (gain, error) in gains.items():
                    changed, count = changed + (gain != 0), count + 1
                    if gain < -error:
                        where = law, cell["scenario"], cell["system"], str(cell["seed"])
                        mode = "online" if "online" in version else "offline"
                        below.add((*where, mode, metric, f"{gain:.4f}", f"{error:.4f}"))
    listed = next(rows for titles, rows in tables("benchmarks/results/networks.md") if titles[-2:] == TITLES)
    assert below == {(*row[:6], *(cell.replace(".", "0.", 1) for cell in row[6:])) for row in listed}
    assert len({row[:4] for row in below}) == len(below)
    for page in ("docs/results/networks.md", "benchmarks/results/networks.md"):
        text = (ROOT / page).read_text()
        assert f"{len(below)} of {count}" in text or f"{changed} of the {count}" in text


TITLES = ["gain", "standard error"]


def test_families_are_as_measured():
    """Mean changes, and in how many cells they are above and below zero by more than one standard error."""
    results = load("families")
    for title, part in (
        ("phases, added", results),
        ("phases, nine labeled videos, added", results["nine labeled videos"]),
    ):
        _, rows = next((t, r) for t, r in tables("docs/results/networks.md") if t[0] == title)
        for name, seeds, *cells in rows:
            for cell, (mode, metric) in zip(cells, itertools.product(MODES, ("accuracy", "Jaccard")), strict=True):
                groups = ("seed 0",) if seeds == "0" else ("seed 1", "seed 2")
                found = [c[f"{mode}: {name}"].get(metric) for g in groups for c in part["cells"][g].values()
                         if f"{mode}: {name}" in c]  # fmt: skip
                gains, errors = np.array([pair for pair in found if pair]).T
                mean, above, below = re.fullmatch(r"(\S+) \((\d+), (\d+)\)", cell).groups()
                assert float(mean) == pytest.approx(gains.mean(), abs=6e-4), (name, seeds, mode, metric)
                counts = int((gains > np.nan_to_num(errors)).sum()), int((gains < -np.nan_to_num(errors)).sum())
                assert (int(above), int(below)) == counts, (name, seeds, mode, metric)
                if (name, mode, part) == ("logit-normal, refined", "online", results):  # the one that is taken in
                    assert mean.startswith("+") and (seeds == "0" or below == "0")


def test_tuned_refinement_is_as_measured():
    """Accuracy, Jaccard index and worst video, and how often tuning is no better than a fixed penalty."""
    results = load("tuning")
    _, rows = next((t, r) for t, r in tables("docs/results/real.md") if t[0] == "contiguous, offline")
    worse = 0
    for label, *cells in rows:
        learn = {"counted": "count"}.get(label, label.strip("`"))
        for cell, (split, mode) in zip(cells, itertools.product(SPLITS, MODES), strict=True):
            found = results[f"{split}, {learn}, {mode}"]
            figures = (found[ACCURACY], found[JACCARD], min(found["accuracy per video"]))
            assert [float(x) for x in cell.split(" / ")] == pytest.approx(figures, abs=6e-4)
            fixed = results[f"{split}, refine, {mode}"]
            worse += (learn == "tune") * sum(found[name] <= fixed[name] for name in (ACCURACY, JACCARD))
    assert worse == 6


SPLITS, MODES = ("contiguous", "interleaved"), ("offline", "online")
ACCURACY, JACCARD = "accuracy, pooled over frames", "Jaccard, strict, per video then mean over phases"
