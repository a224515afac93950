"""Pad videos to a batch and split them again."""

import numpy as np
import pytest
from files import phases, track

from hmmjax import io


def test_batch_pads_and_splits_back():
    tracks = [phases(np.arange(n) * 25, video=f"video{n:02d}") for n in (3, 5)]
    obs, labels, mask, index = io.to_batch(io.join(tracks), [tracks[1]])
    np.testing.assert_array_equal(mask, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    assert obs.phases.dtype == np.int32 and obs.tools is None and labels.tools is None
    np.testing.assert_array_equal(labels.phases, [[-1] * 5, [0, 1, 2, 3, 4]])
    assert (index.ids, index.step, index.step_seconds) == (("video03", "video05"), 25, 1.0)
    for back, one in zip(index.split(obs.phases), tracks, strict=True):
        np.testing.assert_array_equal(back, one.values)
    with pytest.raises(ValueError, match="array of the same batch"):
        index.split(np.zeros((2, 4)))


def test_time_passes_between_timestamps_that_are_apart():
    obs, _, mask, index = io.to_batch(io.join([phases([0, 25, 50, 400])]))
    assert obs.phases.shape == (1, 17) and index.length == 17
    np.testing.assert_array_equal(np.flatnonzero(mask[0]), [0, 1, 2, 16])
    np.testing.assert_array_equal(index.split(obs.phases)[0], [0, 1, 2, 400 // 25 % 7])
    assert "video01 (13)" in index.notices[-1]


def test_a_declared_step_inserts_frames_between_all_rows():
    _, _, mask, index = io.to_batch(io.join([phases([0, 50, 100])]), step=25)
    np.testing.assert_array_equal(mask, [[1, 0, 1, 0, 1]])
    assert index.step_seconds == 1.0


def test_a_video_may_start_late_and_have_one_frame():
    _, _, mask, index = io.to_batch(io.join([phases([4000])]))
    assert mask.tolist() == [[True]] and index.frames[0].tolist() == [4000]


@pytest.mark.parametrize(
    ("tracks", "cause"),
    [
        (
            [phases([0, 25, 50, 60, 75])],
            "1 of 5 rows would be left out, because .* time step of 25",
        ),
        (
            [phases([0, 25, 50]), phases([0, 5, 10], video="video02")],
            "video01 has one row per 25 frames, video02 one per 5",
        ),
        ([phases([0, 25]), phases([0, 1], video="video02", fps=1.0)], "video02 is counted at 1 frames per second"),
        (
            [phases([0, 25]), track("phases", np.full((2, 7), 1 / 7), video="video02")],
            r"video02 has probabilities \(2, 7\), video01 has labels",
        ),
        ([], "no videos"),
    ],
)
def test_videos_that_do_not_go_together(tracks, cause):
    with pytest.raises(io.FormatError, match=cause):
        io.to_batch(io.join(tracks))


def test_classes_of_a_batch_meet_by_name():
    """Predictions, a second video and annotations have their classes in different orders."""
    predicted = track("tools", [[0.9, 0.2], [0.8, 0.1]], ("Hook", "Grasper"))
    other = track("tools", [[0.3, 0.7]], ("Grasper", "Hook"), video="video02")
    known = track("tools", [[0, 1], [1, 0]], ("Grasper", "Hook"))
    obs, labels, _, _ = io.to_batch(io.join([predicted, other]), [known])
    np.testing.assert_allclose(obs.tools[:, 0], [[0.9, 0.2], [0.7, 0.3]], rtol=1e-6)
    np.testing.assert_array_equal(labels.tools[0], [[1, 0], [0, 1]])
    known = track("phases", [0, 1], ("B", "A"))
    _, labels, _, _ = io.to_batch(io.join([known]), [track("phases", [0, 1], ("A", "B"))])
    np.testing.assert_array_equal(labels.phases[0], [1, 0])


@pytest.mark.parametrize(
    ("known", "cause"),
    [
        (track("tools", [[1, 0, 1]]), "3 tools are annotated, but 2 are predicted"),
        (track("tools", [[1]]), "1 tools are annotated, but 2 are predicted"),
        (track("tools", [[1, 0]], ("Hook", "Clipper")), "Clipper"),
    ],
)
def test_annotations_of_other_classes_are_refused(known, cause):
    with pytest.raises(io.FormatError, match=cause):
        io.to_batch(io.join([track("tools", [[0.9, 0.2]], ("Hook", "Grasper"))]), [known])
    predicted = track("phases", [[0.2, 0.8]])
    with pytest.raises(io.FormatError, match="3 phases are annotated, but 2 are predicted"):
        io.to_batch(io.join([predicted]), [track("phases", [2], ("A", "B", "C"))])
    with pytest.raises(io.FormatError, match="step is 0"):
        io.to_batch(io.join([predicted]), step=0)


def test_frame_numbers_beyond_reason(tmp_path):
    path = tmp_path / "video01-phase.txt"
    path.write_text("0\t0\n99999999999999999999999\t1\n")
    with pytest.raises(io.FormatError, match=r"99999999999999999999999.*"):
        io.read([path])
    path.write_text("0\t0\n25\t0\n25000000000000\t1\n")
    with pytest.raises(io.FormatError, match="video01"):
        io.to_batch(io.join(io.read([path])))
