"""Interacting tools, against enumeration, SciPy's regressions, and the independent model at weights of zero."""

import dataclasses

import cases
import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import optima
import oracles
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax
from hmmjax import io, messages
from hmmjax._core import configurations, logistic, lowering
from hmmjax._core.batch import prepare
from hmmjax._core.tables import tabulate
from hmmjax.emissions import Fused, Tempered, ToolConfusion, ToolLogistic
from hmmjax.interactions import OddsRatios
from hmmjax.transitions import Interacting, PhaseConditioned

pytestmark = pytest.mark.thorough
CONFUSION = ("PhaseConfusion", "ToolConfusion")
RIDGE = hmmjax.Priors(tool_transition=0.7, tool_emission=0.7)


def weights(rng, num_tools, *lead):
    """Return weights of tools that are recognized, or persist, and interact."""
    own = np.concatenate([np.full((num_tools, 1), -1.0), 2 * np.eye(num_tools)], 1)
    return (own + rng.normal(size=(*lead, num_tools, num_tools + 1))).astype(np.float32)


def make(num_phases, known=0.0, num_tools=2):
    """Return a random case whose tools interact, in transitions and in emissions."""
    case = cases.make(3, num_phases, num_tools, 4, families=CONFUSION, holes=0.3, lengths=(4, 3), known=known)
    rng = np.random.default_rng(4)
    eta, zeta = weights(rng, num_tools, *[num_phases] * bool(num_phases)), weights(rng, num_tools)
    tools = dataclasses.replace(
        case.params.tools, transition=Interacting(jnp.asarray(eta)), emission=ToolLogistic(jnp.asarray(zeta))
    )
    emission_tables = []
    for i, old in enumerate(case.emission_tables):
        n, mask = len(old), case.mask[i]
        labels = None if case.labels is None else (case.labels.phases, case.labels.tools)
        labels = None if labels is None else tuple(None if x is None else x[i] for x in labels)
        new = oracles.emission_table(len(mask), num_phases, num_tools, None, None, mask, labels)
        predicted = emission_oracles.tool_logistic(zeta, case.obs.tools[i, :n]).sum(1)
        emission_tables.append(oracles.EmissionTable(old.phases, new.tools, np.where(mask[:n, None], predicted, 0)))
    return dataclasses.replace(
        case,
        params=dataclasses.replace(case.params, tools=tools),
        model=dataclasses.replace(case.model, interactions=eta),
        emission_tables=emission_tables,
    )


def independent(case):
    """Return the case's model without interactions, and the same model in weights."""
    rng = np.random.default_rng(5)
    lead = np.shape(case.params.tools.initial)
    families = [
        PhaseConditioned(jnp.asarray(rng.dirichlet([1, 1], (*lead, 2)), jnp.float32)),
        ToolConfusion(jnp.asarray(rng.dirichlet([1, 1], (lead[0], 2)), jnp.float32)),
    ]
    same = [Interacting.from_phase_conditioned(families[0]), ToolLogistic.from_confusion(families[1])]

    def put(transition, emission):
        tools = dataclasses.replace(case.params.tools, transition=transition, emission=emission)
        return dataclasses.replace(case.params, tools=tools)

    return put(*families), put(*same)


@pytest.mark.parametrize(("num_phases", "known"), [(2, 0.3), (0, 0.0)])
def test_answers(num_phases, known):
    cases.check(make(num_phases, known))


def test_answers_in_logarithms():
    case = make(2)
    found = hmmjax.posterior(*case.args, backend="logspace")
    for i, answer in enumerate(case.answers()):
        assert_allclose(found.log_likelihood[i], answer.log_likelihood, rtol=1e-5)
        assert_allclose(found.phases[i, : len(answer.phases)], answer.phases, **cases.TIGHT)
        assert_allclose(found.tools[i, : len(answer.tools)], answer.tools, **cases.TIGHT)


@pytest.mark.parametrize("num_phases", [2, 0])
def test_without_interactions_it_is_the_independent_model(num_phases):
    case = make(num_phases)
    separate, joint = independent(case)
    for answer in (hmmjax.posterior, hmmjax.decode):
        plainly, answered = answer(separate, *case.args[1:]), answer(joint, *case.args[1:])
        jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-6, atol=1e-6), answered, plainly)


