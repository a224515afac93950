"""One suite for every emission family that `hmmjax.emissions` exports: exporting a new family is enough to test it.

Here are its interface and its densities; `tests/test_emissions_learning.py` has the M-step.
"""

import dataclasses

import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from families import (
    FAMILIES,
    N,
    draw,
    every,
    every_density,
    every_memory,
    is_table,
    log_prob,
    maximize,
    past_of,
    perturbed,
    statistics_of,
    tail,
    weights,
)
from numpy.testing import assert_allclose, assert_array_equal

from hmmjax import emissions

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
    expected = emission_oracles.log_densities(family.__name__, table, np.asarray(observed))
    assert_allclose(built.log_prob(observed), expected, rtol=2e-4, atol=2e-4)
    for past in past_of(built, len(observed)):
        expected = emission_oracles.log_densities(family.__name__, table, np.asarray(observed), past)
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
