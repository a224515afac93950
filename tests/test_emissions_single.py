"""What single emission families promise beyond the suite for all of them."""

import dataclasses

import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import ML, draw, log_prob, maximize, onehot, perturbed, statistics_of, weights
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax
from hmmjax import emissions


def test_scaled_likelihood_is_bayes_rule_and_counts_frequencies():
    rng = np.random.default_rng(0)
    frequency = np.array([0.5, 0.3, 0.2])
    likelihood = rng.uniform(0.1, 1, (20, 3))
    posterior = likelihood * frequency / (likelihood * frequency).sum(-1, keepdims=True)
    found = emissions.PhaseScaled(jnp.asarray(frequency, jnp.float32)).log_prob(jnp.asarray(posterior, jnp.float32))
    away = np.asarray(found) - np.log(likelihood)
    assert_allclose(away, np.broadcast_to(away[:, :1], away.shape), atol=1e-5)
    presence = np.array([0.1, 0.6])
    pair = rng.uniform(0.1, 1, (20, 2, 2))  # likelihoods under absence and presence
    both = pair * np.stack([1 - presence, presence], -1)
    observed = (both[..., 1] / both.sum(-1)).astype(np.float32)
    away = np.asarray(emissions.ToolScaled(jnp.asarray(presence, jnp.float32)).log_prob(observed)) - np.log(pair)
    assert_allclose(away[..., 0], away[..., 1], atol=1e-5)
    labels = hmmjax.Labels(np.array([[0, 0, 1, 2]]), np.array([[[0, 1]] * 3 + [[1, 1]]]))
    obs = hmmjax.Observations(np.full((1, 4, 3), 1 / 3, np.float32), np.full((1, 4, 2), 0.5, np.float32))
    params = hmmjax.estimate(labels, obs, emissions="scaled", priors=hmmjax.Priors(tool_emission=1.0))
    assert_allclose(params.phases.emission.frequency, [0.5, 0.25, 0.25])
    assert_allclose(params.tools.emission.frequency, [2 / 6, 5 / 6], rtol=1e-6)


@pytest.mark.thorough
def test_identical_outputs_are_capped_with_a_warning():
    """The likelihood has no maximum there."""
    phases = np.tile(np.array([0.2, 0.3, 0.5], np.float32), (1, 50, 1))
    with pytest.warns(UserWarning, match=r"cap of 10000.*Priors\(phase_emission"):
        result = hmmjax.fit(hmmjax.init_params(3), hmmjax.Observations(phases), priors=ML, max_iterations=5)
    assert np.isfinite(result.history).all()
    jax.tree.map(lambda x: assert_array_equal(np.isfinite(x), True), result.params)
    tools = np.full((1, 50, 1), 0.7, np.float32)
    with pytest.warns(UserWarning, match=r"cap of 10000.*Priors\(tool_emission"):
        result = hmmjax.fit(hmmjax.init_params(0, 1), hmmjax.Observations(tools=tools), priors=ML, max_iterations=5)
    assert np.isfinite(result.history).all()


@pytest.mark.parametrize("concentration", [0.05, 0.5, 1.0, 30.0, 1000.0])
def test_dirichlet_and_beta_keep_their_digits(concentration):
    """Below one, where the density is infinite at the border, and far above it."""
    rng = np.random.default_rng(0)
    mean = rng.dirichlet(np.full(7, 3.0), 7)
    table = (7 * concentration * mean).astype(np.float32)
    observed = np.stack([rng.dirichlet(row) for row in table]).astype(np.float32)
    ours = emissions.PhaseDirichlet(jnp.asarray(table)).log_prob(observed)
    # Terms of a few thousand nats cancel: their roundings are what float32 can do.
    assert_allclose(ours, emission_oracles.phase_dirichlet(table, observed), rtol=2e-5, atol=3e-3)
    pair = (concentration * rng.uniform(0.5, 2, (4, 2, 2))).astype(np.float32)
    observed = rng.beta(pair[:, 1, 0], pair[:, 1, 1], (9, 4)).astype(np.float32)
    ours = emissions.ToolBeta(jnp.asarray(pair)).log_prob(observed)
    assert_allclose(ours, emission_oracles.tool_beta(pair, observed), rtol=2e-5, atol=3e-3)


