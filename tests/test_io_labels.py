"""Match annotations with predictions by video and frame."""

import numpy as np
import pytest
from files import phases, track

from hmmjax import io


def test_labels_are_found_by_frame_and_gaps_are_unknown():
    values, notices = io.label_rows(phases(np.arange(25, 300)), np.array([0, 25, 50, 400]), 25.0)
    np.testing.assert_array_equal(values, [-1, 1, 2, -1])
    assert notices == ["video01: 2 predicted frame(s) have no annotation of phases (frames 0 to 400)"]


def test_annotated_tail_is_reported():
    values, notices = io.label_rows(phases(np.arange(0, 200, 25)), np.array([0, 25, 50]), 25.0)
    np.testing.assert_array_equal(values, [0, 1, 2])
    assert notices == ["video01: ignored 5 row(s) of annotated phases after the last prediction, frame 50"]


def test_annotations_on_another_counter():
    values, _ = io.label_rows(phases(np.arange(0, 200, 25)), np.array([0, 2]), 1.0)
    np.testing.assert_array_equal(values, [0, 2])


def test_annotations_of_other_videos():
    videos = io.join([phases([0, 25], video="tool11")])
    with pytest.raises(io.FormatError, match=r"predictions belong to tool11, the annotations to video61.*rename"):
        io.to_batch(videos, [phases([0, 25], video="video61")])
    *_, index = io.to_batch(videos, [phases([0, 25], video="tool11"), phases([0], video="video61")])
    assert any("1 annotated video(s) have no predictions" in n and "video61" in n for n in index.notices)


def test_annotations_of_one_video_add_up_or_contradict():
    predicted = track("tools", [[0.9, 0.2], [0.8, 0.1], [0.5, 0.5]])
    known = track("tools", [[1, 0], [1, -1]])
    answer = track("tools", [[-1, 1]], frames=[25])
    for order in ([known, answer], [answer, known]):
        labels = io.to_batch(io.join([predicted]), order)[1]
        np.testing.assert_array_equal(labels.tools[0], [[1, 0], [1, 1], [-1, -1]])
    with pytest.raises(io.FormatError, match="in frame 25 differ from"):
        io.to_batch(io.join([predicted]), [known, track("tools", [[0, -1]], frames=[25])])
