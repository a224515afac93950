"""Choices on held-out predictions: averages, guards against worse classes, and the recognizer where nothing helps."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

from hmmjax import Labels, Observations, Params, PhaseChain, emissions, metrics, selection
from hmmjax._core import left_out
from hmmjax._core.left_out import Comparison
from hmmjax.ensembles import Ensemble
from hmmjax.io import BatchIndex
from hmmjax.stabilize.auto import Chosen, Search
from hmmjax.stabilize.candidates import with_restarts
from hmmjax.stabilize.examples import Examples
from hmmjax.stabilize.explain import describe
from hmmjax.stabilize.folds import plan_folds, why_not_chosen
from hmmjax.stabilize.prepare import Prepared
from hmmjax.stabilize.settings import Settings
from hmmjax.stabilize.strengths import STRENGTHS, Strength, shrunk

TRUTH = np.repeat([0, 1, 2], 20)


def predictions(seed, right, wrong_phase=None):
    """Six videos of P(phase), with a given probability of the truth; in a wrong phase it goes to its neighbor."""
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(6):
        p = np.full((60, 3), (1 - right) / 2)
        p[np.arange(60), TRUTH] = right
        if wrong_phase is not None:
            p[wrong_phase == TRUTH] = np.roll(p[wrong_phase == TRUTH], 1, -1)
        out.append(p + rng.uniform(0, 1e-3, p.shape))
    return out


def noisy_outputs():
    rng = np.random.default_rng(1)
    return [np.eye(3)[np.where(rng.uniform(size=60) < 0.2, rng.integers(0, 3, 60), TRUTH)] for _ in range(6)]


def test_losses_are_means_over_labeled_frames():
    p = [np.array([[0.5, 0.5], [0.2, 0.8], [0.9, 0.1]])]
    labels = [np.array([0, -1, 1])]
    expected = -np.log(np.array([0.5, 0.1]) + 1e-6).mean()
    assert_allclose(selection.losses_of(p, labels, "log-loss"), [expected])
    assert_allclose(selection.losses_of(p, labels, "accuracy"), [0.5])
    tools = selection.losses_of([np.array([[0.9, 0.2], [0.4, 0.3]])], [np.array([[1, -1], [1, -1]])], "accuracy")
    assert_allclose(tools[0, 0], 0.5)
    assert np.isnan(tools[0, 1])
    with pytest.raises(ValueError, match="log-loss or accuracy"):
        selection.losses_of(p, labels, "F1")


def test_the_mixture_is_chosen_unless_one_is_clearly_better():
    labels, outputs = [TRUTH] * 6, noisy_outputs()
    alike = selection.choose_phases({"a": predictions(0, 0.8), "b": predictions(1, 0.8)}, outputs, labels)
    assert alike.option == "mixture" and float(alike.share) == 0
    assert_allclose(alike.weights, [0.5, 0.5], atol=1e-3)
    assert alike.margin > 2 * alike.error > 0
    better = selection.choose_phases({"a": predictions(0, 0.9), "b": predictions(1, 0.5)}, outputs, labels)
    assert better.option == "a"
    assert next(iter(better.losses)) == "a" and list(better.losses)[-1] == "recognizer"


def test_weights_of_a_mixture_are_those_that_make_labels_most_probable():
    """Against a search over the simplex, with a Dirichlet prior of as many videos as equal weights count for."""
    labels = [TRUTH] * 6
    candidates = [predictions(0, 0.7), predictions(1, 0.6, wrong_phase=1), predictions(2, 0.5)]
    found = selection.mixture_weights(candidates, labels, iterations=2000)
    right = np.array([[p[v][np.arange(60), TRUTH] for p in candidates] for v in range(6)])  # (videos, models, frames)
    grid = np.linspace(0.005, 0.99, 198)
    points = np.array([(a, b, 1 - a - b) for a in grid for b in grid if a + b < 0.995])
    values = np.log(np.einsum("pm,vmt->pvt", points, right) + 1e-6).mean(-1).sum(-1)
    values += selection.EQUAL_VIDEOS / 3 * np.log(points).sum(-1)
    assert_allclose(found, points[values.argmax()], atol=0.006)
    assert found[0] > 1 / 3 > found[1]
    assert_allclose(selection.mixture_weights(candidates, [np.full(60, -1)] * 6), np.full(3, 1 / 3))


def test_a_phase_that_would_be_lost_keeps_the_recognizer():
    labels, outputs = [TRUTH] * 6, noisy_outputs()
    mixed = predictions(0, 0.95)
    for x, wrong in zip(mixed, predictions(0, 0.6, wrong_phase=2), strict=True):
        x[TRUTH == 2] = wrong[TRUTH == 2]
    mild = selection.choose_phases({"a": mixed}, outputs, labels)
    assert 0 < float(mild.share) < 0.5 and mild.option == "a"
    assert_allclose(mild.weights + mild.share, [1.0])
    lost = selection.choose_phases({"a": predictions(0, 0.99, wrong_phase=2)}, outputs, labels)
    assert lost.option == "recognizer" and float(lost.share) == 1 and not lost.weights.any() and lost.margin == 0


def tool_videos(count=4):
    """True tools of videos; a weak recognizer; a good model of the first tool, a bad one of the second."""
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 2, (40, 3)) for _ in range(count)]
    for x in labels:
        x[:, 2] = 0
    weak = [np.clip(0.5 + 0.2 * (2 * x - 1) + rng.normal(0, 0.2, x.shape), 0.01, 0.99) for x in labels]
    good = [np.clip(0.5 + 0.4 * (2 * x - 1) + rng.normal(0, 0.1, x.shape), 0.01, 0.99) for x in labels]
    return labels, weak, [np.stack([g[:, 0], 1 - g[:, 1], g[:, 2]], -1) for g in good]


@pytest.mark.parametrize(("count", "kept"), [(4, 0.5), (8, selection.SMALL_SHARE)])
def test_every_tool_is_chosen_by_itself(count, kept):
    """With few videos the recognizer keeps at least half, with many a quarter."""
    labels, weak, model = tool_videos(count)
    choice = selection.choose_tools({"model": model}, weak, labels)
    assert choice.option == ("model", "recognizer", "recognizer")
    assert_allclose(choice.weights, [[1 - kept, 0, 0]])
    assert_allclose(choice.share, [kept, 1, 1])
    assert choice.margin > 2 * choice.error > 0


@pytest.mark.parametrize(("alarm", "spoiled"), [(1.0, True), (0.7, True), (0.5, False)])
def test_tools_keep_the_recognizer_if_a_metric_falls(alarm, spoiled):
    """A recognizer without errors; log-loss gains in every video. One frame's alarm lowers F1, a strong one the
    average precision too, and one below the threshold nothing."""
    rng = np.random.default_rng(0)
    labels = [rng.integers(0, 2, (40, 1)) for _ in range(4)]
    own, model = ([np.where(x == 1, p, 1 - p) for x in labels] for p in (0.6, 0.95))
    for x, o, m in zip(labels, own, model, strict=True):
        absent, present = x[:, 0].argmin(), x[:, 0].argmax()
        o[absent], m[absent], m[present] = 0.45, alarm, 0.6
    choice = selection.choose_tools({"model": model}, own, labels)
    assert choice.option[0] == ("recognizer" if spoiled else "model")


def test_tools_in_a_single_video_keep_the_recognizer():
    labels, weak, model = tool_videos()
    for x in labels[1:]:
        x[:, 0] = 0
    assert selection.choose_tools({"model": model}, weak, labels).option[0] == "recognizer"


def test_single_frames_need_less_proof():
    """Two more false alarms in one video and one less in another: F1 falls by less than its standard error."""
    labels, _, model = tool_videos()
    own = [np.where(x == 1, 0.6, 0.4) for x in labels]
    absent = np.flatnonzero(labels[0][:, 0] == 0)[:2]
    own[0][absent, 0], model[0][absent, 0] = 0.45, 0.7
    own[1][labels[1][:, 0].argmin(), 0] = 0.51
    strict, loose = (selection.choose_tools({"model": model}, own, labels, strict=x) for x in (True, False))
    assert strict.share[0] == 1 > loose.share[0]


def test_labels_of_tools_are_mixed_with_less_than_half():
    """With one half they would come back unchanged."""
    labels, weak, model = tool_videos()
    choice = selection.choose_tools({"model": model}, [(x >= 0.5).astype(float) for x in weak], labels)
    assert choice.option[0] == "model" and choice.share[0] in selection.TOOL_SHARES["labels"]
    assert choice.share[0] < 0.5


def test_a_gain_in_a_single_video_is_none():
    """Five videos as predicted, and the sixth improved: nothing is chosen."""
    labels, outputs = [TRUTH] * 6, noisy_outputs()
    alike = [0.9 * x + 0.1 / 3 for x in outputs]
    once = [*alike[:5], predictions(0, 0.9)[0]]
    assert selection.choose_phases({"a": once}, outputs, labels).option == "recognizer"
    twice = [*alike[:4], *predictions(0, 0.9)[:2]]
    assert selection.choose_phases({"a": twice}, outputs, labels).option == "a"


def test_scores_without_some_videos_are_those_of_the_metrics():
    """Average precision, F1, accuracy and Jaccard of `hmmjax.metrics`, of scikit-learn's convention, with ties."""
    rng = np.random.default_rng(3)
    labels = [rng.integers(-1, 2, (30 + v, 2)) for v in range(7)]
    scores = [np.round(rng.uniform(size=x.shape), 1) for x in labels]
    precision, f1 = left_out.tool_scores(scores, labels)
    groups = [[], *np.array_split(np.arange(7), 5)]
    assert precision.shape == f1.shape == (6, 2)
    for i, group in enumerate(groups):
        rest = [v for v in range(7) if v not in group]
        known, given = [labels[v] for v in rest], [scores[v] for v in rest]
        assert_allclose(precision[i], metrics.average_precision(known, given).per_class)
        assert_allclose(f1[i], metrics.tool_f1(known, given).per_class)
    truth = [rng.integers(-1, 3, 40) for _ in range(4)]
    before, after = ([rng.integers(0, 4, 40) for _ in range(4)] for _ in range(2))
    names = [str(q) for q in range(4)]
    gains = left_out.phase_gains(*(left_out.phase_scores(x, truth, 4) for x in (before, after)))
    for gain, metric in zip(gains, (metrics.accuracy, metrics.jaccard), strict=True):
        values = []
        for keep in (range(4), *([v for v in range(4) if v != left] for left in range(4))):
            old, new = (metric([truth[v] for v in keep], [x[v] for v in keep], names=names) for x in (before, after))
            values.append(new.value - old.value)
        assert_allclose(gain.value, values[0])
        assert_allclose(gain.least, min(values[1:]))
        assert_allclose(gain.error, np.sqrt(3 / 4 * np.sum((values[1:] - np.mean(values[1:])) ** 2)))


