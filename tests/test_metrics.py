"""Metrics against values computed by hand. "domain N" is item N of a list of known pitfalls of surgical metrics."""

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from label_tracks import QUICK, label_pairs, labels
from numpy.testing import assert_allclose

from hmmjax import metrics

# Strict phase metrics.


def test_strict_by_hand():
    truth = labels((0, 4), (1, 6))
    predicted = labels((0, 3), (1, 5), (0, 2))  # phase 0: 3 of 4 found, 2 false; phase 1: 4 of 6 found, 1 false
    result = {m.name: m for m in metrics.phase_metrics(truth, predicted)}
    assert result["accuracy"].value == pytest.approx(7 / 10)
    assert_allclose(result["precision"].per_class, [3 / 5, 4 / 5])
    assert_allclose(result["recall"].per_class, [3 / 4, 4 / 6])
    assert_allclose(result["Jaccard"].per_class, [3 / 6, 4 / 7])
    assert_allclose(result["F1"].per_class, [2 / 3, 8 / 11])
    assert result["Jaccard"].value == pytest.approx((3 / 6 + 4 / 7) / 2)


def test_order_of_means_and_spread_domain_5():
    truth = [labels((0, 2), (1, 2)), labels((0, 4))]
    predicted = [labels((0, 2), (1, 1), (0, 1)), labels((0, 4))]
    # Recall of phase 0: 1 and 1; of phase 1: 1/2 and absent.
    by_class = metrics.recall(truth, predicted, mean="videos-then-classes")
    by_video = metrics.recall(truth, predicted, mean="classes-then-videos")
    pooled = metrics.recall(truth, predicted, mean="pooled")
    assert by_class.value == pytest.approx((1 + 1 / 2) / 2) and by_class.spread_over == "phases"
    assert by_class.spread == pytest.approx(np.std([1, 0.5], ddof=1))
    assert by_video.value == pytest.approx((3 / 4 + 1) / 2) and by_video.spread_over == "videos"
    assert pooled.value == pytest.approx((1 + 1 / 2) / 2) and pooled.per_video == ()
    assert by_class.left_out == ("phase 1 in 1 of 2 videos: absent from the truth",)
    assert (by_class.n_videos, by_class.n_frames, by_class.n_classes) == (2, 8, 2)
    named = dataclasses.replace(by_class, split="test 2")
    text = str(named)
    for words in ("recall", "strict", "test 2", "2 videos", "8 frames", "2 classes", "over phases"):
        assert words in text
    assert json.loads(json.dumps(named.asdict()))["split"] == "test 2"


def test_accuracy_per_video_and_pooled():
    truth, predicted = [labels((0, 2)), labels((0, 8))], [labels((0, 2)), labels((0, 4), (1, 4))]
    per_video = metrics.accuracy(truth, predicted)
    assert per_video.value == pytest.approx(0.75)
    assert per_video.spread == pytest.approx(np.std([1, 0.5], ddof=1)) and per_video.spread_over == "videos"
    assert metrics.accuracy(truth, predicted, mean="pooled").value == pytest.approx(0.6)


def test_three_nan_policies_domain_7():
    """The video lacks phase 2, which is predicted, and phase 3, which is not."""
    truth = labels((0, 4), (1, 4))
    predicted = labels((0, 4), (1, 2), (2, 2))
    names = ["a", "b", "c", "d"]
    values = {a: metrics.jaccard(truth, predicted, absent=a, names=names) for a in ("truth", "both", "zero")}
    assert values["truth"].value == pytest.approx((1 + 1 / 2) / 2)
    assert values["both"].value == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert values["zero"].value == pytest.approx((1 + 1 / 2 + 0 + 0) / 4)
    assert [values[a].n_classes for a in values] == [2, 3, 4]
    assert values["truth"].left_out == ("c: absent from the truth", "d: absent from the truth")
    assert len({v.convention for v in values.values()}) == 3


def test_never_predicted_phase_has_precision_zero_or_none():
    truth, predicted = labels((0, 4), (1, 4)), labels((0, 8))
    assert metrics.precision(truth, predicted).value == pytest.approx(0.25)
    hidden = metrics.precision(truth, predicted, unpredicted="nan")
    assert hidden.value == pytest.approx(0.5) and "never predicted" in hidden.left_out[0]