def test_outputs_are_clipped_as_documented():
    """1e-6 from 0 and 1."""
    table = np.array([[[1.0, 3.0], [3.0, 0.5]]], np.float32)
    beta = emissions.ToolBeta(jnp.asarray(table))
    for extreme, clipped in ((0.0, 1e-6), (1e-45, 1e-6), (1.0, 1 - 1e-6), (1 - 1e-8, 1 - 1e-6)):
        ours = beta.log_prob(np.array([extreme], np.float32))
        assert_allclose(ours, emission_oracles.tool_beta(table, np.array([[clipped]]))[0], rtol=1e-4, atol=1e-4)


def test_fitted_dirichlet_satisfies_the_likelihood_equations():
    from scipy.special import digamma

    built = perturbed(emissions.PhaseDirichlet)
    _, observed = draw(built, 400)
    posterior = np.asarray(weights(built, 400), np.float64)
    fitted = maximize(built, statistics_of(built, observed, jnp.asarray(posterior, jnp.float32)))
    c = np.asarray(fitted.concentration, np.float64)
    log_y = np.log(np.clip(np.asarray(observed, np.float64), 1e-6, 1 - 1e-6))
    mean = posterior.T @ log_y / posterior.sum(0)[:, None]
    assert_allclose(digamma(c) - digamma(c.sum(-1, keepdims=True)), mean, rtol=1e-5)