def regressions(case, penalty=(0.7, 0.7, 0.7)):
    """Return the weights that the M-step should find, by enumeration and SciPy: transitions and emissions."""
    num_tools, num_phases = 2, max(case.params.num_phases, 1)
    own = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])  # (K, C)
    predicted, moved = np.zeros((num_tools, 4, 2)), np.zeros((num_phases, num_tools, 4, 2))
    for i, table in enumerate(case.emission_tables):
        posterior, moves = oracles.config_counts(case.model, table)
        for k in range(num_tools):
            for j in (0, 1):
                seen = case.mask[i, : len(table)] & (case.obs.tools[i, : len(table), k] == j)
                predicted[k, :, j] += posterior[seen].sum(0)
                moved[:, k, :, j] += moves[:, :, own[k] == j].sum(-1)
    fits = [np.array([optima.ridge_regression(c, penalty)[0] for c in x.reshape(-1, 4, 2)]) for x in (moved, predicted)]
    return fits[0].reshape(case.params.tools.transition.weights.shape), fits[1]


@pytest.mark.parametrize("num_phases", [2, 0])
def test_em_is_a_regression_on_expected_counts_and_goes_uphill(num_phases):
    case = make(num_phases)
    options = {"priors": RIDGE, "tolerance": 0.0}
    once = hmmjax.fit(*case.args, **options, max_iterations=1).params.tools
    transition, emission = regressions(case)
    assert_allclose(once.transition.weights, transition, rtol=1e-3, atol=1e-3)
    assert_allclose(once.emission.weights, emission, rtol=1e-3, atol=1e-3)
    history = np.asarray(hmmjax.fit(*case.args, **options, max_iterations=8).history)
    assert (np.diff(history) >= -2e-6 * np.abs(history[1:])).all() and history[-1] > history[0]


def test_expected_counts_are_gradients():
    """Derivatives of the log-likelihood with respect to weights are expected counts, and finite differences."""
    case = make(2)

    def value(tools):
        params = dataclasses.replace(case.params, tools=tools)
        return hmmjax.log_likelihood(params, case.obs, case.mask).sum()

    tools = case.params.tools
    slopes = jax.jit(jax.grad(value))(tools)
    for block in ("transition", "emission"):
        at = getattr(tools, block).weights
        for where in ((0,) * at.ndim, (-1,) * at.ndim):
            moved = [
                dataclasses.replace(tools, **{block: type(getattr(tools, block))(at.at[where].add(s))})
                for s in (0.02, -0.02)
            ]
            expected = (value(moved[0]) - value(moved[1])) / 0.04
            assert_allclose(getattr(slopes, block).weights[where], expected, rtol=2e-2, atol=2e-3)


# The regression alone.

fit = jax.jit(logistic.fit)


def test_irls_against_scipy():
    rng = np.random.default_rng(0)
    counts = rng.gamma(0.5, [[[1]], [[30]], [[5000]]], (3, 8, 2))
    for penalty in ([0.5] * 4, [0.1, 2, 2, 2]):
        found = fit(jnp.asarray(counts, jnp.float32), jnp.zeros((3, 4)), jnp.asarray(penalty, jnp.float32))
        expected = [optima.ridge_regression(c, penalty)[0] for c in counts]
        assert_allclose(found, expected, rtol=1e-3, atol=2e-4)


def test_irls_where_there_is_little_to_learn():
    start = jnp.asarray(weights(np.random.default_rng(1), 3))
    zero = jnp.zeros((3, 8, 2))
    assert_array_equal(fit(zero, start, jnp.zeros(4)), start)  # a unit never visited
    # Tool 0 never there: its weight stays. Tool 1 always predicted when present: its weight stops at the cap.
    counts = np.ones((8, 2))
    counts[4:] = 0
    counts[2:4, 0] = 0
    found = np.asarray(fit(jnp.asarray([counts] * 3, jnp.float32), start, jnp.zeros(4)))
    assert_allclose(found[:, 1], start[:, 1], atol=1e-6)
    assert np.isfinite(found).all() and (np.abs(found) <= logistic.MAX_WEIGHT).all()
    assert (found @ [1, 0, 1, 0] > 8).all()


def test_a_weight_never_loses():
    """From wild starts as well, where a whole Newton step overshoots."""
    rng = np.random.default_rng(2)
    counts = jnp.asarray(rng.gamma(0.3, 300, (3, 8, 2)), jnp.float32)
    for scale in (1, 6):
        start = jnp.asarray(np.clip(scale * rng.normal(size=(3, 4)), -20, 20), jnp.float32)
        found = fit(counts, start, jnp.full(4, 0.1))
        values = [(counts * logistic.log_probabilities(w)).sum() + logistic.log_prior(w, 0.1) for w in (start, found)]
        assert values[1] >= values[0]
        assert_allclose(found, fit(counts, jnp.zeros((3, 4)), jnp.full(4, 0.1)), atol=2e-5)


