"""Gaussian emissions: likelihood and EM against float64 oracles, every covariance structure, degenerate data."""

import dataclasses

import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose

import hmmjax
from hmmjax import Labels, Observations, Params, diagnostics, emissions, io
from hmmjax._core.constraints import apply_update
from hmmjax.emissions import PhaseGaussian, ToolGaussian

STRUCTURES = ("full", "diagonal", "tied")
L, D, T = 3, 2, 60
RNG = np.random.default_rng(0)
MODEL = oracles.random_model(RNG, L, 0, sticky=0.8)
HIDDEN, _ = oracles.simulate(RNG, MODEL, T)
MEAN = RNG.normal(size=(L, D)) * 2
# Far from zero, with features on scales that differ by a factor of 100.
FEATURES = (np.array([50.0, -3.0]) + (MEAN[HIDDEN] + RNG.normal(size=(T, D))) * [10.0, 0.1]).astype(np.float32)


def chain_with(family):
    transition, initial = (jnp.asarray(x, jnp.float32) for x in (MODEL.transition, MODEL.initial))
    return Params(hmmjax.PhaseChain(initial, transition, family))


def full(covariance, structure):
    """Covariances (L, D, D) in float64."""
    covariance = np.asarray(covariance, np.float64)
    if structure == "diagonal":
        return np.stack([np.diag(v) for v in covariance])
    return np.broadcast_to(covariance, (L, D, D))


def moments(features, weights, structure):
    """Weighted means and covariances in float64."""
    total = weights.sum(0)
    mean = weights.T @ features / total[:, None]
    away = features[:, None] - mean
    covariance = np.einsum("tp,tpd,tpe->pde", weights, away, away) / total[:, None, None]
    if structure == "diagonal":
        return mean, np.einsum("pdd->pd", covariance)
    return mean, covariance if structure == "full" else np.einsum("p,pde->de", total / total.sum(), covariance)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_likelihood_and_one_em_step_are_the_oracles(structure):
    start = PhaseGaussian.from_data(FEATURES, L, structure=structure)
    table = emission_oracles.phase_gaussian(
        [np.asarray(start.mean, float), full(start.covariance, structure)], FEATURES
    )
    answer = oracles.dense(MODEL, oracles.emission_table(T, L, 0, table, None))
    params, obs = chain_with(start), Observations(FEATURES)
    assert float(hmmjax.log_likelihood(params, obs)) == pytest.approx(answer.log_likelihood, rel=1e-5)
    result = hmmjax.fit(params, obs, max_iterations=1, tolerance=0.0)
    mean, covariance = moments(FEATURES.astype(float), answer.phases, structure)
    fitted = result.params.phases.emission
    assert_allclose(fitted.mean, mean, rtol=1e-4)
    assert_allclose(fitted.covariance, covariance, rtol=2e-3, atol=1e-4 * np.abs(covariance).max())
    assert (np.diff(hmmjax.fit(params, obs, max_iterations=8, tolerance=0.0).history) > -1e-3).all()


@pytest.mark.parametrize("structure", STRUCTURES)
def test_agrees_with_hmmlearn(structure):
    hmm = pytest.importorskip("hmmlearn.hmm", reason="hmmlearn is only in the bench extra")
    start = PhaseGaussian.from_data(FEATURES, L, structure=structure)
    kind = {"diagonal": "diag"}.get(structure, structure)
    theirs = hmm.GaussianHMM(
        L, kind, min_covar=0, covars_prior=0, n_iter=1, tol=-np.inf, init_params="", implementation="log"
    )
    theirs.startprob_, theirs.transmat_ = (x / x.sum(-1, keepdims=True) for x in (MODEL.initial, MODEL.transition))
    theirs.means_, theirs.covars_ = (np.asarray(x, float) for x in (start.mean, start.covariance))
    features = FEATURES.astype(float)
    params, obs = chain_with(start), Observations(FEATURES)
    assert float(hmmjax.log_likelihood(params, obs)) == pytest.approx(theirs.score(features), rel=1e-5)
    theirs.fit(features)
    fitted = hmmjax.fit(params, obs, max_iterations=1, tolerance=0.0).params.phases
    assert_allclose(fitted.emission.mean, theirs.means_, rtol=1e-4)
    assert_allclose(full(fitted.emission.covariance, structure), theirs.covars_, rtol=2e-3, atol=2e-2)
    assert_allclose(fitted.transition, theirs.transmat_, atol=1e-4)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_degenerate_data_stay_finite(structure):
    """Identical frames, a constant feature, and a feature that copies another."""
    constant = np.full((40, D), 1000, np.float32)
    one = np.stack([np.arange(40) % 7, np.full(40, 5)], -1).astype(np.float32)
    copied = np.repeat(np.arange(40)[:, None] % 7, D, 1).astype(np.float32)
    weights = jnp.asarray(np.random.default_rng(1).dirichlet(np.ones(L), 40), jnp.float32)
    step = jax.jit(lambda f, x: f.maximize(f.statistics(x, weights)))
    for features in (constant, one, copied):
        family = PhaseGaussian.from_data(features, L, structure=structure)
        for _ in range(4):
            family = step(family, features)
        family.check()
        assert np.isfinite(family.log_prob(features)).all()


