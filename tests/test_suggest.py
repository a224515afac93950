"""`hmmjax.suggest.rank`: the frames whose labels help most."""

import dataclasses

import numpy as np
import pytest
from questions import TOOLS, flat, track

from hmmjax import suggest
from hmmjax.io import CHOLEC80_PHASES, FormatError


def picked(suggestions, reason, name):
    return [(s.video, s.frame // 25) for s in suggestions if (s.reason, s.name) == (reason, name)]


def test_disagreements_are_the_largest_ones():
    raw, stabilized = flat(100, 0.1, 0.1), flat(100, 0.1, 0.1)
    raw[[20, 50, 80], 0] = 0.95, 0.6, 0.8
    raw[30, 1] = 0.45  # a large step that changes no decision is no disagreement
    found = suggest.rank([track(raw)], [track(stabilized)], reasons=["disagreement"])
    assert picked(found, "disagreement", "Grasper") == [("video01", 20), ("video01", 80), ("video01", 50)]
    assert picked(found, "disagreement", "Hook") == []
    assert found[0].raw == 0.95 and found[0].stabilized == pytest.approx(0.1) and found[0].second == 20


def test_uncertain_frames_are_those_near_one_half():
    stabilized = flat(100, 0.01, 0.99)
    stabilized[[10, 40], 1] = 0.52, 0.7
    found = suggest.rank([track(stabilized)], [track(stabilized)], reasons=["uncertain"], count=2)
    assert picked(found, "uncertain", "Hook") == [("video01", 10), ("video01", 40)]
    assert found[-1].score < np.log(2) + 1e-9


def test_neighbors_in_time_are_asked_once():
    stabilized = flat(100, 0.0, 0.0)
    stabilized[40:60, 0] = 0.9 + 0.001 * np.arange(20)
    found = suggest.rank([track(stabilized)], [track(stabilized)], reasons=["positive"], apart=8.0, count=10)
    seconds = sorted(second for _, second in picked(found, "positive", "Grasper"))
    assert seconds == [43, 51, 59]
    two = [track(stabilized), track(stabilized, "video02")]
    assert len(picked(suggest.rank(two, two, reasons=["positive"], apart=8.0), "positive", "Grasper")) == 6


def test_a_frame_is_not_asked_twice_for_two_reasons():
    raw, stabilized = flat(60, 0.1, 0.1), flat(60, 0.1, 0.1)
    raw[30, 0], stabilized[30, 0] = 0.2, 0.55
    found = suggest.rank([track(raw)], [track(stabilized)], count=1, apart=5.0)
    assert [s.reason for s in found if s.name == "Grasper" and s.frame == 750] == ["positive"]


def test_rare_positives_get_more_of_the_questions():
    stabilized = flat(4000, 0.9, 0.9)
    known = np.full((4000, 2), -1)
    known[:400, 0], known[:2, 1] = 1, 1
    found = suggest.rank([track(stabilized)], [track(stabilized)], [track(known)], reasons=["positive"], count=20)
    grasper, hook = (len(picked(found, "positive", name)) for name in TOOLS)
    assert grasper + hook == 40 and hook > 3 * grasper > 0


def test_what_is_known_is_not_asked():
    stabilized = flat(50, 0.9, 0.9)
    known = np.full((50, 2), -1)
    known[:, 0] = 0
    found = suggest.rank([track(stabilized)], [track(stabilized)], [track(known)], apart=1.0)
    assert {s.name for s in found} == {"Hook"}


def test_known_labels_and_predictions_match_by_name():
    stabilized = flat(50, 0.9, 0.1)
    known = np.full((50, 2), -1)
    known[:, 1] = 1  # Grasper, in the file's own order
    found = suggest.rank(
        [track(stabilized)], [track(stabilized)], [track(known, names=("Hook", "Grasper"))], reasons=["positive"]
    )
    assert found == []


def test_phases_are_asked_where_raw_and_stabilized_differ():
    raw = np.tile(np.eye(7)[2] * 0.94 + 0.01 * (1 - np.eye(7)[2]), (40, 1))
    stabilized = raw.copy()
    stabilized[15] = np.eye(7)[3] * 0.94 + 0.01 * (1 - np.eye(7)[3])
    tracks = [track(x, kind="phases", names=CHOLEC80_PHASES) for x in (raw, stabilized)]
    found = suggest.rank(tracks[:1], tracks[1:], reasons=["disagreement"])
    assert [(s.frame // 25, s.name, s.track) for s in found] == [(15, "GallbladderDissection", "phases")]
    labels = track(raw.argmax(-1).astype(np.int32), kind="phases", names=CHOLEC80_PHASES)
    (again,) = suggest.rank([labels], tracks[1:], reasons=["disagreement"])
    assert np.isnan(again.raw)


def test_unusable_input_is_named():
    good = track(flat(10, 0.1, 0.1))
    with pytest.raises(FormatError, match="unknown reason"):
        suggest.rank([good], [good], reasons=["boredom"])
    with pytest.raises(FormatError, match="only one of raw and stabilized"):
        suggest.rank([good], [track(flat(10, 0.1, 0.1), "video02")])
    with pytest.raises(FormatError, match="frames of video01"):
        suggest.rank([good], [track(flat(10, 0.1, 0.1), step=1)])
    with pytest.raises(FormatError, match="holds labels"):
        suggest.rank([good], [track(np.zeros((10, 2), np.int32))])


def test_labels_of_one_video_from_several_tracks_add_up():
    stabilized = flat(50, 0.9, 0.9)
    everything, answer = np.ones((50, 2), np.int32), np.full((50, 2), -1, np.int32)
    answer[7] = 1
    pair = [track(stabilized)]
    for known in ([everything, answer], [answer, everything]):
        assert suggest.rank(pair, pair, [track(x) for x in known]) == []
    with pytest.raises(FormatError, match="tools of video01 in frame 175 differ from"):
        suggest.rank(pair, pair, [track(everything), track(1 - answer * (answer > 0))])


def test_labels_at_another_rate_are_known_too():
    """Labels that count seconds, and predictions that count frames."""
    stabilized = flat(50, 0.9, 0.9)
    seconds = dataclasses.replace(track(np.ones((50, 2), np.int32), step=1), fps=1.0)
    assert suggest.rank([track(stabilized)], [track(stabilized)], [seconds]) == []
    with pytest.raises(FormatError, match="has 30 frames per second here, but 25 in"):
        suggest.rank([track(stabilized)], [dataclasses.replace(track(stabilized), fps=30.0)])


def test_who_is_sure_is_not_uncertain():
    stabilized = flat(200, 0.001, 0.97)
    stabilized[50, 0] = 0.4
    pair = [track(stabilized)]
    assert [(s.frame, s.name) for s in suggest.rank(pair, pair, reasons=["uncertain"])] == [(1250, "Grasper")]
    p = np.full((30, 7), 0.01)
    p[:, 2] = 0.94
    p[9] = [0.3, 0.3, 0.4, 0, 0, 0, 0]
    pair = [track(p, kind="phases", names=CHOLEC80_PHASES)]
    assert [s.frame for s in suggest.rank(pair, pair, reasons=["uncertain"])] == [225]
