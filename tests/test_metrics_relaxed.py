"""Metrics with relaxed boundaries, against the official script. "domain N" is item N of known pitfalls of metrics."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_tracks import QUICK, label_pairs, labels
from numpy.testing import assert_allclose

from hmmjax import metrics


def naive_relaxed(truth, predicted, t_max, rules, bug):
    """The official script, per frame, with indices from 0."""
    out = [int(p) - int(g) for g, p in zip(truth, predicted, strict=True)]
    start = 0
    while start < len(truth):
        end = start
        while end < len(truth) and truth[end] == truth[start]:
            end += 1
        phase, t = int(truth[start]), min(t_max, end - start)
        for i in range(start, start + t):
            if out[i] in rules.late.get(phase, (-1,)):
                out[i] = 0
        marks = [out[i] in rules.early.get(phase, (1,)) for i in range(end - t, end)]
        for i, mark in enumerate(marks):
            if mark:
                out[(start if bug else end - t) + i] = 0
        start = end
    return np.array(out) == 0


@QUICK
@given(label_pairs(7), st.integers(1, 10), st.booleans(), st.sampled_from([metrics.TMRNET, metrics.SVRCNET]))
def test_relaxed_against_naive(pair, window, bug, rules):
    truth, predicted = np.repeat(pair, 3, axis=1)  # longer segments
    mode = "relaxed-official" if bug else "relaxed-fixed"
    right = naive_relaxed(truth, predicted, window, rules, bug)
    table = metrics.phase_metrics(truth, predicted, modes=(mode,), fps=window / 10, rules=rules)
    table = {m.name: m for m in table}
    assert table["accuracy"].value == pytest.approx(right.mean())
    for p, score in enumerate(table["Jaccard"].per_class):
        union = (truth == p) | (predicted == p)
        if (truth == p).any():
            assert score == pytest.approx(right[union].mean())
            assert table["recall"].per_class[p] == pytest.approx(min(1, right[union].sum() / (truth == p).sum()))
        else:
            assert math.isnan(score)


def test_relaxed_bug_hits_the_wrong_end_domain_1():
    truth, predicted = labels((2, 30), (3, 30)), labels((2, 25), (3, 35))  # leaves phase 2 five seconds early
    modes = ("strict", "relaxed-official", "relaxed-fixed")
    found = [m for m in metrics.phase_metrics(truth, predicted, modes=modes) if m.name == "Jaccard"]
    strict, official, fixed = found
    assert_allclose(fixed.per_class[2:], [1, 1])
    assert_allclose(official.per_class[2:], [25 / 30, 30 / 35])
    assert_allclose(strict.per_class[2:], [25 / 30, 30 / 35])
    assert "bug included" in official.convention and "bug fixed" in fixed.convention


def test_relaxed_bug_forgives_what_it_should_not():
    truth = labels((0, 20), (1, 20))
    predicted = labels((3, 10), (1, 10), (1, 20))  # ten frames of nonsense, then ten seconds early
    official = metrics.accuracy(truth, predicted, mode="relaxed-official")
    fixed = metrics.accuracy(truth, predicted, mode="relaxed-fixed")
    assert (official.value, fixed.value) == (30 / 40, 30 / 40)
    # Equally many correct frames, but the script accepts the implausible ones instead of the early transition.
    assert metrics.recall(truth, predicted, mode="relaxed-official").per_class[0] == pytest.approx(10 / 20)


def test_one_call_gives_both_modes_with_their_names_domain_3():
    truth, predicted = labels((0, 30), (1, 30)), labels((0, 25), (1, 35))
    results = metrics.phase_metrics(truth, predicted, modes=("strict", "relaxed-official"))
    assert len(results) == 10
    assert all("strict" in m.convention for m in results[:5])
    assert all("official" in m.convention for m in results[5:])


@pytest.mark.parametrize("mode", ["relaxed-official", "relaxed-fixed"])
def test_relaxed_never_above_one_domain_4(mode):
    truth = labels((0, 12), (1, 12), (2, 12))
    predicted = labels((0, 20), (1, 12), (2, 4))
    for metric in metrics.phase_metrics(truth, predicted, modes=(mode,)):
        assert metric.value <= 1 and max(metric.per_class, default=0) <= 1


def test_fps_25_on_1_fps_rows_warns_domain_2():
    truth, predicted = labels((0, 1000), (1, 1000)), labels((0, 900), (1, 1100))
    with pytest.warns(UserWarning, match=r"pass fps=rows per second"):
        flattered = metrics.jaccard(truth, predicted, mode="relaxed-fixed", fps=25)
    assert flattered.value > metrics.jaccard(truth, predicted, mode="relaxed-fixed").value
    frames = 25 * np.arange(2000)
    with pytest.warns(UserWarning, match=r"25 video frames apart.*250 s"):
        metrics.jaccard(truth, predicted, mode="relaxed-fixed", fps=25, frame_numbers=[frames])
    metrics.jaccard(truth, predicted, mode="relaxed-fixed", fps=1, frame_numbers=frames)  # no warning


def test_relaxed_refuses_another_phase_order():
    truth = labels((0, 30), (1, 30))
    swapped = [*metrics.PHASES[:4], metrics.PHASES[6], metrics.PHASES[5], metrics.PHASES[4]]
    with pytest.raises(ValueError, match="renumber"):
        metrics.jaccard(truth, truth, mode="relaxed-official", names=swapped)
    spelled = [n.upper().replace("DISSECTION", " dissection") for n in metrics.PHASES]
    assert metrics.jaccard(truth, truth, mode="relaxed-official", names=spelled).value == 1
