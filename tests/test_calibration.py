"""Tempered emissions and the powers that calibration finds."""

import dataclasses

import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import hmmjax
from hmmjax import Observations, Params, emissions

LABELS, CLEAN, MASK = hmmjax.sample(
    hmmjax.init_params(3, 2, emissions="confusion", stay=0.95), jax.random.key(4), [120, 90, 120]
)


pytestmark = pytest.mark.thorough


def _in_runs(obs):
    """Return outputs whose errors last: each output is held for eight frames."""
    held = np.arange(obs.phases.shape[1]) // 8 * 8
    return Observations(obs.phases[:, held], obs.tools[:, held])


def _params(obs):
    return hmmjax.estimate(LABELS, obs, MASK, priors=hmmjax.Priors(*[0.5] * 6), num_phases=3)


def _tempered(params, phases, tools):
    return Params(
        dataclasses.replace(params.phases, emission=emissions.Tempered(params.phases.emission, phases)),
        dataclasses.replace(params.tools, emission=emissions.Tempered(params.tools.emission, tools)),
    )


def test_power_one_changes_nothing_and_a_small_power_leaves_the_chain_alone():
    params = _params(CLEAN)
    plain = hmmjax.posterior(params, CLEAN, MASK)
    one = hmmjax.posterior(_tempered(params, jnp.array(1.0), jnp.ones(2)), CLEAN, MASK)
    np.testing.assert_allclose(one.phases, plain.phases, atol=1e-6)
    np.testing.assert_allclose(one.log_likelihood, plain.log_likelihood, rtol=1e-6)
    none = hmmjax.posterior(_tempered(params, jnp.array(1e-9), jnp.full(2, 1e-9)), CLEAN, MASK)
    blind = hmmjax.posterior(params, Observations(), MASK)
    np.testing.assert_allclose(none.tools, blind.tools, atol=1e-4)


def test_powers_multiply_log_likelihoods_per_tool_and_keep_impossible():
    family = emissions.ToolConfusion(jnp.array([[[1.0, 0.0], [0.2, 0.8]], [[0.9, 0.1], [0.3, 0.7]]]))
    outputs = jnp.array([[1, 1]])
    table = emissions.Tempered(family, jnp.array([0.5, 2.0])).log_prob(outputs)
    expected = [[[-np.inf, 0.5 * np.log(0.8)], [2 * np.log(0.1), 2 * np.log(0.7)]]]
    np.testing.assert_allclose(table, expected, rtol=1e-6)


def test_calibration_finds_that_repeated_errors_are_worth_less():
    obs = _in_runs(CLEAN)
    found = hmmjax.calibrate(_params(obs), obs, MASK, LABELS)
    assert found.after > found.before
    assert float(found.params.phases.emission.power) < 0.6
    # The objective equals that of the core.
    clamped = hmmjax.log_likelihood(found.params, obs, MASK, LABELS).sum()
    free = hmmjax.log_likelihood(found.params, obs, MASK).sum()
    assert found.after == pytest.approx(float(clamped - free), rel=1e-4)
    # And no nearby power is better by more than the pull toward one.
    for factor in (0.8, 1.25):
        power = found.params.phases.emission.power * factor
        nearby = _tempered(_params(obs), power, found.params.tools.emission.power)
        value = hmmjax.log_likelihood(nearby, obs, MASK, LABELS).sum() - hmmjax.log_likelihood(nearby, obs, MASK).sum()
        assert float(value) < found.after + 1.0


