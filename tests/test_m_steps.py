"""Iterative M-steps against optima in float64 of the same statistics: they end within rounding, from any start."""

import jax
import jax.numpy as jnp
import numpy as np
import optima
import pytest
from numpy.testing import assert_allclose

from hmmjax import emissions
from hmmjax._core import logistic, numerics
from hmmjax._core.categorical import normalize_counts
from hmmjax.emissions import _concentration

EPS = np.finfo(np.float32).eps
fit_concentrations = jax.jit(jax.vmap(_concentration.fit_concentration))


def mean_logs(rng, scale, size):
    """Return the mean log-outputs (4, size), in float32, of concentrations of about `scale`."""
    return np.float32(optima.dirichlet_mean_log(scale * rng.uniform(0.3, 3, (4, size))))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rows_of_counts_are_normalized_in_the_whole_range_of_floats(dtype):
    """Also in half precision, of which the counts of an hour of video are out of range."""
    counts = np.float32([1, 2, 5]) * np.float32([1e-37, 1e-20, 1, 1e6, 1e24])[:, None]
    previous = np.array([[0.2, 0.3, 0.5]] * 4 + [[0.4, 0.6, 0]], dtype)
    table = jax.jit(normalize_counts)(counts, previous)
    assert table.dtype == dtype
    assert_allclose(table, [[1 / 8, 2 / 8, 5 / 8]] * 4 + [[1 / 3, 2 / 3, 0]], rtol=2 * np.finfo(dtype).eps)
    assert_allclose(normalize_counts(0 * counts, previous), previous)
    assert_allclose(normalize_counts(0 * counts, previous, 2.0)[4], [0.5, 0.5, 0])


@pytest.mark.parametrize("start", [0.01, 1.0, 3000.0])
@pytest.mark.parametrize("size", [2, 7])
def test_concentrations_end_within_rounding_of_the_optimum(size, start):
    """The error of each is what an error of a few roundings in the statistics would cause."""
    rng = np.random.default_rng(size)
    means = np.concatenate([mean_logs(rng, scale, size) for scale in (0.05, 0.5, 3.0, 30.0, 300.0)])
    found = np.asarray(fit_concentrations(means, np.full_like(means, start)), float)
    for mean, c in zip(means.astype(float), found, strict=True):
        best, inverse = optima.dirichlet(mean)
        bound = np.abs(inverse) @ (20 * EPS * (1 - mean)) + 10 * EPS * best
        assert (np.abs(c - best) <= bound).all(), (mean, c / best - 1)


@pytest.mark.parametrize("family", [emissions.ToolBeta, emissions.PhaseDirichlet])
def test_families_fit_the_optimum_of_their_statistics(family):
    """With pseudo-counts, and whatever the start; two M-steps from different starts agree."""
    rng = np.random.default_rng(0)
    tools = family.track == "tools"
    observed = rng.uniform(size=(300, 3)) if tools else rng.dirichlet([2, 1, 4], 300)
    posterior = rng.dirichlet(np.ones(2 if tools else 3), (300, 3) if tools else 300).astype(np.float32)
    start = family.default(3)
    statistics = jax.tree.map(np.asarray, start.statistics(observed.astype(np.float32), posterior))
    uniform = -1.0 if tools else optima.dirichlet_mean_log(np.ones(3))
    weight = statistics["weight"].astype(float) + 2
    means = (statistics["log"].astype(float) + 2 * uniform) / weight[..., None]
    best = np.array([optima.dirichlet(m)[0] for m in means.reshape(-1, means.shape[-1])]).reshape(means.shape)
    maximize = jax.jit(lambda f, s: f.maximize(s, 2.0).concentration)
    for scale in (1.0, 20.0):
        found = maximize(jax.tree.map(lambda x, scale=scale: scale * x, start), statistics)
        assert_allclose(found, best, rtol=1e-4)


def test_logistic_regressions_end_within_rounding_of_the_optimum():
    """Of a hundred and of a million frames."""
    rng = np.random.default_rng(1)
    design = np.asarray(logistic.design(3))
    for frames in (1e2, 1e6):
        odds = rng.normal(-1, 1.5, (4, 4)) @ design.T
        count = frames * rng.dirichlet(np.full(8, 0.5), 4)
        counts = np.stack([count, count * np.exp(odds)], -1) / (1 + np.exp(odds))[..., None]
        counts = counts.astype(np.float32)
        found = logistic.fit(counts, jnp.zeros((4, 4)), 0.5)
        best = [optima.ridge_regression(c, np.full(4, 0.5))[0] for c in counts]
        assert_allclose(found, best, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", [emissions.ToolLogitNormal, emissions.ToolAutoregressiveLogitNormal])
def test_spreads_keep_their_digits_far_from_zero(family):
    """Log-odds of about -9, with a spread of 0.1: squares of them would cancel."""
    rng = np.random.default_rng(2)
    odds = rng.normal(-9, 0.1, (500, 1))
    observed = (1 / (1 + np.exp(-odds))).astype(np.float32)
    odds = (np.log(observed.astype(float)) - np.log1p(-observed.astype(float)))[:, 0]
    posterior = rng.dirichlet([1, 1], (500, 1)).astype(np.float32)
    step = jax.jit(lambda f, *past: f.maximize(f.statistics(observed, posterior, *past)))
    fitted = step(step(family.default(1)))
    weight = posterior[:, 0].astype(float)
    mean = weight.T @ odds / weight.sum(0)
    spread = np.sqrt((weight * (odds[:, None] - mean) ** 2).sum(0) / weight.sum(0))
    assert_allclose(fitted.mean[0], mean, rtol=1e-5)
    assert_allclose(fitted.scale[0], spread, rtol=1e-4)
    if not family.default(1).lag:
        return
    past = emissions.Past(observed[None, :-1], np.ones((1, 499, 1), bool))
    after = jax.jit(lambda f: f.maximize(f.statistics(observed[1:], posterior[1:], past)))(fitted)
    for state in range(2):
        expected = optima.regression(odds[:-1], odds[1:], weight[1:, state])
        assert_allclose([after.slope[0, state], after.residual[0, state]], expected[1:], rtol=1e-3, atol=1e-3)
        assert_allclose(after.intercept[0, state], expected[0], rtol=1e-3)


def test_digamma_differences_keep_their_digits():
    from scipy.special import psi

    a = np.geomspace(1e-3, 1e4, 50).astype(np.float32)
    for ratio in (2.0, 7.0, 1e3):
        b = (a * np.float32(ratio)).astype(np.float32)
        exact = psi(a.astype(float)) - psi(b.astype(float))
        found = numerics.digamma_difference(jnp.asarray(a), jnp.asarray(b))
        assert_allclose(found, exact, rtol=1e-5)
