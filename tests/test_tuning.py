"""Penalty and length of discriminative training, chosen on inner folds."""

import functools
import re

import jax
import numpy as np
import pytest

import hmmjax
from hmmjax import Labels, Observations, Params, PhaseChain
from hmmjax.emissions import PhaseConfusion
from hmmjax.io import BatchIndex
from hmmjax.refinement import Refinement
from hmmjax.stabilize import refine
from hmmjax.stabilize.examples import Examples
from hmmjax.stabilize.folds import plan_folds
from hmmjax.stabilize.prepare import Prepared
from hmmjax.stabilize.settings import Settings
from hmmjax.tuning import Trial, Tuning

CHAIN = np.array([[0.9, 0.1, 0.0], [0.0, 0.9, 0.1], [0.0, 0.0, 1.0]], np.float32)
WRONG = np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]], np.float32)
TRUE = np.array([[0.6, 0.4, 0.0], [0.0, 0.5, 0.5], [0.4, 0.0, 0.6]], np.float32) * 0.94 + 0.02
SETTINGS = {"l2": (0.1, 1000.0), "lengths": (8,), "objective": "filter"}


def model(matrix):
    return Params(PhaseChain(np.array([1.0, 0, 0], np.float32), CHAIN, PhaseConfusion(matrix)))


def videos(count, seed=0):
    labels, obs, mask = hmmjax.sample(model(TRUE), jax.random.key(seed), [40] * count)
    return Observations(np.asarray(obs.phases)), np.array(mask), Labels(np.asarray(labels.phases))


