"""Mixtures of models: averages of what oracles give for each member, as arrays, lists, streams and files."""

import dataclasses

import emission_oracles
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from cases import make
from numpy.testing import assert_allclose

import hmmjax
from hmmjax import Ensemble, Labels, Observations, Stream, io
from hmmjax.ensembles import main_member, recognizer

WEIGHTS = np.array([0.5, 0.2, 0.3])
TOOL_WEIGHTS = np.array([[0.5, 0.1], [0.5, 0.2], [0.0, 0.7]])
TRACKS = ("phases", "tools")


@pytest.fixture(scope="module")
def members():
    """Two models of the same videos, the second as the oracles and the library have it, and the first's tables."""
    families = ("PhaseConfusion", "ToolConfusion")
    first, second = (make(seed, 3, 2, 6, 2, families, lengths=[6, 4]) for seed in (0, 1))
    tables = []
    for i, mask in enumerate(first.mask):
        densities = (
            emission_oracles.log_densities(family, second.emissions[family], getattr(first.obs, track)[i])
            for family, track in zip(families, TRACKS, strict=True)
        )
        tables.append(oracles.emission_table(6, 3, 2, *densities, mask))
    return first, dataclasses.replace(second, emission_tables=tables)


@pytest.fixture(scope="module")
def ensemble(members):
    models = (*(case.params for case in members), recognizer(3, 2, observes="labels"))
    return Ensemble(models, jnp.asarray(WEIGHTS, jnp.float32), jnp.asarray(TOOL_WEIGHTS, jnp.float32))


def expected(members, video, past_only):
    """The weighted mean of the oracles' marginals and of the outputs: P(phase) (T, L), P(tool present) (T, K)."""
    prefix = "filter_" if past_only else ""
    found = [case.answers(oracles.dense)[video] for case in members]
    obs, sure = members[0].obs, 1 - 1e-6
    own = np.where(np.eye(3)[obs.phases[video]], sure, 5e-7), np.where(obs.tools[video], sure, 1e-6)
    observed = members[0].mask[video][:, None]
    own = np.where(observed, own[0], 1 / 3), np.where(observed, own[1], 0.5)
    n = len(found[0].phases)
    phases = [*(getattr(x, f"{prefix}phases") for x in found), own[0][:n]]
    tools = [*(getattr(x, f"{prefix}tools") for x in found), own[1][:n]]
    return np.tensordot(WEIGHTS, phases, 1), np.einsum("nk,ntk->tk", TOOL_WEIGHTS, tools)


@pytest.mark.parametrize("past_only", [False, True])
def test_marginals_are_the_average_of_the_members(ensemble, members, past_only):
    case = members[0]
    found = (hmmjax.filter if past_only else hmmjax.posterior)(ensemble, case.obs, case.mask)
    for i, n in enumerate((6, 4)):
        phases, tools = expected(members, i, past_only)
        assert_allclose(found.phases[i, :n], phases[:n], atol=1e-5)
        assert_allclose(found.tools[i, :n], tools[:n], atol=1e-5)
        assert_allclose(found.phase_log_probs[i, :n], np.log(phases[:n]), atol=1e-4)
        assert_allclose(found.tool_log_odds[i, :n], np.log(tools[:n] / (1 - tools[:n])), atol=1e-3)
        assert not any(x[i, n:].any() for x in (found.phases, found.tools, found.phase_log_probs, found.tool_log_odds))


def test_the_path_is_that_of_single_frames(ensemble, members):
    case = members[0]
    path = hmmjax.decode(ensemble, case.obs, case.mask)
    for i, n in enumerate((6, 4)):
        phases, tools = expected(members, i, False)
        np.testing.assert_array_equal(path.phases[i], [*phases[:n].argmax(-1), *[-1] * (6 - n)])
        np.testing.assert_array_equal(path.tools[i, :n], tools[:n] >= 0.5)
        chosen = np.log(phases[:n].max(-1)).sum() + np.log(np.maximum(tools[:n], 1 - tools[:n])).sum()
        assert float(path.log_prob[i]) == pytest.approx(chosen, abs=1e-3)


