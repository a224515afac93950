"""Posterior, filter, most probable path and likelihood against the oracles: every shape, family and edge."""

import dataclasses

import cases
import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import FAMILIES, TIGHT, check
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax

# The first two share their compiled programs.
VARIANTS = {"plain": {}, "holes and padding": {"holes": 0.3, "lengths": (4, 5)}}
LABELED = {"holes": 0.3, "lengths": (5, 3), "known": 0.4}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("families", FAMILIES, ids="-".join)
def test_enumeration(families, variant):
    check(cases.make(1, 2, 2, families=families, **VARIANTS[variant]))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("num_phases", "num_tools"), [(3, 1), (0, 3), (0, 1), (4, 0), (1, 2)])
def test_enumeration_of_every_shape(num_phases, num_tools, variant):
    check(cases.make(2, num_phases, num_tools, **VARIANTS[variant]))


@pytest.mark.parametrize(("num_phases", "num_tools"), [(2, 2), (0, 3), (4, 0)])
def test_log_likelihood(num_phases, num_tools):
    case = cases.make(2, num_phases, num_tools, **LABELED)
    expected = [oracles.enumerate_paths(case.model, e).log_likelihood for e in case.emission_tables]
    assert_allclose(hmmjax.log_likelihood(*case.args), expected, **TIGHT)


@pytest.mark.parametrize(("num_phases", "num_tools"), [(2, 2), (0, 3), (4, 0)])
def test_enumeration_with_some_labels(num_phases, num_tools):
    for seed in range(3):
        check(cases.make(seed, num_phases, num_tools, **LABELED))


@pytest.mark.parametrize(("num_phases", "num_tools"), [(0, 2), (3, 0)])
def test_enumeration_of_single_tracks_with_confusion(num_phases, num_tools):
    check(cases.make(3, num_phases, num_tools, families=("PhaseConfusion", "ToolConfusion"), holes=0.2))


@pytest.mark.parametrize(("unobserved", "known"), [("phases", 0.0), ("tools", 0.3)])
def test_unobserved_track(unobserved, known):
    check(cases.make(4, 2, 2, unobserved=unobserved, known=known, lengths=(5, 4)))


def test_chain_without_emission_is_an_unobserved_track():
    case = cases.make(4, 2, 2, unobserved="phases")
    blind = dataclasses.replace(case.params.phases, emission=None)
    posterior = hmmjax.posterior(dataclasses.replace(case.params, phases=blind), case.obs)
    jax.tree.map(assert_array_equal, posterior, hmmjax.posterior(case.params, case.obs))


