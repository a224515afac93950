"""Phases in stages, against enumeration of semi-Markov paths with negative binomial durations."""

import dataclasses
import itertools

import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose
from scipy import stats
from scipy.special import logsumexp

import hmmjax
import hmmjax.io
from hmmjax import Labels, Observations, Params, durations

pytestmark = pytest.mark.thorough
STAGES = (3, 1, 2)
FRAMES = 6


def _staged(seed=0, stages=STAGES):
    """A coupled model with stages, and the oracle's model without them."""
    rng = np.random.default_rng(seed)
    model = oracles.random_model(rng, 3, 1)
    emission = emission_oracles.random_emissions(rng, 3, 1)
    params = Params(
        hmmjax.PhaseChain(
            jnp.asarray(model.initial, jnp.float32),
            jnp.asarray(model.transition, jnp.float32),
            hmmjax.emissions.PhaseConfusion(jnp.asarray(emission["PhaseConfusion"], jnp.float32)),
            stages,
        ),
        hmmjax.ToolChains(
            jnp.asarray(model.tool_initial, jnp.float32),
            hmmjax.transitions.PhaseConditioned(jnp.asarray(model.tool_transition, jnp.float32)),
            hmmjax.emissions.ToolConfusion(jnp.asarray(emission["ToolConfusion"], jnp.float32)),
        ),
    )
    phases, tools = oracles.simulate(rng, model, FRAMES)
    outputs = Observations(
        emission_oracles.observe(rng, "PhaseConfusion", emission["PhaseConfusion"], phases),
        emission_oracles.observe(rng, "ToolConfusion", emission["ToolConfusion"], tools),
    )
    table = oracles.emission_table(
        FRAMES,
        3,
        1,
        emission_oracles.phase_confusion(emission["PhaseConfusion"], outputs.phases),
        emission_oracles.tool_confusion(emission["ToolConfusion"], outputs.tools),
    )
    return params, outputs, model, table


def _semi_markov(model, table, stages):
    """Log-probability of every path of phases (N, T) and tools (N, T, 1), by runs and their negative binomials."""
    free = dataclasses.replace(model, initial=np.ones(3), transition=np.ones((3, 3)))
    frames = len(table)
    paths = np.array(list(itertools.product(range(3), range(2), repeat=frames))).reshape(-1, frames, 2)
    phases, tools = paths[..., 0], paths[..., 1:]
    total = oracles.path_log_prob(free, table, phases, tools)
    prior = {}
    for path in {tuple(p) for p in phases}:
        prior[path] = model.initial[path[0]]
        runs = [(phase, len(list(group))) for phase, group in itertools.groupby(path)]
        for i, (phase, length) in enumerate(runs):
            leave, n = 1 - model.transition[phase, phase], stages[phase]
            if i + 1 < len(runs):
                duration = stats.nbinom.pmf(length - n, n, leave)
                prior[path] *= duration * model.transition[phase, runs[i + 1][0]] / leave
            else:
                # The last run is censored by the end of the video.
                prior[path] *= stats.nbinom.sf(length - n - 1, n, leave)
    with np.errstate(divide="ignore"):
        return phases, tools, total + np.log([prior[tuple(p)] for p in phases])


@pytest.mark.parametrize("backend", ["scan", "logspace"])
def test_posterior_filter_and_likelihood_are_those_of_the_semi_markov_chain(backend):
    params, outputs, model, table = _staged()
    phases, tools, log_prob = _semi_markov(model, table, STAGES)
    total = logsumexp(log_prob)
    weight = np.exp(log_prob - total)
    found = hmmjax.posterior(params, outputs, backend=backend)
    assert float(found.log_likelihood) == pytest.approx(total, rel=1e-5)
    assert_allclose(found.phases, np.einsum("n,ntp->tp", weight, np.eye(3)[phases]), atol=1e-5)
    assert_allclose(found.tools, np.einsum("n,ntk->tk", weight, tools), atol=1e-5)
    past = hmmjax.filter(params, outputs, backend=backend)
    for t in range(FRAMES):
        heads, head_tools, log_prob = _semi_markov(model, table[: t + 1], STAGES)
        weight = np.exp(log_prob - logsumexp(log_prob))
        assert_allclose(past.phases[t], weight @ np.eye(3)[heads[:, -1]], atol=1e-5)
        assert_allclose(past.tools[t], weight @ head_tools[:, -1], atol=1e-5)


