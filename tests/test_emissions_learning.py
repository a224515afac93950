"""The M-step of every emission family: statistics, maximum, prior, and EM with the family."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import (
    ML,
    N,
    draw,
    every,
    every_density,
    every_memory,
    is_table,
    log_prob,
    maximize,
    onehot,
    past_of,
    perturbed,
    statistics_of,
    weights,
)
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax

log_prior = jax.jit(lambda family, pseudo: family.log_prior(pseudo))


def cut(past, frames):
    return jax.tree.map(lambda x: x[:, frames], past)


def expected_log_density(family, observed, posterior, pseudo=0.0):
    table = log_prob(family, observed, *past_of(family, len(observed)))
    return float((table * posterior).sum() + log_prior(family, pseudo))


@every
def test_statistics_add_up_and_ignore_weight_zero(family):
    built = perturbed(family)
    _, observed = draw(built, 20)
    posterior, past = weights(family, 20), past_of(built, 20)
    whole = statistics_of(built, observed, posterior, *past)
    parts = [statistics_of(built, observed[f], posterior[f], *cut(past, f)) for f in (slice(7), slice(7, None))]
    jax.tree.map(lambda w, a, b: assert_allclose(w, a + b, rtol=1e-4, atol=1e-4), whole, *parts)
    silenced = statistics_of(built, observed, posterior.at[7:].set(0), *past)
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-5, atol=1e-5), silenced, parts[0])
    block = statistics_of(
        built,
        observed.reshape(4, 5, *observed.shape[1:]),
        posterior.reshape(4, 5, *posterior.shape[1:]),
        *jax.tree.map(lambda x: x.reshape(len(x), 4, 5, *x.shape[2:]), past),
    )
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-4, atol=1e-4), whole, block)


@every_density
@pytest.mark.parametrize("pseudo", [0.0, 2.0])
def test_maximize_maximizes(family, pseudo):
    """The result beats its start and anything nearby, in expected log-density plus log-prior."""
    built = perturbed(family)
    _, observed = draw(built)
    posterior = weights(family, len(observed))
    best = maximize(built, statistics_of(built, observed, posterior, *past_of(built, len(observed))), pseudo)
    best.check()
    assert type(best) is family
    top = expected_log_density(best, observed, posterior, pseudo)
    assert top >= expected_log_density(built, observed, posterior, pseudo)
    rng = np.random.default_rng(3)
    for size in (0.02, 0.3):
        for _ in range(4):

            def move(x, size=size):
                moved = np.asarray(x) * np.exp(size * rng.normal(size=x.shape)).astype(np.float32)
                return jnp.asarray(moved / moved.sum(-1, keepdims=True) if is_table(x) else moved)

            assert expected_log_density(jax.tree.map(move, best), observed, posterior, pseudo) <= top + 1e-5 * abs(top)


@every_density
def test_maximize_recovers_what_made_the_data(family):
    built = perturbed(family)
    hidden, observed = draw(built, 20000)
    start = family.default(N)
    past = past_of(built, len(observed))
    fitted = maximize(start, statistics_of(start, observed, onehot(family, hidden), *past))
    # A weight is known to about 0.05 nats from so many frames, an intercept to about 0.02.
    atol = 0.2 if family.is_joint else 0.1 if hasattr(built, "intercept") else 0.02
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=0.08, atol=atol), fitted, built)


@every_density
def test_states_of_weight_zero_keep_their_value(family):
    if family.is_joint:
        return  # no parameter belongs to a state: tests/test_interactions.py leaves out a tool altogether
    built = perturbed(family)
    _, observed = draw(built, 20)
    posterior, past = weights(family, 20).at[..., 0].set(0), past_of(built, 20)
    fitted = maximize(built, statistics_of(built, observed, posterior, *past))
    fitted.check()
    axis = 0 if family.track == "phases" else 1
    for before, after in zip(*(map(np.asarray, jax.tree.leaves(f)) for f in (built, fitted)), strict=True):
        assert_array_equal(np.take(before, 0, axis), np.take(after, 0, axis))
        assert not np.array_equal(np.take(before, 1, axis), np.take(after, 1, axis))
    nothing = maximize(built, statistics_of(built, observed, jnp.zeros_like(posterior), *past))
    jax.tree.map(assert_array_equal, nothing, built)


@every
def test_log_prior_is_a_finite_scalar_and_zero_without_pseudo_counts(family):
    built = perturbed(family)
    assert built.log_prior(0.0) == 0
    assert jnp.shape(built.log_prior(1.5)) == () and np.isfinite(built.log_prior(1.5))


@pytest.mark.thorough
@every_density
def test_fit_with_the_family_goes_uphill(family):
    """From samples to fitted parameters."""
    truth = perturbed(family)
    sticky = jnp.full((N, N), 0.05) + 0.85 * jnp.eye(N)
    if family.track == "phases":
        params = hmmjax.Params(hmmjax.PhaseChain(jnp.full(N, 1 / N), sticky, truth))
    else:
        matrix = jnp.broadcast_to(jnp.array([[0.9, 0.1], [0.1, 0.9]]), (N, 2, 2))
        chains = hmmjax.ToolChains(jnp.full(N, 0.5), hmmjax.transitions.PhaseConditioned(matrix), truth)
        params = hmmjax.Params(tools=chains)
    _, obs, mask = hmmjax.sample(params, jax.random.key(5), [60, 45])
    result = hmmjax.fit(params, obs, mask, priors=ML, max_iterations=6, tolerance=0.0)
    history = np.asarray(result.history)
    assert np.isfinite(history).all() and (np.diff(history) >= -2e-6 * np.abs(history[1:])).all()


@every_memory
def test_counts_of_few_frames_are_shrunk_towards_the_family_without_memory(family):
    """Counting nothing after a label gives no memory; counting much gives what was counted."""
    built, start = perturbed(family), family.default(N)
    hidden, observed = draw(built, 20000)
    (past,) = past_of(built, 20000)
    found = statistics_of(start, observed, onehot(family, hidden), past)
    counted, most_likely = start.from_counts(found), maximize(start, found)
    for name in ("after",) if hasattr(built, "after") else ("intercept", "slope", "residual"):
        assert_allclose(getattr(counted, name), getattr(most_likely, name), rtol=0.15, atol=0.05)
    unseen = dataclasses.replace(past, observed=np.zeros_like(past.observed))
    alone = start.from_counts(statistics_of(start, observed, onehot(family, hidden), unseen))
    assert_allclose(log_prob(alone, observed, past), log_prob(alone, observed, unseen), rtol=1e-3, atol=1e-3)
