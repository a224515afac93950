"""Shapes at the edge of what anybody would pass."""

import numpy as np
import pytest

import hmmjax
from hmmjax import Observations


@pytest.mark.parametrize("run", [hmmjax.posterior, hmmjax.filter])
def test_no_video_at_all(run):
    params = hmmjax.init_params(3, 2, emissions="confusion")
    out = run(params, Observations(np.zeros((0, 5), int), np.zeros((0, 5, 2), int)))
    assert out.phases.shape == (0, 5, 3) and out.tools.shape == (0, 5, 2) and out.log_likelihood.shape == (0,)


def test_no_video_decodes_to_nothing():
    params = hmmjax.init_params(3, emissions="confusion")
    out = hmmjax.decode(params, Observations(np.zeros((0, 5), int)))
    assert out.phases.shape == (0, 5) and out.log_prob.shape == (0,)