def test_restarts_keep_rows_probabilities():
    chain = PhaseChain(np.array([1.0, 0.0]), np.array([[1.0, 0.0], [0.0, 1.0]]))
    new = with_restarts(chain, 0.01)
    assert_allclose(new.transition, [[0.995, 0.005], [0.005, 0.995]], rtol=1e-6)
    assert_allclose(new.initial, [0.95, 0.05], rtol=1e-6)


def test_no_model_sees_the_videos_that_it_is_chosen_or_used_for():
    """Each part's choice uses models without the part and without the videos that they predict."""
    learned, examples = (
        [],
        Examples(
            Observations(np.tile(TRUTH, (8, 1)).astype(np.int32)),
            Labels(np.tile(TRUTH, (8, 1))),
            np.ones((8, 60), bool),
        ),
    )

    def learn(positions, held_out):
        learned.append((tuple(positions), tuple(held_out)))
        chain = np.array([[0.9, 0.1, 0], [0, 0.9, 0.1], [0, 0, 1.0]], np.float32)
        confusion = emissions.PhaseConfusion(np.full((3, 3), 0.1, np.float32) + 0.7 * np.eye(3, dtype=np.float32))
        params = Params(PhaseChain(np.array([1.0, 0, 0], np.float32), chain, confusion))
        return params, (examples.labels, examples.mask)

    parts = np.array_split(np.arange(8), 4)
    search = Search(examples, examples.obs, 3, learn, parts, False, STRENGTHS["many"], "log-loss", 0.5)
    chosen, final = search.run(lambda done, count: None)
    assert len(chosen) == 4 and len(learned) == 1 + 4 + 6
    assert all(not set(positions) & set(held_out) for positions, held_out in learned)
    assert {held_out for _, held_out in learned} >= {(), (0, 1), (2, 3), (0, 1, 2, 3)}
    # Outputs are the truth, which no model improves.
    assert all(not isinstance(x.offline, Ensemble) for x in chosen)
    assert [x.videos for x in (*chosen, final)] == [{"phases": 6}] * 4 + [{"phases": 8}]
    lines, unchanged = describe(chosen, final, search.scores), "so its predictions are left unchanged"
    assert lines and all(line.endswith(unchanged) for line in lines)


