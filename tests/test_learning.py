"""EM and counting: expected counts, monotone objectives, labels, structural zeros and frozen blocks."""

import dataclasses

import cases
import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import fill
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax

CONFUSION = ("PhaseConfusion", "ToolConfusion")
PROBABILITY = ("PhaseDirichlet", "ToolBeta")
ML = hmmjax.Priors()  # maximum likelihood: no anchors
BLOCKS = [f"{track}.{part}" for track in ("phases", "tools") for part in ("initial", "transition", "emission")]


def fit(case, params=None, **options):
    options = {"priors": ML, **options}
    return hmmjax.fit(case.params if params is None else params, case.obs, case.mask, case.labels, **options)


def rows_sum_to_one(params):
    tables = [params.phases.initial, params.phases.transition] if params.phases else []
    tables += [params.tools.transition.matrix] if params.tools else []
    for chain in (params.phases, params.tools):
        tables += [chain.emission.matrix] if hasattr(getattr(chain, "emission", None), "matrix") else []
    for table in tables:
        assert_allclose(np.sum(table, -1), 1, atol=1e-6)


def uphill(history, slack=2e-6):
    """Check that the objective never decreases beyond rounding."""
    history = np.asarray(history, float)
    assert np.isfinite(history).all()
    assert (np.diff(history) >= -slack * np.maximum(1, np.abs(history[1:]))).all(), np.diff(history).min()


# One iteration against expected counts.


def counts_of(case):
    answers = case.answers()
    fields = ("count_initial", "count_transition", "count_tool_initial", "count_tool_transition")
    return {f: sum(getattr(a, f) for a in answers) for f in fields}


@pytest.mark.parametrize("pseudo", [0.0, 1.5])
@pytest.mark.parametrize("known", [0.0, 0.3])
def test_one_iteration_is_normalized_expected_counts(pseudo, known):
    case = cases.make(1, 2, 2, families=CONFUSION, holes=0.3, lengths=(5, 3), known=known)
    priors = hmmjax.Priors(phase_initial=pseudo, phase_transition=pseudo, tool_initial=pseudo, tool_transition=pseudo)
    result = fit(case, max_iterations=1, tolerance=0.0, priors=priors)
    counts = {name: c + pseudo for name, c in counts_of(case).items()}

    def share(name):
        return counts[name] / counts[name].sum(-1, keepdims=True)

    close = {"rtol": 1e-4, "atol": 1e-5}
    fitted = result.params
    assert_allclose(fitted.phases.initial, share("count_initial"), **close)
    assert_allclose(fitted.phases.transition, share("count_transition"), **close)
    assert_allclose(fitted.tools.initial, share("count_tool_initial")[..., 1], **close)
    assert_allclose(fitted.tools.transition.matrix, share("count_tool_transition"), **close)
    # The history holds the oracle's log-likelihoods of the starting and the fitted parameters.
    after = oracles.Model(
        *(np.asarray(x, float) for x in (fitted.phases.initial, fitted.phases.transition)),
        *(np.asarray(x, float) for x in (fitted.tools.initial, fitted.tools.transition.matrix)),
    )
    tables = dict(zip(CONFUSION, (fitted.phases.emission.matrix, fitted.tools.emission.matrix), strict=True))
    start = sum(a.log_likelihood for a in case.answers())
    end = 0.0
    for i in range(2):
        phases = emission_oracles.log_densities(CONFUSION[0], tables[CONFUSION[0]], case.obs.phases[i])
        tools = emission_oracles.log_densities(CONFUSION[1], tables[CONFUSION[1]], case.obs.tools[i])
        labels = (case.labels.phases[i], case.labels.tools[i]) if known else None
        end += oracles.enumerate_paths(
            after, oracles.emission_table(5, 2, 2, phases, tools, case.mask[i], labels)
        ).log_likelihood
    assert_allclose(result.log_likelihood, [start, end], rtol=1e-5)


