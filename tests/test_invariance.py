"""Properties: invariances of the results, equivariance to the numbering of states, and gradients."""

import dataclasses

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import FAMILIES, TIGHT, everything, fill
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax

FILLERS = {"zero": 0.0, "NaN": np.nan, "huge": 1e30}


@pytest.mark.parametrize("families", [FAMILIES[0], FAMILIES[-1]], ids="-".join)
def test_masked_frames_may_hold_anything(families):
    case = cases.make(9, 2, 2, families=families, holes=0.3, lengths=(5, 3), known=0.3)
    reference = everything(*case.args)
    for value in FILLERS.values():
        jax.tree.map(assert_array_equal, everything(*fill(case, value).args), reference)


@pytest.mark.thorough
def test_padding_is_truncation():
    case = cases.make(10, 3, 2, 12, batch=3, holes=0.2, lengths=(12, 7, 12), known=0.2)
    params, obs, mask, labels = cases.video(case, 1)
    head = [cases.map_tracks(lambda x: x[:7], x) for x in (obs, labels)]
    whole = hmmjax.posterior(*case.args), hmmjax.decode(*case.args)
    short = [f(params, head[0], mask[:7], head[1]) for f in (hmmjax.posterior, hmmjax.decode)]
    for long, cut in zip(jax.tree.leaves(whole), jax.tree.leaves(short), strict=True):
        assert_allclose(long[1][:7] if long.ndim > 1 else long[1], cut, rtol=1e-6, atol=1e-6)


def test_no_mask_is_all_observed():
    case = cases.make(11, 2, 2)
    jax.tree.map(assert_array_equal, everything(case.params, case.obs, None, None), everything(*case.args))


@pytest.mark.thorough
@pytest.mark.parametrize(("num_phases", "num_tools"), [(3, 2), (0, 3), (3, 0)])
def test_batch_is_one_by_one(num_phases, num_tools):
    case = cases.make(12, num_phases, num_tools, 9, batch=3, holes=0.2, lengths=(9, 1, 6), known=0.2)
    whole = hmmjax.posterior(*case.args), hmmjax.decode(*case.args)
    for i in range(3):
        args = cases.video(case, i)
        single = hmmjax.posterior(*args), hmmjax.decode(*args)
        for one, many in zip(jax.tree.leaves(single), jax.tree.leaves(whole), strict=True):
            assert one.shape == many.shape[1:]
            assert_allclose(one, many[i], rtol=1e-6, atol=1e-6)