def test_known_phases_are_evidence_in_any_stage():
    params, outputs, model, table = _staged(3)
    phases, _, log_prob = _semi_markov(model, table, STAGES)
    known = np.array([-1, -1, 1, -1, 0, -1])
    keep = ((known < 0) | (phases == known)).all(1)
    value = hmmjax.log_likelihood(params, outputs, labels=Labels(phases=known))
    assert float(value) == pytest.approx(logsumexp(log_prob[keep]), rel=1e-5)


def test_decoding_gives_the_probability_of_its_stages():
    params, outputs, _, _ = _staged(1)
    path = hmmjax.decode(params, outputs)
    clamped = hmmjax.log_likelihood(params, outputs, labels=Labels(path.phases, path.tools))
    assert float(path.log_prob) <= float(clamped) + 1e-5
    assert np.isfinite(float(path.log_prob)) and set(np.asarray(path.phases)) <= {0, 1, 2}


def test_one_stage_each_is_the_plain_chain():
    params, outputs, _, _ = _staged(2, (1, 1, 1))
    plain = dataclasses.replace(params, phases=dataclasses.replace(params.phases, stages=None))
    assert_allclose(hmmjax.posterior(params, outputs).phases, hmmjax.posterior(plain, outputs).phases, atol=1e-6)


def test_em_never_lowers_its_objective_and_learns_how_long_stages_last():
    truth = durations.spread(hmmjax.init_params(3, 0, emissions="confusion", stay=0.95), (4, 1, 2))
    _, obs, mask = hmmjax.sample(truth, jax.random.key(0), [600] * 12)
    leave = jnp.array([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]])
    start = dataclasses.replace(truth, phases=dataclasses.replace(truth.phases, transition=leave))
    result = hmmjax.fit(start, obs, mask, freeze=["phases.emission"], max_iterations=60, tolerance=0)
    assert (np.diff(result.history) > -0.05).all()
    assert_allclose(jnp.diagonal(result.params.phases.transition), jnp.diagonal(truth.phases.transition), atol=0.04)


def test_spreading_keeps_mean_durations_and_sampling_shows_them():
    plain = hmmjax.init_params(2, 1, emissions="confusion", stay=0.9)
    staged = durations.spread(plain, (1, 5))
    labels, _, _ = hmmjax.sample(staged, jax.random.key(1), [20000])
    runs = [(p, len(list(g))) for p, g in itertools.groupby(np.asarray(labels.phases[0]))][1:-1]
    for phase, shape in ((0, 1), (1, 5)):
        lengths = np.array([n for p, n in runs if p == phase])
        expected = stats.nbinom(shape, shape * 0.1)
        assert lengths.mean() == pytest.approx(10, rel=0.1)
        assert lengths.std() == pytest.approx(expected.std(), rel=0.15) and lengths.min() >= shape


def test_the_number_of_stages_is_found_in_labeled_videos():
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(30):
        lengths = [stats.nbinom.rvs(n, 0.05 * n, random_state=rng) + n for n in (1, 4, 2)]
        rows.append(np.repeat([0, 1, 2], lengths))
    longest = max(map(len, rows))
    phases = np.stack([np.pad(r, (0, longest - len(r)), constant_values=-1) for r in rows])
    found = durations.choose(Labels(phases=phases), phases >= 0, num_phases=4)
    assert found[0] == 1 and 3 <= found[1] <= 6 and found[3] == 1


