"""One suite for every emission family that `hmmjax.emissions` exports: exporting a new family is enough to test it.

A family is built by its `default(n)`, and its observations are drawn by its own `sample`.
"""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax
from hmmjax import emissions

N = 3
ML = hmmjax.Priors()  # maximum likelihood: no anchors
# Not densities over observations: they cannot be sampled and there is nothing to maximize.
SCALED = {"PhaseScaled", "ToolScaled", "ToolMonotone"}
FAMILIES = [
    c
    for c in (getattr(emissions, name) for name in emissions.__all__)
    if inspect.isclass(c) and dataclasses.is_dataclass(c) and hasattr(c, "default")
]
ORACLES = {
    "PhaseConfusion",
    "ToolConfusion",
    "PhaseDirichlet",
    "ToolBeta",
    "PhaseInflatedDirichlet",
    "ToolInflatedBeta",
    "PhaseLogitNormal",
    "ToolLogitNormal",
    "ToolLogistic",
    "PhaseGaussian",
    "ToolGaussian",
    "PhaseAutoregressive",
    "ToolAutoregressive",
    "PhaseAutoregressiveLogitNormal",
    "ToolAutoregressiveLogitNormal",
}


def every(function):
    return pytest.mark.parametrize("family", FAMILIES, ids=lambda c: c.__name__)(function)


def every_memory(function):
    memories = [c for c in FAMILIES if c.default(N).lag]
    return pytest.mark.parametrize("family", memories, ids=lambda c: c.__name__)(function)


def every_density(function):
    densities = [c for c in FAMILIES if c.__name__ not in SCALED]
    return pytest.mark.parametrize("family", densities, ids=lambda c: c.__name__)(function)


def is_table(x):
    """Return whether rows are distributions."""
    return np.allclose(np.asarray(x).sum(-1), 1, atol=1e-4)


def perturbed(family, seed=0):
    """Return a family away from its default: nothing symmetric, every parameter valid."""
    rng = np.random.default_rng(seed)
    start = family.default(N)

    def move(x):
        moved = np.asarray(x) * rng.uniform(0.7, 1.4, np.shape(x)).astype(np.float32)
        if family.__name__ in ("ToolScaled", "ToolMonotone"):
            return jnp.asarray(moved)
        return jnp.asarray(moved / moved.sum(-1, keepdims=True) if is_table(x) else moved, jnp.float32)

    moved = jax.tree.map(move, start)
    moved.check()
    return moved


# Compiled once for all tests: a loop inside `maximize` would otherwise be compiled in every call.
maximize = jax.jit(lambda family, statistics, pseudo=0.0: family.maximize(statistics, pseudo))
statistics_of = jax.jit(lambda family, obs, posterior, *past: family.statistics(obs, posterior, *past))
log_prob = jax.jit(lambda family, obs, *past: family.log_prob(obs, *past))
log_prior = jax.jit(lambda family, pseudo: family.log_prior(pseudo))
sample = jax.jit(lambda family, key, hidden, *past: family.sample(key, hidden, *past))


def states(family, rng, *lead):
    return rng.integers(0, N, lead) if family.track == "phases" else rng.integers(0, 2, (*lead, N))


def onehot(family, hidden):
    if family.is_joint:
        configs = np.eye(2**N, dtype=np.float32)[hidden @ 2 ** np.arange(N)[::-1]]
        return jnp.asarray(np.broadcast_to(configs[:, None], (len(hidden), *tail(family))))
    return jnp.asarray(np.eye(N if family.track == "phases" else 2, dtype=np.float32)[hidden])