@QUICK
@given(label_pairs())
def test_jaccard_is_at_most_precision_and_recall_domain_6(pair):
    table = {m.name: np.array(m.per_class) for m in metrics.phase_metrics(*pair)}
    present = ~np.isnan(table["Jaccard"])
    bound = np.minimum(table["precision"], table["recall"])
    assert (table["Jaccard"][present] <= bound[present] + 1e-12).all()
    # F1 and Jaccard of one class are functions of each other.
    assert_allclose(table["F1"][present], (2 * table["Jaccard"] / (1 + table["Jaccard"]))[present])


def test_unknown_frames_are_left_out():
    truth, predicted = np.array([0, -1, 1, -1]), np.array([0, 1, 1, 0])
    result = metrics.accuracy(truth, predicted)
    assert result.value == 1 and result.n_frames == 2


def test_empty_video_is_left_out_and_reported():
    empty = np.zeros(0, int)
    result = metrics.accuracy([labels((0, 4)), empty], [labels((0, 4)), empty])
    assert result.value == 1 and result.n_videos == 1 and result.left_out == ("1 videos: no frame",)
    assert math.isnan(metrics.accuracy(empty, empty).value)


def test_confusion_matrix():
    matrix = metrics.confusion_matrix([labels((0, 2), (1, 2))], [labels((0, 3), (2, 1))])
    assert matrix.tolist() == [[2, 0, 0], [1, 0, 1], [0, 0, 0]]


# Segments.


def test_changes_and_over_segmentation():
    truth = [labels((0, 5), (1, 5)), labels((0, 5))]
    predicted = [labels((0, 2), (1, 1), (0, 2), (1, 5)), labels((0, 5))]
    changes = metrics.phase_changes(predicted)
    assert changes.value == 3 and changes.per_video == (3, 0) and changes.unit == "changes"
    assert metrics.over_segmentation(truth, predicted).value == pytest.approx((4 / 2 + 1) / 2)
    assert metrics.over_segmentation(truth, predicted, mean="pooled").value == pytest.approx(5 / 3)


def test_edit_score_by_hand():
    truth = labels((0, 5), (1, 5), (2, 5))
    assert metrics.edit_score(truth, labels((0, 1), (1, 13), (2, 1))).value == 1  # durations do not count
    assert metrics.edit_score(truth, labels((0, 5), (2, 10))).value == pytest.approx(1 - 1 / 3)
    flicker = labels((0, 4), (1, 1), (0, 1), (1, 4), (2, 5))  # 0 1 0 1 2 against 0 1 2
    assert metrics.edit_score(truth, flicker).value == pytest.approx(1 - 2 / 5)


@QUICK
@given(st.lists(st.integers(0, 2), max_size=6), st.lists(st.integers(0, 2), max_size=6))
def test_edit_distance_against_its_definition(a, b):
    def distance(x, y):
        if not x or not y:
            return len(x) + len(y)
        return min(distance(x[1:], y) + 1, distance(x, y[1:]) + 1, distance(x[1:], y[1:]) + (x[0] != y[0]))

    from hmmjax.metrics.segments import _edit_distance

    assert _edit_distance(a, b) == distance(a, b)


def test_segmental_f1_by_hand():
    truth = labels((0, 10), (1, 10))
    predicted = labels((0, 4), (1, 1), (0, 5), (1, 10))  # two pieces of phase 0: IoU .4 and .5; phase 1: .1 and 1
    assert metrics.segmental_f1(truth, predicted, 0.5).value == pytest.approx(2 * 2 / (2 + 4))
    assert metrics.segmental_f1(truth, predicted, 0.1).value == pytest.approx(2 * 2 / (2 + 4))
    assert metrics.segmental_f1(truth, predicted, 0.6).value == pytest.approx(2 * 1 / (2 + 4))
    assert metrics.segmental_f1(truth, truth, 1.0).value == 1
    pooled = metrics.segmental_f1([truth, truth], [truth, predicted], 0.5)
    per_video = metrics.segmental_f1([truth, truth], [truth, predicted], 0.5, mean="videos")
    assert pooled.value == pytest.approx(2 * 4 / (4 + 6)) and per_video.value == pytest.approx((1 + 2 / 3) / 2)
    assert pooled.name == "segmental F1@50"