def test_lists_single_videos_jit_and_files_give_the_same(ensemble, members, tmp_path):
    case = members[0]
    whole = hmmjax.posterior(ensemble, case.obs, case.mask)
    io.save_params(tmp_path / "ensemble.npz", ensemble, phase_names=["a", "b", "c"])
    loaded = io.load_params(tmp_path / "ensemble.npz").params
    again = jax.jit(hmmjax.posterior)(loaded, case.obs, case.mask)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(again), strict=True):
        assert_allclose(a, b, atol=1e-5)
    lists = hmmjax.posterior(ensemble, Observations(*([x[0], x[1, :4]] for x in (case.obs.phases, case.obs.tools))))
    one = hmmjax.posterior(ensemble, Observations(case.obs.phases[0], case.obs.tools[0]))
    unmasked = hmmjax.posterior(ensemble, case.obs)
    assert_allclose(lists.phases[0], unmasked.phases[0], atol=1e-6)
    assert_allclose(one.tools, unmasked.tools[0], atol=1e-6)
    assert lists.tools[1].shape == (4, 2)


def test_a_stream_filters_saves_and_resumes(ensemble, members, tmp_path):
    case = members[0]
    obs = Observations(case.obs.phases[0], case.obs.tools[0])
    filtered, smoothed = hmmjax.filter(ensemble, obs), hmmjax.posterior(ensemble, obs)
    stream = Stream(ensemble, lag=2)
    for t in range(6):
        if t == 3:
            stream.save(tmp_path / "stream.npz")
            stream = Stream.resume(ensemble, tmp_path / "stream.npz")
        now = stream.step(Observations(obs.phases[t], obs.tools[t]))
        assert_allclose(now.phases, filtered.phases[t], atol=1e-5)
        assert_allclose(now.tools, filtered.tools[t], atol=1e-5)
    assert int(now.lagged_frame) == 3 and int(now.frame) == 5
    assert_allclose(now.lagged_phases, smoothed.phases[3], atol=1e-5)
    assert_allclose(stream.finish().tools, smoothed.tools[-2:], atol=1e-5)
    state = stream.state
    with pytest.raises(ValueError, match="phases"):
        stream.step(Observations(np.int32(7), obs.tools[0]))
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(stream.state), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_member_that_finds_a_frame_impossible_has_no_vote_in_it():
    """It takes the frame as unobserved, and votes again on the next one."""
    plain = hmmjax.init_params(2, 0, emissions="confusion", stay=0.8)
    never = hmmjax.emissions.PhaseConfusion(jnp.array([[1.0, 0.0], [1.0, 0.0]]))
    never = dataclasses.replace(plain, phases=dataclasses.replace(plain.phases, emission=never))
    ensemble = Ensemble((plain, never, plain), phase_weights=[0.2, 0.5, 0.3])
    stream, alone, other = Stream(ensemble), Stream(plain), Stream(never)
    labels = [0, 1, 0]
    for label in labels:
        now, own = (s.step(Observations(np.int32(label))) for s in (stream, alone))
        silent = other.step(None if label else Observations(np.int32(label)))
        expected = own.phases if label else 0.5 * own.phases + 0.5 * silent.phases
        assert_allclose(now.phases, expected, atol=1e-6)
        value = own.log_likelihood if label else (own.log_likelihood + silent.log_likelihood) / 2
        assert_allclose(now.log_likelihood, value, rtol=1e-5)
    with pytest.raises(ValueError, match="frame 1 is impossible"):
        both = Stream(Ensemble((never, never)))
        both.step(Observations(np.int32(0)))
        both.step(Observations(np.int32(1)))
    assert both.step(Observations(np.int32(0))).frame == 1
    # If no other member has weight, the prediction from the frames before remains.
    only = Stream(Ensemble((plain, never), phase_weights=[0.0, 1.0]))
    only.step(Observations(np.int32(0)))
    assert_allclose(only.step(Observations(np.int32(1))).phases.sum(), 1, atol=1e-6)