def test_strengths_are_those_that_the_benchmark_chose():
    """`benchmarks/few_videos.py`, on two networks; "unchanged" leaves the recognizer as it is."""
    path = Path(__file__).parent.parent / "benchmarks" / "results" / "few_videos.json"
    choices = json.loads(path.read_text())["choices"]
    for where, strength in STRENGTHS.items():
        for mode in ("offline", "online"):
            power, found = getattr(strength, mode), choices[f"{where}, {mode}"]["all"]["frames, power"]
            assert found == ("unchanged" if power is None else f"{strength.frames:g}, {power:g}"), (where, mode)


def test_shrunk_tables_are_counts_and_pseudo_frames():
    labels, outputs = np.array([[0, 0, 0, 1, -1]]), np.array([[0, 1, 1, 1, 0]], np.int32)
    examples = Examples(Observations(outputs), Labels(labels), np.ones((1, 5), bool))
    chain = PhaseChain(np.full(2, 0.5, np.float32), np.full((2, 2), 0.5, np.float32))
    offline, online = (x.phases.emission for x in shrunk(chain, examples, Strength(10.0, 0.1, 0.3)))
    expected = [[(1 + 9) / 13, (2 + 1) / 13], [1 / 11, (1 + 9) / 11]]
    for emission, power in ((offline, 0.1), (online, 0.3)):
        assert_allclose(emission.unwrapped.matrix, expected, rtol=1e-5)
        assert_allclose(emission.power, power, rtol=1e-6)