# From labels, and back from samples.


def big():
    rng = np.random.default_rng(6)
    start = hmmjax.init_params(2, 2, emissions="logistic", stay=0.9, interacting=True)
    tools = dataclasses.replace(
        start.tools, transition=Interacting(weights(rng, 2, 2)), emission=ToolLogistic(weights(rng, 2))
    )
    return dataclasses.replace(start, tools=tools)


@pytest.fixture(scope="module")
def sampled():
    """A model, and videos drawn from it."""
    params = big()
    return params, hmmjax.sample(params, jax.random.key(0), [4000, 3000])


def test_counting_recovers_what_was_sampled(sampled):
    params, (labels, obs, mask) = sampled
    counted = hmmjax.estimate(labels, obs, mask, emissions="logistic", interacting=True, priors=RIDGE).tools
    assert_allclose(counted.transition.weights, params.tools.transition.weights, atol=0.35)
    assert_allclose(counted.emission.weights, params.tools.emission.weights, atol=0.35)
    # Emissions by hand.
    states, predicted = np.asarray(labels.tools)[mask], np.asarray(obs.tools)[mask]
    counts = np.zeros((2, 4, 2))
    for k in range(2):
        np.add.at(counts[k], (states @ [2, 1], predicted[:, k]), 1)
    expected = [optima.ridge_regression(c, [0.7, 0.7, 0.7])[0] for c in counts]
    assert_allclose(counted.emission.weights, expected, rtol=1e-3, atol=1e-3)


def test_odds_ratios(sampled):
    params, drawn = sampled
    labels, obs, mask = (jax.tree.map(lambda x: x[:1, :50], x) for x in drawn)
    call = {"priors": RIDGE, "tool_names": ("hook", "clipper")}
    predicted = hmmjax.odds_ratios(params, obs, mask, labels, **call)
    counts = np.zeros((2, 4, 2))
    for k in range(2):
        np.add.at(counts[k], (np.asarray(labels.tools[0]) @ [2, 1], obs.tools[0, :, k]), 1)
    for k in range(2):
        # At given weights the information depends on frames in each configuration, not on what was predicted.
        total, penalty = counts[k].sum(-1), np.array([0.7, 0.7, 0.7])
        x = np.array([[1, 0, 0], [1, 0, 1], [1, 1, 0], [1, 1, 1]])
        p = 1 / (1 + np.exp(-x @ params.tools.emission.weights[k]))
        information = x.T @ (x * (total * p * (1 - p))[:, None]) + np.diag(penalty)
        assert_allclose(predicted.standard_error[k], np.sqrt(np.diag(np.linalg.inv(information)))[1:], rtol=1e-4)
    assert_allclose(predicted.ratio, np.exp(params.tools.emission.weights[:, 1:]), rtol=1e-6)
    assert "hook" in str(predicted) and len(str(predicted).splitlines()) == 3
    row = predicted.rows()[0]
    assert row["low"] < row["odds_ratio"] < row["high"] and row["tool"] != row["given"]
    assert abs(row["z"]) >= abs(predicted.rows()[1]["z"])
    moves = hmmjax.odds_ratios(params, obs, mask, labels, block="tools.transition", **call)
    assert moves.ratio.shape == moves.standard_error.shape == (2, 2, 2) and len(moves.rows()) == 4
    assert moves.rows()[0]["phase"] in ("phase 0", "phase 1") and "phase" in str(moves)


def test_standard_errors_are_those_of_the_fitted_regression():
    """Against finite differences of the gradient; weights without data have infinite errors."""
    counts = np.random.default_rng(3).gamma(1.0, 20, (4, 2))
    found, hessian = optima.ridge_regression(counts, [0, 0.5, 0.5])
    errors = logistic.standard_errors(found, counts, np.array([0, 0.5, 0.5]))
    assert_allclose(errors, np.sqrt(np.diag(np.linalg.inv(hessian))), rtol=1e-4)
    counts[2:] = 0  # tool 0 is never present
    errors = logistic.standard_errors(found, counts, np.zeros(3))
    assert np.isinf(errors[1]) and np.isfinite(errors[[0, 2]]).all()