@pytest.mark.parametrize("family", [emissions.PhaseInflatedDirichlet, emissions.PhaseLogitNormal])
def test_one_phase_is_enough(family):
    """With one phase there are no log-odds."""
    one, observed = family.default(1), jnp.ones((4, 1))
    table = log_prob(one, observed)
    fitted = maximize(one, statistics_of(one, observed, jnp.ones_like(table)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((table, fitted)))


def test_a_recognizer_may_have_other_classes_than_the_phases():
    """Counts, likelihood and EM of a rectangular confusion matrix against NumPy."""
    rng = np.random.default_rng(0)
    hidden = np.repeat(rng.integers(0, 3, (2, 8)), 5, 1)
    observed = np.where(rng.random(hidden.shape) < 0.8, hidden + 2, rng.integers(0, 5, hidden.shape))
    labels, obs = hmmjax.Labels(hidden), hmmjax.Observations(observed)
    params = hmmjax.estimate(labels, obs, num_phases=3, num_symbols=5)
    counts = np.zeros((3, 5))
    np.add.at(counts, (hidden, observed), 1)
    assert_allclose(params.phases.emission.matrix, counts / counts.sum(-1, keepdims=True), rtol=1e-5)
    result = hmmjax.fit(params, obs, priors=ML, max_iterations=3, tolerance=0.0)
    assert (np.diff(result.history) > -1e-3).all() and result.params.phases.emission.matrix.shape == (3, 5)
    assert hmmjax.diagnostics.find_label_switching(params) == []
    with pytest.raises(ValueError, match=r"obs.phases is [34] at video 0, frame \d+, but its symbols are 0..2"):
        hmmjax.estimate(labels, obs, num_phases=3)


@pytest.mark.parametrize("symbols", [1, 2, 4])
def test_confusion_with_any_number_of_symbols(symbols):
    for family in (emissions.PhaseConfusion.default(3, symbols), emissions.ToolConfusion.default(3, symbols)):
        family.check()
        hidden = np.random.default_rng(0).integers(0, 2, (400,) if family.track == "phases" else (400, 3))
        observed = family.sample(jax.random.key(0), jnp.asarray(hidden))
        assert family.num_symbols == symbols and set(np.unique(observed)) <= set(range(symbols))
        symbol = np.arange(symbols) if family.track == "phases" else np.stack([np.arange(symbols)] * 3, -1)
        assert_allclose(np.exp(family.log_prob(symbol)).sum(0), 1, rtol=1e-5)
        fitted = family.maximize(family.statistics(observed, onehot(family, hidden)))
        assert fitted.matrix.shape == family.matrix.shape
    with pytest.raises(ValueError, match=r"\(L, M\): one row per phase"):
        emissions.PhaseConfusion(jnp.full(3, 1 / 3)).check()


@hmmjax.pytree
class Offset(emissions.PhaseEmission):
    """A family with statistics and an M-step but no prior: unit normals about `mean`."""

    mean: jax.Array
    observes = "reals"
    event_shape = (1,)

    @property
    def num_phases(self):
        return self.mean.shape[0]

    def log_prob(self, observations):
        return -0.5 * (observations - self.mean) ** 2

    def statistics(self, observations, posterior):
        flat = posterior.reshape(-1, posterior.shape[-1])
        return {"weight": flat.sum(0), "sum": (flat * observations.reshape(-1, 1)).sum(0)}

    def maximize(self, statistics, pseudo_counts=0.0):
        return type(self)(statistics["sum"] / statistics["weight"])


def test_a_family_without_a_prior_can_be_fitted_without_pseudo_counts():
    start = hmmjax.init_params(2)
    chain = dataclasses.replace(start.phases, emission=Offset(jnp.array([-1.0, 1.0])))
    features = np.random.default_rng(0).normal(size=(1, 30, 1)).astype(np.float32)
    params, obs = hmmjax.Params(chain), hmmjax.Observations(features)
    result = hmmjax.fit(params, obs, priors=ML, max_iterations=3, tolerance=0.0)
    assert (np.diff(result.history) > -1e-4).all()
    with pytest.raises(TypeError, match="Offset has no prior: define its log_prior"):
        hmmjax.fit(params, obs, priors=hmmjax.Priors(phase_emission=1.0))
    with pytest.raises(TypeError, match="Offset has no prior"):
        chain.emission.log_prior(1.0)


def test_a_family_that_declares_too_little_is_named():
    with pytest.raises(TypeError, match="Nothing must declare what it observes: add observes = 'labels' or"):

        class Nothing(emissions.PhaseEmission):
            def log_prob(self, observations):
                return observations

    with pytest.raises(TypeError, match="Astray must declare its track"):

        class Astray(emissions.Emission):
            observes = "labels"

            def log_prob(self, observations):
                return observations

    @hmmjax.pytree
    class Shapeless(emissions.PhaseEmission):
        observes = "reals"
        num_phases = 2

    with pytest.raises(TypeError, match="Shapeless must define event_shape"):
        Shapeless().event_shape  # noqa: B018


def test_scores_become_monotone_evidence():
    """Isotonic maps of scores: monotone, as sure as the labels are separated; a tool without labels keeps its own."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, (1, 4000, 2))
    labels[..., 1] = -1
    scores = np.clip(np.where(labels == 1, 0.7, 0.4) + rng.normal(0, 0.1, labels.shape), 0, 1).astype(np.float32)
    family = emissions.ToolMonotone.from_labels(scores, labels)
    assert (np.diff(np.asarray(family.log_ratios), axis=-1) >= -1e-6).all()
    log_prob = np.asarray(family.log_prob(jnp.array([[0.55, 0.5], [0.9, 0.9], [0.2, 0.1]], jnp.float32)))
    assert not log_prob[..., 0].any()
    assert abs(log_prob[0, 0, 1]) < 1 and log_prob[1, 0, 1] > 4 and log_prob[2, 0, 1] < -4
    assert abs(log_prob[0, 1, 1]) < 0.5 and log_prob[1, 1, 1] > 1 and log_prob[2, 1, 1] < -1
    assert family.maximize(family.statistics(scores, np.ones((*scores.shape, 2)))) is family
    with pytest.raises(ValueError, match="finite"):
        emissions.ToolMonotone(jnp.array([[0.0, np.nan]])).check()


@pytest.mark.parametrize(("num_symbols", "num_frames"), [(3, 50), (3, 600), (40, 600)])
def test_labels_select_columns_and_their_derivatives(num_symbols, num_frames):
    """Few labels of many frames are selected, others gathered."""
    rng = np.random.default_rng(5)
    matrix = rng.dirichlet(np.ones(num_symbols), 2).astype(np.float32)
    seen, weights = rng.integers(0, num_symbols, (2, num_frames)), rng.random((2, num_frames, 2)).astype(np.float32)
    family = emissions.PhaseConfusion(matrix)
    assert_allclose(family.log_prob(seen), np.log(matrix).T[seen], rtol=1e-6)
    slope = jax.grad(lambda m: (weights * emissions.PhaseConfusion(m).log_prob(seen)).sum())(matrix)
    counts = np.zeros((num_symbols, 2))
    np.add.at(counts, seen, weights)
    assert_allclose(slope, counts.T / matrix, rtol=1e-5)
