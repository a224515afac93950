"""Tool metrics and calibration against values computed by hand, and all metrics on real files."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from hmmjax import metrics

QUICK = settings(deadline=None, max_examples=40, derandomize=True)
TRUTH = np.array([[1], [0], [1], [0]])
SCORES = np.array([[0.9], [0.8], [0.7], [0.1]])  # precision 1, 1/2, 2/3, 1/2 at recall 1/2, 1/2, 1, 1


def test_average_precision_by_hand():
    def ap(**options):
        return metrics.average_precision(TRUTH, SCORES, **options)

    assert ap().value == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert ap(definition="voc-all-points").value == pytest.approx(0.5 * 1 + 0.5 * 2 / 3)
    assert ap(definition="voc-11-point").value == pytest.approx((6 * 1 + 5 * 2 / 3) / 11)
    # Thresholds in steps of 0.0004: 1500 of them call three frames present, 250 two and 250 one. Recall 0.5 averages
    # precision 1 and 1/2, recall 1 has 2/3. Levels 0-.6 meet recall 0.5 alone, .9 and 1 recall 1 alone; around .7 and
    # .8 the doubled tolerance, .33, takes in both.
    both = (1500 * 2 / 3 + 500 * 3 / 4) / 2000
    nearest = ap(definition="m2cai16")
    assert nearest.value == pytest.approx((7 * 3 / 4 + 2 * both + 2 * 2 / 3) / 11, abs=1e-3)
    assert "M2CAI16" in nearest.convention


def naive_m2cai16(truth, scores):
    """The script of the challenge."""
    precision, recall = [], []
    for i in range(2001):
        called = scores > scores.min() + i * ((scores.max() - scores.min()) / 2000)
        if called.any():
            precision.append((called & (truth == 1)).sum() / called.sum())
            recall.append((called & (truth == 1)).sum() / truth.sum())
    precision, recall = np.array(precision), np.array(recall)
    total = 0.0
    for level in range(11):
        tolerance = 1e-5
        while not (abs(recall - level / 10) < tolerance).any():
            tolerance *= 2
        total += precision[abs(recall - level / 10) < tolerance].mean() / 11
    return total


@QUICK
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=2, max_size=30))
def test_definitions_against_naive(pairs):
    truth, scores = np.array(pairs).T
    scores = scores / 20
    if not truth.any():
        return
    table = truth[:, None].astype(int), scores[:, None]
    step = metrics.average_precision(*table).value
    envelope = metrics.average_precision(*table, definition="voc-all-points").value
    assert envelope >= step - 1e-12
    (curve,) = metrics.precision_recall_curves(*table)
    assert step == pytest.approx(np.sum(np.diff(curve.recall, prepend=0) * curve.precision))
    official = metrics.average_precision(*table, definition="m2cai16").value
    if scores.min() == scores.max():
        assert math.isnan(official)
    else:
        assert official == pytest.approx(naive_m2cai16(truth, scores))


def test_absent_tool_has_no_figure_domain_18_19():
    truth = np.column_stack([[1, 0, 1, 0], [0, 0, 0, 0]])
    scores = np.column_stack([[0.9, 0.2, 0.8, 0.1], [0.3, 0.2, 0.1, 0.4]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for measure in (metrics.average_precision, metrics.tool_f1):
            result = measure(truth, scores, names=["Hook", "Bipolar"])
            assert result.value == 1 and math.isnan(result.per_class[1])
            assert result.n_classes == 1 and result.left_out == ("Bipolar: absent from the truth",)
            assert "left out: Bipolar" in str(result)
            zero = measure(truth, scores, absent="zero")
            assert zero.value == pytest.approx(0.5) and zero.n_classes == 2
    assert np.isnan(metrics.precision_recall_curves(truth, scores)[1].precision).all()


def test_pooled_and_per_video():
    truth = [np.array([[1, 1], [0, 0]]), np.array([[0, 1], [1, 0]]), np.array([[1, 0], [1, 0]])]
    scores = [np.array([[0.9, 0.9], [0.1, 0.1]]), np.array([[0.8, 0.1], [0.4, 0.9]]), np.array([[0.9, 0.1]] * 2)]
    # Tool 0: AP 1, 1/2, 1; tool 1: AP 1, 1/2, absent.
    by_tool = metrics.average_precision(truth, scores, mean="videos-then-classes")
    by_video = metrics.average_precision(truth, scores, mean="classes-then-videos")
    assert by_tool.value == pytest.approx((2.5 / 3 + 1.5 / 2) / 2) and by_tool.spread_over == "tools"
    assert by_video.value == pytest.approx((1 + 0.5 + 1) / 3) and by_video.spread_over == "videos"
    assert by_tool.left_out == ("tool 1 in 1 of 3 videos: absent from the truth",)
    # Pooled, tool 0: 3 of 3 above .8, then one false, then the fourth: AP = 3/4 + 1/4 * 4/5.
    assert metrics.average_precision(truth, scores).per_class[0] == pytest.approx(3 / 4 + 1 / 4 * 4 / 5)


def test_tool_f1_threshold_and_hard_decisions():
    result = metrics.tool_f1(TRUTH, SCORES, threshold=0.8)
    assert result.value == pytest.approx(2 * 1 / (2 + 2)) and "0.8" in result.convention
    assert metrics.tool_f1(TRUTH, SCORES, threshold=0.95).value == 0
    hard = (SCORES >= 0.5).astype(int)
    assert metrics.tool_f1(TRUTH, hard).value == pytest.approx(2 * 2 / (3 + 2))
    assert "hard 0/1 decisions" in metrics.average_precision(TRUTH, hard).convention


def test_unknown_presence_is_left_out():
    truth = np.array([[1], [-1], [1], [0]])
    assert metrics.average_precision(truth, SCORES).value == 1
    assert metrics.tool_f1(truth, SCORES).value == 1


def test_tool_changes():
    on = [np.array([[1, 0], [0, 0], [1, 1]]), np.array([[1, 1]])]
    result = metrics.tool_changes(on)
    assert result.value == 3 and result.per_class == (2, 1) and result.per_video == (3, 0)
    assert metrics.tool_changes(SCORES, threshold=0.75).value == 1


def test_bad_tools_are_refused(unchecked):
    with pytest.raises(ValueError, match="NaN"):
        metrics.average_precision(TRUTH, np.full((4, 1), np.nan))
    with pytest.raises(ValueError, match="0, 1 and -1"):
        metrics.average_precision(2 * TRUTH, SCORES)
    with pytest.raises(ValueError, match="the same tools"):
        metrics.average_precision(TRUTH, np.zeros((4, 2)))
    with pytest.raises(ValueError, match="unknown"):
        metrics.average_precision(TRUTH, SCORES, definition="auc")
    with pytest.raises(ValueError, match="use one of 'nan', 'zero'"):
        metrics.tool_f1(TRUTH, SCORES, absent="truth")


MEASURES = (metrics.average_precision, metrics.tool_f1, metrics.tool_calibration)


@pytest.mark.parametrize("measure", MEASURES)
def test_only_labeled_frames_and_videos_enter(measure):
    labeled = np.full((170, 2), -1)
    labeled[:10, 0], labeled[5:12, 1] = np.arange(10) % 2, np.arange(7) % 2
    scores = np.full((170, 2), 0.5)
    result = measure([labeled, np.full((9, 2), -1)], [scores, scores[:9]])
    assert (result.n_videos, result.n_frames) == (1, 12)


def test_curves_count_the_videos_where_their_tool_is_labeled():
    truth = [np.array([[1, -1], [0, -1]]), np.array([[1, 0], [0, 1]])]
    first, second = metrics.precision_recall_curves(truth, [np.full((2, 2), 0.5)] * 2)
    assert (first.n_videos, first.n_frames, second.n_videos, second.n_frames) == (2, 4, 1, 2)


@pytest.mark.parametrize("measure", MEASURES[:2])
def test_unlabeled_is_not_absent(measure):
    truth = [np.array([[1, -1], [0, -1]]), np.array([[-1, -1], [-1, -1]])]
    scores = [np.array([[0.9, 0.9], [0.1, 0.1]])] * 2
    for options in ({}, {"mean": "classes-then-videos"}, {"mean": "videos-then-classes"}):
        result = measure(truth, scores, absent="zero", **options)
        assert result.value == 1 and result.n_classes == 1
        assert result.left_out[-1] == "tool 1: not labeled"
    assert measure(truth, scores).left_out == ("tool 1: absent from the truth or not labeled",)


@pytest.mark.parametrize("bad", [-math.inf, math.inf, math.nan])
def test_scores_that_are_not_finite_are_refused_where_truth_is_known(bad):
    scores = np.array([[0.2], [bad], [1.0]])
    for measure in (*MEASURES, metrics.precision_recall_curves):
        with pytest.raises(ValueError, match="NaN or infinity"):
            measure(np.array([[1], [0], [1]]), scores)
        measure(np.array([[1], [-1], [1]]), scores)  # scores where the truth is unknown are not used
    for definition in ("sklearn", "voc-all-points", "voc-11-point", "m2cai16"):
        with pytest.raises(ValueError, match="NaN or infinity"):
            metrics.average_precision(np.array([[1], [0], [1]]), scores, definition=definition)


def test_official_precision_of_scores_farther_apart_than_floats_reach():
    truth, scores = np.array([[1], [0], [1]]), np.array([[0.2], [-1.0], [1.0]])
    want = metrics.average_precision(truth, scores, definition="m2cai16").value
    assert metrics.average_precision(truth, 1.7e308 * scores, definition="m2cai16").value == pytest.approx(want)


def test_unknown_scores_do_not_change():
    result = metrics.tool_changes(np.array([[0.9, 0.9], [math.nan, 0.1], [0.9, math.nan]]))
    assert result.value == 1 and result.per_class == (0, 1) and result.n_frames == 3
    assert "both known" in result.convention
    padded = metrics.tool_changes([np.array([[1], [1], [-1]]), np.array([[-1]])])
    assert padded.value == 0 and (padded.n_videos, padded.n_frames) == (1, 2) and math.isnan(padded.per_video[1])
    assert padded.left_out == ("1 videos: no frame",)
    assert math.isnan(metrics.tool_changes(np.array([[-1]])).value)


def test_changes_of_other_tools_names_and_thresholds_are_refused():
    with pytest.raises(ValueError, match="the same tools"):
        metrics.tool_changes([np.zeros((2, 1)), np.zeros((2, 2))])
    with pytest.raises(ValueError, match="name every tool"):
        metrics.tool_changes(np.zeros((2, 1)), names=["a", "b"])
    for measure in (metrics.tool_changes, lambda x, **options: metrics.tool_f1(x.astype(int), x, **options)):
        with pytest.raises(ValueError, match="threshold is NaN"):
            measure(np.ones((2, 1)), threshold=math.nan)


# Calibration.


def test_phase_calibration_by_hand():
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]])
    truth = np.array([0, 0, 0, 1])
    result = metrics.phase_calibration(truth, probabilities, bins=10)
    assert result.value == pytest.approx(0.5 * 0.1 + 0.5 * 0.1)
    (curve,) = metrics.reliability(phases=(truth, probabilities), bins=10)
    assert curve.count.tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 2, 0]
    assert curve.frequency[5] == 0.5 and curve.frequency[8] == 1 and math.isnan(curve.frequency[0])


def test_tool_calibration_by_hand():
    probabilities = np.array([[0.8, 0.1], [0.8, 0.1], [0.8, 0.1], [0.8, 0.1], [0.8, 0.1]])
    truth = np.array([[1, 0], [1, 0], [1, 0], [1, 0], [0, -1]])
    result = metrics.tool_calibration(truth, probabilities)
    assert_allclose(result.per_class, [0, 0.1], atol=1e-12)
    assert result.value == pytest.approx(0.05) and result.spread_over == "tools"


def test_calibration_refuses_logits():
    with pytest.raises(ValueError, match="logits"):
        metrics.phase_calibration(np.array([0]), np.array([[0.0, 3.0]]))
    with pytest.raises(ValueError, match="NaN or negative"):
        metrics.phase_calibration(np.array([0]), np.array([[-1.0, 3.0]]))


def test_phase_calibration_refuses_what_it_cannot_judge(unchecked):
    sure = np.array([[1.0, 0.0, 0.0]] * 2)
    for measure in (metrics.phase_calibration, lambda *pair: metrics.reliability(phases=pair)):
        with pytest.raises(ValueError, match="true phase 5, but probabilities of 3 phases"):
            measure(np.array([0, 5]), sure)
        with pytest.raises(ValueError, match="true phase -2"):
            measure(np.array([0, -2]), sure)
        with pytest.raises(TypeError, match="labels are integers"):
            measure(np.array([0, 0.5]), sure)
        with pytest.raises(ValueError, match=r"sum to 1\.5, not to one"):
            measure(np.array([0, 1]), np.array([[0.6, 0.2, 0.2], [0.5, 0.5, 0.5]]))
        with pytest.raises(ValueError, match="same phases"):
            measure([np.array([0])] * 2, [sure[:1], sure[:1, :2]])
        measure(np.array([0, -1]), np.array([[1.0, 0.0, 0.0], [math.nan] * 3]))
        measure(np.array([0, 1]), np.array([[0.3333, 0.3333, 0.3333]] * 2))  # rounded by a text file
    with pytest.raises(TypeError):
        metrics.phase_calibration(np.array([0, 0]), sure, bins=2.5)


def test_phase_calibration_counts_videos_with_a_known_frame():
    sure = np.array([[1.0, 0.0]] * 2)
    result = metrics.phase_calibration([np.array([0, -1]), np.array([-1, -1])], [sure, sure])
    assert (result.n_videos, result.n_frames) == (1, 1)


def test_posteriors_of_few_bits_are_probabilities():
    import jax
    import jax.numpy as jnp

    predicted = jax.nn.softmax(jax.random.normal(jax.random.key(0), (300, 7))).astype(jnp.bfloat16)
    assert metrics.phase_calibration(np.zeros(300, int), predicted).n_frames == 300


# Real files: the metrics of the twenty and the two videos under each convention.


def by_name(results):
    return {m.name: m.value for m in results}


# Accuracy, precision, recall, Jaccard of TMRNet on its twenty files, in per cent: one set of predictions, fifteen
# points of Jaccard between conventions.
TMRNET_TABLE = {
    ("strict", 1): (85.96, 83.80, 83.16, 70.99),
    ("relaxed-official", 1): (87.00, 87.48, 86.71, 75.32),
    ("relaxed-fixed", 1): (87.49, 88.67, 87.87, 76.75),
    ("relaxed-official", 25): (90.50, 93.02, 94.94, 85.88),
}


@pytest.mark.parametrize(("mode", "fps"), TMRNET_TABLE)
@pytest.mark.filterwarnings("ignore:with fps=25")
def test_tmrnet_in_every_convention_domain_8(tmrnet, mode, fps):
    results = metrics.phase_metrics(*tmrnet, modes=(mode,), fps=fps, unpredicted="nan", names=metrics.PHASES)
    values = by_name(results)
    found = [100 * values[n] for n in ("accuracy", "precision", "recall", "Jaccard")]
    assert_allclose(found, TMRNET_TABLE[mode, fps], atol=0.006)
    assert all((m.n_videos, m.n_frames, m.n_classes) == (20, 50589, 7) for m in results)


def test_tmrnet_changes_and_segments(tmrnet):
    truth, predicted = tmrnet
    assert metrics.accuracy(truth, predicted, mean="pooled").value == pytest.approx(0.8422, abs=5e-5)
    assert metrics.phase_changes(predicted).value == 1368
    assert metrics.phase_changes(truth).value == 119
    assert metrics.over_segmentation(truth, predicted, mean="pooled").value == pytest.approx((1368 + 20) / (119 + 20))
    assert metrics.edit_score(truth, predicted).value == pytest.approx(0.1693, abs=5e-5)
    assert metrics.segmental_f1(truth, predicted, 0.1).value == pytest.approx(0.1794, abs=5e-5)


@pytest.mark.parametrize(("absent", "f1"), [("truth", (0.8121, 0.8110)), ("zero", (0.8054, 0.8054))])
def test_tmrnet_nan_policies(tmrnet, absent, f1):
    for mean, value in zip(("classes-then-videos", "videos-then-classes"), f1, strict=True):
        assert metrics.f1(*tmrnet, mean=mean, absent=absent).value == pytest.approx(value, abs=5e-5)


def test_frcnn_every_definition(frcnn):
    table = {"sklearn": 0.7733, "voc-all-points": 0.7754, "voc-11-point": 0.7566, "m2cai16": 0.8978}
    for definition, value in table.items():
        found = metrics.average_precision(*frcnn, definition=definition, names=metrics.TOOLS)
        assert found.value == pytest.approx(value, abs=5e-5)
    assert metrics.average_precision(*frcnn, mean="classes-then-videos").value == pytest.approx(0.7821, abs=5e-5)
    assert metrics.average_precision(*frcnn, mean="videos-then-classes").value == pytest.approx(0.7867, abs=5e-5)
    truth, scores = frcnn
    hard = [(s >= 0.5).astype(int) for s in scores]
    assert metrics.average_precision(truth, hard).value == pytest.approx(0.6015, abs=5e-5)
    assert metrics.tool_f1(truth, scores).value == pytest.approx(0.7378, abs=5e-5)
    assert metrics.tool_changes(scores).value == 2036
