"""Phase changes found in time, and phases lost and gained: against values by hand and oracles that share no code."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from hmmjax import metrics
from hmmjax.stabilize import System, compare_systems
from hmmjax.stabilize.table import compare_recognizers, timing_left_out

QUICK = settings(deadline=None, max_examples=60, derandomize=True)


def labels(*runs):
    """Convert (phase, frames) pairs to an array of labels."""
    return np.concatenate([np.full(n, p) for p, n in runs])


@st.composite
def pairs(draw):
    """Draw the truth and the prediction of a video, in runs of one to six frames."""
    runs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), min_size=1, max_size=9)
    a, b = labels(*draw(runs)), labels(*draw(runs))
    return a[: min(len(a), len(b))], b[: min(len(a), len(b))]


TRUTH = labels((0, 20), (1, 20), (2, 20), (3, 20))
PREDICTED = labels((0, 31), (1, 17), (2, 2), (1, 3), (3, 27))
"""Phase 1 is 11 late, phase 2 is shown 12 late and for 2 frames, phase 3 is 7 early."""
PREDICTED[48:50], PREDICTED[50:53] = 1, 2


def test_changes_found_by_hand():
    found = metrics.changes_found(TRUTH, PREDICTED)
    assert found.value == 2 and found.unit == "changes"  # phase 2 from frame 50: 10 late
    assert "of 3 true changes" in found.convention and not found.left_out
    assert metrics.changes_found(TRUTH, PREDICTED, within=9).value == 1
    assert metrics.changes_found(TRUTH, PREDICTED, fps=2, within=5).value == 2  # ten rows are five seconds
    both = metrics.changes_found([TRUTH, TRUTH], [PREDICTED, labels((0, 80))])
    assert both.per_video == (2, 0) and both.left_out[0].startswith("3 of 6 transitions")


def test_median_delay_by_hand(unchecked):
    assert metrics.transition_delay(TRUTH, PREDICTED).value == pytest.approx((11 + 10 - 7) / 3)
    median = metrics.transition_delay(TRUTH, PREDICTED, average="median")
    assert median.value == 10 and "median over transitions" in median.convention
    assert metrics.transition_delay(TRUTH, PREDICTED, average="median", absolute=True, fps=2).value == 5
    assert math.isnan(metrics.transition_delay(TRUTH, labels((0, 80)), average="median").value)
    with pytest.raises(ValueError, match="average='mode' is unknown: use one of 'mean', 'median'"):
        metrics.transition_delay(TRUTH, PREDICTED, average="mode")


def test_change_f1_by_hand():
    # Predicted changes into 1 at 31, into 2 at 50, into 3 at 53; true ones at 20, 40, 60.
    assert metrics.change_f1(TRUTH, PREDICTED).value == pytest.approx(2 * 2 / (3 + 3))
    assert metrics.change_f1(TRUTH, PREDICTED, within=11).value == 1
    assert metrics.change_f1(TRUTH, PREDICTED, within=5.5, fps=2).value == 1
    flicker = np.where(np.arange(80) % 2, TRUTH, (TRUTH + 1) % 4)
    assert metrics.changes_found(TRUTH, flicker).value == 3 and metrics.change_f1(TRUTH, flicker).value < 0.1
    assert math.isnan(metrics.change_f1(labels((0, 9)), labels((1, 9))).value)


def test_the_tolerance_is_the_same_in_rows_and_seconds():
    """.29 * 100 is 28.999999999999996."""
    late = labels((0, 59), (1, 41))
    for within, found in ((0.29, 1), (0.28, 0), (0.289999, 0)):
        assert metrics.changes_found(labels((0, 30), (1, 70)), late, fps=100, within=within).value == found
        assert metrics.change_f1(labels((0, 30), (1, 70)), late, fps=100, within=within).value == found


def distances(truth, predicted):
    """Return the distances (true, predicted) of all changes; infinite between changes into different phases."""
    a, b = (np.flatnonzero(x[1:] != x[:-1]) + 1 for x in (truth, predicted))
    same = truth[a][:, None] == predicted[b][None]
    return np.where(same, np.abs(a[:, None] - b[None]), np.inf)


@QUICK
@given(pairs(), st.integers(1, 6))
def test_change_f1_against_an_assignment(pair, within):
    near = distances(*pair) <= within
    rows, columns = linear_sum_assignment(near, maximize=True)
    matched = near[rows, columns].sum()
    found = metrics.change_f1(*pair, within=within)
    if sum(near.shape):
        assert found.value == pytest.approx(2 * matched / sum(near.shape))
    else:
        assert math.isnan(found.value)


@QUICK
@given(pairs(), st.integers(1, 6))
def test_changes_found_frame_by_frame(pair, within):
    truth, predicted = map(list, pair)
    count = 0
    for t in range(1, len(truth)):
        if truth[t] == truth[t - 1]:
            continue
        end = next((u for u in range(t, len(truth)) if truth[u] != truth[t]), len(truth))
        shown = next((u for u in range(t, end) if predicted[u] == truth[t]), None)
        while shown is not None and shown <= t and shown > 0 and predicted[shown - 1] == truth[t]:
            shown -= 1
        count += shown is not None and abs(shown - t) <= within
    assert metrics.changes_found(*pair, within=within).value == count


@QUICK
@given(st.lists(pairs(), min_size=1, max_size=3), st.data())
def test_lost_and_gained_phases_against_sets(videos, data):
    truth, predicted = zip(*videos, strict=True)
    truth = [np.where(data.draw(st.lists(st.booleans(), min_size=len(a), max_size=len(a))), a, -1) for a in truth]
    lost, gained = metrics.phases_lost(truth, list(predicted)), metrics.phases_gained(truth, list(predicted))
    names = [f"phase {p}" for p in range(4)]
    for i, (a, b) in enumerate(zip(truth, predicted, strict=True)):
        if (a < 0).all():
            assert math.isnan(lost.per_video[i]) and math.isnan(gained.per_video[i])
            continue
        frames = [(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True) if x >= 0]
        assert lost.per_video[i] == len({x for x, _ in frames} - {x for x, y in frames if x == y})
        assert gained.per_video[i] == len({y for _, y in frames} - {x for x, _ in frames})
    for found in (lost, gained):
        whole = metrics.phases_lost if found is lost else metrics.phases_gained
        named = whole(truth, list(predicted), names=names)
        assert named.class_names == tuple(names) and sum(named.per_class) == np.nansum(named.per_video)
        assert (found.value == named.value) or (math.isnan(found.value) and math.isnan(named.value))


@pytest.mark.parametrize("measure", [metrics.changes_found, metrics.change_f1])
def test_bad_input_of_changes(measure):
    with pytest.raises(ValueError, match="unpad"):
        measure(np.array([0, -1, 1]), np.array([0, 0, 1]))
    with pytest.raises(ValueError, match=r"within=0.*positive and finite: pass seconds"):
        measure(TRUTH, PREDICTED, within=0)
    with pytest.raises(ValueError, match=r"fps=nan.*positive and finite"):
        measure(TRUTH, PREDICTED, fps=math.nan)
    with pytest.raises(TypeError, match="labels are integers"):
        measure(TRUTH, PREDICTED * 1.0)


def test_the_table_measures_timing_in_videos_that_are_labeled_throughout():
    partly = np.where(np.arange(80) % 3, TRUTH, -1)
    system = System("M", phases=[PREDICTED, labels((0, 80))])
    rows = {r.figure: r for r in compare_systems([system], [TRUTH, partly], None, rows_per_second=2.0)}
    row = rows["phase changes found in 10 s"]
    assert (row.truth, row.metrics["M"].value, row.metrics["M"].n_videos) == (3, 3, 1)
    measured = {
        "phase change F1 at 10 s": 1,
        "phase delay, median": 5,
        "phase delay, mean absolute": (11 + 10 + 7) / 3 / 2,
        "phases lost": 3,
        "phases gained": 0,
    }
    for name, value in measured.items():
        assert rows[name].metrics["M"].value == pytest.approx(value), name
    assert rows["phases lost"].metrics["M"].per_video == (0, 3)
    assert rows["phase delay, median"].metrics["M"].left_out == ("1 of 2 videos: too many frames without a label",)
    rows = {r.figure for r in compare_systems([system], [partly, partly], None)}
    assert "phases lost" in rows and not any("delay" in name or "found" in name for name in rows)
    (reason,) = timing_left_out([partly, partly])
    assert "more than 1% of the frames between the first and the last annotated one lack a phase" in reason
    assert timing_left_out([TRUTH, partly]) == timing_left_out(None) == timing_left_out([np.full(9, -1)]) == []


def test_timing_does_not_need_a_label_in_every_frame():
    """One frame of eighty may lack its label, even at a change, and any number at the ends."""
    whole = {r.figure: r for r in compare_systems([System("M", [PREDICTED])], [TRUTH], None)}
    change = int(np.flatnonzero(np.diff(TRUTH))[0])
    for at in (change, change - 3, slice(0, 2), slice(70, 80)):
        cut = TRUTH.copy()
        cut[at] = -1
        rows = {r.figure: r for r in compare_systems([System("M", [PREDICTED])], [cut], None)}
        for name in ("phase changes found in 10 s", "phase change F1 at 10 s", "phase delay, median"):
            assert rows[name].metrics["M"].value == whole[name].metrics["M"].value and rows[name].truth in (3, None)
        filled = "frames without a label take the closest" in rows["phase delay, median"].metrics["M"].convention
        assert filled == isinstance(at, int)
    cut[40:43] = -1  # too wide a gap
    assert "phase delay, median" not in {r.figure for r in compare_systems([System("M", [PREDICTED])], [cut], None)}


def test_a_recognizer_that_lacks_a_frame_is_timed():
    given = PREDICTED.copy()
    given[5] = -1
    rows = compare_recognizers([System("M", [given])], [System("M_H", [PREDICTED])], [TRUTH], None)
    (row,) = [r for r in rows if r.figure == "phase delay, median"]
    assert row.metrics["M"].value == row.metrics["M_H"].value


def test_counts_of_nothing_are_undefined():
    unknown = np.full(5, -1)
    for measure in (metrics.phases_lost, partial(metrics.phases_gained, names=["a", "b"])):
        found = measure([unknown], [np.zeros(5, int)])
        assert math.isnan(found.value) and found.n_videos == 0
