"""Test the demo's table and plots on given predictions; `make demo` runs the complete pipeline."""

import dataclasses
import io
import json

import numpy as np
import pytest
from rich.console import Console

from hmmjax.io import BatchIndex
from hmmjax.simulate import simulate_surgeries
from models.demo import __main__ as demo
from models.demo.outcomes import Outcome, conventions, lost_phases, score, table
from models.demo.plots import choose_moments, draw_moments, draw_videos

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def played():
    """Two surgeries as test videos: index, truth, a recognizer's output, and a result that corrects the first half."""
    surgeries = simulate_surgeries(2, minutes=4.0)
    truth = [s.phases for s in surgeries], [s.tools for s in surgeries]
    scores = [s.tool_probabilities for s in surgeries]
    raw = Outcome("M", [s.phase_probabilities.argmax(-1) for s in surgeries], scores, scores, 0.0)
    half = [np.arange(len(s)) < len(s) // 2 for s in surgeries]
    phases = [np.where(h, s.phases, p) for h, s, p in zip(half, surgeries, raw.phases, strict=True)]
    tools = [np.where(h[:, None], s.tools, p) for h, s, p in zip(half, surgeries, raw.tools, strict=True)]
    best = Outcome("M_H", phases, tools, tools, 1.0)
    frames = tuple(25 * np.arange(len(s)) for s in surgeries)
    index = BatchIndex(
        ("video03", "video04"), frames, tuple(f // 25 for f in frames), max(map(len, surgeries)), 25, 25.0
    )
    return index, truth, raw, best, surgeries


def test_the_table_fits_and_every_metric_states_its_convention(played, tmp_path):
    _, truth, raw, best, _ = played
    perfect = [t.astype(float) for t in truth[1]]
    right = dataclasses.replace(raw, name="truth", phases=truth[0], tools=perfect, ranking=perfect)
    results = {o.name: score(*truth, o) for o in (raw, best, right)}
    assert results["truth"]["phase accuracy"].value == 1 and results["M"]["phase accuracy"].value < 1
    assert results["M"]["on/off changes"].value > results["truth"]["on/off changes"].value
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(table(results))
    for line in conventions(results):
        console.print(line)
    text = console.export_text()
    assert "…" not in text, "the table does not fit 80 characters"
    for convention in ("tool mAP: scikit-learn", "phase accuracy: strict", "on at or above 0.5"):
        assert convention in text
    demo.write_metrics(tmp_path / "figures.json", results)
    records = json.loads((tmp_path / "figures.json").read_text())
    assert len(records) == 21 and all(r["convention"] for r in records)


def test_lost_phases_are_named_with_the_reason():
    truth = [np.repeat([0, 3, 4], [9, 9, 6]), np.repeat([0, 3], [9, 9])]
    raw = [np.where(np.arange(24) == 19, 4, truth[0]), truth[1]]
    raw[0] = np.where(np.isin(np.arange(24), (18, 21, 22)), 5, raw[0])  # 4 in seconds 19, 20 and 23
    kept = [np.repeat([0, 3, 5], [9, 9, 6]), np.repeat([0, 4], [9, 9])]
    packaging, dissection = lost_phases(["video01", "video02"], truth, raw, kept)
    assert packaging.startswith("GallbladderPackaging of video01 (6 seconds) is CleaningCoagulation in M_H")
    assert packaging.endswith("M recognizes 3 seconds of it, at most 2 in a row")
    assert dissection.startswith("GallbladderDissection of video02") and dissection.endswith(
        "9 seconds of it, at most 9 in a row"
    )
    assert lost_phases(["video01"], truth[:1], raw[:1], truth[:1]) == []


def test_moments_show_corrected_and_remaining_errors(played):
    _, truth, raw, best, surgeries = played
    moments = choose_moments(truth, raw, best, corrected=3, others=2)
    assert len(moments) == len(set(moments)) == 5

    def wrong(outcome, n, row):
        tools = (outcome.tools[n][row] >= 0.5) != truth[1][n][row]
        return outcome.phases[n][row] != truth[0][n][row] or tools.any()

    for moment in moments:
        assert wrong(raw, *moment)
    assert [wrong(best, *moment) for moment in moments] == [False] * 3 + [True] * 2
    assert [row < len(surgeries[n]) // 2 for n, row in moments] == [True] * 3 + [False] * 2


def test_plots(played, tmp_path, monkeypatch):
    import pages
    from PIL import Image

    from models.demo import plots

    def save_and_measure(figure, path, **options):
        save_figure(figure, path, **options)
        found[path.name] = pages.overlapping_texts(figure)

    found = {}
    save_figure = plots.save_figure
    monkeypatch.setattr(plots, "save_figure", save_and_measure)
    index, truth, raw, best, surgeries = played
    draw_videos(tmp_path, index, truth, [raw, best, best])
    draw_moments(tmp_path / "moments.png", index, truth, (raw, best), surgeries, seed=0, size=(64, 112))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["moments.png", "video03.png", "video04.png"]
    with Image.open(tmp_path / "moments.png") as image:
        assert image.width == 1600
    assert found == {"moments.png": [], "video03.png": [], "video04.png": []}


def test_parts_are_numbered_consecutively():
    parts = demo._parts({"train": 2, "val": 1, "test": 1})
    assert parts == {"train": ("video01", "video02"), "val": ("video03",), "test": ("video04",)}