def test_order_of_videos_does_not_matter():
    case = cases.make(13, 2, 2, batch=2, lengths=(5, 3))
    flipped = dataclasses.replace(case, obs=cases.map_tracks(lambda x: x[::-1], case.obs), mask=case.mask[::-1])
    for a, b in zip(jax.tree.leaves(everything(*case.args)), jax.tree.leaves(everything(*flipped.args)), strict=True):
        assert_allclose(a, b[::-1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("families", [FAMILIES[0], FAMILIES[-1]], ids="-".join)
def test_permuting_phases_and_tools_permutes_the_answer(families):
    """The likelihood does not depend on the numbering of states."""
    case = cases.make(14, 3, 2, 8, families=families)
    p, k = np.array([2, 0, 1]), np.array([1, 0])
    m, e = case.model, case.emissions
    model = oracles.Model(
        m.initial[p], m.transition[np.ix_(p, p)], m.tool_initial[np.ix_(k, p)], m.tool_transition[np.ix_(k, p)]
    )
    emissions = {families[0]: e[families[0]][np.ix_(p, p)], families[1]: e[families[1]][k]}
    phases = case.obs.phases
    phases = phases[..., p] if phases.dtype.kind == "f" else np.argsort(p)[phases].astype(np.int32)
    params = cases.to_params(model, emissions, *families)
    obs = hmmjax.Observations(phases, case.obs.tools[..., k])
    before, after = hmmjax.posterior(*case.args), hmmjax.posterior(params, obs, case.mask)
    assert_allclose(after.phases, before.phases[..., p], rtol=1e-5, atol=1e-6)
    assert_allclose(after.tools, before.tools[..., k], rtol=1e-5, atol=1e-6)
    assert_allclose(after.log_likelihood, before.log_likelihood, rtol=1e-5)
    before, after = hmmjax.decode(*case.args), hmmjax.decode(params, obs, case.mask)
    assert_array_equal(after.phases, np.argsort(p)[before.phases])
    assert_array_equal(after.tools, before.tools[..., k])
    assert_allclose(after.log_prob, before.log_prob, rtol=1e-5)


def test_filter_sees_the_past_only():
    """Appending frames never changes earlier results, and at the last frame filter and smoother agree."""
    case = cases.make(15, 3, 2, 12, batch=1)
    whole = hmmjax.filter(case.params, case.obs)
    for n in (1, 5, 11):
        head = cases.map_tracks(lambda x, n=n: x[:, :n], case.obs)
        past, smooth = hmmjax.filter(case.params, head), hmmjax.posterior(case.params, head)
        for track in ("phases", "tools"):
            assert_allclose(getattr(past, track), getattr(whole, track)[:, :n], rtol=1e-6, atol=1e-7)
            assert_allclose(getattr(past, track)[:, -1], getattr(smooth, track)[:, -1], rtol=1e-5, atol=1e-6)


# Gradients.


def test_gradient_of_log_parameters_is_expected_counts():
    """The identity of docs/concepts/model.md: parameter times gradient is the expected count, for every table."""
    case = cases.make(16, 2, 2, holes=0.3, lengths=(5, 3), known=0.3, families=("PhaseConfusion", "ToolConfusion"))
    grads = jax.grad(lambda params: hmmjax.log_likelihood(params, *case.args[1:]).sum())(case.params)
    answers, m = case.answers(), case.model
    assert_allclose(m.initial * grads.phases.initial, sum(a.count_initial for a in answers), **TIGHT)
    assert_allclose(m.transition * grads.phases.transition, sum(a.count_transition for a in answers), **TIGHT)
    tools = sum(a.count_tool_transition for a in answers)
    assert_allclose(m.tool_transition * grads.tools.transition.matrix, tools, **TIGHT)
    # beta[k, p] is one number for two outcomes: its derivative is count(1) / beta - count(0) / (1 - beta).
    count = sum(a.count_tool_initial for a in answers)
    expected = count[..., 1] / m.tool_initial - count[..., 0] / (1 - m.tool_initial)
    assert_allclose(grads.tools.initial, expected, rtol=1e-4, atol=1e-4)
    # Emissions: posterior weights summed per output symbol.
    phases, tools = np.zeros((2, 2)), np.zeros((2, 2, 2))
    for i, answer in enumerate(answers):
        for t in range(len(case.emission_tables[i])):
            if case.mask[i, t]:
                phases[:, case.obs.phases[i, t]] += answer.phases[t]
                for k in range(2):
                    on = answer.tools[t, k]
                    tools[k, :, case.obs.tools[i, t, k]] += [1 - on, on]
    table = case.emissions["PhaseConfusion"]
    assert_allclose(table * grads.phases.emission.matrix, phases, **TIGHT)
    assert_allclose(case.emissions["ToolConfusion"] * grads.tools.emission.matrix, tools, **TIGHT)


def test_gradient_of_observations_is_posterior_weighted():
    """The derivative of emission log-likelihoods is the posterior; the chain rule gives that of observations."""
    case = cases.make(17, 2, 2, holes=0.3, lengths=(5, 3))
    grads = jax.grad(lambda obs: hmmjax.log_likelihood(case.params, obs, case.mask).sum())(case.obs)
    posterior = hmmjax.posterior(*case.args)
    on = np.array(posterior.tools)
    c = case.emissions["ToolBeta"]
    x = np.array(case.obs.tools)[..., None]
    slope = (c[..., 0] - 1) / x - (c[..., 1] - 1) / (1 - x)  # (B, T, K, 2)
    expected = ((1 - on) * slope[..., 0] + on * slope[..., 1]) * case.mask[..., None]
    assert_allclose(grads.tools, expected, rtol=1e-4, atol=1e-4)
    assert (np.array(grads.phases)[~case.mask] == 0).all()


@pytest.mark.thorough
@pytest.mark.parametrize("families", [FAMILIES[0], FAMILIES[-1]], ids="-".join)
def test_gradient_is_finite_with_nan_in_masked_frames_and_zeros_in_tables(families):
    case = fill(cases.make(18, 2, 2, families=families, holes=0.3, lengths=(5, 3)), np.nan)
    phases = dataclasses.replace(case.params.phases, transition=jnp.array([[0.7, 0.3], [0.0, 1.0]]))
    matrix = case.params.tools.transition.matrix.at[0, 1].set(jnp.array([[1.0, 0.0], [0.5, 0.5]]))
    tools = dataclasses.replace(case.params.tools, transition=hmmjax.transitions.PhaseConditioned(matrix))
    params = hmmjax.Params(phases, tools)

    def total(params, obs):
        return hmmjax.log_likelihood(params, obs, case.mask).sum()

    value, grads = jax.value_and_grad(total)(params, case.obs)
    assert np.isfinite(value)
    jax.tree.map(lambda g: np.testing.assert_array_equal(np.isfinite(g), True), grads)
    if families == FAMILIES[-1]:
        inputs = jax.grad(total, 1)(params, case.obs)
        jax.tree.map(lambda g: np.testing.assert_array_equal(np.isfinite(g), True), inputs)


def summed_log_likelihood(params, obs, mask):
    return hmmjax.log_likelihood(params, obs, mask).sum()


def padded(case, value):
    """The case padded from 5 to 7 frames, with `value` in floats and 99 in labels."""

    def pad(x):
        filler = value if x.dtype.kind == "f" else 99
        return np.pad(x, [(0, 0), (0, 2)] + [(0, 0)] * (x.ndim - 2), constant_values=filler)

    return cases.map_tracks(pad, case.obs), np.pad(case.mask, [(0, 0), (0, 2)])


@pytest.mark.thorough
@pytest.mark.shipped
@pytest.mark.parametrize(("phases", "num_tools"), [("PhaseConfusion", 0), ("PhaseDirichlet", 2)])
def test_values_in_padding_change_nothing(phases, num_tools):
    case = cases.make(1, 2, num_tools, families=(phases, "ToolBeta"), lengths=(5, 3))
    lone = [hmmjax.posterior(*cases.video(case, 0)), None]
    params, obs, mask, _ = cases.video(case, 1)
    lone[1] = hmmjax.posterior(params, cases.map_tracks(lambda x: x[:3], obs), mask[:3])
    results = []
    for value in (0.0, np.nan, 1e30, 99.0):
        obs, mask = padded(case, value)
        posterior = hmmjax.posterior(case.params, obs, mask)
        for i, n in enumerate((5, 3)):
            assert_allclose(posterior.log_likelihood[i], lone[i].log_likelihood, rtol=1e-6)
            assert_allclose(posterior.phases[i, :n], lone[i].phases, rtol=1e-5, atol=1e-6)
            if num_tools:
                assert_allclose(posterior.tools[i, :n], lone[i].tools, rtol=1e-5, atol=1e-6)
        fitted = hmmjax.fit(case.params, obs, mask, max_iterations=2, tolerance=0.0)
        results.append((posterior, fitted, jax.grad(summed_log_likelihood)(case.params, obs, mask)))
    for other in results[1:]:
        jax.tree.map(assert_array_equal, other, results[0])