# With other parts of the library.


def test_backends_that_cannot_are_not_chosen():
    case = make(2)
    batch = prepare(*case.args)
    p = lowering.lower(case.params, tabulate(case.params, batch), batch.lengths)
    assert [b.shape for b in p.blocks] == [(2, 4, 4)]
    for name in ("scan", "parallel", "gpu"):
        assert messages.select(name, p).name == "scan"
    assert messages.select("auto", p).name == ("native" if messages.native.available() else "scan")
    assert lowering.choose_backend("auto", case.params) == "auto"
    # The least probable joint move, by looking at all of them.
    assert_allclose(case.params.tools.transition.min_log_prob(), np.log(p.blocks[0]).min((1, 2)), rtol=1e-5)
    wild = Interacting(400 * case.params.tools.transition.weights)
    tools = dataclasses.replace(case.params.tools, transition=wild)
    expected = "auto" if messages.native.available() else "logspace"
    assert lowering.choose_backend("auto", dataclasses.replace(case.params, tools=tools)) == expected


def test_live_and_drawn_paths_agree_with_the_filter_and_the_smoother():
    case = make(0)
    params, obs, mask, _ = cases.video(case, 0)
    stream = hmmjax.Stream(params)
    past = hmmjax.filter(params, obs, mask)
    for t in range(len(mask)):
        now = stream.step(hmmjax.Observations(tools=obs.tools[t]) if mask[t] else None)
        assert now.phases is None
        assert_allclose(now.tools, past.tools[t], atol=1e-5)
    drawn = hmmjax.sample_posterior(params, jax.random.key(1), obs, mask, num_samples=2000)
    assert drawn.phases is None
    assert_allclose(drawn.tools.mean(0), hmmjax.posterior(params, obs, mask).tools, atol=0.05)


def test_tempered_fused_and_calibrated():
    rng = np.random.default_rng(7)
    joint, own = ToolLogistic(weights(rng, 2)), ToolConfusion.default(2)
    predicted = rng.integers(0, 2, (5, 2))
    both = Fused((joint, own))
    assert both.is_joint and not Fused((own, own)).is_joint and Tempered(joint, 0.5).is_joint
    bits = np.asarray(configurations.bits(2))
    expected = emission_oracles.tool_logistic(joint.weights, predicted)
    plainly = emission_oracles.tool_confusion(own.matrix, predicted)
    expected = expected + np.stack([plainly[:, k][:, bits[:, k]] for k in range(2)], 1)
    assert_allclose(both.log_prob((predicted, predicted)), expected, rtol=1e-5)
    posterior = jnp.asarray(rng.dirichlet(np.ones(4), (5, 1)).repeat(2, 1), jnp.float32)
    counts = both.statistics((predicted, None), posterior)
    assert counts[0].shape == (2, 4, 2) and counts[1] is None
    own_states = np.stack([(posterior * (d == bits.T)).sum(-1) for d in (0, 1)], -1)
    assert_allclose(both.statistics((None, predicted), posterior)[1], own.statistics(predicted, own_states), rtol=1e-5)
    assert_allclose(
        Tempered(joint, jnp.array([0.5, 1])).log_prob(predicted)[:, 0], 0.5 * joint.log_prob(predicted)[:, 0]
    )


def test_powers_are_found(sampled):
    params, drawn = sampled
    labels, obs, mask = (jax.tree.map(lambda x: x[:, :16], x) for x in drawn)
    tools = hmmjax.Params(
        tools=dataclasses.replace(params.tools, initial=jnp.full(2, 0.5), transition=make(0).params.tools.transition)
    )
    known, predicted = hmmjax.Labels(tools=labels.tools), hmmjax.Observations(tools=obs.tools)
    found = hmmjax.calibrate(tools, predicted, mask, known, max_iterations=2)
    assert isinstance(found.params.tools.emission, Tempered) and found.after >= found.before - 1e-4


def test_files_and_frozen_blocks(tmp_path):
    case = make(2)
    io.save_params(tmp_path / "model.npz", case.params)
    again = io.load_params(tmp_path / "model.npz").params
    jax.tree.map(assert_array_equal, again, case.params)
    frozen = ("tools.transition", "tools.emission")
    fitted = hmmjax.fit(*case.args, priors=RIDGE, max_iterations=1, freeze=frozen).params.tools
    assert_array_equal(fitted.transition.weights, case.params.tools.transition.weights)
    assert_array_equal(fitted.emission.weights, case.params.tools.emission.weights)