def test_held_out_folds_look_through_tables_of_the_other_videos():
    """`before` is the sum of the oracle's results, with the tables of each fold counted in the others."""
    labels, obs, mask = hmmjax.sample(hmmjax.init_params(3, 1, emissions="confusion"), jax.random.key(5), [40] * 4)
    priors = hmmjax.Priors(*[0.5] * 6)
    params = hmmjax.estimate(labels, obs, mask, priors=priors, num_phases=3)
    found = hmmjax.calibrate(params, obs, mask, labels, folds=2, priors=priors)
    assert found.folds == 2 and found.after > found.before

    states = [np.asarray(x) for x in (labels.phases, labels.tools[..., 0], obs.phases, obs.tools[..., 0])]
    chain, tools = params.phases, params.tools
    model = oracles.Model(
        *map(np.asarray, (chain.initial, chain.transition, tools.initial, tools.transition.matrix)),
    )
    expected = 0.0
    for part in ([0, 2], [1, 3]):
        others = np.setdiff1d(range(4), part)
        tables = []
        for true, outputs, size in ((states[0], states[2], 3), (states[1], states[3], 2)):
            counts = np.full((size, size), 0.5)
            np.add.at(counts, (true[others].ravel(), outputs[others].ravel()), 1)
            tables.append(counts / counts.sum(1, keepdims=True))
        for i in part:
            outputs = (
                emission_oracles.phase_confusion(tables[0], states[2][i]),
                emission_oracles.tool_confusion(tables[1:], obs.tools[i]),
            )
            known = labels.phases[i], labels.tools[i]
            clamped = oracles.dense(model, oracles.emission_table(40, 3, 1, *outputs, labels=known))
            expected += (
                clamped.log_likelihood - oracles.dense(model, oracles.emission_table(40, 3, 1, *outputs)).log_likelihood
            )
    assert found.before == pytest.approx(expected, rel=1e-4)


def test_folds_are_of_labeled_videos_whatever_the_padding_holds():
    """Padding's labels are none, and unlabeled videos between do not put all the labeled ones into one part."""
    labels, obs, mask = hmmjax.sample(hmmjax.init_params(2, 0, emissions="confusion"), jax.random.key(6), [20] * 11)
    known = np.array(labels.phases)
    known[np.arange(11) % 5 > 0] = -1  # videos 0, 5 and 10
    params = hmmjax.init_params(2, 0, emissions="confusion")
    for frames in (20, 18):  # padded by the library, and by the caller too
        seen = np.array(mask) & (np.arange(20) < frames)
        padded = np.where(np.arange(20) < frames, known, 0)
        assert hmmjax.calibrate(params, obs, seen, hmmjax.Labels(padded), max_iterations=0).folds == 0
    data = hmmjax._core.batch.prepare(params, obs, mask, hmmjax.Labels(known))
    assert [part.tolist() for part in hmmjax.calibration.split_folds(data, 3)] == [[0], [5], [10]]


def test_powers_per_phase_of_any_family_and_with_few_videos():
    obs = _in_runs(CLEAN)
    found = hmmjax.calibrate(_params(obs), obs, MASK, LABELS, per_phase=True)
    assert found.folds == 0 and found.params.phases.emission.power.shape == (3,)
    # Starting from powers is allowed, and finds the same ones.
    repeated = hmmjax.calibrate(found.params, obs, MASK, LABELS, per_phase=True)
    np.testing.assert_allclose(repeated.params.phases.emission.power, found.params.phases.emission.power, rtol=0.2)
    assert repeated.before == pytest.approx(found.before, rel=1e-5) and repeated.after >= found.after - 0.1


def test_em_keeps_the_power_and_never_lowers_its_objective():
    params = _tempered(_params(CLEAN), jnp.array(0.3), jnp.array([0.5, 0.7]))
    result = hmmjax.fit(params, CLEAN, MASK, max_iterations=5)
    assert np.all(np.diff(result.history) > -1e-3)
    np.testing.assert_array_equal(result.params.tools.emission.power, params.tools.emission.power)


def test_bad_input_is_named(unchecked):
    params = _params(CLEAN)
    with pytest.raises(ValueError, match="needs labels"):
        hmmjax.calibrate(params, CLEAN, MASK)
    for wrong in (4, 2.5):
        with pytest.raises(ValueError, match=f"folds={wrong} needs"):
            hmmjax.calibrate(params, CLEAN, MASK, LABELS, folds=wrong)
    with pytest.raises(ValueError, match="l2=nan must be"):
        hmmjax.calibrate(params, CLEAN, MASK, LABELS, l2=float("nan"))
    with pytest.raises(ValueError, match="max_iterations=-1 must be"):
        hmmjax.calibrate(params, CLEAN, MASK, LABELS, max_iterations=-1)
    with pytest.raises(ValueError, match="obs is empty"):
        hmmjax.calibrate(params, Observations(), MASK, LABELS)
    with pytest.raises(ValueError, match=r"power must be positive"):
        hmmjax.posterior(_tempered(params, jnp.array(-1.0), jnp.ones(2)), CLEAN, MASK)
    with pytest.raises(ValueError, match=r"power has shape"):
        hmmjax.posterior(_tempered(params, jnp.array(1.0), jnp.ones(5)), CLEAN, MASK)