def test_bad_stages_are_named(unchecked):
    params = hmmjax.init_params(3, 0)
    with pytest.raises(ValueError, match="tuple of 3 positive"):
        durations.spread(params, (1, 2))
    with pytest.raises(ValueError, match=r"fewer than its \d+ stages"):
        durations.spread(params, (1, 1, 80))
    with pytest.raises(ValueError, match="already has stages"):
        durations.spread(durations.spread(params, (1, 1, 2)), (1, 1, 2))
    with pytest.raises(ValueError, match="no phases"):
        durations.spread(hmmjax.init_params(0, 2), (1,))
    wrong = dataclasses.replace(params.phases, stages=(1, 0, 2))
    with pytest.raises(ValueError, match="positive integers"):
        hmmjax.posterior(Params(wrong), Observations(np.full((4, 3), 1 / 3, np.float32)))
    with pytest.raises(ValueError, match=r"positive integers, got \(2.7"):
        durations.spread(params, (2.7, 1, 1))
    with pytest.raises(ValueError, match="labels has no phases"):
        durations.choose(Labels())
    known, seen = np.array([[0, 0, 1], [0, 1, 1]]), np.ones((2, 3), bool)
    with pytest.raises(TypeError, match="must be integers"):
        durations.choose(Labels(known * 1.0))
    with pytest.raises(TypeError, match="mask must be bool"):
        durations.choose(Labels(known), seen * 1.0)
    with pytest.raises(ValueError, match="all must agree"):
        durations.choose(Labels(known), seen[:, :2])
    for labels, count in ((known, 1), (known - 2, 2)):
        with pytest.raises(ValueError, match="or -1 for unknown, but holds"):
            durations.choose(Labels(labels), num_phases=count)
    with pytest.raises(ValueError, match="most=0"):
        durations.choose(Labels(known), most=0)


def test_labels_of_any_integer_type_and_unobserved_videos():
    known, seen = np.array([[0, 0, 1], [0, 0, 1], [7, 7, 7]]), np.array([[True]] * 2 + [[False]]) & np.ones(3, bool)
    found = durations.choose(Labels(known), seen)
    assert found == durations.choose(Labels(known.astype(np.uint8)), seen) and len(found) == 2


def test_a_phase_never_gets_more_stages_than_its_counted_mean():
    """Runs with an unknown start count for transitions: `choose` must not choose what `spread` refuses."""
    rows = [[0] * 6 + [1] * 6] * 2 + [[-1] * 3 + [0] + [1] * 8] * 20
    labels = Labels(np.array(rows))
    assert durations.spread(hmmjax.estimate(labels), durations.choose(labels)).phases.stages == (1, 1)


def test_pseudo_counts_that_shorten_phases_take_stages_away():
    from hmmjax.stabilize import Examples, learn_model

    phases = np.tile([0, 0, 0, 0, 1, 1, 1, 1], (3, 1))
    examples = Examples(Observations(phases), Labels(phases), np.ones(phases.shape, bool))
    found = [
        learn_model(
            examples,
            num_phases=2,
            num_tools=0,
            priors=hmmjax.Priors(phase_transition=p),
            stages=True,
            max_iterations=0,
        )
        for p in (1e-8, 3.0)
    ]
    assert [f.params.phases.stages for f in found] == [(4, 1), (3, 1)]


def test_a_phase_may_last_exactly_as_many_frames_as_it_has_stages():
    """A probability of staying of 0.9 in float32 gives a mean of ten frames less 1e-7."""
    stay = np.float32(0.9)
    chain = hmmjax.PhaseChain(jnp.full(2, 0.5), np.array([[stay, 1 - stay], [1 - stay, stay]], np.float32))
    found = durations.spread(Params(chain), (10, 1)).phases.transition
    assert_allclose(found, [[0, 1], [0.1, 0.9]], atol=1e-6)
    assert (found >= 0).all()


def test_model_files_keep_stages(tmp_path):
    params = durations.spread(hmmjax.init_params(3, 2), (1, 2, 3))
    hmmjax.io.save_params(tmp_path / "m.npz", params)
    assert hmmjax.io.load_params(tmp_path / "m.npz").params.phases.stages == (1, 2, 3)
