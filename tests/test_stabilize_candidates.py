"""Models among which the automatic choice chooses, and that scores of phases are used where labels say nothing."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from hmmjax import Labels, Observations, estimate
from hmmjax.stabilize import stabilize_arrays
from hmmjax.stabilize.candidates import learn_candidates, observed_by
from hmmjax.stabilize.examples import Examples
from hmmjax.stabilize.strengths import STRENGTHS

TRUTH = np.tile(np.repeat([0, 1, 0, 1], 15), (5, 1))


@pytest.fixture(scope="module")
def scores():
    """P(phase) (5, 60, 2) whose largest is always phase 0: .9 in phase 0 and .6 in phase 1, with noise."""
    first = np.where(TRUTH == 0, 0.9, 0.6) + np.random.default_rng(0).normal(0, 0.05, TRUTH.shape)
    first = np.clip(first, 0.51, 0.99)
    return np.stack([first, 1 - first], -1).astype(np.float32)


def test_scores_tell_phases_online_that_labels_do_not(scores):
    """The frames of phase 1 are recognized by their lower scores, in single-frame labels of four other videos."""
    result = stabilize_arrays(list(scores), true_phases=list(TRUTH), folds=None)
    right = [np.mean(x == t) for x, t in zip(result.filtered.phase_labels(), TRUTH, strict=True)]
    assert min(right) > 0.9
    raw = [np.mean(x == t) for x, t in zip(result.raw.phase_labels(), TRUTH, strict=True)]
    assert_allclose(raw, 0.5)
    assert any("phases, online: a model of the recognizer's scores, trained on" in n for n in result.notices)


def test_phases_of_scores_are_candidates_online_where_there_is_a_choice(scores):
    labels = Observations(scores).discretize()
    labeled = Examples(labels, Labels(TRUTH), np.ones(TRUTH.shape, bool))
    base = estimate(labeled.labels, labels, labeled.mask, emissions="confusion")

    def learn(outputs, chooses=True, trained=False):
        counts = labeled.labels, labeled.mask
        return learn_candidates(base, labeled, outputs, counts, trained, STRENGTHS["few"], chooses)

    models = learn(Observations(scores))
    added = models["trained, scores"]
    assert dict(added.tracks) == {"offline": (), "online": ("phases",)}
    observed = [observed_by(m.online, labels, Observations(scores)).phases for m in models.values()]
    for name, x in zip(models, observed, strict=True):
        assert_array_equal(x, scores if name == "trained, scores" else labels.phases)
    for others in (
        learn(labels),
        learn(Observations(scores), chooses=False),
        learn(Observations(scores), trained=True),
    ):
        assert "trained, scores" not in others


def test_a_video_whose_scores_are_all_nan_is_inferred_by_the_dynamics():
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(4), 15)
    seen = [np.where(rng.random(60) < 0.25, rng.integers(0, 4, 60), truth) for _ in range(4)]
    scores = [0.7 * np.eye(4)[x] + 0.075 for x in seen]
    blank = np.full_like(scores[0], np.nan)
    result = stabilize_arrays([*scores, *scores[:1], blank], true_phases=[truth] * 5 + [None], emissions="logit-normal")
    for system in (result.smoothed, result.filtered):
        assert_allclose(system.phases[-1].sum(-1), 1, rtol=1e-5)
