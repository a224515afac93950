"""Posterior, filter, most probable path and likelihood against the oracles, and what must not change them."""

import dataclasses

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax

FAMILIES = [(p, t) for p in cases.PHASE_FAMILIES for t in cases.TOOL_FAMILIES]
TIGHT = {"rtol": 2e-5, "atol": 2e-5}


def check(case, method=oracles.enumerate_paths, tolerance=TIGHT):
    """Every answer of the library against the oracle's, and zeros and -1 after each video's end."""
    answers = case.answers(method)
    posterior = hmmjax.posterior(*case.args)
    decoded = hmmjax.decode(*case.args)
    filtered = hmmjax.filter(*case.args[:3]) if case.labels is None else None
    expected = [a.log_likelihood for a in answers]
    assert_allclose(posterior.log_likelihood, expected, **tolerance)
    assert_allclose(decoded.log_prob, [a.path_log_prob for a in answers], **tolerance)
    for track in ("phases", "tools"):
        if getattr(case.params, track) is None:
            assert getattr(posterior, track) is None and getattr(decoded, track) is None
            continue
        marginals, path = np.array(getattr(posterior, track)), np.array(getattr(decoded, track))
        assert path.dtype == np.int32
        for i, answer in enumerate(answers):
            n = len(case.evidence[i])
            assert_allclose(marginals[i, :n], getattr(answer, track), **tolerance)
            assert (marginals[i, n:] == 0).all() and (path[i, n:] == -1).all()
            if filtered is not None:
                past = np.array(getattr(filtered, track))
                assert_allclose(past[i, :n], getattr(answer, f"filter_{track}"), **tolerance)
                assert (past[i, n:] == 0).all()
    for i, answer in enumerate(answers):
        # Ties are possible, so the path is judged by its probability.
        n = len(case.evidence[i])
        path = [None if x is None else np.array(x)[i, :n] for x in (decoded.phases, decoded.tools)]
        path = [np.zeros(n, int) if path[0] is None else path[0], np.zeros((n, 0), int) if path[1] is None else path[1]]
        assert_allclose(
            oracles.path_log_prob(case.model, case.evidence[i], *path), answer.path_log_prob, rtol=1e-5, atol=1e-5
        )


# The first two share their compiled programs.
VARIANTS = {"plain": {}, "holes and padding": {"holes": 0.3, "lengths": (4, 5)}}
LABELLED = {"holes": 0.3, "lengths": (5, 3), "known": 0.4}


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
    case = cases.make(2, num_phases, num_tools, **LABELLED)
    expected = [oracles.enumerate_paths(case.model, e).log_likelihood for e in case.evidence]
    assert_allclose(hmmjax.log_likelihood(*case.args), expected, **TIGHT)


@pytest.mark.parametrize(("num_phases", "num_tools"), [(2, 2), (0, 3), (4, 0)])
def test_enumeration_with_some_labels(num_phases, num_tools):
    for seed in range(3):
        check(cases.make(seed, num_phases, num_tools, **LABELLED))


@pytest.mark.parametrize(("num_phases", "num_tools"), [(0, 2), (3, 0)])
def test_enumeration_of_single_tracks_with_confusion(num_phases, num_tools):
    check(cases.make(3, num_phases, num_tools, families=("PhaseConfusion", "ToolConfusion"), holes=0.2))


@pytest.mark.parametrize(("unobserved", "known"), [("phases", 0.0), ("tools", 0.3)])
def test_track_that_nobody_observes(unobserved, known):
    check(cases.make(4, 2, 2, unobserved=unobserved, known=known, lengths=(5, 4)))


def test_chain_without_emission_is_a_track_nobody_observes():
    case = cases.make(4, 2, 2, unobserved="phases")
    blind = dataclasses.replace(case.params.phases, emission=None)
    posterior = hmmjax.posterior(dataclasses.replace(case.params, phases=blind), case.obs)
    jax.tree.map(assert_array_equal, posterior, hmmjax.posterior(case.params, case.obs))


@pytest.mark.parametrize("seed", range(5))
def test_many_random_models(seed):
    """Different numbers in compiled programs that other tests have paid for."""
    check(cases.make(200 + seed, 2, 2, holes=0.3, lengths=(4, 5)))
    check(cases.make(300 + seed, 3, 1))


@settings(deadline=None, max_examples=25, derandomize=True)
@given(st.data())
def test_any_mask_and_any_labels(data):
    """Frames observed or not, states known or not, in every pattern; labels in the padding are padding."""

    def array(*shape, low=0, high=1):
        flat = data.draw(st.lists(st.integers(low, high), min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))
        return np.array(flat, np.int32).reshape(shape)

    case = cases.make(data.draw(st.integers(0, 99)), 2, 1)
    mask, phases, tools = array(2, 5) == 1, array(2, 5, low=-1), array(2, 5, 1, low=-1)
    tables = [np.asarray(log_evidence(case.params, case)[i], float) for i in (0, 1)]
    evidence = [oracles.evidence(5, 2, 1, tables[0][i], tables[1][i], mask[i], (phases[i], tools[i])) for i in (0, 1)]
    posterior = hmmjax.posterior(case.params, case.obs, mask, hmmjax.Labels(phases, tools))
    for i, table in enumerate(evidence):
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


