"""Test the grid's automatic choice: no test label reaches it, and gains have the right standard errors."""

# ruff: noqa: E402 (what may be missing is skipped before it is imported)

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

for package in ("flax", "optax", "orbax.checkpoint", "yaml", "sklearn", "matplotlib"):
    pytest.importorskip(package, reason=f"needs the vision extra ({package})")

from hmmjax.simulate import simulate_surgeries
from models.data.frames import FrameTable
from models.experiment.cell import missing, stabilize
from models.experiment.choice import choose, gains
from models.experiment.videos import label

pytestmark = pytest.mark.thorough
SURGERIES = simulate_surgeries(8, 0, minutes=2.0)
PARTS = ("whole", "whole", "val", "val", "val", "val", "test", "test")
TEST = sorted(s.name for s in SURGERIES[6:])


@pytest.fixture(scope="module")
def known():
    lengths = [len(s) for s in SURGERIES]
    return FrameTable(
        videos=np.repeat([s.name for s in SURGERIES], lengths),
        frames=np.concatenate([25 * np.arange(n) for n in lengths]),
        phases=np.concatenate([s.phases for s in SURGERIES]),
        tools=np.concatenate([s.tools for s in SURGERIES]),
        parts=np.repeat(PARTS, lengths),
    )


PREDICTED = {
    s.name: {"frames": 25 * np.arange(len(s)), "phases": s.phase_probabilities, "tools": s.tool_probabilities}
    for s in SURGERIES
}


@pytest.mark.parametrize(("scenario", "tracks"), [("S_C", ["phases", "tools"]), ("S_D", ["tools"])])
def test_the_choice_sees_no_test_label(known, scenario, tracks):
    options = {} if scenario == "S_C" else {"draw": "whole", "positives": 6, "negatives": 6, "apart": 0}
    table = label(known, scenario, **options)[0]
    spoilt = dataclasses.replace(table, phases=table.phases.copy(), tools=table.tools.copy())
    test = table.parts == "test"
    spoilt.phases[test], spoilt.tools[test] = 0, 1
    found, how = choose(table, PREDICTED, tracks, TEST)
    other, _ = choose(spoilt, PREDICTED, tracks, TEST)
    assert list(found) == ["M_H", "M_H online"] and "counted" in how
    for version in found:
        for video in TEST:
            for track in (*tracks, "tool_log_odds"):
                value = found[version][video][track]
                np.testing.assert_array_equal(value, other[version][video][track])
                if track in PREDICTED[video]:
                    assert value.shape == PREDICTED[video][track].shape and (value >= 0).all() and (value <= 1).all()
    worse = gains({v: PREDICTED[v] for v in TEST}, found["M_H"], known, tracks)["mAP"][0]
    assert worse > -0.02


def test_gains_have_the_errors_of_a_mean(known):
    """The jackknife of a mean over videos is its standard error."""
    videos = [s.name for s in SURGERIES]
    truth = {v: {"phases": np.eye(7)[known.phases[known.videos == v]]} for v in videos}
    raw = {v: {"phases": PREDICTED[v]["phases"]} for v in videos}
    gain, error = gains(raw, truth, known, ["phases"])["accuracy"]
    wrong = [(x["phases"].argmax(1) != truth[v]["phases"].argmax(1)).mean() for v, x in raw.items()]
    assert gain == pytest.approx(np.mean(wrong))
    assert error == pytest.approx(np.std(wrong, ddof=1) / np.sqrt(len(wrong)))
    assert gains(raw, raw, known, ["phases"]) == {"accuracy": [0, 0], "Jaccard": [0, 0]}


def test_a_finished_cell_is_stabilized_with_further_families_only(known, monkeypatch):
    plan = SimpleNamespace(emissions=("confusion", "auto"))
    assert missing(plan, None) == ["confusion", "auto"]
    assert missing(plan, {"M_H, confusion": {}}) == ["auto"]
    assert missing(plan, {"M_H, confusion": {}, "M_H, auto": {}}) == []
    values = {v: {"phases": np.eye(7)[known.phases[known.videos == v]]} for v in TEST}
    monkeypatch.setattr("models.experiment.cell.choose", lambda *_: ({"M_H": values, "M_H online": values}, "chosen"))
    found = stabilize(label(known, "S_C")[0], PREDICTED, ["phases"], ["auto"])
    assert found["M_H, auto"]["accuracy"] == found["M_H online, auto"]["accuracy"] == 1
    how = found["hmm"]["auto"]
    assert how["method"] == "chosen" and how["gains"]["M_H"]["accuracy"][0] == pytest.approx(1 - found["M"]["accuracy"])