def test_half_precision_weights_are_computed_with_in_full():
    case = make(2)
    tools = case.params.tools
    half = dataclasses.replace(
        tools,
        transition=Interacting(tools.transition.weights.astype(jnp.float16)),
        emission=ToolLogistic(tools.emission.weights.astype(jnp.float16)),
    )
    full = jax.tree.map(lambda x: x.astype(jnp.float32), half)
    both = [hmmjax.log_likelihood(dataclasses.replace(case.params, tools=t), *case.args[1:]) for t in (half, full)]
    assert_allclose(*both, rtol=1e-6)


def test_odds_that_nothing_is_known_of_stay_columns():
    table = str(OddsRatios("tools.emission", np.zeros((2, 2)), np.full((2, 2), 50.0), ("a", "b")))
    assert "  2.75e-43 to 3.63e+42" in table


def test_errors_name_cause_and_fix(unchecked):
    case = make(2)
    tools = case.params.tools

    def call(**changed):
        changed = dataclasses.replace(tools, **changed)
        hmmjax.posterior(dataclasses.replace(case.params, tools=changed), case.obs)

    with pytest.raises(
        ValueError, match=r"tools.transition.weights has shape \(2, 3\) but must be \(2, 2, 3\), \(L, K"
    ):
        call(transition=Interacting(tools.transition.weights[0]))
    with pytest.raises(ValueError, match=r"tools.transition.weights .* \(K, K \+ 1\) without phases: for each tool"):
        call(transition=Interacting(jnp.zeros((2, 2, 2))))
    with pytest.raises(ValueError, match=r"tools.emission.weights must be finite.*-20"):
        call(emission=ToolLogistic(tools.emission.weights.at[0, 1].set(-jnp.inf)))
    refused = r"tools.emission.weights (holds 1e\+300 nats|must be log-odds, real)|has dtype complex128"
    for wrong, error in ((1e300, ValueError), (True, TypeError), (1j, TypeError)):
        with pytest.raises(error, match=refused):
            call(emission=ToolLogistic(np.full((2, 3), wrong)))
    with pytest.raises(ValueError, match=r"11 tools cannot interact.*10 tools.*PhaseConditioned"):
        call(transition=Interacting(jnp.zeros((2, 11, 12))))
    for options in {"interacting": True}, {"emissions": "logistic"}:
        with pytest.raises(ValueError, match="11 tools cannot interact"):
            hmmjax.init_params(2, 11, **options)
    with pytest.raises(ValueError, match=r"priors.tool_transition has shape \(5,\)"):
        hmmjax.fit(*case.args, priors=hmmjax.Priors(tool_transition=np.ones(5)))
    with pytest.raises(TypeError, match="probabilities but ToolLogistic observes integer labels"):
        hmmjax.posterior(case.params, hmmjax.Observations(tools=np.zeros((4, 2), np.float32)))
    with pytest.raises(TypeError, match=r"ToolConfusion, which has no interactions .* hmmjax.emissions.ToolLogistic"):
        hmmjax.odds_ratios(independent(case)[0], case.obs)
    with pytest.raises(ValueError, match="block='phases' has no odds ratios"):
        hmmjax.odds_ratios(case.params, case.obs, block="phases")
    with pytest.raises(ValueError, match="tool_names has 1 names"):
        hmmjax.odds_ratios(*case.args, tool_names=("hook",))
    with pytest.raises(ValueError, match=r"obs.tools has no observations"):
        hmmjax.odds_ratios(case.params, hmmjax.Observations(case.obs.phases), case.mask)
    nothing = hmmjax.Observations(np.zeros((0, 4), int), np.zeros((0, 4, 2), int))
    with pytest.raises(ValueError, match="there are no frames"):
        hmmjax.odds_ratios(case.params, nothing)
    still = dataclasses.replace(case.params.phases, transition=jnp.eye(2))
    with pytest.raises(ValueError, match="video 0 is impossible under params"):
        moves = hmmjax.Labels(np.array([[0, 1, 0, 1], [0, 0, 0, 0]]))
        hmmjax.odds_ratios(dataclasses.replace(case.params, phases=still), *case.args[1:3], moves)
    with pytest.raises(TypeError, match="cannot be rescaled"):
        hmmjax.rates.rescale(case.params, 2)