def test_dense_cholec80_size():
    check(cases.make(7, 7, 7, 50, batch=1, holes=0.2, sticky=0.8), oracles.dense, {"rtol": 1e-5, "atol": 5e-5})


def test_tools_only_are_independent_chains():
    """K = 20 tools: a joint space of 2**20 states would not do."""
    case = cases.make(8, 0, 20, 30)
    posterior, decoded = hmmjax.posterior(*case.args), hmmjax.decode(*case.args)
    total = np.zeros(2)
    for k in range(20):
        model = oracles.Model(tool_initial=case.model.tool_initial[k : k + 1])
        model.tool_transition = case.model.tool_transition[k : k + 1]
        for i, evidence in enumerate(case.evidence):
            answer = oracles.dense(model, oracles.Evidence(evidence.phases, evidence.tools[:, k : k + 1]))
            assert_allclose(posterior.tools[i, :, k], answer.tools[:, 0], **TIGHT)
            assert_array_equal(decoded.tools[i, :, k], answer.path_tools[:, 0])
            total[i] += answer.log_likelihood
    assert_allclose(posterior.log_likelihood, total, rtol=1e-5)


# What must not change the answer.

FILLERS = {"zero": 0.0, "NaN": np.nan, "huge": 1e30}


def fill(case, value):
    """The case with `value` wherever nothing is observed (99 for labels)."""

    def put(x):
        x = x.copy()
        x[~case.mask] = value if x.dtype.kind == "f" else 99
        return x

    return dataclasses.replace(case, obs=cases.map_tracks(put, case.obs))


def everything(*args):
    posterior, decoded = hmmjax.posterior(*args), hmmjax.decode(*args)
    return [posterior, decoded, hmmjax.log_likelihood(*args), hmmjax.filter(*args[:3])]


@pytest.mark.parametrize("families", [FAMILIES[0], FAMILIES[-1]], ids="-".join)
def test_masked_frames_may_hold_anything(families):
    case = cases.make(9, 2, 2, families=families, holes=0.3, lengths=(5, 3), known=0.3)
    reference = everything(*case.args)
    for value in FILLERS.values():
        jax.tree.map(assert_array_equal, everything(*fill(case, value).args), reference)


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
    """Peers 27: the likelihood does not know how states are numbered."""
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
    """Peers 25: appending frames never changes earlier answers, and the last frame's filter is its smoother."""
    case = cases.make(15, 3, 2, 12, batch=1)
    whole = hmmjax.filter(case.params, case.obs)
    for n in (1, 5, 11):
        head = cases.map_tracks(lambda x, n=n: x[:, :n], case.obs)
        past, smooth = hmmjax.filter(case.params, head), hmmjax.posterior(case.params, head)
        for track in ("phases", "tools"):
            assert_allclose(getattr(past, track), getattr(whole, track)[:, :n], rtol=1e-6, atol=1e-7)
            assert_allclose(getattr(past, track)[:, -1], getattr(smooth, track)[:, -1], rtol=1e-5, atol=1e-6)


# Gradients.


def log_evidence(params, case):
    """The videos' emission tables as the library computes them: (B, T, L) and (B, T, K, 2)."""
    return params.phases.emission.log_prob(case.obs.phases), params.tools.emission.log_prob(case.obs.tools)


def test_gradient_of_log_parameters_is_expected_counts():
    """model.md's identity: parameter times gradient is the expected count, for every table."""
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
    # Emissions: posterior weights sorted by what was said.
    phases, tools = np.zeros((2, 2)), np.zeros((2, 2, 2))
    for i, answer in enumerate(answers):
        for t in range(len(case.evidence[i])):
            if case.mask[i, t]:
                phases[:, case.obs.phases[i, t]] += answer.phases[t]
                for k in range(2):
                    on = answer.tools[t, k]
                    tools[k, :, case.obs.tools[i, t, k]] += [1 - on, on]
    table = case.emissions["PhaseConfusion"]
    assert_allclose(table * grads.phases.emission.matrix, phases, **TIGHT)
    assert_allclose(case.emissions["ToolConfusion"] * grads.tools.emission.matrix, tools, **TIGHT)


def test_gradient_of_observations_is_posterior_weighted():
    """d log-likelihood / d log-evidence is the posterior, so d / d observation follows by the chain rule."""
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


@pytest.mark.parametrize("families", [FAMILIES[0], FAMILIES[-1]], ids="-".join)
def test_gradient_is_finite_with_nan_in_masked_frames_and_zeros_in_tables(families):
    """Peers 3 and 30."""
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


