"""float32 against the float64 oracle in long videos, near-deterministic chains, rare states and tiny densities."""

import dataclasses

import cases
import emission_oracles
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose

import hmmjax

pytestmark = [pytest.mark.thorough, pytest.mark.shipped]

POSTERIOR, LIKELIHOOD = {"rtol": 0, "atol": 1e-4}, {"rtol": 1e-5}


def agree(case):
    """Posteriors within 1e-4 and log-likelihoods within 1e-5 of the oracle's; the path as probable as the best."""
    (answer,) = case.answers(oracles.dense)
    posterior, past = hmmjax.posterior(*case.args), hmmjax.filter(*case.args[:3])
    for track in ("phases", "tools"):
        assert_allclose(getattr(posterior, track)[0], getattr(answer, track), **POSTERIOR)
        assert_allclose(getattr(past, track)[0], getattr(answer, f"filter_{track}"), **POSTERIOR)
    for value in (posterior.log_likelihood, past.log_likelihood, hmmjax.log_likelihood(*case.args)):
        assert_allclose(value, [answer.log_likelihood], **LIKELIHOOD)
    decoded = hmmjax.decode(*case.args)
    phases, tools = np.array(decoded.phases[0]), np.array(decoded.tools[0])
    path = oracles.path_log_prob(case.model, case.emission_tables[0], phases, tools)
    assert_allclose(path, answer.path_log_prob, rtol=1e-6)
    assert_allclose(decoded.log_prob, [answer.path_log_prob], **LIKELIHOOD)


@pytest.mark.parametrize(
    "families", [("PhaseConfusion", "ToolConfusion"), ("PhaseDirichlet", "ToolBeta")], ids="-".join
)
def test_ten_thousand_frames(families):
    agree(cases.make(1, 7, 3, 10_000, batch=1, families=families, holes=0.05, sticky=0.97))


def test_ten_thousand_frames_near_deterministic_and_rare():
    """Phases that move once in 100,000 frames, in one order, with a last one that is rarely reached; sharp outputs."""
    case = cases.make(2, 7, 3, 10_000, batch=1, sticky=0.97)
    rng = np.random.default_rng(2)
    transition = (1 - 1e-3) * np.eye(7) + 1e-3 * np.eye(7, k=1)
    transition[-1, -1] = 1
    transition[5, 5:] = [1 - 1e-5, 1e-5]
    tools = 0.999 * np.eye(2) + 0.001 * rng.dirichlet(np.ones(2), (3, 7, 2))
    # float32 and float64 must see the same numbers: 1 - 1e-5 does not survive rounding unchanged.
    initial = np.eye(7)[0]
    tables = [np.float32(x).astype(float) for x in (initial, transition, case.model.tool_initial, tools)]
    tables = [tables[0], tables[1] / tables[1].sum(-1, keepdims=True), tables[2], tables[3]]
    model = oracles.Model(*tables)
    emissions = case.emissions | {"PhaseDirichlet": 0.3 + 12 * np.eye(7)}
    hidden_phases, hidden_tools = oracles.simulate(rng, model, 10_000)
    # The recognizer errs in one frame of ten.
    wrong = np.where(rng.uniform(size=10_000) < 0.1, rng.integers(0, 7, 10_000), hidden_phases)
    seen_phases = emission_oracles.observe(rng, "PhaseDirichlet", emissions["PhaseDirichlet"], wrong)
    seen_tools = emission_oracles.observe(rng, "ToolBeta", emissions["ToolBeta"], hidden_tools)
    table = oracles.emission_table(
        10_000,
        7,
        3,
        emission_oracles.phase_dirichlet(emissions["PhaseDirichlet"], seen_phases),
        emission_oracles.tool_beta(emissions["ToolBeta"], seen_tools),
    )
    params = cases.to_params(model, emissions, "PhaseDirichlet", "ToolBeta")
    obs = hmmjax.Observations(seen_phases[None], seen_tools[None])
    agree(dataclasses.replace(case, params=params, obs=obs, model=model, emissions=emissions, emission_tables=[table]))


def test_expected_counts_over_ten_thousand_frames():
    """One EM iteration's tables, which add up ten thousand pairs of frames, against the oracle's."""
    case = cases.make(3, 7, 3, 10_000, batch=1, families=("PhaseConfusion", "ToolConfusion"), sticky=0.97)
    (answer,) = case.answers(oracles.dense)
    fitted = hmmjax.fit(case.params, case.obs, max_iterations=1, tolerance=0.0).params
    share = answer.count_transition / answer.count_transition.sum(-1, keepdims=True)
    assert_allclose(fitted.phases.transition, share, rtol=1e-3, atol=1e-5)
    share = answer.count_tool_transition / answer.count_tool_transition.sum(-1, keepdims=True)
    assert_allclose(fitted.tools.transition.matrix, share, rtol=1e-3, atol=1e-5)


def test_a_hundred_and_fifty_thousand_frames():
    """A hundred minutes at 25 fps: no underflow, and every frame a distribution."""
    case = cases.make(4, 3, 1, 5_000, batch=1, sticky=0.97)
    obs = cases.map_tracks(lambda x: np.tile(x, (1, 30) + (1,) * (x.ndim - 2)), case.obs)
    posterior = hmmjax.posterior(case.params, obs)
    assert np.isfinite(posterior.log_likelihood).all()
    assert_allclose(np.sum(posterior.phases, -1), 1, atol=1e-4)
    short = float(hmmjax.log_likelihood(case.params, case.obs)[0])
    assert_allclose(posterior.log_likelihood, [30 * short], rtol=1e-3)


@pytest.mark.parametrize("concentration", [0.5, 0.01])
def test_concentrations_below_one_at_the_simplex_boundary(concentration):
    table = jnp.full((2, 2), concentration) + jnp.eye(2)
    chain = hmmjax.PhaseChain(jnp.array([0.5, 0.5]), jnp.full((2, 2), 0.5), hmmjax.emissions.PhaseDirichlet(table))
    outputs = np.array([[[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]], np.float32)
    posterior = hmmjax.posterior(hmmjax.Params(chain), hmmjax.Observations(outputs))
    assert np.isfinite(posterior.log_likelihood).all() and np.isfinite(posterior.phases).all()


def test_densities_that_float32_cannot_hold():
    """Both states expect about .02 and the output is .98: some 4,500 nats, far below the range of exp."""
    table = np.array([[[20.0, 980.0], [30.0, 970.0]]])
    model = oracles.Model(tool_initial=np.array([0.5]), tool_transition=np.full((1, 2, 2), 0.5))
    params = cases.to_params(model, {"ToolBeta": table}, "", "ToolBeta")
    outputs = np.array([[[0.02], [0.98]]], np.float32)
    table = oracles.emission_table(2, 0, 1, tools=emission_oracles.tool_beta(table, outputs[0]))
    expected = oracles.dense(model, table).log_likelihood
    assert expected < -3000
    assert_allclose(hmmjax.log_likelihood(params, hmmjax.Observations(tools=outputs)), [expected], rtol=1e-5)
