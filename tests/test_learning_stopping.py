"""EM as a whole: history, stopping, starts, unusual videos, and fits inside `jit`."""

import dataclasses
import math

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax

CONFUSION = ("PhaseConfusion", "ToolConfusion")
PROBABILITY = ("PhaseDirichlet", "ToolBeta")
ML = hmmjax.Priors()  # maximum likelihood: no anchors


def fit(case, params=None, **options):
    options = {"priors": ML, **options}
    return hmmjax.fit(case.params if params is None else params, case.obs, case.mask, case.labels, **options)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_exact_number_of_iterations(count):
    case = cases.make(16, 2, 2, 12, families=CONFUSION)
    result = fit(case, max_iterations=count, tolerance=0.0)
    assert result.num_iterations == count and not result.converged
    assert len(result.history) == len(result.log_likelihood) == count + 1
    if count == 0:
        jax.tree.map(assert_array_equal, result.params, case.params)
    assert_allclose(
        result.log_likelihood[-1], np.sum(hmmjax.log_likelihood(result.params, case.obs, case.mask)), rtol=1e-5
    )


def test_converged_is_honest():
    case = cases.make(16, 2, 2, 12, families=CONFUSION)
    at_once = fit(case, tolerance=math.inf)
    assert at_once.converged and at_once.num_iterations == 1
    loose = fit(case, tolerance=1e-3, max_iterations=200)
    assert loose.converged and 1 < loose.num_iterations < 200
    gains = np.diff(loose.history) / np.maximum(1, np.abs(loose.history[1:]))
    assert gains[-1] <= 1e-3 and (gains[:-1] > 1e-3).all()


def test_fit_inside_jit():
    case = cases.make(16, 2, 2, 12, families=CONFUSION)
    eager = fit(case, max_iterations=4, tolerance=0.0)
    traced = jax.jit(lambda p, o, m: hmmjax.fit(p, o, m, priors=ML, max_iterations=4, tolerance=0.0))(*case.args[:3])
    assert_allclose(traced.history, eager.history, rtol=1e-5)
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-4, atol=1e-5), traced.params, eager.params)
    stopped = jax.jit(lambda p, o, m: hmmjax.fit(p, o, m, priors=ML, max_iterations=4, tolerance=9.0))(*case.args[:3])
    assert stopped.num_iterations == 1 and bool(stopped.converged)
    assert np.isnan(np.asarray(stopped.history)[2:]).all() and len(stopped.history) == 5


def test_impossible_video_is_named():
    """The error gives the video's number and what to do."""
    emission = hmmjax.emissions.PhaseConfusion(jnp.array([[0.9, 0.1], [0.1, 0.9]]))
    params = hmmjax.Params(hmmjax.PhaseChain(jnp.array([1.0, 0.0]), jnp.eye(2), emission))
    obs = hmmjax.Observations(np.zeros((3, 4), int))
    labels = hmmjax.Labels(np.array([[-1] * 4, [0] * 4, [0, 0, 1, -1]]))
    with pytest.raises(ValueError, match=r"video 2.*impossible.*Priors") as error:
        hmmjax.fit(params, obs, labels=labels)
    assert "video 0" not in str(error.value)


@pytest.mark.thorough
def test_learning_recovers_a_known_model():
    """With enough data, EM from a rough start recovers the transitions that generated the data."""
    case = cases.make(17, 3, 2, 1000, batch=2, families=PROBABILITY, sticky=0.9)
    start = hmmjax.init_params(3, 2)
    result = hmmjax.fit(start, case.obs, priors=ML, max_iterations=30)
    assert_allclose(result.params.phases.transition, case.model.transition, atol=0.06)
    truth = np.sum(hmmjax.log_likelihood(case.params, case.obs))
    assert result.log_likelihood[-1] > truth


def test_a_video_of_one_frame():
    case = cases.make(9, 2, 2, 50, families=CONFUSION, lengths=(50, 1))
    fitted = hmmjax.fit(case.params, case.obs, case.mask, max_iterations=3, tolerance=0.0)
    jax.tree.map(lambda x: assert_array_equal(np.isfinite(x), True), fitted.params)
    only = cases.map_tracks(lambda x: x[1:, :1], case.obs)
    lone = hmmjax.posterior(case.params, only)
    both = hmmjax.posterior(*case.args)
    assert_allclose(both.phases[1, 0], lone.phases[0, 0], rtol=1e-5)
    alone = hmmjax.fit(case.params, only, max_iterations=2, tolerance=0.0)
    jax.tree.map(lambda x: assert_array_equal(np.isfinite(x), True), alone.params)
    assert_allclose(np.sum(alone.params.phases.transition, -1), 1, rtol=1e-6)
    assert hmmjax.decode(case.params, only).phases.shape == (1, 1)


def test_default_start_on_short_videos():
    case = cases.make(11, 3, 2, 9, batch=3, lengths=(2, 5, 9))
    priors = hmmjax.Priors(phase_emission=1.0, tool_emission=1.0)
    result = hmmjax.fit(hmmjax.init_params(3, 2), case.obs, case.mask, max_iterations=3, priors=priors)
    assert np.isfinite(result.history).all()