def test_transition_delay_by_hand():
    truth = labels((0, 10), (1, 10), (2, 10), (3, 5))
    predicted = labels((0, 14), (1, 3), (2, 18))  # phase 1 is 4 late, phase 2 is 3 early, phase 3 never comes
    delay = metrics.transition_delay(truth, predicted)
    assert delay.value == pytest.approx((4 - 3) / 2) and delay.unit == "seconds"
    assert delay.spread == pytest.approx(np.std([4, -3], ddof=1)) and delay.spread_over == "transitions"
    assert delay.left_out[0].startswith("1 of 3 transitions")
    assert metrics.transition_delay(truth, predicted, fps=2, absolute=True).value == pytest.approx(3.5 / 2)


def test_segments_refuse_unknown_frames():
    with pytest.raises(ValueError, match="unpad"):
        metrics.edit_score(np.array([0, -1, 1]), np.array([0, 0, 1]))


TRACKS = (metrics.edit_score, metrics.segmental_f1, metrics.over_segmentation, metrics.transition_delay)


@pytest.mark.parametrize("measure", [metrics.accuracy, *TRACKS])
def test_labels_that_are_no_integers_are_refused(measure):
    whole = np.array([0, 1, 1])
    for other in (np.array([0.2, 0.7, 1.0]), np.array([False, True, True])):
        for pair in ((whole, other), (other, whole), (other, other)):
            with pytest.raises(TypeError, match="labels are integers"):
                measure(*pair)
    with pytest.raises(TypeError, match="labels are integers"):
        metrics.phase_changes(np.array([0.2, 0.7, 1.0]))


@pytest.mark.parametrize("measure", [metrics.over_segmentation, metrics.segmental_f1])
def test_unknown_means_of_segments_are_refused(measure, unchecked):
    with pytest.raises(ValueError, match="mean='bogus' is unknown: use one of 'pooled', 'videos'"):
        measure(np.array([0, 1]), np.array([0, 1]), mean="bogus")


@pytest.mark.parametrize("fps", [-1.0, 0.0, math.nan, math.inf])
def test_rates_that_cannot_be_are_refused(fps):
    pair = np.array([0, 1]), np.array([0, 1])
    for mode in ("strict", "relaxed-fixed"):
        with pytest.raises(ValueError, match=r"fps=.*not positive and finite: pass rows per second"):
            metrics.phase_metrics(*pair, modes=(mode,), fps=fps)
        with pytest.raises(ValueError, match=r"video_fps=.*positive and finite"):
            metrics.phase_metrics(*pair, modes=(mode,), video_fps=fps)
    with pytest.raises(ValueError, match=r"fps=.*positive and finite"):
        metrics.transition_delay(*pair, fps=fps)


def test_frame_numbers_that_do_not_rise_are_refused():
    with pytest.raises(ValueError, match="do not increase"):
        metrics.jaccard(np.zeros(3, int), np.zeros(3, int), mode="relaxed-fixed", frame_numbers=np.zeros(3, int))


def test_padding_does_not_change_phase():
    batch = np.array([[0, 1, 1, 1], [0, 0, -1, -1], [-1, -1, -1, -1]])
    result = metrics.phase_changes(batch.tolist())
    assert math.isnan(result.spread) and "±" not in str(result)  # a total has no spread over videos
    assert result.value == 1 and result.per_video[:2] == (1, 0) and math.isnan(result.per_video[2])
    assert (result.n_videos, result.n_frames) == (2, 6) and result.left_out == ("1 videos: no frame",)
    gap = metrics.phase_changes(np.array([0, -1, 1, 2]))
    assert gap.value == 1 and "both known" in gap.convention
    assert math.isnan(metrics.phase_changes(np.full(3, -1)).value)
    with pytest.raises(ValueError, match="label -2"):
        metrics.phase_changes(np.array([0, -2]))


