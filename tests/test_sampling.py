"""Samples follow the tables of the model."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import oracles
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax

pytestmark = pytest.mark.thorough
FAMILIES = [("PhaseConfusion", "ToolConfusion"), ("PhaseDirichlet", "ToolBeta")]


def frequencies_agree(counts, shares):
    """Each row of counts within five standard errors of its distribution."""
    total = counts.sum(-1, keepdims=True)
    error = np.sqrt(np.maximum(shares * (1 - shares), 1e-4) / np.maximum(total, 1))
    assert (np.abs(counts / np.maximum(total, 1) - shares) < 5 * error)[np.broadcast_to(total > 0, counts.shape)].all()


@pytest.mark.parametrize("families", FAMILIES, ids="-".join)
def test_statistics_of_hidden_states_and_observations(families):
    case = cases.make(1, 3, 2, families=families)
    lengths = [1500] * 8 + [700]
    labels, obs, mask = hmmjax.sample(case.params, jax.random.key(0), lengths)
    assert labels.phases.shape == mask.shape == (9, 1500) and labels.tools.shape == (9, 1500, 2)
    assert_array_equal(mask.sum(1), lengths)
    p, d = np.array(labels.phases), np.array(labels.tools)
    assert (p[~mask] == -1).all() and (d[~mask] == -1).all() and (p[mask] >= 0).all()
    pair = np.array(mask)[:, 1:]
    moves, tools = np.zeros((3, 3)), np.zeros((2, 3, 2, 2))
    np.add.at(moves, (p[:, :-1][pair], p[:, 1:][pair]), 1)
    for k in range(2):
        np.add.at(tools[k], (p[:, 1:][pair], d[:, :-1, k][pair], d[:, 1:, k][pair]), 1)
    frequencies_agree(moves, case.model.transition)
    frequencies_agree(tools, case.model.tool_transition)
    # Observations, against the means of their families.
    seen_phases, seen_tools = np.array(obs.phases)[mask], np.array(obs.tools)[mask]
    table_phases, table_tools = (case.emissions[f] for f in families)
    if families[0] == "PhaseConfusion":
        counts = np.zeros((3, 3))
        np.add.at(counts, (p[mask], seen_phases), 1)
        frequencies_agree(counts, table_phases)
    else:
        for q in range(3):
            assert_allclose(seen_phases[p[mask] == q].mean(0), table_phases[q] / table_phases[q].sum(), atol=0.03)
    for k in range(2):
        for state in range(2):
            mean = table_tools[k, state]
            expected = mean[1] if families[1] == "ToolConfusion" else mean[0] / mean.sum()
            assert_allclose(seen_tools[:, k][d[mask][:, k] == state].mean(), expected, atol=0.03)


def test_first_frame_follows_the_initial_tables():
    case = cases.make(2, 3, 2, families=FAMILIES[0])
    labels, _, _ = hmmjax.sample(case.params, jax.random.key(1), [1] * 4000)
    p, d = np.array(labels.phases)[:, 0], np.array(labels.tools)[:, 0]
    frequencies_agree(np.bincount(p, minlength=3), case.model.initial)
    for q in range(3):
        present = d[p == q].sum(0)
        counts = np.stack([(p == q).sum() - present, present], -1)
        frequencies_agree(counts, np.stack([1 - case.model.tool_initial[:, q], case.model.tool_initial[:, q]], -1))


@pytest.mark.parametrize(("num_phases", "num_tools"), [(0, 2), (3, 0)])
def test_single_tracks(num_phases, num_tools):
    case = cases.make(3, num_phases, num_tools, families=FAMILIES[0])
    labels, obs, mask = hmmjax.sample(case.params, jax.random.key(2), [3000, 10])
    absent = "tools" if num_phases else "phases"
    assert getattr(labels, absent) is None and getattr(obs, absent) is None
    if num_phases:
        moves = np.zeros((3, 3))
        np.add.at(moves, (labels.phases[0, :-1], labels.phases[0, 1:]), 1)
        frequencies_agree(moves, case.model.transition)
    else:
        for k in range(2):
            moves = np.zeros((2, 2))
            np.add.at(moves, (labels.tools[0, :-1, k], labels.tools[0, 1:, k]), 1)
            frequencies_agree(moves, case.model.tool_transition[k])
    assert np.isfinite(hmmjax.log_likelihood(case.params, obs, mask)).all()


def test_zero_probability_never_happens():
    model = oracles.Model(np.array([1.0, 0.0, 0.0]), np.array([[0.9, 0.1, 0], [0, 0.9, 0.1], [0, 0, 1.0]]))
    params = cases.to_params(model, {"PhaseConfusion": np.eye(3)}, "PhaseConfusion", "")
    labels, obs, mask = hmmjax.sample(params, jax.random.key(3), [200] * 20)
    steps = np.diff(np.array(labels.phases), axis=1)
    assert set(np.unique(steps)) <= {0, 1} and (labels.phases[:, 0] == 0).all()
    assert_array_equal(obs.phases, labels.phases)
    assert np.isfinite(hmmjax.log_likelihood(params, obs, mask, labels)).all()


def test_single_video_empty_video_and_keys():
    """One frame, and no frames."""
    case = cases.make(4, 2, 2, families=FAMILIES[0])
    labels, obs, mask = hmmjax.sample(case.params, jax.random.key(4), 7)
    assert labels.phases.shape == mask.shape == (7,) and obs.tools.shape == (7, 2)
    again = hmmjax.sample(case.params, jax.random.key(4), 7)
    jax.tree.map(assert_array_equal, again, (labels, obs, mask))
    other = hmmjax.sample(case.params, jax.random.key(5), 7)[1]
    assert not np.array_equal(other.tools, obs.tools)
    labels, obs, mask = hmmjax.sample(case.params, jax.random.key(4), [0, 1])
    assert labels.phases.shape == (2, 1) and mask.tolist() == [[False], [True]]
    assert np.isfinite(hmmjax.log_likelihood(case.params, obs, mask)).all()


def test_no_video_at_all():
    labels, obs, mask = hmmjax.sample(hmmjax.init_params(num_phases=3, num_tools=2), jax.random.key(0), [])
    assert labels.phases.shape == mask.shape == (0, 0) and labels.tools.shape == obs.tools.shape == (0, 0, 2)


def test_bad_lengths_are_refused():
    case = cases.make(4, 2, 2, families=FAMILIES[0])
    for lengths in ([-1], [1.5], [[1]]):
        with pytest.raises(ValueError, match="lengths"):
            hmmjax.sample(case.params, jax.random.key(0), lengths)


def test_chain_without_emission_has_no_observations():
    chain = hmmjax.PhaseChain(jnp.array([0.5, 0.5]), jnp.eye(2), None)
    labels, obs, _ = hmmjax.sample(hmmjax.Params(chain), jax.random.key(0), [4])
    assert labels.phases.shape == (1, 4) and obs.phases is None