@pytest.mark.parametrize(("num_phases", "num_tools"), [(0, 3), (4, 0)])
def test_one_iteration_of_a_single_track(num_phases, num_tools):
    case = cases.make(2, num_phases, num_tools, families=CONFUSION, holes=0.2, lengths=(5, 4))
    fitted, counts = fit(case, max_iterations=1, tolerance=0.0).params, counts_of(case)
    close = {"rtol": 1e-4, "atol": 1e-5}

    def share(name):
        return counts[name] / counts[name].sum(-1, keepdims=True)

    if num_tools:
        assert_allclose(fitted.tools.initial, share("count_tool_initial")[:, 0, 1], **close)
        assert_allclose(fitted.tools.transition.matrix, share("count_tool_transition")[:, 0], **close)
    else:
        assert_allclose(fitted.phases.initial, share("count_initial"), **close)
        assert_allclose(fitted.phases.transition, share("count_transition"), **close)


# Monotonicity.


@pytest.mark.thorough
@pytest.mark.parametrize("families", [(p, t) for p in cases.PHASE_FAMILIES for t in cases.TOOL_FAMILIES], ids="-".join)
def test_em_is_monotone(families):
    case = cases.make(3, 3, 2, 40, batch=3, families=families, holes=0.1, lengths=(40, 25, 33), known=0.05, sticky=0.8)
    start = hmmjax.init_params(3, 2)
    confusion = hmmjax.init_params(3, 2, emissions="confusion")
    start = hmmjax.Params(
        (confusion if families[0] == CONFUSION[0] else start).phases,
        (confusion if families[1] == CONFUSION[1] else start).tools,
    )
    result = fit(case, start, max_iterations=25, tolerance=0.0)
    uphill(result.history)
    assert_array_equal(result.history, result.log_likelihood)
    assert result.history[-1] > result.history[0]
    rows_sum_to_one(result.params)


def test_map_objective_is_monotone_and_reported_apart():
    """With a strong prior the log-likelihood may decrease; the objective may not."""
    case = cases.make(4, 3, 2, 40, batch=3, families=CONFUSION, sticky=0.8)
    result = fit(case, priors=hmmjax.Priors(phase_transition=50.0), max_iterations=15, tolerance=0.0)
    uphill(result.history)
    assert not np.allclose(result.history, result.log_likelihood)
    expected = 50 * np.log(np.asarray(result.params.phases.transition, float)).sum()
    assert_allclose(result.history[-1] - result.log_likelihood[-1], expected, rtol=1e-4)
    assert np.abs(np.asarray(result.params.phases.transition) - 1 / 3).max() < 0.25


@pytest.mark.parametrize("families", [CONFUSION, PROBABILITY], ids="-".join)
def test_map_with_every_prior_is_monotone(families):
    case = cases.make(5, 3, 2, 40, batch=3, families=families, holes=0.1, sticky=0.8)
    priors = hmmjax.Priors(1.0, 2.0, 3.0, 1.0, 2.0, 3.0)
    uphill(fit(case, priors=priors, max_iterations=12, tolerance=0.0).history)


# Counting.


@pytest.mark.parametrize("emissions", ["confusion", "probability"])
def test_fully_labeled_fit_is_estimate(emissions):
    """Counting and EM on fully labeled videos give the same tables."""
    families = CONFUSION if emissions == "confusion" else PROBABILITY
    case = cases.make(6, 3, 2, 40, batch=3, families=families, holes=0.2, lengths=(40, 25, 33), known=1.0, sticky=0.5)
    counted = hmmjax.estimate(case.labels, case.obs, case.mask, emissions=emissions, num_phases=3)
    start = hmmjax.init_params(3, 2, emissions=emissions)
    fitted = fit(case, start, max_iterations=3, tolerance=0.0).params
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-4, atol=1e-5), fitted, counted)

    moves, starts, tools = np.zeros((3, 3)), np.zeros(3), np.zeros((2, 3, 2, 2))
    for i, n in enumerate((40, 25, 33)):
        p, d = case.labels.phases[i, :n], case.labels.tools[i, :n]
        starts[p[0]] += 1
        for t in range(1, n):
            moves[p[t - 1], p[t]] += 1
            for k in range(2):
                tools[k, p[t], d[t - 1, k], d[t, k]] += 1
    assert_allclose(counted.phases.initial, starts / 3, atol=1e-6)
    assert_allclose(counted.phases.transition, moves / moves.sum(1, keepdims=True), atol=1e-6)
    visited = tools.sum(-1) > 0
    shares = tools / np.maximum(tools.sum(-1, keepdims=True), 1)
    assert_allclose(np.asarray(counted.tools.transition.matrix)[visited], shares[visited], atol=1e-6)
    if emissions == "confusion":
        outputs = np.zeros((3, 3))
        np.add.at(outputs, (case.labels.phases[case.mask], case.obs.phases[case.mask]), 1)
        assert_allclose(counted.phases.emission.matrix, outputs / outputs.sum(1, keepdims=True), atol=1e-6)


