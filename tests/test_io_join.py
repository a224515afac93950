"""Join phases and tools on frame numbers; report every row that is dropped."""

import numpy as np
import pytest
from files import phases, put, tools, track

from hmmjax import io

P = io.CHOLEC80_PHASES


def test_every_frame_of_phases_and_each_25th_of_tools():
    """43,326 phase rows and 1,733 tool rows of Cholec80 give 1,733 joint frames; the dropped end is reported."""
    (video,) = io.join([phases(np.arange(43_326)), tools(np.arange(1_733) * 25)])
    assert len(video.frames) == 1_733
    np.testing.assert_array_equal(video.frames, np.arange(1_733) * 25)
    np.testing.assert_array_equal(video.phases.values, np.arange(1_733) % 7)
    np.testing.assert_array_equal(video.tools.values[:, 0], np.arange(1_733) % 2)
    assert video.notices == ("video01: dropped 25 phases row(s) without tools (frames 43301 to 43325)",)


def test_one_row_more_in_one_file_is_matched_by_frame():
    (video,) = io.join([phases(np.arange(10) * 25), tools(np.arange(1, 10) * 25)])
    np.testing.assert_array_equal(video.phases.values, np.arange(1, 10) % 7)
    assert video.notices == ("video01: dropped 1 phases row(s) without tools (frame 0)",)


def test_different_counters_meet_in_time():
    (video,) = io.join([phases(np.arange(0, 100, 25)), tools(np.arange(4), fps=1.0)])
    np.testing.assert_array_equal(video.frames, [0, 25, 50, 75])
    np.testing.assert_array_equal(video.tools.frames, [0, 25, 50, 75])


def test_rows_between_two_counters_meet_the_nearest():
    phase_track = track("phases", np.arange(61) % 2, frames=np.arange(61), fps=60.0)
    tool_track = track("tools", [[0]] * 3, frames=[0, 24, 25], fps=50.0)
    (video,) = io.join([phase_track, tool_track])
    assert video.frames.tolist() == [0, 29, 30]  # frame 24 of 50 per second is 28.8 of 60
    assert video.phases.values.tolist() == [0, 1, 0]


def test_no_common_frame():
    with pytest.raises(io.FormatError, match=r"no frame in common.*fps, step, offset"):
        io.join([phases(np.arange(0, 100, 25)), tools(np.arange(0, 100, 25) + 24)])


def test_only_some_videos_have_both():
    with pytest.raises(io.FormatError, match="video02 has no tools, unlike video01"):
        io.join([phases([0]), tools([0]), phases([0], video="video02")])


def test_indices_never_meet_names_without_a_declared_order(tmp_path):
    (plain,) = io.read(put(tmp_path, "video1.txt", "0\t4\n"))
    (named,) = io.read(put(tmp_path, "b/video1.txt", f"Frame\tPhase\n0\t{P[4]}\n"))
    with pytest.raises(io.FormatError, match=r"stored as indices.*phase_names="):
        io.align_classes([plain, named])
    tracks, names = io.align_classes([plain, plain])
    assert names is None and tracks[0] is plain


def test_sample_thins_annotations_and_refuses_coarser_ones():
    (video,) = io.join([phases(np.arange(101))])
    np.testing.assert_array_equal(io.sample(video, 1.0).frames, [0, 25, 50, 75, 100])
    np.testing.assert_array_equal(io.sample(video, 0.2).frames, np.arange(0, 101, 5))
    with pytest.raises(io.FormatError, match=r"one row per 1 s, but the model needs one per 0.2 s"):
        io.sample(io.sample(video, 1.0), 0.2)
    with pytest.raises(io.FormatError, match=r"one row per 0.04 s, but the model needs one per 0.03 s"):
        io.sample(video, 0.03)
