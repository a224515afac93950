"""Simulated surgeries have the published statistics of Cholec80, and the recognizer has realistic errors."""

import dataclasses

import numpy as np
import pytest

from hmmjax import simulate
from hmmjax.simulate import Recognizer, simulate_surgeries

PREVALENCE = [0.556, 0.048, 0.559, 0.018, 0.032, 0.053, 0.062]


@pytest.fixture(scope="module")
def surgeries():
    return simulate_surgeries(80, seed=3)


def changes(track):
    return int((np.diff(track, axis=0) != 0).sum())


def test_deterministic_by_seed_and_independent_of_count():
    few, many, other = (simulate_surgeries(n, seed=s, minutes=3.0) for n, s in ((2, 5), (4, 5), (2, 6)))
    for a, b, c in zip(few, many, other, strict=False):
        for field in dataclasses.fields(a)[1:]:
            np.testing.assert_array_equal(getattr(a, field.name), getattr(b, field.name))
        assert len(a) != len(c) or (a.tools != c.tools).any()


def test_truth_does_not_depend_on_the_recognizer():
    (a,), (b,) = (simulate_surgeries(1, minutes=5.0, recognizer=r) for r in (Recognizer(), Recognizer(noise=2.0)))
    np.testing.assert_array_equal(a.tools, b.tools)
    np.testing.assert_array_equal(a.phases, b.phases)


def test_shapes_and_ranges():
    (s,) = simulate_surgeries(1, minutes=4.0)
    frames = len(s)
    assert s.phases.shape == (frames,) and s.phases.dtype == np.int32
    assert s.tools.shape == (frames, 7) and set(np.unique(s.tools)) <= {0, 1}
    assert s.phase_probabilities.shape == (frames, 7) and s.phase_probabilities.dtype == np.float32
    np.testing.assert_allclose(s.phase_probabilities.sum(-1), 1, atol=1e-5)
    assert s.tool_probabilities.shape == (frames, 7)
    assert (s.tool_probabilities >= 0).all() and (s.tool_probabilities <= 1).all()


def test_phase_orders_are_cholec80s():
    """The order table implies the published counts of phase changes, forward and backward."""
    counts = np.zeros((7, 7), int)
    for order, times in simulate.PHASE_ORDERS:
        np.add.at(counts, (order[:-1], order[1:]), times)
    published = {(0, 1): 71, (1, 2): 80, (2, 3): 80, (3, 4): 68, (3, 5): 12, (4, 5): 59, (4, 6): 21}
    published |= {(5, 4): 12, (5, 6): 59, (6, 5): 3}
    assert {(p, q): counts[p, q] for p, q in np.argwhere(counts).tolist()} == published


def test_tool_table_averages_to_the_published_prevalence():
    weights = simulate.PHASE_SECONDS / simulate.PHASE_SECONDS.sum()
    np.testing.assert_allclose(simulate.TOOL_USE @ weights, PREVALENCE, atol=2e-3)


def test_simulated_truth_follows_cholec80(surgeries):
    minutes = np.array([len(s) for s in surgeries]) / 60
    assert 33 < minutes.mean() < 44
    assert minutes.min() > 5 and minutes.max() < 130
    allowed = {order for order, _ in simulate.PHASE_ORDERS}
    assert {tuple(s.phases[np.flatnonzero(np.diff(s.phases, prepend=-1))].tolist()) for s in surgeries} <= allowed
    tools = [s.tools for s in surgeries]
    before, after = np.concatenate([t[:-1] for t in tools]), np.concatenate([t[1:] for t in tools])
    prevalence = np.concatenate(tools).mean(0)
    np.testing.assert_allclose(prevalence, PREVALENCE, rtol=0.25)
    stays_on = (before & after).sum(0) / before.sum(0)
    stays_off = ((1 - before) & (1 - after)).sum(0) / (1 - before).sum(0)
    np.testing.assert_allclose(stays_on, [0.940, 0.926, 0.972, 0.932, 0.952, 0.904, 0.947], atol=0.015)
    np.testing.assert_allclose(stays_off, [0.925, 0.996, 0.964, 0.999, 0.998, 0.995, 0.997], atol=0.01)
    assert 2 <= sum(not t[:, 1].any() for t in tools) <= 16


def test_recognizer_errs_like_a_real_one(surgeries):
    predicted = [s.phase_probabilities.argmax(-1) for s in surgeries]
    accuracy = np.mean([(p == s.phases).mean() for p, s in zip(predicted, surgeries, strict=True)])
    assert 0.80 < accuracy < 0.86
    ratio = sum(map(changes, predicted)) / sum(changes(s.phases) for s in surgeries)
    assert 7 < ratio < 14
    wrong = np.concatenate([p != s.phases for p, s in zip(predicted, surgeries, strict=True)])
    assert (wrong[1:] & wrong[:-1]).sum() / wrong[:-1].sum() > 0.85  # errors come in runs
    confidence = np.concatenate([s.phase_probabilities.max(-1) for s in surgeries])
    assert confidence.mean() > accuracy + 0.03  # over-confident
    distance = np.concatenate([np.abs(p - s.phases) for p, s in zip(predicted, surgeries, strict=True)])
    assert (distance == 1).sum() > (distance > 1).sum()  # neighbors are confused

    seen = np.concatenate([s.tool_probabilities >= 0.5 for s in surgeries])
    there = np.concatenate([s.tools == 1 for s in surgeries])
    f1 = 2 * (seen & there).sum(0) / (seen.sum(0) + there.sum(0))
    assert 0.74 < f1.mean() < 0.81
    flicker = sum(changes(s.tool_probabilities >= 0.5) for s in surgeries) / sum(changes(s.tools) for s in surgeries)
    assert 2 < flicker < 4


