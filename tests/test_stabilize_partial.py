"""Annotations that stop early, or miss phases: what is learned from them, said of them, and counted in them."""

import json

import numpy as np
import pytest
from commands import NAMES, run

from hmmjax import Labels, Observations, io
from hmmjax.stabilize import learn_model
from hmmjax.stabilize.coverage import FEW_RUNS, describe_missing, is_partial, shows_classes
from hmmjax.stabilize.examples import Examples, bridge_gaps, label_coverage
from hmmjax.stabilize.systems import System
from hmmjax.stabilize.table import compare_systems
from hmmjax.stabilize.warnings import mismatched_names, worse_means


def examples(labels, outputs=None):
    labels = np.asarray(labels, np.int32)
    outputs = labels if outputs is None else outputs
    return Examples(Observations(np.asarray(outputs, np.int32)), Labels(labels), np.ones(labels.shape, bool))


@pytest.fixture(scope="module")
def recognized():
    """Three videos of four phases with one wrong output in ten: truth and outputs (3, 240)."""
    truth = np.tile(np.repeat(np.arange(4), 60), (3, 1))
    rng = np.random.default_rng(0)
    return truth, np.where(rng.random(truth.shape) < 0.1, rng.integers(0, 4, truth.shape), truth)


def test_phases_that_partial_labels_never_show_do_not_vanish(recognized):
    truth, outputs = recognized
    labels = np.where(np.arange(240) < 100, truth, -1)  # phases 2 and 3 are never shown
    learned = learn_model(examples(labels, outputs), num_phases=4, num_tools=0)
    assert "no video is annotated throughout" in learned.method and learned.fit is not None
    chain = learned.params.phases
    # From phase 1 there is a way to 2, and from there to 3, as likely as the predictions show.
    assert chain.transition[1, 2] > 1e-3 and chain.transition[2, 3] > 1e-3
    assert (np.argmax(np.asarray(chain.emission.matrix), -1) == np.arange(4)).all()


def test_few_labels_of_a_class_do_not_count_its_errors():
    sparse = np.full((1, 300), -1)
    sparse[0, ::10] = np.arange(30) % 3
    assert is_partial(examples(sparse), "phases") and shows_classes(examples(sparse), "phases", 3)
    assert not shows_classes(examples(sparse), "phases", 4)
    run = np.full((1, 300), -1)
    run[0, :200] = np.repeat([0, 1], 100)
    assert not shows_classes(examples(run), "phases", 2)  # two runs, however long
    assert not is_partial(examples(run[:, :200]), "phases")
    tools = np.full((1, 40, 2), -1)
    tools[0, ::2] = (np.arange(20) % 2)[:, None]
    both = Examples(Observations(), Labels(tools=tools), np.ones((1, 40), bool))
    assert FEW_RUNS <= 10 and shows_classes(both, "tools", 2)
    tools[..., 1] = np.where(tools[..., 1] < 0, -1, 0)  # the second tool is never present
    assert not shows_classes(both, "tools", 2)


def test_a_notice_says_where_labels_stop_and_how_many_phases_they_miss(recognized):
    truth = recognized[0]
    stopped = examples(np.where(np.arange(240) < 100, truth, -1))
    (notice,) = describe_missing(stopped, 4, 3.0)
    assert notice.startswith("your annotations stop at minute 5 and never show 2 of 4 phases: annotate whole videos")
    (notice,) = describe_missing(examples(np.where(np.arange(240) % 9 == 0, np.minimum(truth, 2), -1)), 4, 3.0)
    assert notice.startswith("your annotations never show 1 of 4 phases")
    assert describe_missing(examples(truth), 5, 3.0) == []  # labeled throughout
    assert describe_missing(examples(np.full_like(truth, -1)), 4, 3.0) == []  # no labels


def test_changes_that_sparse_labels_cannot_show_have_no_count_in_the_truth():
    truth, outputs = np.full(90, -1), np.arange(90) // 10 % 2
    truth[::30] = [0, 1, 0]
    table = {row.figure: row for row in compare_systems([System("M", [outputs])], [truth], None)}
    assert table["phase changes"].truth is None and table["phase changes"].metrics["M"].value == 8
    truth[1] = 1
    table = {row.figure: row for row in compare_systems([System("M", [outputs])], [truth], None)}
    assert table["phase changes"].truth == 1 and table["phase changes"].metrics["M"].value == 0


def test_a_class_that_the_truth_lacks_is_not_exchanged_for_another():
    truth = [np.repeat([0, 1, 3], 40)] * 2
    outputs = System("M", [np.where(t == 1, 2, t) for t in truth])
    assert mismatched_names(outputs, truth, "abcd", []) == [] == mismatched_names(outputs, truth, None, [])
    tracks = [io.Track("a", "phases", np.arange(3), np.zeros(3, int), None, 1.0, io.Layout("text", "labels"), "a")]
    (notice,) = mismatched_names(outputs, truth, None, tracks)
    assert notice.startswith("phases are numbers without names") and "(phase_names, --phase-names)" in notice
    truth = [np.repeat([0, 1, 2], 40)] * 2
    swapped = np.array([0, 2, 1])[truth[0]]
    (notice,) = mismatched_names(System("M", [swapped] * 2), truth, "abc", [])
    assert "with b and c exchanged" in notice
    assert mismatched_names(System("M", [swapped, truth[0]]), truth, "abc", []) == []  # one video of two


