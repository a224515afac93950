"""Test the shapes of pseudo-counts."""

import jax.numpy as jnp
import numpy as np
import pytest

import hmmjax
from hmmjax.priors import as_pairs, check_priors


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (2.0, [2.0, 2.0]),
        ([1.0, 3.0], [1.0, 3.0]),
        (np.full((4, 3), 5.0), [5.0, 5.0]),
        (np.broadcast_to([1.0, 3.0], (4, 3, 2)), [1.0, 3.0]),
    ],
)
def test_pseudo_counts_of_tools_are_pairs_of_absent_and_present(given, expected):
    check_priors(hmmjax.init_params(3, 4), hmmjax.Priors(tool_initial=np.array(given)))
    pairs = np.broadcast_to(as_pairs(given, jnp.zeros((4, 3, 2))), (4, 3, 2))
    assert (pairs == expected).all()


def test_without_phases_pseudo_counts_per_tool_serve_both_states():
    assert as_pairs(np.arange(4.0), jnp.zeros((4, 2))).tolist() == [[0.0], [1.0], [2.0], [3.0]]