@pytest.mark.parametrize(
    ("annotated", "reason"),
    [
        (1, "3 are needed, and there is 1)"),
        (2, "3 are needed, and with a fold held out 1 of 2 is left)"),
        (3, "3 are needed, and with a fold held out 2 of 3 are left, so that no other video gets a choice either)"),
    ],
)
def test_with_too_few_videos_a_prior_from_other_recognizers_decides(annotated, reason):
    """Offline the shrunk model, online the recognizer itself; the notice says so."""
    rng, count = np.random.default_rng(0), 3
    truth = np.tile(TRUTH, (count, 1))
    outputs = np.where(rng.uniform(size=truth.shape) < 0.15, rng.integers(0, 3, truth.shape), truth).astype(np.int32)
    labels = np.where(np.arange(count)[:, None] < annotated, truth, -1)
    mask = np.ones(truth.shape, bool)
    ids, rows = tuple(f"video{i}" for i in range(count)), tuple(np.arange(60) for _ in range(count))
    prepared = Prepared(
        {"phases": None, "tools": None}, {"phases": 3, "tools": 0}, [], [Observations(outputs)],
        Examples(Observations(outputs), Labels(labels), mask), None, None,
        BatchIndex(ids, rows, rows, 60, 1.0, 1.0), (),
    )  # fmt: skip
    plan, protocol, learned = plan_folds(prepared, Settings(folds=None), lambda *_: None)
    assert protocol.startswith(
        "IN SAMPLE" if annotated == 1 else f"{annotated} annotated videos, held out one at a time"
    )
    assert sorted(p for part in plan for p in part.positions) == [0, 1, 2]
    online = learned.method.split("; phases, online: ")[1]
    assert "predictions are left unchanged" in online and online.endswith(reason)
    assert learned.method.count(reason) == 2
    for part in plan:
        assert isinstance(part.model, Params) and float(part.model.phases.emission.power) == 1.0
        assert_allclose(part.online.phases.emission.matrix.diagonal(), 1, atol=1e-5)