@pytest.mark.parametrize("seed", range(5))
def test_many_random_models(seed):
    """Other numbers in programs that other tests compile as well."""
    check(cases.make(200 + seed, 2, 2, holes=0.3, lengths=(4, 5)))
    check(cases.make(300 + seed, 3, 1))


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.data())
def test_any_mask_and_any_labels(data):
    """Any pattern of observed frames and known states; labels in the padding are ignored."""

    def array(*shape, low=0, high=1):
        flat = data.draw(st.lists(st.integers(low, high), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        return np.array(flat, np.int32).reshape(shape)

    case = cases.make(data.draw(st.integers(0, 99)), 2, 1)
    mask, phases, tools = array(2, 5) == 1, array(2, 5, low=-1), array(2, 5, 1, low=-1)
    families = case.params.phases.emission, case.params.tools.emission
    outputs = case.obs.phases, case.obs.tools
    tables = [np.asarray(f.log_prob(x), float) for f, x in zip(families, outputs, strict=True)]
    emission_tables = [
        oracles.emission_table(5, 2, 1, tables[0][i], tables[1][i], mask[i], (phases[i], tools[i])) for i in (0, 1)
    ]
    posterior = hmmjax.posterior(case.params, case.obs, mask, hmmjax.Labels(phases, tools))
    for i, table in enumerate(emission_tables):
        n = len(table)
        assert (np.array(posterior.phases)[i, n:] == 0).all()
        if n == 0:
            assert posterior.log_likelihood[i] == 0
            continue
        answer = oracles.enumerate_paths(case.model, table)
        assert_allclose(posterior.log_likelihood[i], answer.log_likelihood, **TIGHT)
        assert_allclose(posterior.phases[i, :n], answer.phases, **TIGHT)
        assert_allclose(posterior.tools[i, :n], answer.tools, **TIGHT)


def test_exact_in_double_precision():
    with jax.enable_x64(True):
        exact = {"rtol": 1e-10, "atol": 1e-10}
        confusion = ("PhaseConfusion", "ToolConfusion")
        check(cases.make(5, 2, 2, families=confusion, holes=0.3, lengths=(5, 3), dtype=np.float64), tolerance=exact)


def test_dense_seven_phases_three_tools():
    case = cases.make(6, 7, 3, 200, holes=0.2, lengths=(200, 130), sticky=0.8, known=0.05)
    check(case, oracles.dense, {"rtol": 1e-5, "atol": 5e-5})


@pytest.mark.thorough
def test_dense_cholec80_size():
    check(cases.make(7, 7, 7, 50, batch=1, holes=0.2, sticky=0.8), oracles.dense, {"rtol": 1e-5, "atol": 5e-5})


def test_tools_only_are_independent_chains():
    """K = 20 tools, whose joint space of 2**20 states would be too large."""
    case = cases.make(8, 0, 20, 30)
    posterior, decoded = hmmjax.posterior(*case.args), hmmjax.decode(*case.args)
    total = np.zeros(2)
    for k in range(20):
        model = oracles.Model(tool_initial=case.model.tool_initial[k : k + 1])
        model.tool_transition = case.model.tool_transition[k : k + 1]
        for i, table in enumerate(case.emission_tables):
            answer = oracles.dense(model, oracles.EmissionTable(table.phases, table.tools[:, k : k + 1]))
            assert_allclose(posterior.tools[i, :, k], answer.tools[:, 0], **TIGHT)
            assert_array_equal(decoded.tools[i, :, k], answer.path_tools[:, 0])
            total[i] += answer.log_likelihood
    assert_allclose(posterior.log_likelihood, total, rtol=1e-5)


# Edges.


def impossible():
    """Phase 0 forever, a recognizer that never errs, and an output of 1; the other video is possible."""
    emission = hmmjax.emissions.PhaseConfusion(jnp.eye(2))
    chain = hmmjax.PhaseChain(jnp.array([1.0, 0.0]), jnp.eye(2), emission)
    return hmmjax.Params(phases=chain), hmmjax.Observations(phases=np.array([[0, 0, 0], [0, 1, 0]]))


def test_impossible_video_has_minus_infinity_and_no_nan():
    """Other videos of the batch are not affected."""
    params, obs = impossible()
    posterior, past, decoded = hmmjax.posterior(params, obs), hmmjax.filter(params, obs), hmmjax.decode(params, obs)
    assert_array_equal(posterior.log_likelihood, [0, -np.inf])
    assert_array_equal(past.log_likelihood, [0, -np.inf])
    assert_array_equal(decoded.log_prob, [0, -np.inf])
    for marginals in (posterior.phases, past.phases):
        assert_array_equal(marginals[0], [[1, 0]] * 3)
        assert_array_equal(marginals[1], 0)
    assert_array_equal(decoded.phases, [[0, 0, 0], [-1, -1, -1]])


def test_impossible_tool_makes_the_video_impossible():
    matrix = jnp.stack([jnp.eye(2), jnp.full((2, 2), 0.5)])
    emission = hmmjax.emissions.ToolConfusion(matrix)
    transition = hmmjax.transitions.PhaseConditioned(matrix)
    params = hmmjax.Params(tools=hmmjax.ToolChains(jnp.array([0.5, 0.5]), transition, emission))
    obs = hmmjax.Observations(tools=np.array([[0, 0], [1, 0]]))
    for result in (hmmjax.posterior(params, obs), hmmjax.filter(params, obs)):
        assert result.log_likelihood == -np.inf
        assert_array_equal(result.tools, 0)
    decoded = hmmjax.decode(params, obs)
    assert decoded.log_prob == -np.inf
    assert_array_equal(decoded.tools, -1)


def test_gradient_of_an_impossible_video_is_not_nan():
    params, obs = impossible()
    grads = jax.grad(lambda p: hmmjax.log_likelihood(p, obs).sum())(params)
    jax.tree.map(lambda g: np.testing.assert_array_equal(np.isnan(g), False), grads)


def test_contradicting_label_is_impossible():
    params, obs = impossible()
    labels = hmmjax.Labels(phases=np.array([[-1, 1, -1], [-1, -1, -1]]))
    assert_array_equal(hmmjax.log_likelihood(params, obs, labels=labels), [-np.inf, -np.inf])


def test_all_masked_video():
    """The log-likelihood is 0 and every frame is padding."""
    case = cases.make(19, 2, 2)
    mask = np.array([[True] * 5, [False] * 5])
    posterior, decoded = hmmjax.posterior(case.params, case.obs, mask), hmmjax.decode(case.params, case.obs, mask)
    alone = hmmjax.posterior(*cases.video(case, 0))
    assert_allclose(posterior.log_likelihood, [alone.log_likelihood, 0], rtol=1e-6)
    assert decoded.log_prob[1] == 0
    assert_array_equal(posterior.phases[1], 0)
    assert_array_equal(decoded.phases[1], -1)
    assert_array_equal(decoded.tools[1], -1)


@pytest.mark.parametrize(("num_phases", "num_tools"), [(2, 2), (0, 3), (4, 0)])
def test_single_frame(num_phases, num_tools):
    """The initial distribution applies before any transition."""
    check(cases.make(20, num_phases, num_tools, 1))


@pytest.mark.parametrize(("num_phases", "num_tools"), [(2, 2), (0, 3), (4, 0)])
def test_no_frame_at_all(num_phases, num_tools):
    case = cases.make(20, num_phases, num_tools, 1)
    obs = cases.map_tracks(lambda x: x[:, :0], case.obs)
    posterior, decoded = hmmjax.posterior(case.params, obs), hmmjax.decode(case.params, obs)
    assert_array_equal(posterior.log_likelihood, [0, 0])
    assert_array_equal(decoded.log_prob, [0, 0])
    for x in jax.tree.leaves([posterior, decoded, hmmjax.filter(case.params, obs)]):
        assert x.shape[:2] == (2, 0) or x.shape == (2,)


def test_label_on_an_unobserved_frame_counts():
    case = cases.make(21, 2, 2, 5, batch=1)
    mask = np.array([[True, False, True, True, True]])
    labels = hmmjax.Labels(phases=np.array([[-1, 1, -1, -1, -1]]))
    posterior = hmmjax.posterior(case.params, case.obs, mask, labels)
    assert_allclose(posterior.phases[0, 1], [0, 1], atol=1e-6)
    assert posterior.log_likelihood[0] < hmmjax.log_likelihood(case.params, case.obs, mask)[0]


def test_deterministic_chain_with_overwhelming_observations_against_it():
    """float32 holds 87 nats below one: a state must survive many frames that make it far less probable than that."""
    case = cases.make(22, 3, 1, 40, batch=1, families=("PhaseDirichlet", "ToolBeta"))
    forward_only = np.array([[0.99, 0.01, 0.0], [0.0, 0.99, 0.01], [0.0, 0.0, 1.0]])
    model = dataclasses.replace(case.model, transition=forward_only, initial=np.array([1.0, 0.0, 0.0]))
    contrary = np.array([[[0.001, 0.001, 0.998]] * 20 + [[0.998, 0.001, 0.001]] * 20], np.float32)
    emissions = case.emissions | {"PhaseDirichlet": 1 + 60 * np.eye(3)}
    params = cases.to_params(model, emissions, "PhaseDirichlet", "ToolBeta")
    obs = dataclasses.replace(case.obs, phases=contrary)
    table = oracles.emission_table(
        40,
        3,
        1,
        emission_oracles.phase_dirichlet(emissions["PhaseDirichlet"], contrary[0]),
        emission_oracles.tool_beta(emissions["ToolBeta"], case.obs.tools[0]),
    )
    check(
        dataclasses.replace(case, params=params, obs=obs, model=model, emissions=emissions, emission_tables=[table]),
        oracles.dense,
        {"rtol": 1e-5, "atol": 1e-4},
    )


def test_a_frame_that_no_state_explains_makes_its_video_impossible():
    """The third symbol has probability zero in every state."""
    emission = hmmjax.emissions.PhaseConfusion(jnp.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.5, 0.5, 0.0]]))
    params = hmmjax.Params(hmmjax.PhaseChain(jnp.full(3, 1 / 3), jnp.full((3, 3), 1 / 3), emission))
    obs = hmmjax.Observations(np.array([[0, 2, 0], [0, 0, 0]]))
    posterior, good = hmmjax.posterior(params, obs), hmmjax.posterior(params, hmmjax.Observations(obs.phases[1]))
    assert posterior.log_likelihood[0] == -np.inf
    assert_array_equal(posterior.phases[0], 0)
    assert_allclose(posterior.phases[1], good.phases, rtol=1e-5)
    with pytest.raises(ValueError, match="video 0 is impossible"):
        hmmjax.fit(params, obs)


