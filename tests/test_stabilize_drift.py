"""Warnings of `stabilize` that need no annotations."""

import numpy as np

from hmmjax.stabilize.drift import drifted_states, vanished_phases
from hmmjax.stabilize.systems import System

NAMES = ("first", "short", "last")


def vanished(raw, kept, step_seconds=1.0, names=NAMES):
    systems = System("M", [np.array(raw)]), System("M_H", [np.eye(3)[kept]])
    return vanished_phases(*systems, names, ["video07"], step_seconds)


def test_a_phase_that_vanishes_is_named_with_its_length_and_what_replaces_it():
    raw, kept = [0] * 20 + [1] * 12 + [0] + [1] * 2 + [2] * 20, [0] * 30 + [2] * 25
    (warning,) = vanished(raw, kept)
    assert "short in video07 (14 s, at most 12 s in a row; now first)" in warning
    (warning,) = vanished(raw, kept, names=None)
    assert "1 in video07 (14 s, at most 12 s in a row; now 0)" in warning


def test_short_runs_and_phases_that_are_kept_need_no_warning():
    raw = [0] * 20 + [1] * 12 + [2] * 20
    assert vanished(raw, raw) == []
    assert vanished(raw, [0] * 20 + [1] + [2] * 31) == []
    assert vanished(raw, [0] * 26 + [2] * 26, step_seconds=0.5) == []


def test_a_recognizer_of_other_classes_has_no_phases_to_lose():
    assert vanished([0] * 20 + [3] * 12 + [2] * 20, [0] * 26 + [2] * 26) == []


def test_states_that_are_other_classes_are_named():
    raw = np.repeat([0, 1, 2], 40)
    swapped, same = (System("M_H", [np.eye(3)[states][raw]]) for states in ([1, 0, 2], [0, 1, 2]))
    (warning,) = drifted_states(System("M", [raw]), swapped, NAMES)
    assert "first" in warning and "mostly taken for short" in warning and "last in" not in warning
    assert drifted_states(System("M", [raw]), same, NAMES) == []
    assert drifted_states(System("M", [raw + 1]), swapped, NAMES) == []  # a class that the model lacks


def test_unsure_predictions_that_are_kept_have_not_drifted():
    raw = np.repeat([0, 1, 2], 40)
    unsure = np.where(np.eye(3)[raw] > 0, 0.4, 0.3)
    assert drifted_states(System("M", [unsure]), System("M_H", [unsure]), NAMES) == []


def test_who_has_annotated_all_videos_is_not_told_to_annotate_some():
    raw = np.repeat([0, 1, 2], 40)
    systems = System("M", [raw, raw]), System("M_H", [np.eye(3)[[1, 0, 2]][raw]] * 2)
    for truth, advised in ((None, True), ([raw, np.full_like(raw, -1)], True), ([raw, raw], False)):
        (warning,) = drifted_states(*systems, NAMES, truth)
        assert ("annotate" in warning) is advised
