"""Warnings of `stabilize` that need no annotations."""

import numpy as np

from hmmjax.stabilize.drift import vanished_phases
from hmmjax.stabilize.table import System

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