def test_labels_of_one_track_leave_the_other_free():
    case = cases.make(38, 2, 2, 12, batch=1, families=("PhaseConfusion", "ToolConfusion"))
    labels = hmmjax.Labels(phases=np.array([[0] * 6 + [1] * 6]))
    posterior = hmmjax.posterior(case.params, case.obs, labels=labels)
    assert_allclose(posterior.phases[0, np.arange(12), labels.phases[0]], 1, atol=1e-6)
    free = np.asarray(posterior.tools)
    assert ((free > 0) & (free < 1)).all()


@pytest.mark.parametrize("run", [hmmjax.posterior, hmmjax.filter])
def test_no_video_at_all(run):
    params = hmmjax.init_params(3, 2, emissions="confusion")
    out = run(params, hmmjax.Observations(np.zeros((0, 5), int), np.zeros((0, 5, 2), int)))
    assert out.phases.shape == (0, 5, 3) and out.tools.shape == (0, 5, 2) and out.log_likelihood.shape == (0,)


def test_no_video_decodes_to_nothing():
    params = hmmjax.init_params(3, emissions="confusion")
    out = hmmjax.decode(params, hmmjax.Observations(np.zeros((0, 5), int)))
    assert out.phases.shape == (0, 5) and out.log_prob.shape == (0,)


def test_half_precision_parameters_work():
    for dtype in (jnp.float16, jnp.bfloat16):
        params = jax.tree.map(lambda x, d=dtype: x.astype(d), hmmjax.init_params(3, 2, emissions="confusion"))
        obs = hmmjax.Observations(np.array([0, 1, 1]), np.zeros((3, 2), int))
        posterior = hmmjax.posterior(params, obs)
        assert posterior.phases.dtype == jnp.float32 and np.isfinite(posterior.log_likelihood)


def test_no_frame_at_all_under_jit():
    params = hmmjax.init_params(3, emissions="confusion")
    out = jax.jit(lambda o: hmmjax.posterior(params, hmmjax.Observations(o)))(jnp.zeros((2, 0), int))
    assert out.phases.shape == (2, 0, 3) and (out.log_likelihood == 0).all()
