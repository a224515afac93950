"""Posterior paths, whose frequencies match enumeration, and quantities computed from them."""

import dataclasses

import jax
import numpy as np
import oracles
import pytest
from cases import make
from numpy.testing import assert_allclose, assert_array_equal

import hmmjax
from hmmjax import Labels, Observations, draws

N = 4000


@pytest.mark.parametrize("shape", [(2, 1), (3, 0), (0, 2)])
def test_frequencies_of_paths_match_enumeration(shape):
    case = make(2, *shape, num_frames=3, batch=2, lengths=[3, 2], known=0.2)
    drawn = hmmjax.sample_posterior(case.params, jax.random.key(0), *case.args[1:], num_samples=N)
    for i, table in enumerate(case.emission_tables):
        n = len(table)
        phases, tools, log_prob = oracles._enumerate(case.model, table)
        weight = np.exp(log_prob - np.logaddexp.reduce(log_prob))
        code = _code(phases if shape[0] else None, tools if shape[1] else None)
        ours = [None if x is None else np.asarray(x)[:, i] for x in (drawn.phases, drawn.tools)]
        for x in ours:
            assert x is None or ((x[:, n:] == -1).all() and (x[:, :n] >= 0).all())
        seen = _code(*(None if x is None else x[:, :n] for x in ours))
        size = max(code.max(), seen.max()) + 1
        expected = np.bincount(code, weight, size)
        assert_allclose(np.bincount(seen, minlength=size) / N, expected, atol=4.5 * np.sqrt(0.25 / N))
        assert (expected[seen] > 0).all()


def _code(phases, tools):
    """A number per path."""
    columns = [] if phases is None else [phases]
    columns += [] if tools is None else list(np.moveaxis(tools, -1, 0))
    code = 0
    for column in columns:
        for t in range(column.shape[1]):
            code = code * 3 + column[:, t]
    return np.asarray(code)


def test_paths_in_stages_agree_with_the_marginals():
    case = make(4, 3, 1, num_frames=8, batch=1)
    phases = dataclasses.replace(case.params.phases, stages=(3, 1, 2))
    params = dataclasses.replace(case.params, phases=phases)
    one = Observations(case.obs.phases[0], case.obs.tools[0])
    drawn = hmmjax.sample_posterior(params, jax.random.key(1), one, num_samples=N)
    expected = hmmjax.posterior(params, one)
    assert_allclose((np.asarray(drawn.phases)[..., None] == np.arange(3)).mean(0), expected.phases, atol=0.04)
    assert_allclose(np.asarray(drawn.tools).mean(0), expected.tools, atol=0.04)


def test_quantities_on_paths():
    phases = np.array([[0, 0, 2, 2, 2, -1], [0, 1, 1, 1, 2, -1]])
    assert_array_equal(draws.phase_starts(phases, 3, fps=2.0), [[0, np.nan, 1], [0, 0.5, 2]])
    assert_allclose(draws.phase_minutes(phases, 3, fps=0.5) * 30, [[2, 0, 3], [1, 3, 1]])
    tools = np.array([[[1], [0], [1], [1], [0], [-1]]] * 2)
    assert_allclose(draws.tool_minutes(phases, tools, 3) * 60, [[[1], [0], [2]], [[1], [2], [0]]])
    found = draws.interval(draws.phase_starts(phases, 3, fps=2.0), 0.5)
    assert_allclose(found.median, [0, 0.5, 1.5])
    assert_allclose(found.low, [0, 0.5, 1.25])
    assert_allclose(found.probability, [1, 0.5, 1])
    assert np.isnan(draws.interval(np.full((3, 2), np.nan)).median).all()


def test_intervals_have_their_nominal_coverage():
    params = hmmjax.init_params(3, 1, emissions="confusion", stay=0.9)
    labels, obs, mask = hmmjax.sample(params, jax.random.key(3), [64] * 40)
    drawn = hmmjax.sample_posterior(params, jax.random.key(4), obs, mask, num_samples=200)
    found = draws.interval(draws.phase_minutes(drawn.phases, 3), 0.8)
    truth = draws.phase_minutes(labels.phases, 3)
    covered = ((truth >= found.low) & (truth <= found.high)).mean()
    assert 0.72 < covered < 0.95


def test_impossible_and_empty_and_bad():
    params = hmmjax.init_params(2, 0, emissions="confusion")
    stuck = dataclasses.replace(params.phases, transition=np.eye(2, dtype=np.float32))
    obs = Observations(np.array([[0, 1]]))
    drawn = hmmjax.sample_posterior(
        hmmjax.Params(stuck), jax.random.key(0), obs, None, Labels(np.array([[0, 1]])), num_samples=3
    )
    assert (np.asarray(drawn.phases) == -1).all() and drawn.tools is None
    none = hmmjax.sample_posterior(params, jax.random.key(0), Observations(np.zeros((0, 4), int)), num_samples=2)
    assert none.phases.shape == (2, 0, 4)
    with pytest.raises(ValueError, match="num_samples"):
        hmmjax.sample_posterior(params, jax.random.key(0), obs, num_samples=0)
    with pytest.raises(ValueError, match="level"):
        draws.interval(np.zeros((3, 1)), 1.0)
