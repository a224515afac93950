"""Families compared on held-out videos."""

import jax
import numpy as np
import pytest

import hmmjax
from hmmjax import Labels, Observations


@pytest.fixture(scope="module")
def scores():
    """Scores that are exactly 0 in most frames, for which `inflated` is made."""
    params = hmmjax.init_params(0, 2, emissions="inflated", stay=0.9)
    labels, obs, mask = hmmjax.sample(params, jax.random.key(0), [60] * 4)
    return labels, obs, mask


@pytest.mark.thorough
def test_the_family_that_made_the_data_wins(scores):
    labels, obs, mask = jax.tree.map(np.asarray, scores)
    found = hmmjax.compare(obs, mask, labels, families=["inflated", "scaled"], folds=2, max_iterations=1)
    assert found[0].family == "inflated"
    ranks = {rank.family: rank for rank in found}
    assert [rank.conditional for rank in found] == sorted((r.conditional for r in found), reverse=True)
    assert np.isnan(ranks["scaled"].marginal)
    assert len(ranks["inflated"].powers["tools"]) == 2
    assert str(found).splitlines()[1].startswith("inflated") and "nats" in str(found)


@pytest.mark.thorough
def test_results_follow_from_estimate_and_log_likelihood(scores):
    """Uncalibrated conditional and marginal log-likelihood."""
    labels, obs, mask = jax.tree.map(np.asarray, scores)
    (found,) = hmmjax.compare(obs, mask, labels, families=["inflated"], folds=2, max_iterations=1)
    conditional = marginal = 0.0
    for part, others in (([0, 2], [1, 3]), ([1, 3], [0, 2])):
        learned = hmmjax.estimate(
            Labels(tools=labels.tools[others]),
            Observations(tools=obs.tools[others]),
            emissions="inflated",
            priors=hmmjax.Priors(*[0.5] * 6),
        )
        own, outputs = Labels(tools=labels.tools[part]), Observations(tools=obs.tools[part])
        free = np.asarray(hmmjax.log_likelihood(learned, outputs)).sum()
        conditional += np.asarray(hmmjax.log_likelihood(learned, outputs, labels=own)).sum() - free
        marginal += free
    assert found.uncalibrated == pytest.approx(conditional / 240, rel=1e-4)
    assert found.marginal == pytest.approx(marginal / 240, rel=1e-4)


@pytest.mark.thorough
def test_a_family_that_finds_a_video_impossible_comes_last_not_nan():
    """Without pseudo-counts, a label that occurs in one video only is impossible if that video is held out."""
    labels = np.array([[0, 0, 1, 1]] * 3)
    outputs = labels.copy()
    outputs[0, 1:3] = [1, 0]
    obs = Observations(phases=outputs)
    options = {"priors": hmmjax.Priors(), "num_phases": 2, "max_iterations": 0, "folds": 3}
    (found,) = hmmjax.compare(obs, None, Labels(labels), families=["confusion"], **options)
    assert found.conditional == -np.inf
    with pytest.raises(TypeError, match="one recognizer at a time"):
        hmmjax.compare(Observations((outputs, outputs)), None, Labels(labels))


def test_bad_input_is_named(scores):
    labels, obs, _ = scores
    with pytest.raises(ValueError, match="'gauss' is unknown"):
        hmmjax.compare(obs, None, labels, families=["gauss"])
    with pytest.raises(ValueError, match="needs probabilities"):
        hmmjax.compare(Observations(tools=labels.tools), None, labels, families=["scaled"])
    with pytest.raises(ValueError, match="at least two"):
        hmmjax.compare(Observations(tools=obs.tools[:1]), None, Labels(tools=labels.tools[:1]))
    with pytest.raises(ValueError, match="at least two, on a leading axis"):
        hmmjax.compare(Observations(tools=obs.tools[0]), None, Labels(tools=labels.tools[0]))
    with pytest.raises(ValueError, match="folds=0"):
        hmmjax.compare(obs, None, labels, folds=0)
    with pytest.raises(ValueError, match="needs observations"):
        hmmjax.compare(Observations(), None, labels)


def test_the_order_of_the_previous_release_is_accepted_with_a_warning(scores):
    labels, obs, mask = scores
    order = pytest.warns(DeprecationWarning, match=r"compare\(obs, mask, labels\)")
    with order, pytest.raises(ValueError, match="folds=0"):
        hmmjax.compare(labels, obs, mask, folds=0)
    with pytest.warns(DeprecationWarning, match="obs, mask, labels"), pytest.raises(ValueError, match="folds=0"):
        hmmjax.compare(labels, obs, mask=mask, folds=0)
    with pytest.warns(DeprecationWarning, match="max_iterations"), pytest.raises(ValueError, match="folds=0"):
        hmmjax.compare(obs, mask, labels, folds=0, iterations=1)