def test_videos_without_a_known_frame_do_not_enter():
    unknown, predicted = np.full(3, -1), np.zeros(3, int)
    for m in metrics.phase_metrics(unknown, predicted):
        assert (m.n_videos, m.n_frames) == (0, 0) and math.isnan(m.value)
    for m in metrics.phase_metrics([unknown, np.zeros(3, int)], [predicted, predicted]):
        assert (m.n_videos, m.n_frames) == (1, 3)


# Input.


def test_unpad():
    values = np.arange(12).reshape(2, 3, 2)
    mask = np.array([[True, True, False], [True, False, False]])
    assert [v.tolist() for v in metrics.unpad(values, mask)] == [[[0, 1], [2, 3]], [[6, 7]]]
    assert [v.tolist() for v in metrics.unpad(values[0], mask[0])] == [[[0, 1], [2, 3]]]
    with pytest.raises(ValueError, match="mask has shape"):
        metrics.unpad(values, mask[:, :2])


@pytest.mark.parametrize(
    ("truth", "predicted", "words"),
    [
        ([np.zeros(3, int)], [np.zeros(4, int)], "join them on their frame numbers"),
        ([np.zeros(3, int)], [np.zeros(3, int)] * 2, "same videos"),
        ([np.zeros(3, int)], [np.full(3, -1)], "unpad"),
        ([np.zeros((2, 3), int)], [np.zeros((2, 3), int)], "without a batch axis"),
        ([], [], "no video"),
    ],
)
def test_bad_phases_are_refused(truth, predicted, words):
    with pytest.raises(ValueError, match=words):
        metrics.accuracy(truth, predicted)


def test_probabilities_and_unknown_options_are_refused(unchecked):
    with pytest.raises(TypeError, match="argmax"):
        metrics.accuracy(np.zeros(3, int), np.zeros(3))
    for options in ({"mean": "macro"}, {"absent": "nan"}, {"mode": "relaxed"}, {"unpredicted": "one"}):
        with pytest.raises(ValueError, match="use one of"):
            metrics.jaccard(np.zeros(3, int), np.zeros(3, int), **options)
        with pytest.raises(ValueError, match="use one of"):
            metrics.accuracy(np.zeros(3, int), np.zeros(3, int), **options)
    with pytest.raises(ValueError, match="name every phase"):
        metrics.accuracy(np.array([0, 1]), np.array([0, 1]), names=["a"])


def test_single_metrics_equal_those_computed_together():
    """A metric computed alone is identical to that of `phase_metrics`, for every mode and option."""
    rng = np.random.default_rng(0)
    truth, predicted = ([rng.integers(0, 7, n) for n in (400, 300)] for _ in range(2))
    functions = (metrics.accuracy, metrics.precision, metrics.recall, metrics.f1, metrics.jaccard)
    for mode in ("strict", "relaxed-official", "relaxed-fixed"):
        for mean in ("pooled", "classes-then-videos", "videos-then-classes"):
            together = metrics.phase_metrics(truth, predicted, modes=(mode,), mean=mean)
            alone = tuple(f(truth, predicted, mode=mode, mean=mean) for f in functions)
            assert repr(alone) == repr(together)  # NaN spreads are not equal


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bins", [10, 15, 100])
def test_probabilities_on_the_edges_of_bins(bins, dtype):
    """Against fractions: an edge belongs to the bin below it, zero to the first bin, one to the last."""
    exact = [Fraction(k, 2 * bins) for k in range(2 * bins + 1)]
    wanted = [max(-(-p.numerator * bins // p.denominator) - 1, 0) for p in exact]
    values = np.array([[p.numerator / p.denominator] for p in exact], dtype)
    (curve,) = metrics.reliability(tools=(np.zeros(values.shape, int), values), bins=bins)
    np.testing.assert_array_equal(curve.count, np.bincount(wanted, minlength=bins))
    totals = [sum(p for p, b in zip(exact, wanted, strict=True) if b == i) for i in range(bins)]
    np.testing.assert_allclose(curve.confidence * curve.count, [float(t) for t in totals], rtol=1e-6)
