"""Scores in other units, rounded scores, and logits that are none."""

import numpy as np
import pytest
from files import fails

from hmmjax import io

RNG = np.random.default_rng(0)
PHASES = RNG.dirichlet(np.ones(7), 30)
TOOLS = RNG.random((30, 7))


def saved(folder, **arrays):
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


@pytest.mark.parametrize(
    ("scores", "fix"),
    [
        (100 * PHASES, "if these are percentages, divide them by 100"),
        (255 * np.eye(7)[:3], "if these are bytes .0 to 255., divide them by 255"),
        (np.where(PHASES > 0.2, 4.0, -3.0), "if these are logits, pass kind='logits'"),
        (0.95 * PHASES, "divide each row by its sum, add the column of a class that is missing"),
    ],
)
def test_scores_in_another_unit_name_it(tmp_path, scores, fix):
    fails(f"(is not a probability|sum to 0.95, not 1). Fix: {fix}", saved(tmp_path, phases_1=scores))


@pytest.mark.parametrize(
    ("arrays", "cause"),
    [
        ({"phases_1": PHASES}, "all are from 0 to 1: they seem to be probabilities. Fix: pass kind='probabilities'"),
        ({"phases_1": 100 * PHASES}, "the rows sum to 100: they seem to be percentages. Fix: divide them by 100"),
        ({"tools_1": TOOLS}, "all are from 0 to 1"),
        ({"tools_1": 100 * TOOLS}, "none is negative, so that all tools would be present"),
    ],
)
def test_logits_that_are_probabilities_are_refused(tmp_path, arrays, cause):
    """Their softmax is nearly uniform, or nearly certain: wrong numbers without an error."""
    fails(f"declared as logits, but {cause}", saved(tmp_path, **arrays), kind="logits")


def test_logits_are_read(tmp_path):
    (found,) = io.read(saved(tmp_path, phases_1=3 + np.log(PHASES)), kind="logits")
    np.testing.assert_allclose(found.values, PHASES, rtol=1e-6)
    (found,) = io.read(saved(tmp_path, tools_1=np.log(TOOLS / (1 - TOOLS))), kind="logits")
    np.testing.assert_allclose(found.values, TOOLS, rtol=1e-6)


def test_rows_of_rounded_probabilities_are_normalized(tmp_path):
    rounded = np.round(PHASES, 2)
    assert np.abs(rounded.sum(1) - 1).max() > 5e-3
    (found,) = io.read(saved(tmp_path, phases_1=rounded))
    np.testing.assert_allclose(found.values, rounded / rounded.sum(1, keepdims=True), rtol=1e-6)
    fails("sum to 0.9, not 1", saved(tmp_path, phases_1=np.array([[0.5, 0.4, 0.0]])))