def draw(family, n=200, seed=1):
    # Draw a multiple of 200: compiling a sampler for another shape takes seconds.
    hidden = states(family, np.random.default_rng(seed), -(-n // 200) * 200)
    if type(family).__name__ in SCALED:
        rng = np.random.default_rng(seed)
        observed = rng.dirichlet(np.ones(N), n) if family.track == "phases" else rng.uniform(size=(n, N))
        return hidden[:n], observed.astype(np.float32)
    past = past_of(family, len(hidden))
    observed = np.asarray(sample(family, jax.random.key(seed), jnp.asarray(hidden), *past))
    return hidden[:n], observed[:n]


def past_of(family, n):
    """Return the past of the n frames of `draw`, a part of which is unobserved; nothing for a family without memory."""
    if not family.lag:
        return ()
    family = perturbed(type(family))  # the same past, whatever the parameters
    rng, length = np.random.default_rng(9), family.lag * -(-n // 200) * 200
    hidden = states(family, rng, length)
    values = np.asarray(sample(family, jax.random.key(9), jnp.asarray(hidden)))
    observed = rng.uniform(size=(family.lag, length // family.lag, *np.shape(hidden)[1:])) < 0.8
    return (emissions.Past(values.reshape(family.lag, -1, *values.shape[1:])[:, :n], observed[:, :n]),)


def cut(past, frames):
    return jax.tree.map(lambda x: x[:, frames], past)


def tail(family):
    """Return the shape of `log_prob` per frame; a joint family has a column per configuration."""
    return (N,) if family.track == "phases" else (N, 2**N if family.is_joint else 2)


def weights(family, n, seed=2):
    shape = (n, *tail(family))
    if family.is_joint:  # of whole configurations: the same for every tool
        w = np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), (n, 1))
        return jnp.asarray(np.broadcast_to(w, shape), jnp.float32)
    w = np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), shape[:-1])
    return jnp.asarray(w, jnp.float32)


def expected_log_density(family, observed, posterior, pseudo=0.0):
    table = log_prob(family, observed, *past_of(family, len(observed)))
    return float((table * posterior).sum() + log_prior(family, pseudo))


def test_all_families_are_here():
    assert {c.__name__ for c in FAMILIES} >= ORACLES


@every
def test_declarations(family):
    assert family.track in ("phases", "tools") and family.observes in ("labels", "probabilities", "reals")
    built = family.default(N)
    assert issubclass(family, emissions.PhaseEmission if family.track == "phases" else emissions.ToolEmission)
    assert (built.num_phases if family.track == "phases" else built.num_tools) == built.size == N
    assert built.table_shape == tail(family) and built.unwrapped is built and built.sources == (built,)
    assert family.__doc__ and "Source" in family.__doc__
    built.check()


@every
def test_is_a_frozen_pytree(family):
    built = perturbed(family)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(built, dataclasses.fields(built)[0].name, None)
    leaves, tree = jax.tree.flatten(built)
    rebuilt = jax.tree.unflatten(tree, leaves)
    assert type(rebuilt) is family and leaves
    jax.tree.map(assert_array_equal, rebuilt, built)


@every
def test_log_prob_has_the_shape_of_the_track_whatever_leads(family):
    built = perturbed(family)
    _, observed = draw(built, 6)
    table = built.log_prob(observed)
    assert table.shape == (6, *tail(family)) and table.dtype == jnp.float32
    single = built.log_prob(jnp.asarray(observed[0]))
    assert single.shape == tail(family)
    assert_allclose(single, table[0], rtol=1e-5, atol=1e-6)
    block = built.log_prob(observed.reshape(2, 3, *observed.shape[1:]))
    assert_allclose(block.reshape(6, *tail(family)), table, rtol=1e-5, atol=1e-6)
    assert_allclose(jax.jit(built.log_prob)(observed), table, rtol=1e-5, atol=1e-6)


@every_density
def test_log_prob_against_scipy(family):
    built = perturbed(family)
    _, observed = draw(built)
    tables = [np.asarray(x) for x in jax.tree.leaves(built)]
    table = tables[0] if len(tables) == 1 else tables
    expected = oracles.log_densities(family.__name__, table, np.asarray(observed))
    assert_allclose(built.log_prob(observed), expected, rtol=2e-4, atol=2e-4)
    for past in past_of(built, len(observed)):
        expected = oracles.log_densities(family.__name__, table, np.asarray(observed), past)
        assert_allclose(built.log_prob(observed, past), expected, rtol=2e-4, atol=2e-4)


@every_density
def test_density_sums_to_one(family):
    """Over symbols, or over [0, 1] or the real line on a fine grid; a Dirichlet has two classes here."""
    if family.observes == "labels":
        built, symbols = perturbed(family), np.arange(N if family.track == "phases" else 2)
        observed = symbols if family.track == "phases" else np.stack([symbols] * N, -1)
        assert_allclose(np.exp(built.log_prob(observed)).sum(0), 1, rtol=1e-5)
        return
    if family.observes == "reals":
        built, x = family.default(2), np.linspace(-9, 9, 20000, dtype=np.float32)
        features = np.broadcast_to(x.reshape(-1, *[1] * len(built.event_shape)), (len(x), *built.event_shape))
        assert_allclose(np.exp(log_prob(built, features)).mean(0) * 18, 1, rtol=2e-3)
        return
    built = jax.tree.map(lambda x: x if is_table(x) else 1 + jnp.abs(x), family.default(2))
    x = (np.arange(20000, dtype=np.float32) + 0.5) / 20000
    observed = np.stack([x, 1 - x], -1) if family.track == "phases" else np.stack([x, x], -1)
    total = np.exp(built.log_prob(observed)).mean(0)
    if hasattr(built, "mass"):
        ends = np.eye(2, dtype=np.float32) if family.track == "phases" else np.array([[0, 0], [1, 1]], np.float32)
        total = total + np.exp(built.log_prob(ends)).sum(0)
    assert_allclose(total, 1, rtol=2e-3)


@every
def test_sample_is_what_the_family_observes(family):
    built = perturbed(family)
    _, observed = draw(built, 12)
    floats = family.observes != "labels"
    assert jnp.issubdtype(observed.dtype, jnp.floating if floats else jnp.integer)
    assert observed.shape == (12, *built.event_shape)
    assert np.isfinite(built.log_prob(observed)).all()
    built.check_observations("obs", observed[None], np.ones((1, 12), bool))
    assert_array_equal(draw(built, 12)[1], observed)  # the key decides
    assert not np.array_equal(draw(built, 12, seed=2)[1], observed)


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


@every
def test_gradients_are_finite_everywhere_a_recognizer_can_go(family):
    """Exactly 0 and 1, denormals, almost 1."""
    built = perturbed(family)
    if family.observes == "probabilities":
        values = jnp.array([0.0, 1.0, 1e-45, 1 - 1e-7, 0.5], jnp.float32)
        observed = jnp.stack([values, 1 - values, jnp.zeros(5)], -1)
        slopes = jax.grad(lambda x: built.log_prob(x).sum())(observed)
        assert np.isfinite(slopes).all()
    else:
        observed = draw(built, 5)[1]
    past = past_of(built, 5)
    assert np.isfinite(built.log_prob(observed, *past)).all()
    grads = jax.grad(lambda f: f.log_prob(observed, *past).sum())(built)
    jax.tree.map(lambda g: assert_array_equal(np.isfinite(g), True), grads)
    statistics = statistics_of(built, observed, weights(family, 5), *past)
    jax.tree.map(lambda s: assert_array_equal(np.isfinite(s), True), statistics)
    jax.tree.map(lambda x: assert_array_equal(np.isfinite(x), True), maximize(built, statistics))


@every
@pytest.mark.parametrize("bad", [np.nan, -1.0])
def test_check_names_the_field(family, bad):
    built = perturbed(family)
    # A mean may be negative; its scale may not. A weight or a log-ratio may be anything finite.
    free = hasattr(built, "weights") or hasattr(built, "log_ratios")
    bad = bad if hasattr(built, "scale") or not free else np.nan
    positive = [n for n in ("scale", "covariance") if hasattr(built, n)]
    name = positive[0] if positive else dataclasses.fields(built)[0].name
    table = jnp.asarray(getattr(built, name))
    broken = dataclasses.replace(built, **{name: table.at[(0,) * min(table.ndim, 2)].set(bad)})
    with pytest.raises(ValueError, match=name):
        broken.check()


@every
def test_numpy_parameters_are_welcome(family):
    built = jax.tree.map(np.asarray, perturbed(family))
    _, observed = draw(perturbed(family), 5)
    assert np.isfinite(built.log_prob(np.asarray(observed))).all()


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


# Families with memory.


@every_memory
def test_an_unobserved_past_is_no_past(family):
    """Whatever its values are, and whatever leads."""
    built = perturbed(family)
    _, observed = draw(built, 6)
    (past,) = past_of(built, 6)
    unseen = dataclasses.replace(past, observed=np.zeros_like(past.observed))
    assert_allclose(built.log_prob(observed, unseen), built.log_prob(observed), rtol=1e-6)
    table = built.log_prob(observed, past)
    assert table.shape == (6, *tail(family)) and np.abs(table - built.log_prob(observed)).max() > 0.01
    block = [x.reshape(2, 3, *x.shape[1:]) for x in (observed, table)]
    reshaped = jax.tree.map(lambda x: x.reshape(len(x), 2, 3, *x.shape[2:]), past)
    assert_allclose(built.log_prob(block[0], reshaped), block[1], rtol=1e-5, atol=1e-6)
    single = built.log_prob(jnp.asarray(observed[0]), jax.tree.map(lambda x: x[:, 0], past))
    assert_allclose(single, table[0], rtol=1e-5, atol=1e-6)


@every_memory
def test_density_sums_to_one_after_any_past(family):
    built = perturbed(family) if family.observes == "labels" else family.default(2)
    (past,) = past_of(built, 1)
    values, tools = past.values, () if family.track == "phases" else (built.size,)
    if family.observes == "labels":
        symbols = np.arange(N if family.track == "phases" else 2)
        observed = symbols if family.track == "phases" else np.stack([symbols] * N, -1)
    else:
        built, values = jax.tree.map(lambda x: 1 + jnp.abs(x), built), values[..., :2]
        x = (np.arange(20000, dtype=np.float32) + 0.5) / 20000
        observed = np.stack([x, 1 - x] if family.track == "phases" else [x, x], -1)
    past = emissions.Past(np.repeat(values, len(observed), 1), np.ones((1, len(observed), *tools), bool))
    density = np.exp(built.log_prob(observed, past))
    # The grid is coarse near 0 and 1.
    assert_allclose(density.sum(0) if family.observes == "labels" else density.mean(0), 1, rtol=1e-2)


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


# Single families.


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
    assert_allclose(ours, oracles.phase_dirichlet(table, observed), rtol=2e-5, atol=3e-3)
    pair = (concentration * rng.uniform(0.5, 2, (4, 2, 2))).astype(np.float32)
    observed = rng.beta(pair[:, 1, 0], pair[:, 1, 1], (9, 4)).astype(np.float32)
    ours = emissions.ToolBeta(jnp.asarray(pair)).log_prob(observed)
    assert_allclose(ours, oracles.tool_beta(pair, observed), rtol=2e-5, atol=3e-3)


def test_outputs_are_clipped_as_documented():
    """1e-6 from 0 and 1."""
    table = np.array([[[1.0, 3.0], [3.0, 0.5]]], np.float32)
    beta = emissions.ToolBeta(jnp.asarray(table))
    for extreme, clipped in ((0.0, 1e-6), (1e-45, 1e-6), (1.0, 1 - 1e-6), (1 - 1e-8, 1 - 1e-6)):
        ours = beta.log_prob(np.array([extreme], np.float32))
        assert_allclose(ours, oracles.tool_beta(table, np.array([[clipped]]))[0], rtol=1e-4, atol=1e-4)


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