def test_the_recognizer_alone_comes_back_unchanged():
    rng = np.random.default_rng(0)
    phases = rng.dirichlet(np.ones(4), (2, 5)).astype(np.float32)
    tools = rng.uniform(0.01, 0.99, (2, 5, 3)).astype(np.float32)
    mask = np.ones((2, 5), bool)
    mask[1, 2] = False
    found = hmmjax.filter(recognizer(4, 3, observes="probabilities"), Observations(phases, tools), mask)
    assert_allclose(found.phases[mask], phases[mask], atol=1e-6)
    assert_allclose(found.tools[mask], tools[mask], atol=1e-6)
    assert_allclose(found.phases[1, 2], 0.25, atol=1e-6)
    with pytest.raises(ValueError, match="'labels' or 'probabilities'"):
        recognizer(4, observes="logits")


def test_members_take_probabilities_as_they_need_them_and_impossible_videos_go_to_the_others():
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8]], np.float32)
    label = hmmjax.init_params(2, 0, emissions="confusion", stay=0.8)
    never = hmmjax.emissions.PhaseConfusion(jnp.array([[1.0, 0.0], [1.0, 0.0]]))
    never = dataclasses.replace(label, phases=dataclasses.replace(label.phases, emission=never))
    own = recognizer(2, observes="probabilities")
    both = hmmjax.posterior(Ensemble((label, own)), Observations(probabilities))
    apart = hmmjax.posterior(label, Observations(probabilities).discretize())
    assert_allclose(both.phases, (np.asarray(apart.phases) + probabilities) / 2, atol=1e-6)
    left = hmmjax.posterior(Ensemble((never, own)), Observations(probabilities))
    assert_allclose(left.phases, probabilities, atol=1e-6)
    clamped = hmmjax.posterior(Ensemble((label, own)), Observations(probabilities), None, Labels(np.array([1, -1])))
    assert_allclose(clamped.phases[0], [0, 1], atol=1e-6)
    inside = jax.jit(lambda y: hmmjax.posterior(Ensemble((label, own)), Observations(y)).phases)(probabilities)
    assert_allclose(inside, both.phases, atol=1e-6)


def test_tables_are_those_of_the_main_member_of_a_track():
    """The largest weight of the track among models with memory; the recognizer if there is no other."""
    both, phases = hmmjax.init_params(3, 2), hmmjax.init_params(3, 0)
    itself = recognizer(3, 2, observes="labels")
    mixed = Ensemble((phases, both, itself), [0.5, 0.3, 0.2], [0.0, 0.4, 0.6])
    assert main_member(mixed, "phases") is phases and main_member(mixed, "tools") is both
    alone = Ensemble((phases, itself), [1.0, 0.0], [0.0, 1.0])
    assert main_member(alone, "tools") is itself and main_member(phases, "tools") is phases


def test_what_cannot_be_mixed_is_refused():
    two, three = (hmmjax.init_params(n, 0, emissions="confusion") for n in (2, 3))
    tools = hmmjax.init_params(0, 2, emissions="confusion")
    obs = Observations(np.zeros(4, np.int32))
    for ensemble, message in (
        (Ensemble(()), "at least one model"),
        (Ensemble((two, three)), "different numbers of phases"),
        (Ensemble((two, two), jnp.array([0.5, 0.6])), "sum to one"),
        (Ensemble((two, two), jnp.array([1.0])), "one per member"),
        (Ensemble((two, tools), jnp.array([0.5, 0.5])), "a member without phases"),
    ):
        with pytest.raises(ValueError, match=message):
            hmmjax.posterior(ensemble, obs)


def test_members_may_be_a_list(unchecked):
    one = hmmjax.init_params(2, 0, emissions="confusion")
    obs = Observations(np.array([0, 1, 1], np.int32))
    assert Ensemble([one, one]).members == (one, one)
    assert_allclose(hmmjax.filter(Ensemble([one, one]), obs).phases, hmmjax.filter(one, obs).phases, atol=1e-6)