def test_gradient_of_an_impossible_video_is_not_nan():
    params, obs = impossible()
    grads = jax.grad(lambda p: hmmjax.log_likelihood(p, obs).sum())(params)
    jax.tree.map(lambda g: np.testing.assert_array_equal(np.isnan(g), False), grads)


# Edges.


def impossible():
    """Phase 0 forever, a recogniser that never errs, and a second frame that says 1; the other video is fine."""
    emission = hmmjax.emissions.PhaseConfusion(jnp.eye(2))
    chain = hmmjax.PhaseChain(jnp.array([1.0, 0.0]), jnp.eye(2), emission)
    return hmmjax.Params(phases=chain), hmmjax.Observations(phases=np.array([[0, 0, 0], [0, 1, 0]]))


def test_impossible_video_has_minus_infinity_and_no_nan():
    """Peers 8: and its neighbours in the batch are untouched."""
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


def test_contradicting_label_is_impossible():
    params, obs = impossible()
    labels = hmmjax.Labels(phases=np.array([[-1, 1, -1], [-1, -1, -1]]))
    assert_array_equal(hmmjax.log_likelihood(params, obs, labels=labels), [-np.inf, -np.inf])


def test_all_masked_video():
    """Peers 10: log-likelihood 0 and nothing else."""
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
    """Peers 9 and 24: the initial distribution applies before any transition."""
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


def test_deterministic_chain_with_overwhelming_evidence_against():
    """float32 holds 87 nats below one: a state must survive a stretch of evidence against it that is far longer."""
    case = cases.make(22, 3, 1, 40, batch=1, families=("PhaseDirichlet", "ToolBeta"))
    forward_only = np.array([[0.99, 0.01, 0.0], [0.0, 0.99, 0.01], [0.0, 0.0, 1.0]])
    model = dataclasses.replace(case.model, transition=forward_only, initial=np.array([1.0, 0.0, 0.0]))
    says_last = np.array([[[0.001, 0.001, 0.998]] * 20 + [[0.998, 0.001, 0.001]] * 20], np.float32)
    emissions = case.emissions | {"PhaseDirichlet": 1 + 60 * np.eye(3)}
    params = cases.to_params(model, emissions, "PhaseDirichlet", "ToolBeta")
    obs = dataclasses.replace(case.obs, phases=says_last)
    evidence = oracles.evidence(
        40,
        3,
        1,
        oracles.phase_dirichlet(emissions["PhaseDirichlet"], says_last[0]),
        oracles.tool_beta(emissions["ToolBeta"], case.obs.tools[0]),
    )
    check(
        dataclasses.replace(case, params=params, obs=obs, model=model, emissions=emissions, evidence=[evidence]),
        oracles.dense,
        {"rtol": 1e-5, "atol": 1e-4},
    )


# Inside a user's own program.


def test_inside_jit_vmap_and_grad():
    case = cases.make(23, 2, 2, lengths=(5, 3))

    def run(obs, mask):
        return hmmjax.posterior(case.params, obs, mask), hmmjax.decode(case.params, obs, mask)

    eager = run(case.obs, case.mask)
    for answer in (jax.jit(run)(case.obs, case.mask), jax.vmap(run)(case.obs, case.mask)):
        jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-5, atol=1e-6), answer, eager)

    stay = jnp.array([0.6, 0.9])

    def with_stay(p):
        phases = dataclasses.replace(case.params.phases, transition=jnp.array([[p, 1 - p], [1 - p, p]]))
        return hmmjax.log_likelihood(dataclasses.replace(case.params, phases=phases), case.obs, case.mask).sum()

    slopes = jax.jit(jax.vmap(jax.grad(with_stay)))(stay)
    step = 1e-2
    for p, slope in zip(stay, slopes, strict=True):
        assert_allclose(slope, (with_stay(p + step) - with_stay(p - step)) / (2 * step), rtol=2e-2)


class Traces:
    """Counts what JAX traces and compiles."""

    def __init__(self):
        self.count = 0

    def __call__(self, event, duration, **_):
        self.count += event == "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def traces():
    counter = Traces()
    jax.monitoring.register_event_duration_secs_listener(counter)
    yield counter
    jax.monitoring.unregister_event_duration_listener(counter)


def test_repeated_calls_never_retrace(traces):
    """Peers 22."""
    case = cases.make(24, 2, 2, 23, lengths=(23, 20))
    everything(*case.args)
    before = traces.count
    assert before > 0
    for seed in (25, 26):
        other = cases.make(seed, 2, 2, 23, lengths=(19, 23))
        everything(*other.args)
    assert traces.count == before


def test_twenty_lengths_compile_a_handful_of_programs(traces):
    case = cases.make(27, 0, 2, 2000, batch=1)
    hmmjax.log_likelihood(case.params, cases.map_tracks(lambda x: x[:, :2000], case.obs))
    before = traces.count
    for n in np.linspace(700, 1900, 20).astype(int):
        hmmjax.log_likelihood(case.params, cases.map_tracks(lambda x, n=n: x[:, :n], case.obs))
    assert traces.count - before <= 12
