"""The research scripts run at a very small size, and show what they promise."""

import importlib.util
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough
FOLDER = Path(__file__).parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_script_is_tested():
    # The last one by tests/models/test_own_encoder.py: it needs an environment with torch and transformers.
    tested = {"swap_families", "learn_a_family", "end_to_end", "transformers_features"}
    assert {p.stem for p in FOLDER.glob("*.py")} == tested


def test_swap_families():
    found = load("swap_families").main(["--videos", "4", "--minutes", "2"])
    assert set(found) == {"raw", "confusion", "probability", "calibrated"}
    assert all(0 < x <= 1 for pair in found.values() for x in pair)


def test_learn_a_family():
    history = load("learn_a_family").main(["--steps", "25", "--frames", "60"])
    assert history[-1] > history[0]


def test_end_to_end():
    found = load("end_to_end").main(["--steps", "40", "--frames", "60"])
    assert all(x > 0.5 for x in found.values())