def test_the_bound_on_variances_does_not_depend_on_units():
    """A state of identical frames: its variance is bounded relative to that of all frames."""
    features = np.random.default_rng(0).normal(size=(40, 1)).astype(np.float32)
    features[:10] = features[0]
    weights = jnp.asarray(np.stack([np.arange(40) < 10, np.arange(40) >= 10], -1), jnp.float32)
    for unit in (1e-6, 1.0, 1e6):
        scaled = features * np.float32(unit)
        family = PhaseGaussian.from_data(scaled, 2, structure="diagonal")
        fitted = family.maximize(family.statistics(scaled, weights))
        assert_allclose(fitted.covariance[0], 1e-4 * scaled.astype(float).var(), rtol=1e-3)


@pytest.mark.thorough
@pytest.mark.parametrize("structure", STRUCTURES)
def test_tools_have_features_of_their_own(structure):
    """Each tool as two phases would be fitted; sampled, fitted, streamed and calibrated."""
    truth = ToolGaussian(jnp.array([[[0, 0], [3, 1]], [[1, 0], [-2, 2.0]]]), jnp.ones((2, 2, 2)), "diagonal")
    params = hmmjax.init_params(0, 2, stay=0.9)
    params = dataclasses.replace(params, tools=dataclasses.replace(params.tools, emission=truth))
    labels, obs, mask = hmmjax.sample(params, jax.random.key(0), [50, 40])
    assert obs.tools.shape == (2, 50, 2, 2)
    start = ToolGaussian.from_data(obs.tools, mask=mask, structure=structure)
    weights = jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(2), (100, 2)), jnp.float32)
    flat = obs.tools.reshape(100, 2, 2)
    fitted = start.maximize(start.statistics(flat, weights))
    for k in range(2):
        tied = structure == "tied"
        alone = PhaseGaussian(start.mean[k], start.covariance[k], structure)
        alone = alone.maximize(alone.statistics(flat[:, k], weights[:, k]))
        assert_allclose(fitted.mean[k], alone.mean, rtol=1e-4, atol=1e-5)
        assert_allclose(fitted.covariance[k], alone.covariance, rtol=1e-4, atol=1e-5)
        assert alone.covariance.ndim == (2 if tied or structure == "diagonal" else 3)
    counted = hmmjax.estimate(labels, obs, mask, emissions=start)
    assert_allclose(counted.tools.emission.mean, truth.mean, atol=0.8)
    found = hmmjax.calibrate(counted, obs, mask, labels, max_iterations=1)
    assert np.isfinite(found.after)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_refine_keeps_covariances_positive_definite_and_parameters_are_counted(structure):
    params = chain_with(PhaseGaussian.from_data(FEATURES, L, structure=structure))
    number = {"full": L * 3, "diagonal": L * 2, "tied": 3}[structure]
    assert diagnostics.num_parameters(params) == 2 + 6 + L * D + number
    far = np.random.default_rng(0).normal(0, 1, 100).astype(np.float32)
    apply_update(params, far, frozenset()).phases.emission.check()
    same = apply_update(params, 0 * far, frozenset()).phases.emission
    assert_allclose(same.covariance, params.phases.emission.covariance, rtol=1e-5)
    labels = Labels(HIDDEN)
    found = hmmjax.refine(params, Observations(FEATURES), None, labels, max_iterations=2)
    assert found.after >= found.before


def test_estimate_takes_families_and_files_keep_them(tmp_path):
    start = PhaseGaussian.from_data(FEATURES, L)
    params = hmmjax.estimate(Labels(HIDDEN), Observations(FEATURES), emissions=start)
    mean, covariance = moments(FEATURES.astype(float), np.eye(L)[HIDDEN], "full")
    assert_allclose(params.phases.emission.mean, mean, rtol=1e-4)
    assert_allclose(params.phases.emission.covariance, covariance, rtol=2e-3, atol=1e-2)
    io.save_params(tmp_path / "m.npz", params)
    again = io.load_params(tmp_path / "m.npz").params
    assert again.phases.emission.structure == "full"
    assert_allclose(again.phases.emission.mean, params.phases.emission.mean)


