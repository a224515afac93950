"""The forms in which videos may be passed: padded batches, lists of videos, single videos."""

import cases
import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax
from hmmjax import Labels, Observations
from hmmjax._core.batch import bucket, prepare

LENGTHS = (5, 3, 1)
CASE = cases.make(21, 2, 2, families=("PhaseDirichlet", "ToolConfusion"), batch=3, lengths=LENGTHS, known=0.4)


def lists(record):
    """The arrays of a record as lists of videos without padding."""
    return cases.map_tracks(lambda x: [video[:n] for video, n in zip(x, LENGTHS, strict=True)], record)


MASK = [CASE.mask[i, :n] for i, n in enumerate(LENGTHS)]
ARGS = CASE.params, lists(CASE.obs), MASK, lists(CASE.labels)


@pytest.mark.parametrize("mask", [MASK, None], ids=["masks", "no masks"])
def test_results_of_lists_are_lists_of_the_results_of_the_padded_batch(mask):
    args = CASE.params, ARGS[1], mask, ARGS[3]
    for found, padded in (
        (hmmjax.posterior(*args), hmmjax.posterior(*CASE.args)),
        (hmmjax.decode(*args), hmmjax.decode(*CASE.args)),
        (hmmjax.filter(*args[:3]), hmmjax.filter(*CASE.args[:3])),
    ):
        for track in ("phases", "tools"):
            assert isinstance(getattr(found, track), list)
            for i, n in enumerate(LENGTHS):
                assert_array_equal(getattr(found, track)[i], getattr(padded, track)[i, :n])
    assert_array_equal(hmmjax.log_likelihood(*args), hmmjax.log_likelihood(*CASE.args))
    assert_array_equal(hmmjax.conditional_log_likelihood(*args), hmmjax.conditional_log_likelihood(*CASE.args))


@pytest.mark.thorough
def test_learning_from_lists_is_learning_from_the_padded_batch():
    for learn in (
        lambda *args: hmmjax.fit(*args, max_iterations=2).params,
        lambda *args: hmmjax.calibrate(*args, max_iterations=1).params,
        lambda *args: hmmjax.refine(*args, max_iterations=1).params,
    ):
        jax.tree.map(assert_array_equal, learn(*ARGS), learn(*CASE.args))
    labels, obs = lists(Labels(*(np.maximum(x, 0) for x in (CASE.labels.phases, CASE.labels.tools)))), ARGS[1]
    padded = Labels(np.maximum(CASE.labels.phases, 0), np.maximum(CASE.labels.tools, 0))
    only_phases = Observations(obs.phases), Observations(CASE.obs.phases)
    options = {"emissions": "probability"}
    found = hmmjax.estimate(labels, only_phases[0], MASK, **options)
    jax.tree.map(assert_array_equal, found, hmmjax.estimate(padded, only_phases[1], CASE.mask, **options))


def test_paths_of_lists_are_lists():
    found = hmmjax.sample_posterior(CASE.params, jax.random.key(0), *ARGS[1:], num_samples=2)
    padded = hmmjax.sample_posterior(CASE.params, jax.random.key(0), *CASE.args[1:], num_samples=2)
    for i, n in enumerate(LENGTHS):
        assert found.tools[i].shape == (2, n, 2)
        assert_array_equal(found.phases[i], padded.phases[:, i, :n])


def test_lists_inside_jit():
    inside = jax.jit(hmmjax.posterior)(*ARGS)
    assert [x.shape for x in inside.phases] == [(n, 2) for n in LENGTHS]
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-4, atol=1e-4), inside, hmmjax.posterior(*ARGS))


def test_several_recognizers_are_a_tuple_of_lists():
    families = (CASE.params.phases.emission, CASE.params.phases.emission)
    params = hmmjax.Params(hmmjax.PhaseChain(CASE.params.phases.initial, CASE.params.phases.transition, families))
    phases = ARGS[1].phases
    found = hmmjax.posterior(params, Observations((phases, None)))
    alone = hmmjax.posterior(hmmjax.Params(CASE.params.phases), Observations(phases))
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-6), found, alone)
    discrete = Observations((phases, None)).discretize().phases[0]
    assert [x.shape for x in discrete] == [(n,) for n in LENGTHS]


def test_bad_lists_are_named(unchecked):
    obs, labels = ARGS[1], ARGS[3]
    with pytest.raises(ValueError, match=r"obs\.phases is a list of videos but mask is one array"):
        hmmjax.posterior(CASE.params, obs, CASE.mask)
    with pytest.raises(ValueError, match=r"obs\.tools is a list of 2 videos but obs\.phases of 3"):
        hmmjax.posterior(CASE.params, Observations(obs.phases, obs.tools[:2]))
    with pytest.raises(ValueError, match=r"obs\.tools\[0\] has 3 frames but obs\.phases\[0\] has 5"):
        hmmjax.posterior(CASE.params, Observations(obs.phases, [obs.tools[1], *obs.tools[1:]]))
    with pytest.raises(ValueError, match=r"obs\.phases\[2\] has shape \(1, 1\) but obs\.phases\[0\] has \(5, 2\)"):
        hmmjax.posterior(CASE.params, Observations([*obs.phases[:2], obs.phases[2][:, :1]]))
    with pytest.raises(TypeError, match=r"obs\.phases\[1\] is int64 but obs\.phases\[0\] is float32"):
        hmmjax.posterior(CASE.params, Observations([obs.phases[0], np.zeros((3, 2), int), obs.phases[2]]))
    with pytest.raises(TypeError, match=r"obs\.phases\[0\] must be an array, got list"):
        hmmjax.posterior(CASE.params, Observations([[0, 1]]))
    with pytest.raises(ValueError, match="empty list"):
        hmmjax.posterior(CASE.params, Observations([]))
    with pytest.raises(TypeError, match="labels must be"):
        hmmjax.posterior(CASE.params, obs, None, labels.phases)


def test_videos_of_many_lengths_share_programs():
    assert [bucket(n) for n in (0, 16, 17, 24, 25, 33, 48, 49)] == [16, 16, 24, 24, 32, 48, 48, 64]
    one, two = (prepare(CASE.params, Observations(np.full((n, 2), 0.5, np.float32)), None, None) for n in (5, 9))
    assert one.layout.num_frames == 5 and two.layout.num_frames == 9
    # The form of the input is not part of a program's key.
    listed = prepare(CASE.params, Observations([np.full((5, 2), 0.5, np.float32)]), None, None)
    assert listed.layout.lengths == (5,)
    assert jax.tree.structure(one) == jax.tree.structure(two) == jax.tree.structure(listed)


def test_probabilities_are_within_zero_and_one():
    """Rounding of one EM step's marginals is cut off."""
    params = hmmjax.init_params(7, 3)
    _, obs, mask = hmmjax.sample(params, jax.random.key(0), [300, 200])
    for result in (hmmjax.posterior(params, obs, mask), hmmjax.filter(params, obs, mask)):
        for x in (result.phases, result.tools):
            assert np.min(x) >= 0 and np.max(x) <= 1
