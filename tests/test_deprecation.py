"""Renamed public names and arguments work for one release, with a DeprecationWarning."""

import importlib

import numpy as np
import pytest

from hmmjax import plots, simulate

RENAMED = [
    ("hmmjax.io", "atomic", "write_atomically"),
    ("hmmjax.plots", "PHASE_COLOURS", "PHASE_COLORS"),
    ("hmmjax.plots", "ROW_COLOURS", "ROW_COLORS"),
    ("hmmjax.plots", "plot_shares", "plot_proportions"),
    ("hmmjax.simulate", "Recogniser", "Recognizer"),
    ("hmmjax.simulate", "recognise_phases", "recognize_phases"),
    ("hmmjax.simulate", "recognise_tools", "recognize_tools"),
]


@pytest.mark.parametrize(("module", "old", "new"), RENAMED)
def test_old_names_warn(module, old, new):
    loaded = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{module}.{old} is deprecated.*Use {module}.{new}"):
        assert getattr(loaded, old) is getattr(loaded, new)
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = loaded.missing


def test_old_arguments_warn():
    with pytest.warns(DeprecationWarning, match=r"simulate_surgeries\(recogniser=...\).*Use recognizer="):
        (surgery,) = simulate.simulate_surgeries(1, minutes=0.5, recogniser=simulate.Recognizer(noise=0.0))
    (same,) = simulate.simulate_surgeries(1, minutes=0.5, recognizer=simulate.Recognizer(noise=0.0))
    np.testing.assert_array_equal(surgery.tool_probabilities, same.tool_probabilities)
    with pytest.raises(TypeError, match=r"both 'recogniser' .deprecated. and 'recognizer'"):
        simulate.simulate_surgeries(1, recogniser=None, recognizer=None)
    with pytest.warns(DeprecationWarning, match="shares"):
        plots.plot_presence(shares=[0.5], names=["a"])
    with pytest.warns(DeprecationWarning, match="candor="):
        assert simulate.Recognizer(candour=0.5) == simulate.Recognizer(candor=0.5)
