"""Other frame rates and gaps, against the original model with unobserved frames."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from cases import make
from numpy.testing import assert_allclose

import hmmjax
from hmmjax import Labels, Observations, durations, rates


@pytest.mark.parametrize("shape", [(3, 0), (0, 2)])
def test_rescaled_model_gives_the_same_results_for_every_third_frame(shape):
    case = make(1, *shape, num_frames=13, batch=1)
    one = Observations(*(None if x is None else x[0] for x in (case.obs.phases, case.obs.tools)))
    mask = np.arange(13) % 3 == 0
    slow = hmmjax.posterior(case.params, one, mask)
    thin = Observations(*(None if x is None else x[::3] for x in (one.phases, one.tools)))
    fast = hmmjax.posterior(rates.rescale(case.params, 3), thin)
    assert float(fast.log_likelihood) == pytest.approx(float(slow.log_likelihood), abs=1e-4)
    for track in ("phases", "tools"):
        if getattr(slow, track) is not None:
            assert_allclose(getattr(fast, track), getattr(slow, track)[::3], atol=1e-5)


def test_roots_undo_powers_and_stages_keep_their_mean():
    params = hmmjax.init_params(3, 2, stay=0.98)
    back = rates.rescale(rates.rescale(params, 5), 1 / 5)
    assert_allclose(back.phases.transition, params.phases.transition, atol=1e-5)
    assert_allclose(back.tools.transition.matrix, params.tools.transition.matrix, atol=1e-5)
    staged = durations.spread(hmmjax.init_params(3, 0, stay=0.99), (2, 1, 4))
    fewer = rates.rescale(staged, 4).phases
    assert fewer.stages == (2, 1, 4)
    mean = np.array(fewer.stages) / (1 - np.diagonal(fewer.transition))
    assert_allclose(mean * 4, 100, rtol=0.04)
    with pytest.raises(ValueError, match=r"fewer than its \d+ stages"):
        rates.rescale(staged, 60)


def test_timestamps_become_frames_of_which_some_are_unseen():
    case = make(2, 3, 1, num_frames=4, batch=1)
    one = Observations(case.obs.phases[0], case.obs.tools[0])
    times = [10.0, 12.0, 12.5, 15.0]
    obs, mask, labels, frames = rates.fill_gaps(times, one, Labels(np.array([0, -1, 1, 2])), step=0.5)
    assert mask.sum() == 4 and len(mask) == 11 and list(frames) == [0, 4, 5, 10]
    assert_allclose(obs.phases[frames], one.phases)
    assert labels.phases[5] == 1 and (labels.phases[~mask] == -1).all() and labels.tools is None
    found = hmmjax.posterior(case.params, obs, mask, labels)
    assert_allclose(np.asarray(found.phases)[[0, 5, 10]], np.eye(3), atol=1e-6)


def test_what_is_unknown_stays_so_whatever_the_type():
    """-1 as a boolean is True, which would make an unlabeled tool present."""
    for kind in (bool, np.uint8):
        known = Labels(np.array([0, 1], np.uint8), np.array([[0, 1], [1, 0]], kind))
        _, _, labels, _ = rates.fill_gaps([0, 2], Observations(np.zeros(2, int)), known)
        assert labels.phases.tolist() == [0, -1, 1] and labels.tools.tolist() == [[0, 1], [-1, -1], [1, 0]]


def test_high_powers_stay_chains_and_chains_that_only_go_forward_have_roots():
    """The rounding of float32 rows is not amplified by a power of a million."""
    slow = rates.rescale(hmmjax.init_params(3, 0), 1_000_000).phases.transition
    assert_allclose(slow, 1 / 3, atol=1e-6)
    forward = jnp.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]])
    params = hmmjax.Params(dataclasses.replace(hmmjax.init_params(3, 0).phases, transition=forward))
    assert_allclose(rates.rescale(rates.rescale(params, 2), 0.5).phases.transition, forward, atol=1e-6)


def test_bad_input_is_named():
    params, one = hmmjax.init_params(2, 0), Observations(np.zeros(2, int))
    for factor in (0, -1, 2.5):
        with pytest.raises(ValueError, match="positive integer"):
            rates.rescale(params, factor)
    flip = dataclasses.replace(params.phases, transition=jnp.array([[0.1, 0.9], [0.9, 0.1]]))
    with pytest.raises(ValueError, match="no root of order 2"):
        rates.rescale(hmmjax.Params(flip), 0.5)
    with pytest.raises(ValueError, match="positive integer"):
        rates.rescale(params, np.inf)
    ones = dataclasses.replace(params.phases, transition=jnp.ones((2, 2)))
    with pytest.raises(ValueError, match="sums to 2"):
        rates.rescale(hmmjax.Params(ones), 2)
    with pytest.raises(ValueError, match="step=-1"):
        rates.fill_gaps([0, 1], one, step=-1)
    with pytest.raises(ValueError, match="1000000000001 steps of 1e-12"):
        rates.fill_gaps([0, 1], one, step=1e-12)
    with pytest.raises(TypeError, match="must be an array, got int"):
        rates.fill_gaps([0, 1], Observations([0, 1]))
    with pytest.raises(ValueError, match="increasing"):
        rates.fill_gaps([1, 1], one)
    with pytest.raises(ValueError, match="not a multiple of the step"):
        rates.fill_gaps([0, 1.5], one)
    with pytest.raises(ValueError, match="3 times but 2 frames"):
        rates.fill_gaps([0, 1, 2], one)