def test_gains_are_said_in_words_and_folds_without_a_choice_too():
    """A gain of accuracy from .7 to .9, with a standard error of .05; a fold of two videos."""
    weights, share, losses = np.array([0.75]), np.asarray(0.25), {"counted": np.log(2), "recognizer": np.log(4)}
    compared = Comparison("accuracy", 0.7, 0.9, 0.05)
    choice = selection.Choice("counted", weights, share, losses, np.log(2), np.log(2), compared)
    few = selection.Choice("recognizer", np.zeros(1), np.asarray(1.0), {}, 0.0, np.nan)
    key = ("phases", "offline")
    chosen, none = Chosen(None, None, {key: choice}, {"phases": 4}), Chosen(None, None, {key: few}, {"phases": 2})
    (text,) = describe([chosen, none], chosen, Observations(np.zeros((1, 1), np.int32)))
    assert text == (
        "phases, offline: a model of the recognizer's errors as counted, mixed with 25% of the recognizer's own "
        "prediction (on annotated videos held out, 90.0% of the frames are right, 70.0% in the recognizer's "
        "prediction: a gain of 20.0 ± 5.0 percentage points, one standard error over videos) (with fold 2 held out, 2 "
        "annotated videos are left to choose by, 3 are needed, and the videos held out get another model: the "
        "recognizer's predictions are left unchanged, which worked best in our tests on TMRNet and MS-TCN)"
    )


@pytest.mark.parametrize(
    ("options", "shares", "names", "said"),
    [
        ("ssm", (0.5, 0.5, 0.5), "abc", "SCORES for a, b, and MEAN for c, mixed with 50% of OWN ("),
        ("sss", (0.25, 0.5, 0.5), "abc", "SCORES for all 3 tools, mixed with 25% to 50% of OWN ("),
        ("srr", (0.0, 1.0, 1.0), "abc", "SCORES for a; b, c stay as predicted ("),
        ("ssr", (0.0, 0.0, 1.0), None, "SCORES for 2 tools; 1 tool stays as predicted ("),
    ],
)  # fmt: skip
def test_notices_say_which_tools_get_which_model(options, shares, names, said):
    names_of = {"s": "scores", "m": "mean", "r": "recognizer"}
    compared, losses = Comparison("average precision", 0.75, 0.8, np.nan), {"scores": 0.1, "recognizer": 0.3}
    option, share = tuple(names_of[x] for x in options), np.array(shares)
    choice = selection.Choice(option, np.zeros((2, 3)), share, losses, 0.2, 0.1, compared)
    chosen = Chosen(None, None, {("tools", "online"): choice}, {"tools": 4})
    (text,) = describe([], chosen, Observations(tools=np.zeros((1, 1, 3), np.float32)), names)
    said = said.replace("SCORES", "a model of the recognizer's scores").replace("MEAN", "the average of 2 models")
    said = said.replace("OWN", "the recognizer's own scores")
    assert text.startswith(f"tools, online: {said}")
    assert text.endswith(
        "(on annotated videos held out, the mean average precision is 80.0%, that of the recognizer 75.0%: a gain of "
        "5.0 points)"
    )