def test_noise_is_tunable():
    (s,) = simulate_surgeries(1, minutes=20.0, recognizer=Recognizer(noise=0.0, window_seconds=1))
    np.testing.assert_array_equal(s.phase_probabilities.argmax(-1), s.phases)
    np.testing.assert_array_equal(s.tool_probabilities >= 0.5, s.tools == 1)


def test_stack_pads_and_masks():
    surgeries = simulate_surgeries(3, minutes=3.0)
    labels, obs, mask = simulate.stack(surgeries)
    assert mask.sum(1).tolist() == [len(s) for s in surgeries]
    assert (labels.phases[~mask] == -1).all() and (labels.tools[~mask] == -1).all()
    for n, s in enumerate(surgeries):
        np.testing.assert_array_equal(obs.phases[n, mask[n]], s.phase_probabilities)
        np.testing.assert_array_equal(labels.tools[n, mask[n]], s.tools)


def test_bad_arguments_name_themselves():
    with pytest.raises(ValueError, match="num_videos"):
        simulate_surgeries(-1)
    with pytest.raises(ValueError, match="minutes"):
        simulate_surgeries(1, minutes=0.0)
    with pytest.raises(ValueError, match="no surgeries"):
        simulate.stack(())


@pytest.fixture(scope="module")
def departing():
    return simulate_surgeries(40, seed=3, departures=simulate.Departures())


def episodes(track, value):
    """Lengths of the runs of a value in a track of 0 and 1."""
    edges = np.flatnonzero(np.diff(track, prepend=1 - track[0]))
    return np.diff(np.append(edges, len(track)))[track[edges] == value]


def test_departures_follow_cholec80(departing, surgeries):
    """Prevalence, length and spread of episodes, tools at a time and order are those of Cholec80's annotations."""
    tools = np.concatenate([s.tools for s in departing])
    np.testing.assert_allclose(tools.mean(0), PREVALENCE, rtol=0.5)
    np.testing.assert_allclose(tools.mean(0)[[0, 2]], np.array(PREVALENCE)[[0, 2]], rtol=0.15)
    # Fractions of seconds with 0, 1 and 2 tools.
    np.testing.assert_allclose(np.bincount(tools.sum(1))[:3] / len(tools), [0.125, 0.435, 0.427], atol=0.06)
    hook = np.concatenate([episodes(s.tools[:, 2], 1) for s in departing])
    assert 28 < hook.mean() < 50 and 1.0 < hook.std() / hook.mean() < 1.7
    gaps = np.concatenate([episodes(s.tools[:, 2], 0) for s in departing])
    markov = np.concatenate([episodes(s.tools[:, 2], 0) for s in surgeries])
    # Short gaps and long ones: a geometric law would have a coefficient of variation of about one in each phase.
    assert gaps.std() / gaps.mean() > 2.0 and np.median(gaps) < 0.6 * np.median(markov)
    right = list((1, 2, 3, 4, 5))
    assert (np.concatenate([s.content[1][:, right] for s in departing]).sum(1) <= 1).all()
    first = [(s.content[1][:, 4].argmax(), s.content[1][:, 3].argmax()) for s in departing if s.tools[:, 3].any()]
    assert np.mean([clipper < scissors for clipper, scissors in first]) > 0.8


def test_annotations_are_late_and_images_obscured(departing):
    delays, missed = [], [[], []]
    for s in departing:
        phases, tools = s.content
        delays += (np.flatnonzero(np.diff(s.phases))[:3] - np.flatnonzero(np.diff(phases))[:3]).tolist()
        hook = tools[:, 2] == 1
        for obscured in (0, 1):
            missed[obscured].append((s.tool_probabilities[:, 2] < 0.5)[hook & ((s.obscured > 0.5) == obscured)])
    assert min(delays) >= 0 and 1 < np.mean(delays) < 6
    clear, hazy = (np.concatenate(x).mean() for x in missed)
    assert hazy > clear + 0.2


def test_a_phase_may_return():
    always = simulate_surgeries(12, seed=1, departures=simulate.Departures(returns=1.0, phase_delay=0.0))
    orders = [s.phases[np.flatnonzero(np.diff(s.phases, prepend=-1))].tolist() for s in always]
    assert np.mean([len(order) > len(set(order)) for order in orders]) > 0.7
    never = simulate_surgeries(12, seed=1, departures=simulate.Departures(returns=0.0))
    orders = [s.content[0][np.flatnonzero(np.diff(s.content[0], prepend=-1))].tolist() for s in never]
    assert all(len(order) == len(set(order)) for order in orders)
    with pytest.raises(ValueError, match="again is 2"):
        simulate.Departures(again=2)