def test_permuted_start_gives_the_permuted_fit():
    case = cases.make(27, 3, 0, 40, families=CONFUSION)
    p = np.array([2, 0, 1])
    m, table = case.model, case.emissions["PhaseConfusion"]
    start = cases.to_params(
        oracles.Model(m.initial[p], m.transition[np.ix_(p, p)]), {"PhaseConfusion": table[p]}, "PhaseConfusion", ""
    )
    plain = hmmjax.fit(case.params, case.obs, priors=ML, max_iterations=10, tolerance=0.0)
    moved = hmmjax.fit(start, case.obs, priors=ML, max_iterations=10, tolerance=0.0)
    assert_allclose(moved.history, plain.history, rtol=1e-5)
    expected = np.asarray(plain.params.phases.transition)[np.ix_(p, p)]
    assert_allclose(moved.params.phases.transition, expected, rtol=1e-3, atol=1e-4)


def test_a_symbol_absent_from_the_data_gets_probability_zero():
    start = cases.to_params(
        oracles.random_model(np.random.default_rng(36), 3, 0),
        {"PhaseConfusion": np.random.default_rng(36).dirichlet(np.ones(3), 3)},
        "PhaseConfusion",
        "",
    )
    outputs = np.random.default_rng(36).integers(0, 2, (2, 40))
    result = hmmjax.fit(start, hmmjax.Observations(outputs), priors=ML, max_iterations=20, tolerance=0.0)
    assert np.isfinite(result.history).all()
    assert (np.diff(result.history) >= -1e-4).all()
    assert_array_equal(np.asarray(result.params.phases.emission.matrix)[:, 2], 0)


def test_fit_continues_from_its_result_with_arrays_of_either_kind():
    case = cases.make(37, 2, 2, families=CONFUSION)
    on_device = cases.map_tracks(jnp.asarray, case.obs)
    once = hmmjax.fit(case.params, case.obs, priors=ML, max_iterations=2, tolerance=0.0)
    twice = hmmjax.fit(once.params, on_device, priors=ML, max_iterations=2, tolerance=0.0)
    straight = hmmjax.fit(jax.tree.map(np.asarray, case.params), on_device, priors=ML, max_iterations=4, tolerance=0.0)
    assert_allclose(np.r_[once.history, twice.history[1:]], straight.history, rtol=1e-6)


def test_fit_without_videos_inside_jit_returns_the_start():
    start = hmmjax.init_params(2, 2)
    empty = np.zeros((0, 5, 2), np.float32)
    fitted = jax.jit(lambda p, o: hmmjax.fit(p, o, max_iterations=2).params)(start, hmmjax.Observations(empty, empty))
    jax.tree.map(assert_array_equal, fitted, start)


def test_estimate_does_not_count_phases_in_padding():
    labels, mask = np.array([[0, 1, 1, 99, 99]]), np.array([[1, 1, 1, 0, 0]], bool)
    outputs = np.array([[0, 1, 0, 77, 99]])
    assert hmmjax.estimate(hmmjax.Labels(labels), None, mask).num_phases == 2
    assert hmmjax.estimate(hmmjax.Labels(labels), hmmjax.Observations(outputs), mask).num_phases == 2
    with pytest.raises(ValueError, match="no known phase"):
        hmmjax.estimate(hmmjax.Labels(np.full((1, 4), -1)))


@pytest.mark.parametrize("pseudo", [[0.0, 50.0, 0.0], 2.0])
def test_emission_priors_per_phase_raise_the_objective(pseudo):
    outputs = np.random.default_rng(0).dirichlet([2, 2, 2], 30).astype(np.float32)
    priors = hmmjax.Priors(phase_emission=jnp.array(pseudo))
    result = hmmjax.fit(hmmjax.init_params(3), hmmjax.Observations(outputs), priors=priors, max_iterations=5)
    assert np.all(np.diff(result.history) > -1e-3)


def test_an_objective_that_falls_is_not_convergence():
    @hmmjax.pytree
    class Worse(hmmjax.emissions.PhaseConfusion):
        def maximize(self, statistics, pseudo_counts=0.0):
            del statistics, pseudo_counts
            return type(self)(jnp.full_like(self.matrix, 1 / 3))

    params = hmmjax.init_params(3, emissions="confusion")
    _, obs, mask = hmmjax.sample(params, jax.random.key(0), [40])
    chain = dataclasses.replace(params.phases, emission=Worse(params.phases.emission.matrix))
    frozen = ("phases.initial", "phases.transition")
    with pytest.warns(UserWarning, match="lowered the objective"):
        result = hmmjax.fit(hmmjax.Params(chain), obs, mask, freeze=frozen, max_iterations=1)
    assert not result.converged


def test_fit_of_masked_videos_is_the_same_inside_jit():
    params, priors = hmmjax.init_params(2, emissions="confusion"), hmmjax.Priors(phase_transition=5.0)
    obs, mask = hmmjax.Observations(np.zeros((2, 4), int)), np.zeros((2, 4), bool)
    eager = hmmjax.fit(params, obs, mask, priors=priors, max_iterations=3)
    inside = jax.jit(lambda p: hmmjax.fit(p, obs, mask, priors=priors, max_iterations=3))(params)
    assert_allclose(eager.params.phases.transition, inside.params.phases.transition, rtol=1e-5)
    assert_allclose(eager.history, inside.history[: len(eager.history)], rtol=1e-5)