def test_choices_are_compared_with_the_recognizer_in_metrics_that_users_know():
    """Accuracy of phases, average precision of scores of tools, and decisions on labels of tools, by `metrics`."""
    labels, outputs, better = [TRUTH] * 6, noisy_outputs(), predictions(0, 0.9)
    found = selection.choose_phases({"a": better}, outputs, labels)
    hits = [(x.argmax(-1) == TRUTH).mean() for x in outputs]
    assert float(found.share) == 0
    expected = (np.mean(hits), 1.0, np.std(hits, ddof=1) / np.sqrt(6))
    assert found.comparison is not None and found.comparison.metric == "accuracy"
    assert_allclose(found.comparison[1:], expected)
    labels, weak, model = tool_videos()
    found = selection.choose_tools({"model": model}, weak, labels)
    mixed = [x * found.share + m * found.weights[0] for x, m in zip(weak, model, strict=True)]
    own, chosen = (metrics.average_precision(labels, x).value for x in (weak, mixed))
    assert found.comparison is not None and found.comparison.metric == "average precision"
    assert_allclose(found.comparison[1:3], (own, chosen))
    assert 0 < found.comparison.error < chosen - own
    hard = [(x >= 0.5).astype(float) for x in weak]
    for outputs, options in ((hard, {}), (weak, {"metric": "accuracy"})):
        found = selection.choose_tools({"model": model}, outputs, labels, **options)
        mixed = [x * found.share + m * found.weights[0] for x, m in zip(outputs, model, strict=True)]
        rates = [[np.mean((x >= 0.5) == y) for x, y in zip(p, labels, strict=True)] for p in (outputs, mixed)]
        gains = np.subtract(rates[1], rates[0])
        assert found.comparison is not None and found.comparison.metric == "accuracy"
        assert_allclose(found.comparison[1:], (*np.mean(rates, 1), gains.std(ddof=1) / 2), rtol=1e-6)


def test_folds_that_change_what_all_videos_leave_unchanged_are_named():
    losses, key = {"counted": 0.2, "recognizer": 0.3}, ("phases", "offline")
    own = selection.Choice("recognizer", np.zeros(1), np.asarray(1.0), losses, 0.0, np.nan)
    better = Comparison("accuracy", 0.7, 0.8, np.nan)
    taken = selection.Choice("counted", np.ones(1), np.asarray(0.0), losses, 0.1, np.nan, better)
    unchanged, changed = (Chosen(None, None, {key: choice}, {"phases": 4}) for choice in (own, taken))
    scores = Observations(np.zeros((1, 1), np.int32))
    (text,) = describe([unchanged, changed], unchanged, scores)
    assert text.endswith(" (but with fold 2 held out, a model was better, and changes the videos of that fold)")
    (text,) = describe([unchanged, changed, unchanged], changed, scores)
    assert text.endswith(" (but with folds 1, 3 held out, nothing is changed)")


def test_notices_name_why_nothing_was_chosen():
    examples = Examples(
        Observations(np.zeros((2, 4), np.int32)), Labels(np.array([[0, 1, 1, -1]] * 2)), np.ones((2, 4), bool)
    )
    rows = (np.arange(4), np.arange(4))
    index = BatchIndex(("a", "b"), rows, rows, 4, 1.0, 1.0)
    prepared = Prepared({}, {"phases": 2, "tools": 0}, [], [examples.obs], examples, None, None, index, ())
    known, none = np.arange(2), np.arange(0)
    assert why_not_chosen(prepared, Settings(emissions="confusion"), none) == ""
    assert "no annotations" in why_not_chosen(prepared, Settings(), none)
    assert "durations" in why_not_chosen(prepared, Settings(stages=True), known)
    assert "how to learn" in why_not_chosen(prepared, Settings(learn="count"), known)
    assert "no video is labeled throughout" in why_not_chosen(prepared, Settings(), known)
    assert "EM was asked for" in why_not_chosen(prepared, Settings(max_iterations=3), known)
    assert "fused" in why_not_chosen(dataclasses.replace(prepared, outputs=[examples.obs] * 2), Settings(), known)