def test_fused_with_labels_and_missing_frames():
    predicted = HIDDEN.copy()
    predicted[::3] = -1
    features = FEATURES.copy()
    features[1::3] = np.nan
    families = (emissions.PhaseConfusion.default(L), PhaseGaussian.from_data(FEATURES, L))
    obs = Observations((predicted, features))
    value = float(hmmjax.log_likelihood(chain_with(families), obs))
    tables = [
        emission_oracles.phase_confusion(np.asarray(families[0].matrix, float), np.maximum(predicted, 0)),
        emission_oracles.phase_gaussian([np.asarray(x, float) for x in jax.tree.leaves(families[1])], FEATURES),
    ]
    tables[0][::3], tables[1][1::3] = 0, 0
    answer = oracles.dense(MODEL, oracles.emission_table(T, L, 0, sum(tables), None))
    assert value == pytest.approx(answer.log_likelihood, rel=1e-5)


def test_bad_input_is_named(unchecked):
    params = chain_with(PhaseGaussian.default(L, D))
    with pytest.raises(ValueError, match="has 3 entries in its last axis, but PhaseGaussian observes 2"):
        hmmjax.posterior(params, Observations(np.zeros((T, 3), np.float32)))
    with pytest.raises(ValueError, match="NaN in some classes at video 0, frame 4"):
        hmmjax.posterior(params, Observations(np.where(np.arange(T * D).reshape(T, D) == 9, np.nan, FEATURES)))
    with pytest.raises(ValueError, match="inf at video 0, frame 4, feature 1, but features must be finite"):
        hmmjax.posterior(params, Observations(np.where(np.arange(T * D).reshape(T, D) == 9, np.inf, FEATURES)))
    with pytest.raises(TypeError, match="real features"):
        hmmjax.posterior(params, Observations(HIDDEN))
    with pytest.raises(ValueError, match="structure='spherical' is unknown"):
        PhaseGaussian.default(L, D, "spherical")
    bad = PhaseGaussian(jnp.zeros((L, D)), jnp.ones((L, D, D)))
    with pytest.raises(ValueError, match=r"positive definite, but that of state \(0,\)"):
        bad.check()
    with pytest.raises(ValueError, match=r"covariance has shape"):
        PhaseGaussian(jnp.zeros((L, D)), jnp.ones((L, D))).check()
    with pytest.raises(ValueError, match="at least one observed frame"):
        PhaseGaussian.from_data(FEATURES, L, mask=np.zeros(T, bool))


def test_features_of_tools_may_be_of_a_single_video():
    features, labels = (
        np.arange(24, dtype=np.float32).reshape(6, 2, 2),
        Labels(np.repeat([0, 1], 3), np.eye(2, dtype=int)[[0, 1] * 3]),
    )
    family, one = ToolGaussian.from_data(features), Observations(tools=features)
    params = hmmjax.estimate(labels, one, emissions=family)
    batched = hmmjax.estimate(
        jax.tree.map(lambda x: x[None], labels), Observations(tools=features[None]), emissions=family
    )
    jax.tree.map(np.testing.assert_array_equal, params, batched)
    assert diagnostics.bic(params, one) == pytest.approx(
        diagnostics.bic(params, Observations(tools=features[None])), rel=1e-6
    )


@pytest.mark.parametrize("outer", [lambda f: f, jax.jit])
def test_an_axis_of_size_one_is_not_broadcast(outer, unchecked):
    params, posterior = chain_with(PhaseGaussian.default(L, D)), outer(hmmjax.posterior)
    with pytest.raises(ValueError, match=r"obs\.phases has 1 entries in its last axis, but PhaseGaussian observes 2"):
        posterior(params, Observations(FEATURES[:, :1]))
    with pytest.raises(ValueError, match=r"obs\.tools has 1 entries in its last axis, but ToolBeta observes 2"):
        posterior(hmmjax.init_params(0, 2), Observations(tools=np.full((4, 1), 0.5, np.float32)))


def test_integers_and_numbers_beyond_float32_are_refused_as_features(unchecked):
    params = chain_with(PhaseGaussian.default(L, D))
    with pytest.raises(TypeError, match=r"obs.phases holds int\d+ but PhaseGaussian observes real features"):
        hmmjax.posterior(params, Observations(FEATURES.astype(int)[None]))
    with pytest.raises(ValueError, match="but features must be finite"):
        hmmjax.posterior(params, Observations(FEATURES.astype(np.float64)[None] * 1e200))


def test_families_start_from_lists_of_videos():
    videos, mask = [FEATURES[:20], FEATURES[20:]], np.arange(T) % 7 > 0
    listed = PhaseGaussian.from_data(videos, L, mask=[mask[:20], mask[20:]])
    jax.tree.map(np.testing.assert_array_equal, listed, PhaseGaussian.from_data(FEATURES, L, mask=mask))
    tools = ToolGaussian.from_data([x[:, :, None] for x in videos])
    jax.tree.map(np.testing.assert_array_equal, tools, ToolGaussian.from_data(FEATURES[:, :, None]))
    with pytest.raises(ValueError, match=r"mask has shape \(5,\) but observations have \(60,\) frames"):
        PhaseGaussian.from_data(FEATURES, L, mask=np.ones(5, bool))