def test_many_videos_correct_a_wrong_start_and_a_right_start_is_kept():
    """The confusion of the start is wrong in a way that forty videos show: a weak penalty is right. The true model
    needs no training: from four videos, whatever is learned is noise, and the strong penalty is right."""
    many = hmmjax.tune_refinement(lambda *_: model(WRONG), *videos(40), **SETTINGS)
    few = hmmjax.tune_refinement(lambda *_: model(TRUE), *videos(4), **SETTINGS)
    assert many.best.l2 == 0.1 and few.best.l2 == 1000
    for found in (many, few):
        assert found.trials[0].error == 0 and found.trials[1].loss > found.best.loss
    assert many.trials[1].loss - many.best.loss > 3 * many.trials[1].error
    plain = hmmjax.refine(model(WRONG), *videos(40), objective="filter", l2=0.1, max_iterations=8)
    for a, b in zip(jax.tree.leaves(many.refinement), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("objective", ["path", "filter"])
def test_losses_are_those_of_models_that_saw_neither_outputs_nor_labels(objective):
    """Refined fold by fold by `refine`, and scored by `posterior` or `filter`."""
    obs, mask, labels = videos(5)
    mask[1, 30:] = False
    phases = labels.phases.copy()
    phases[2, 3:9], phases[4] = -1, -1
    labels, seen = Labels(phases), []

    def learn(labels, obs, mask):
        seen.append((np.asarray(mask).any(1), (labels.phases >= 0).any(1)))
        return hmmjax.estimate(labels, obs, mask, priors=hmmjax.Priors(*[0.5] * 6), num_phases=3)

    found = hmmjax.tune_refinement(learn, obs, mask, labels, l2=(1.0,), lengths=(2, 0, 5), folds=3, objective=objective)
    *folds, everything = seen
    assert all((labeled == (used & [1, 1, 1, 1, 0])).all() for used, labeled in seen)
    assert everything[0].all() and (np.sum([~used for used, _ in folds], 0) == [1, 1, 1, 1, 0]).all()
    infer = hmmjax.filter if objective == "filter" else hmmjax.posterior
    for trial in found.trials:
        losses = []
        for used, _ in folds:
            own = np.flatnonzero(used)
            train = Observations(obs.phases[own]), mask[own], Labels(phases[own])
            start = hmmjax.estimate(train[2], *train[:2], priors=hmmjax.Priors(*[0.5] * 6), num_phases=3)
            done = hmmjax.refine(start, *train, objective=objective, l2=1.0, max_iterations=trial.max_iterations)
            for v in np.flatnonzero(~used):
                frames = np.flatnonzero(mask[v] & (phases[v] >= 0))
                p = infer(done.params, Observations(obs.phases[v]), mask[v]).phases
                losses.append(-np.log(np.asarray(p)[frames, phases[v][frames]] + 1e-6).mean())
        assert trial.loss == pytest.approx(np.mean(losses), rel=1e-3)
    assert sorted(x.max_iterations for x in found.trials) == [0, 2, 5]


def test_scored_videos_never_matter_to_tuned_folds(monkeypatch):
    """Whatever the labels of a held-out fold are, its models are the same; all others change."""
    quick = functools.partial(hmmjax.tune_refinement, l2=(1.0, 10.0), lengths=(2,))
    monkeypatch.setattr(refine, "tune_refinement", quick)
    obs, mask, labels = videos(4)
    rows = (np.arange(40),) * 4
    index = BatchIndex(tuple("abcd"), rows, rows, 40, 1.0, 1.0)
    found = []
    for fold in (labels.phases[:2], 2 - labels.phases[:2]):
        known = Labels(np.concatenate([fold, labels.phases[2:]]))
        prepared = Prepared(
            {"phases": None, "tools": None}, {"phases": 3, "tools": 0}, [], [obs],
            Examples(obs, known, mask), None, None, index, (),
        )  # fmt: skip
        found.append(plan_folds(prepared, Settings(emissions="confusion", learn="tune", folds=2), lambda *_: None))
    (a, *_, learned), (b, *_) = found
    assert a[0].positions == [0, 1]
    same = [
        all(map(np.array_equal, jax.tree.leaves((x.model, x.online)), jax.tree.leaves((y.model, y.online))))
        for x, y in zip(a, b, strict=True)
    ]
    assert same == [True, False]
    assert re.search(
        r"offline with a penalty \(l2\) of \d+ and \d+ iterations and online with .* on inner folds", learned.method
    )


def test_printed_trials_say_what_they_are():
    refined = Refinement(model(TRUE), 0.0, 0.0, 0)
    text = str(Tuning((Trial(10.0, 30, 0.25, 0.0), Trial(1.0, 3, 0.5, 0.125)), refined)).splitlines()
    assert [line.split() for line in text[:3]] == [
        ["l2", "iterations", "loss", "behind", "±"],
        ["10", "30", "0.2500", "0.0000", "0.0000"],
        ["1", "3", "0.5000", "0.2500", "0.1250"],
    ]
    assert "lower is better" in text[3] and "The best value of l2 and of lengths is the last one tried" in text[-1]
    kept = Tuning((Trial(100.0, 0, 0.25, 0.0), Trial(10.0, 3, 0.3, 0.1), Trial(1.0, 3, 0.5, 0.1)), refined)
    inside = Tuning((Trial(10.0, 3, 0.1, 0.0), *kept.trials, Trial(100.0, 9, 0.7, 0.1)), refined)
    assert all("last one tried" not in str(x) for x in (kept, inside))


def test_no_training_is_one_trial_however_many_penalties():
    found = hmmjax.tune_refinement(
        lambda *_: model(TRUE), *videos(3), l2=[1.0, 10.0], lengths=[0, 1], objective="filter"
    )
    assert sorted((x.l2, x.max_iterations) for x in found.trials) == [(1, 1), (10, 0), (10, 1)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"folds": 1}, "two folds"),
        ({"l2": ()}, "at least one value"),
        ({"l2": (-1.0,)}, "l2=-1.0 must be"),
        ({"objective": "paths"}, "choose 'path'"),
    ],
)
def test_bad_options_are_refused_before_anything_is_learned(options, message):
    def learn(*_):
        raise AssertionError("nothing should be learned")

    with pytest.raises(ValueError, match=message):
        hmmjax.tune_refinement(learn, *videos(2), **options)
    with pytest.raises(ValueError, match="at least two, on a leading axis; 1 given"):
        hmmjax.tune_refinement(learn, *videos(1))
    with pytest.raises(ValueError, match="needs labels"):
        hmmjax.tune_refinement(learn, *videos(2)[:2])
