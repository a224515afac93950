"""Shapes at the edge of what anybody would pass."""

import jax
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


def test_no_video_inside_jit_no_tool_and_no_axis_of_videos():
    start = hmmjax.init_params(2, 2)
    nothing = np.zeros((0, 5, 2), np.float32)
    fitted = jax.jit(lambda p, o: hmmjax.fit(p, o, max_iterations=2).params)(start, Observations(nothing, nothing))
    jax.tree.map(np.testing.assert_array_equal, fitted, start)
    none = hmmjax.ToolChains(np.zeros((0, 2)), hmmjax.transitions.PhaseConditioned(np.zeros((0, 2, 2, 2))))
    with pytest.raises(ValueError, match="no tool at all"):
        hmmjax.posterior(hmmjax.Params(start.phases, none), Observations(np.full((1, 3, 2), 0.5)))
    for alone in (Observations(np.zeros(5, int)), Observations(None, np.zeros((5, 2), int))):
        with pytest.raises(ValueError, match="leading axis"):
            hmmjax.shard(alone)