def test_estimate_skips_unknown_labels_and_their_pairs():
    labels = hmmjax.Labels(phases=np.array([[0, 0, -1, 1, 1, 0]]))
    params = hmmjax.estimate(labels, num_phases=2)
    assert_allclose(params.phases.transition, [[1, 0], [0.5, 0.5]])
    assert_allclose(params.phases.initial, [1, 0])


def test_estimate_keeps_unvisited_rows_and_takes_priors():
    """A training set without the last phase: rows still sum to one."""
    labels = hmmjax.Labels(phases=np.array([[0, 0, 1, 1]]))
    default = hmmjax.init_params(3, emissions="confusion")
    params = hmmjax.estimate(labels, num_phases=3)
    assert_allclose(params.phases.transition[2], default.phases.transition[2])
    rows_sum_to_one(params)
    params = hmmjax.estimate(labels, num_phases=3, priors=hmmjax.Priors(phase_transition=1.0))
    assert_allclose(params.phases.transition, [[2 / 5, 2 / 5, 1 / 5], [1 / 4, 2 / 4, 1 / 4], [1 / 3, 1 / 3, 1 / 3]])


def test_estimate_of_one_track():
    tools = np.array([[[0], [1], [1], [0]]])
    params = hmmjax.estimate(hmmjax.Labels(tools=tools), hmmjax.Observations(tools=tools))
    assert params.phases is None
    assert_allclose(params.tools.transition.matrix, [[[0, 1], [0.5, 0.5]]])
    assert_allclose(params.tools.emission.matrix, [np.eye(2)])


# Labels.


def test_labels_on_a_tenth_of_the_frames():
    """Known frames are clamped, the others are inferred."""
    rng = np.random.default_rng(7)
    case = cases.make(7, 3, 1, 100, batch=1, families=CONFUSION, sticky=0.9)
    labels = np.full((1, 100), -1)
    frames = rng.choice(100, 10, replace=False)
    labels[0, frames] = rng.integers(0, 3, 10)
    labels = hmmjax.Labels(phases=labels)
    result = hmmjax.fit(case.params, case.obs, labels=labels, max_iterations=10, tolerance=0.0)
    uphill(result.history)
    posterior = hmmjax.posterior(result.params, case.obs, labels=labels)
    assert_allclose(posterior.phases[0, frames, labels.phases[0, frames]], 1, atol=1e-5)
    assert np.asarray(posterior.tools).max() < 1  # tools stay free


def test_unknown_labels_are_no_labels():
    case = cases.make(8, 2, 2, families=CONFUSION)
    unknown = hmmjax.Labels(np.full((2, 5), -1), np.full((2, 5, 2), -1))
    with_labels = hmmjax.fit(case.params, case.obs, labels=unknown, priors=ML, max_iterations=3, tolerance=0.0)
    without = hmmjax.fit(case.params, case.obs, priors=ML, max_iterations=3, tolerance=0.0)
    assert_allclose(with_labels.history, without.history, rtol=1e-6)


# Invariances of the fit.


def test_fit_ignores_what_masked_frames_hold():
    case = cases.make(9, 2, 2, holes=0.3, lengths=(5, 3))
    reference = fit(case, max_iterations=3, tolerance=0.0)
    for value in (0.0, np.nan, 1e30):
        jax.tree.map(assert_array_equal, fit(fill(case, value), max_iterations=3, tolerance=0.0), reference)


def test_all_masked_video_has_no_effect_on_fit():
    case = cases.make(10, 2, 2, batch=3, families=CONFUSION)
    obs = cases.map_tracks(lambda x: x[:2], case.obs)
    two = hmmjax.fit(case.params, obs, max_iterations=3, tolerance=0.0)
    mask = np.array([[True] * 5, [True] * 5, [False] * 5])
    three = hmmjax.fit(case.params, case.obs, mask, max_iterations=3, tolerance=0.0)
    jax.tree.map(lambda a, b: assert_allclose(a, b, rtol=1e-5, atol=1e-6), two, three)