def test_few_frames_without_labels_do_not_make_a_video_partial():
    labels = np.repeat(np.arange(4), 100)[None]
    for at in ([399], [0], [50, 51], [99, 100, 101], [398, 399]):
        cut = labels.copy()
        cut[0, at] = -1
        assert not is_partial(examples(cut), "phases"), at
        cut[0, -10:] = -1
        assert is_partial(examples(cut), "phases"), at
    assert is_partial(examples([[0, 1, 1, -1]]), "phases")
    assert not is_partial(examples(np.r_[np.zeros(19, int), -1][None]), "phases")
    tools = np.zeros((1, 400, 2), int)
    tools[0, :3, 0] = tools[0, 397:, 1] = -1  # six frames, each tool lacks three
    both = Examples(Observations(), Labels(tools=tools), np.ones((1, 400), bool))
    assert not label_coverage(both, "tools")[1].any()


def test_gaps_take_the_closest_label_and_a_change_in_them_counts_once():
    labels = np.tile(np.repeat([0, 1], 150), (2, 1))
    labels[0, [0, 149, 150]] = -1
    labels[1, ::2] = -1  # partial: left as it is
    mask = np.ones(labels.shape, bool)
    filled = bridge_gaps(Labels(labels), mask).phases
    np.testing.assert_array_equal(filled[0], np.repeat([0, 1], 150))
    np.testing.assert_array_equal(filled[1], labels[1])
    tools = np.where(np.arange(300) < 299, 1, -1)[None, :, None]
    assert (bridge_gaps(Labels(tools=tools), mask[:1]).tools == 1).all() and tools.min() == -1


def test_a_model_learns_nearly_the_same_without_the_last_label(recognized):
    truth, outputs = recognized
    cut = truth.copy()
    cut[:, -1] = -1
    whole, less = (learn_model(examples(x, outputs), num_phases=4, num_tools=0) for x in (truth, cut))
    assert less.fit is None and less.method == whole.method
    np.testing.assert_allclose(less.params.phases.transition, whole.params.phases.transition, atol=1e-6)
    np.testing.assert_allclose(less.params.phases.initial, whole.params.phases.initial, atol=1e-6)
    np.testing.assert_allclose(less.params.phases.emission.matrix, whole.params.phases.emission.matrix, atol=0.01)


def test_a_line_that_was_cut_changes_no_choice_and_hides_no_metric(world, both, tmp_path):
    """One line less in every annotation file; the default command chooses as with all of them."""
    for i, path in enumerate(sorted((world / "truth").iterdir())):
        lines = path.read_text().splitlines(keepends=True)
        del lines[(-1, 1, 20)[i % 3]]
        (tmp_path / path.name).write_text("".join(lines))
    result = run(
        "stabilize", world / "said", "--annotations", tmp_path, *NAMES, "--no-pictures", "--out", tmp_path / "o"
    )
    assert "recognizer errors counted in labeled frames" in result.stderr and "EM" not in result.stderr
    for what in ("phases, offline: ", "phases, online: ", "tools, offline: ", "tools, online: "):
        assert what in result.stderr, what
    cut, whole = (
        {(r["figure"], r["system"]): r["value"] for r in json.loads((f / "table.json").read_text())["table"]}
        for f in (tmp_path / "o", both[0])
    )
    assert cut.keys() == whole.keys() and ("phase delay, median", "M_H") in cut
    for figure in ("phase accuracy, pooled", "tool F1, macro"):
        assert abs(cut[figure, "M_H"] - whole[figure, "M_H"]) < 0.03, figure


def test_a_named_family_that_is_worse_than_the_recognizer_is_warned_of():
    """By hand: M is right in 9 of 10 frames, M_H in all of them, and M_H online in 8."""
    truth = np.repeat([0, 1], 5)
    right, raw, online = (
        truth,
        np.where(np.arange(10) == 5, 0, truth),
        np.where(np.arange(10) // 2 == 2, 1 - truth, truth),
    )
    systems = [System(n, [x]) for n, x in (("M", raw), ("M_H", right), ("M_H online", online))]
    (text,) = worse_means(compare_systems(systems, [truth], None), "confusion")
    assert "with confusion emissions" in text and "phase accuracy, per video: M 0.9000, M_H online 0.8000" in text
    assert "M_H 1" not in text and 'emissions="auto"' in text
    assert worse_means(compare_systems(systems[:2], [truth], None), "confusion") == []
