"""Rows off the regular grid: fractional rates, restarts and jitter; nothing is dropped in silence."""

from fractions import Fraction

import numpy as np
import pytest
from files import phases, track

from hmmjax import explore, io
from hmmjax.io.grid import place, row_step
from hmmjax.io.tracks import Video

NTSC = Fraction(30000, 1001)
RATES = [29.97, float(NTSC), 23.976, 59.94, 25.0, 30.0]


def numbers(seconds, fps):
    """The frame numbers shown at some times."""
    return np.rint(np.asarray(seconds) * fps).astype(int)


@pytest.mark.parametrize("fps", RATES)
@pytest.mark.parametrize("per_second", [1, 2, 5])
def test_every_row_of_any_rate_is_used(fps, per_second):
    times = np.arange(3600 * per_second) / per_second
    frames = numbers(times, fps)
    step = row_step(frames, fps)
    assert step == pytest.approx(fps / per_second, rel=1e-3)
    found = place(frames, step)
    assert found.keep.all() and found.moved == 0
    np.testing.assert_array_equal(found.rows, np.arange(len(frames)))


def test_gaps_are_steps_without_rows():
    steps = np.r_[0:100, 400:520, 521:900]
    frames = numbers(steps, 29.97)
    np.testing.assert_array_equal(place(frames, row_step(frames, 29.97)).rows, steps)


@pytest.mark.parametrize("pause", [10.0, 10.3, 10.5, 10.9])
def test_a_restarted_recording_keeps_all_rows(pause):
    times = np.r_[0:60, 60 + pause : 120 + pause]
    frames = numbers(times, 25)
    found = place(frames, row_step(frames, 25.0))
    assert found.keep.all() and (np.diff(found.rows) >= 1).all()
    assert np.abs(found.rows - times).max() <= 0.52


def test_jitter_keeps_all_rows():
    rng = np.random.default_rng(5)
    times = np.arange(500) + rng.uniform(-0.35, 0.35, 500)
    frames = numbers(times + 0.35, 25)
    found = place(frames, row_step(frames, 25.0))
    assert found.keep.all() and found.moved > 300
    np.testing.assert_array_equal(np.diff(found.rows), 1)


def test_the_nearest_of_two_rows_is_kept():
    found = place(np.array([0, 25, 48, 53, 75]), 25)
    np.testing.assert_array_equal(found.keep, [True, True, True, False, True])
    np.testing.assert_array_equal(found.rows, [0, 1, 2, 3])


def test_explore_counts_every_annotated_row():
    """3,600 rows of 29.97 frames per second; dropped ones would hide two of four phases."""
    states = np.repeat(np.arange(4), 300)
    tracks = [
        track("phases", states, frames=numbers(np.arange(1200), 29.97), fps=29.97, video=f"video0{v}") for v in (1, 2)
    ]
    found = explore.explore(tracks)
    assert found.step_seconds == pytest.approx(1)
    np.testing.assert_array_equal(found.phase_frames, [[300] * 4] * 2)
    assert found.phase_moves[0, 1] == 2 and found.phase_moves[0, 0] == 598
    assert found.notices == (
        "2,400 of 2,400 rows used, one per 1 s (29.97 frames): 0 moved by more than a frame to the nearest step (up to "
        "0.017 s), 0 left out",
    )


def test_transitions_are_counted_at_another_rate():
    video = Video("video01", numbers(np.arange(1200), 29.97), 29.97, None, None)
    states = track("phases", np.repeat(np.arange(4), 300), frames=video.frames, fps=29.97)
    (joined,) = io.join([states])
    thinned = io.sample(joined, 1.0)
    assert thinned.frames.size == 1200 and "0 left out" in thinned.notices[-1]
    tenth = io.sample(joined, 10.0)
    assert tenth.frames.size == 120 and "120 of 1,200 rows used, one per 10 s" in tenth.notices[-1]


def test_too_many_rows_on_one_step_are_refused():
    doubled = track("phases", np.zeros(50, int), frames=np.sort(np.r_[0:625:25, 3:625:25]))
    (video,) = io.join([doubled])
    with pytest.raises(io.FormatError, match=r"25 of 50 rows would be left out.*time step of 25 frames.*step="):
        io.to_batch([video], step=25)


def test_labels_meet_predictions_in_time():
    """Annotations at 25, predictions at 29.97 frames per second, both one row per second."""
    predicted = numbers(np.arange(600), 29.97)
    annotated = track("phases", np.arange(600) % 7, frames=25 * np.arange(600))
    labels, notices = io.label_rows(annotated, predicted, 29.97)
    np.testing.assert_array_equal(labels, np.arange(600) % 7)
    assert notices == []


def test_dense_labels_are_not_stretched_beyond_their_ends():
    labels, _ = io.label_rows(phases(np.arange(13301, 13400)), np.arange(13275, 13500, 25), 25.0)
    assert (labels >= 0).tolist() == [False, False, True, True, True, False, False, False, False]


def test_labels_a_frame_off_all_predictions_are_refused():
    shifted = phases(13301 + 25 * np.arange(700))
    with pytest.raises(io.FormatError, match=r"700 of 700 .* lie off.*\+0\.04 s.*annotations_shift=-1"):
        io.label_rows(shifted, np.arange(0, 31000, 25), 25.0)
    some = phases([0, 26, 50, 75, 100])
    labels, notices = io.label_rows(some, np.arange(0, 125, 25), 25.0)
    assert (labels >= 0).all() and notices == [
        "video01: 1 of 5 annotated phases were moved to the nearest predicted frame (up to 0.04 s)"
    ]