def test_fit_when_nothing_is_observed_leaves_everything():
    case = cases.make(10, 2, 2, families=CONFUSION)
    result = hmmjax.fit(case.params, case.obs, np.zeros((2, 5), bool))
    jax.tree.map(assert_array_equal, result.params, case.params)
    assert result.converged and result.history[-1] == 0


@pytest.mark.parametrize("frozen", [*BLOCKS, "phases", "tools"])
def test_frozen_blocks_stay_bit_equal(frozen):
    """All other blocks are learned."""
    case = cases.make(11, 2, 2, families=CONFUSION)
    result = fit(case, freeze=(frozen,), max_iterations=1, tolerance=0.0)
    for block in BLOCKS:
        track, part = block.split(".")
        before = jax.tree.leaves(getattr(getattr(case.params, track), part))
        after = jax.tree.leaves(getattr(getattr(result.params, track), part))
        same = all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        assert same == (block == frozen or track == frozen), block


def test_fit_of_an_unobserved_track_keeps_its_emission():
    case = cases.make(12, 2, 2, unobserved="phases", families=CONFUSION)
    result = fit(case, max_iterations=5, tolerance=0.0)
    uphill(result.history)
    jax.tree.map(assert_array_equal, result.params.phases.emission, case.params.phases.emission)


def test_fit_of_a_single_video_without_batch_axis():
    case = cases.make(13, 2, 2, batch=1, families=CONFUSION)
    params, obs, mask, _ = cases.video(case, 0)
    single = hmmjax.fit(params, obs, mask, priors=ML, max_iterations=3, tolerance=0.0)
    batch = fit(case, max_iterations=3, tolerance=0.0)
    assert_allclose(single.history, batch.history, rtol=1e-6)


# Zeros and rare states.


@pytest.mark.parametrize("prior", [0.0, 2.0])
def test_structural_zeros_stay_exactly_zero(prior):
    """Structural zeros stay zero through twenty MAP steps, with a finite objective."""
    case = cases.make(14, 3, 1, 40, batch=3, families=CONFUSION, sticky=0.8)
    transition = jnp.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]])
    phases = dataclasses.replace(case.params.phases, transition=transition, initial=jnp.array([0.8, 0.2, 0.0]))
    matrix = case.params.tools.transition.matrix.at[0, 0, 1].set(jnp.array([0.0, 1.0]))
    tools = dataclasses.replace(case.params.tools, transition=hmmjax.transitions.PhaseConditioned(matrix))
    priors = hmmjax.Priors(phase_initial=prior, phase_transition=prior, tool_transition=prior)
    result = fit(case, hmmjax.Params(phases, tools), priors=priors, max_iterations=20, tolerance=0.0)
    uphill(result.history)
    fitted = result.params
    assert_array_equal(np.asarray(fitted.phases.transition) == 0, np.asarray(transition) == 0)
    assert fitted.phases.initial[2] == 0
    assert fitted.tools.transition.matrix[0, 0, 1, 0] == 0
    rows_sum_to_one(fitted)


def test_unreachable_state_keeps_its_rows():
    """States that are never visited keep their rows; no entry becomes NaN."""
    emission = hmmjax.emissions.PhaseConfusion(jnp.array([[0.8, 0.2, 0.0], [0.2, 0.8, 0.0], [0.1, 0.1, 0.8]]))
    transition = jnp.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    start = hmmjax.Params(hmmjax.PhaseChain(jnp.array([0.5, 0.5, 0.0]), transition, emission))
    result = hmmjax.fit(start, hmmjax.Observations(np.array([[0, 1, 0, 1]])), max_iterations=10, tolerance=0.0)
    jax.tree.map(lambda x: assert_array_equal(np.isfinite(x), True), result.params)
    assert_allclose(result.params.phases.transition[2], [0.2, 0.3, 0.5], rtol=1e-6)
    rows_sum_to_one(result.params)


def test_near_deterministic_transitions_and_rare_states():
    case = cases.make(15, 3, 1, 400, batch=2, families=CONFUSION, sticky=0.9999)
    result = fit(case, max_iterations=5, tolerance=0.0)
    uphill(result.history)
    rows_sum_to_one(result.params)
    assert (np.asarray(result.params.phases.transition) >= 0).all()
