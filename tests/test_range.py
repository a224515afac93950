"""Likelihoods beyond float32's range: no backend that "auto" takes may lose the only possible or the likeliest path."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest

import hmmjax
from hmmjax import native
from hmmjax._core import lowering
from hmmjax.types import Labels, Observations, Params

pytestmark = [pytest.mark.thorough, pytest.mark.shipped]
BACKENDS = ["scan", "gpu", *(["native"] if native.is_loaded() else [])]


def _never_switching(num_tools=3):
    """A model counted without priors from phase 0 without tools, then phase 1 with all of them: no tool can switch."""
    start = hmmjax.init_params(2, num_tools)
    phases = np.repeat([[0], [1]], 50, 1)
    counted = hmmjax.estimate(Labels(phases, np.repeat(phases[..., None], num_tools, 2)))
    return Params(
        dataclasses.replace(counted.phases, emission=start.phases.emission),
        dataclasses.replace(counted.tools, emission=start.tools.emission),
    )


def _contradicted(num_tools, frames=12):
    """Observations whose first frame contradicts the only possible start by 14 nats per tool."""
    tools = np.full((frames, num_tools), 0.6, np.float32)
    tools[0] = 1e-6
    return Observations(np.tile(np.float32([1e-6, 1 - 1e-6]), (frames, 1)), tools)


def _oracle(params, obs):
    return oracles.dense(
        oracles.Model(
            np.asarray(params.phases.initial, float),
            np.asarray(params.phases.transition, float),
            np.asarray(params.tools.initial, float),
            np.asarray(params.tools.transition.matrix, float),
        ),
        oracles.emission_table(
            len(obs.phases),
            2,
            obs.tools.shape[-1],
            np.asarray(params.phases.emission.log_prob(obs.phases), float),
            np.asarray(params.tools.emission.log_prob(obs.tools), float),
            np.ones(len(obs.phases), bool),
        ),
    )


@pytest.mark.parametrize("num_tools", [3, pytest.param(5, marks=pytest.mark.slow)])
def test_the_only_path_survives_a_frame_that_contradicts_it(num_tools):
    params, obs = _never_switching(num_tools), _contradicted(num_tools)
    assert not lowering.scaled_is_exact(params)
    answer, posterior = _oracle(params, obs), hmmjax.posterior(params, obs)
    np.testing.assert_allclose(posterior.log_likelihood, answer.log_likelihood, rtol=1e-5)
    np.testing.assert_allclose(posterior.phases, answer.phases, atol=1e-4)
    np.testing.assert_allclose(posterior.tools, answer.tools, atol=1e-4)
    np.testing.assert_allclose(hmmjax.filter(params, obs).log_likelihood, answer.log_likelihood, rtol=1e-5)
    fitted = hmmjax.fit(params, obs, max_iterations=1, freeze=("phases.emission", "tools.emission"))
    np.testing.assert_allclose(fitted.history[0], answer.log_likelihood, rtol=1e-5)


# The cases of a backend are one test: they share its compiled programs, which separate workers would each compile.
@pytest.mark.parametrize("backend", BACKENDS)
def test_staying_is_likeliest_despite_a_glitch_of_all_tools(backend):
    """Sticky tools, and one frame that contradicts them all by more nats than float32 holds.

    The phase track carries no information, so that each tool is a chain of its own, solved here in float64.
    """
    for stay, predicted, glitch in [(0.9999, 1.0, 0.0), (0.9995, 0.9, 0.0), (0.999, 0.001, 1.0)]:
        _check_a_glitch(backend, stay, predicted, glitch)


def _check_a_glitch(backend, stay, predicted, glitch):
    num_tools, frames = 7, 9
    params = hmmjax.init_params(2, num_tools, stay=stay)
    assert lowering.choose_backend("auto", params) == "auto"
    tools = np.full((frames, num_tools), predicted, np.float32)
    tools[4] = glitch
    obs = Observations(np.full((frames, 2), 0.5, np.float32), tools)
    log_tools = np.asarray(params.tools.emission.log_prob(obs.tools), float)[:, 0]
    stays = np.asarray(params.tools.transition.matrix, float)[0, 0]
    start = np.asarray(params.tools.initial, float).reshape(num_tools, -1)[0, 0]
    forward, message = [], np.log([1 - start, start])
    for t in range(frames):
        message = message + log_tools[t]
        forward.append(message)
        message = np.logaddexp.reduce(message[:, None] + np.log(stays), 0)
    after, smoothed = np.zeros(2), []
    for t in reversed(range(frames)):
        joint = forward[t] + after
        smoothed.append(np.exp(joint[1] - np.logaddexp.reduce(joint)))
        after = np.logaddexp.reduce(np.log(stays) + (log_tools[t] + after)[None], 1)
    found = hmmjax.posterior(params, obs, backend=backend)
    np.testing.assert_allclose(found.tools, np.repeat(np.array(smoothed[::-1])[:, None], num_tools, 1), atol=5e-6)
    np.testing.assert_allclose(np.asarray(found.phases).sum(-1), 1, atol=5e-6)
    phase = np.asarray(params.phases.emission.log_prob(obs.phases), float)[:, 0].sum()
    want = num_tools * np.logaddexp.reduce(forward[-1]) + phase
    np.testing.assert_allclose(found.log_likelihood, want, rtol=2e-6)
    filtered = np.array([np.exp(f[1] - np.logaddexp.reduce(f)) for f in forward])
    found = hmmjax.filter(params, obs, backend=backend).tools
    np.testing.assert_allclose(found, np.repeat(filtered[:, None], num_tools, 1), atol=5e-6)


def test_gradient_in_logarithms_is_finite():
    params, obs = _never_switching(), _contradicted(3)
    gradient = jax.grad(lambda p: hmmjax.log_likelihood(p, obs, backend="logspace"))(params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


def test_models_whose_tools_switch_take_the_fast_backend():
    params = hmmjax.init_params(7, 7)
    assert lowering.scaled_is_exact(params) and lowering.choose_backend("auto", params) == "auto"
    expected = "auto" if native.is_loaded() else "logspace"  # the compiled recursions take all models
    assert lowering.choose_backend("auto", _never_switching()) == expected
    assert lowering.choose_backend("scan", _never_switching()) == "scan"
    assert lowering.scaled_is_exact(Params(params.phases)) and lowering.scaled_is_exact(hmmjax.init_params(0, 3))


@pytest.mark.parametrize("over", [0.0, 1e-7, 5e-6])
def test_a_probability_that_rounds_above_one_is_one(over):
    tools = hmmjax.ToolChains(
        jnp.array([1 + over], jnp.float32),
        hmmjax.transitions.PhaseConditioned(jnp.array([[[1.0, 0.0], [0.0, 1.0]]])),
        hmmjax.emissions.ToolConfusion(jnp.array([[[0.9, 0.1], [0.1, 0.9]]])),
    )
    posterior = hmmjax.posterior(Params(None, tools), Observations(None, np.zeros((3, 1), int)))
    np.testing.assert_allclose(posterior.tools, 1, atol=1e-6)
    np.testing.assert_allclose(posterior.log_likelihood, 3 * np.log(0.1), rtol=1e-5)
    assert np.isfinite(hmmjax.decode(Params(None, tools), Observations(None, np.zeros((3, 1), int))).log_prob)


def test_a_phase_far_behind_another_is_not_lost():
    """Phase 0 leads by 16 or 30 nats, but later frames contradict it: only in phase 1 are all tools present."""
    for rare in (1e-7, 1e-13):
        _check_a_phase_far_behind(rare)


def _check_a_phase_far_behind(rare):
    stay, frames, num_tools = 0.999, 6, 7
    phases = hmmjax.PhaseChain(
        np.float32([0.5, 0.5, 0]),
        np.float32([[0.5, 0, 0.5], [0, 0.5, 0.5], [0, 0, 1]]),
        hmmjax.emissions.PhaseConfusion(
            np.float32([[0.5, 0.25, 0.25], [rare, 0.5, 0.5 - rare], [0.5, 0.25, 0.25]]),
        ),
    )
    tools = hmmjax.ToolChains(
        np.tile(np.float32([1 - stay, stay, 0.5]), (num_tools, 1)),
        hmmjax.transitions.PhaseConditioned(
            np.tile(np.float32([[stay, 1 - stay], [1 - stay, stay]]), (num_tools, 3, 1, 1))
        ),
        hmmjax.emissions.ToolBeta(np.tile(np.float32([[1, 5], [5, 1]]), (num_tools, 1, 1))),
    )
    params = hmmjax.Params(phases, tools)
    predicted = np.full((1, frames, num_tools), 0.99, np.float32)
    predicted[:, 0] = 0.5
    obs = Observations(np.zeros((1, frames), int), predicted)
    labels = hmmjax.Labels(phases=np.array([[-1, 2, -1, -1, -1, -1]], np.int32))
    want = hmmjax.posterior(params, obs, None, labels, backend="logspace")
    filtered = hmmjax.filter(params, obs, backend="logspace")
    for backend in BACKENDS:
        found = hmmjax.posterior(params, obs, None, labels, backend=backend)
        np.testing.assert_allclose(found.log_likelihood, want.log_likelihood, rtol=1e-6, err_msg=backend)
        np.testing.assert_allclose(found.phases, want.phases, atol=2e-6, err_msg=backend)
        np.testing.assert_allclose(found.tools, want.tools, atol=2e-6, err_msg=backend)
        found = hmmjax.filter(params, obs, backend=backend)
        np.testing.assert_allclose(found.tools, filtered.tools, atol=2e-6, err_msg=backend)
