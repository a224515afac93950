"""Tables of segments and changes, and the exports of annotation tools: read, and written for them."""

import dataclasses
import json

import numpy as np
import pytest
from files import put, track

from hmmjax import io

P = io.CHOLEC80_PHASES
ELAN = "Phase\tdefault\t00:00:00.000\t0.0\t00:02:44.200\t164.2\t00:02:44.200\t164.2\tPreparation\n"
EAF = """<?xml version="1.0" encoding="UTF-8"?>
<ANNOTATION_DOCUMENT><TIME_ORDER><TIME_SLOT TIME_SLOT_ID="a" TIME_VALUE="0"/>
<TIME_SLOT TIME_SLOT_ID="b" TIME_VALUE="164200"/></TIME_ORDER><TIER TIER_ID="phases"><ANNOTATION>
<ALIGNABLE_ANNOTATION TIME_SLOT_REF1="a" TIME_SLOT_REF2="b"><ANNOTATION_VALUE>Preparation</ANNOTATION_VALUE>
</ALIGNABLE_ANNOTATION></ANNOTATION></TIER></ANNOTATION_DOCUMENT>
"""
BORIS = "Time\tMedia file path\tTotal length\tFPS\tSubject\tBehavior\tComment\tStatus\n"
BORIS += "0.0\tx/video01.mp4\t1733.0\t25\tphase\tPreparation\t\tSTART\n"
BORIS += "164.2\tx/video01.mp4\t1733.0\t25\tphase\tPreparation\t\tSTOP\n"
STUDIO = [
    {
        "id": 1,
        "data": {"video": "/data/upload/video01.mp4"},
        "annotations": [
            {
                "result": [
                    {
                        "type": "timelinelabels",
                        "value": {"ranges": [{"start": 1, "end": 4105}], "timelinelabels": ["Preparation"]},
                    }
                ]
            }
        ],
    }
]
#: Files of one segment: Preparation from 0 to 164.2 seconds, 4,105 frames.
ONE = {
    "video01.csv": "video,label,start,end\nvideo01.mp4,Preparation,0,164.2\n",
    "ms/video01.csv": "label,start_ms,end_ms\nPreparation,0,164200\n",
    "clock/video01.tsv": "Start\tEnd\tPhase\n00:00:00\t00:02:44.2\tPreparation\n",
    "frames/video01.csv": "start_frame;end_frame;phase\n0;4104;Preparation\n",
    "jigsaws/video01.txt": "0 4104 Preparation \n",
    "elan/video01.txt": ELAN,
    "video01.eaf": EAF,
    "boris/events.tsv": BORIS,
    "studio/export.json": json.dumps(STUDIO),
}


@pytest.mark.parametrize("name", ONE)
def test_a_segment_in_any_unit(tmp_path, name):
    (found,) = io.read_annotations(put(tmp_path, name, ONE[name]))
    assert (found.video, found.track, found.names) == ("video01", "phases", P)
    np.testing.assert_array_equal(found.frames, np.arange(4105))
    assert (found.values == 0).all()
    (found,) = io.read_annotations(put(tmp_path, name, ONE[name]), fps=50) if "frame" not in name else (found,)
    if found.fps == 50 and name not in ("jigsaws/video01.txt", "studio/export.json"):
        assert len(found.frames) == 8210


def test_predictions_have_one_row_per_step(tmp_path):
    (found,) = io.read(put(tmp_path, "video01.csv", ONE["video01.csv"]))
    np.testing.assert_array_equal(found.frames, np.arange(0, 4105, 25))


def test_gaps_are_unknown_and_overlaps_are_refused(tmp_path):
    rows = "label,start,end\nPreparation,0,10.0\nClippingCutting,{},30.0\n"
    (found,) = io.read_annotations(put(tmp_path, "video01.csv", rows.format(20.0)))
    assert np.bincount(found.values + 1)[:4].tolist() == [250, 250, 0, 250]
    with pytest.raises(io.FormatError, match=r"line 3: 'ClippingCutting' overlaps another phase"):
        io.read_annotations(put(tmp_path, "video01.csv", rows.format(5.0)))


def test_tools_may_overlap(tmp_path):
    rows = "label,start,end\nGrasper,0,10.0\nHook,5.0,8.0\nPreparation,0,10.0\n"
    phases, tools = io.read_annotations(put(tmp_path, "video01.csv", rows))
    assert tools.values.sum(0)[[0, 2]].tolist() == [250, 75] and len(phases.values) == 250


def test_changes_last_until_the_next_row(tmp_path):
    """Cataract-101, whose phases are numbered from 1, and plain timecodes."""
    rows = "VideoID;FrameNo;Phase\n269;0;1\n269;500;2\n269;1400;3\n270;0;1\n270;420;2\n"
    one, two = io.read_annotations(put(tmp_path, "annotations.csv", rows), first_index=1)
    assert (one.video, two.video) == ("video269", "video270")
    assert np.bincount(one.values).tolist() == [500, 900, 1] and np.bincount(two.values).tolist() == [420, 1]
    assert "the end of the last segment of video269 is not given" in one.notices[0]
    clock = put(tmp_path, "video01.txt", "00:00 Preparation\n02:44 CalotTriangleDissection\n")
    assert np.bincount(io.read_annotations(clock)[0].values).tolist() == [4100, 1]


def test_a_table_of_changes_is_never_taken_for_frames(tmp_path):
    rows = "Frame,Phase\n" + "".join(f"{f},{p}\n" for f, p in zip((0, 4100, 23850, 31425), P, strict=False))
    file = put(tmp_path, "video07-phase.csv", rows)
    with pytest.raises(
        io.FormatError, match=r"each of the 4 rows begins another phase, and they are 303 s apart.*rows="
    ):
        io.read_annotations(file)
    (found,) = io.read_annotations(file, rows="changes")
    assert np.bincount(found.values).tolist() == [4100, 19750, 7575, 1]
    assert len(io.read_annotations(file, rows="frames")[0].frames) == 4


@pytest.mark.parametrize(
    ("name", "text", "cause"),
    [
        ("a.csv", "label,start,end\nPreparation,0,164\n", "column 'start' does not tell its unit.*start_seconds"),
        ("a.csv", "label,start,end\nPreparation,0,x.5\n", "line 2: 'x.5' is not a time"),
        ("a.csv", "label,start,end\nCutting,0,1.5\n", "line 2: unknown phase 'Cutting'"),
        ("a.csv", "label,start,end\n", "a header but no rows"),
        ("a.json", '{"version": 3}', "this JSON layout is not known"),
        ("a.json", "[{]", "not valid JSON"),
        ("a.json", "[{}]", "no task has timeline labels"),
        ("a.xml", "<svg/>", "this XML layout is not known"),
        ("a.xml", "<svg", "not valid XML"),
        ("a.xml", '<!DOCTYPE a [<!ENTITY b "c">]><annotations/>', "defines entities"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path, name, text, cause):
    with pytest.raises(io.FormatError, match=cause):
        io.read_annotations(put(tmp_path, name, text))


def test_frames_of_documents(tmp_path):
    shipped = {"13301": {"phase": 1, "step": 3}, "13302": {"phase": 2, "step": 3}}
    (found,) = io.read_annotations(put(tmp_path, "BBP01.mp4.json", json.dumps(shipped)))
    assert (found.video, found.frames.tolist(), found.values.tolist()) == ("bbp01", [13301, 13302], [1, 2])
    image = '<image id="{}" name="x"><tag label="{}"/></image>'
    cvat = "<annotations>" + image.format(0, P[0]) + image.format(1, P[1]) + "</annotations>"
    (found,) = io.read_annotations(put(tmp_path, "video01.xml", cvat))
    assert (found.frames.tolist(), found.values.tolist()) == ([0, 1], [0, 1])


@pytest.mark.parametrize("form", ["segments", "elan", "label-studio"])
def test_what_is_written_is_read_back(tmp_path, form):
    states = np.repeat([0, 1, 0, 2], [30, 20, 5, 45])
    held = np.stack([np.arange(100) % 40 < 10, np.zeros(100)] + [np.arange(100) > 50] * 5, 1).astype(int)
    given = [
        track("phases", states, P, frames=np.arange(100)),
        track("tools", held, io.CHOLEC80_TOOLS, frames=np.arange(100)),
    ]
    files = io.write_segments(given, tmp_path, [form])
    phases, tools = io.read_annotations(files)
    np.testing.assert_array_equal(phases.values, states)
    np.testing.assert_array_equal(phases.frames, np.arange(100))
    np.testing.assert_array_equal(tools.values, held)
    with pytest.raises(FileExistsError):
        io.write_segments(given, tmp_path, [form])
    with pytest.raises(io.FormatError, match="unknown format 'x'"):
        io.write_segments(given, tmp_path, ["x"])


@pytest.mark.parametrize("form", ["segments", "elan"])
@pytest.mark.parametrize("fps", [23.976, 25, 29.97, 30, 59.94, 1000])
def test_times_in_milliseconds_keep_their_frames(tmp_path, form, fps):
    states = np.random.default_rng(0).integers(0, 3, 90)
    given = track("phases", states, P, frames=np.arange(90))
    files = io.write_segments([dataclasses.replace(given, fps=fps)], tmp_path, [form])
    (found,) = io.read_annotations(files, fps=fps)
    np.testing.assert_array_equal(found.values, states)


def test_absent_tools_are_written_and_read_back(tmp_path):
    """No tool at all, and none in the first and last frames."""
    none, some = np.zeros((50, 7), int), np.zeros((50, 7), int)
    some[20:30, 3] = 1
    given = [
        track("tools", held, io.CHOLEC80_TOOLS, frames=np.arange(50), video=video)
        for held, video in ((none, "video01"), (some, "video02"))
    ]
    for found, held in zip(io.read_annotations(io.write_segments(given, tmp_path)), (none, some), strict=True):
        np.testing.assert_array_equal(found.values, held)
        np.testing.assert_array_equal(found.frames, np.arange(50))


@pytest.mark.parametrize(
    ("row", "cause"),
    [
        ("ClippingCutting,8.0,4.0", "line 3: the segment 'ClippingCutting' ends at 4, before it starts at 8"),
        ("ClippingCutting,nan,24.0", "line 3: the segment 'ClippingCutting' has no valid time"),
        ("ClippingCutting,20.0,inf", "line 3: the segment 'ClippingCutting' has no valid time"),
        ("ClippingCutting,-3.0,24.0", "line 3: the segment 'ClippingCutting' has no valid time"),
        ("ClippingCutting,20.0,1000000", "line 3: a segment of video01 is 278 hours into the video.*start_ms"),
        ("ClippingCutting,1e9,2e9", "line 3: a segment of video01 is 555,556 hours into the video"),
    ],
)
def test_times_that_would_be_lost_are_errors(tmp_path, row, cause):
    with pytest.raises(io.FormatError, match=cause):
        io.read_annotations(put(tmp_path, "video01.csv", f"label,start,end\nPreparation,0,10.0\n{row}\n"))


def test_what_is_joined_or_too_short_is_told(tmp_path):
    rows = "label,start,end\nPreparation,0,10.0\nPreparation,8.0,12.0\nClippingCutting,20.01,20.03\n"
    (found,) = io.read_annotations(put(tmp_path, "video01.csv", rows + "ClippingCutting,30.0,31.0\n"))
    assert np.bincount(found.values + 1)[:4].tolist() == [450, 300, 0, 25]
    text = " ".join(found.notices)
    assert "1 segment(s) of video01 overlap others of the same phase, and are joined; the first is on line 3" in text
    assert "1 segment(s) of video01 contain no frame at 25 per second, the first on line 4" in text


def test_events_without_a_stop_are_errors(tmp_path):
    rows = "Time\tMedia file path\tBehavior\tStatus\n0.0\tC:\\new\\video04.mp4\tPreparation\tSTART\n"
    put(tmp_path, "x.tsv", rows + "9.0\tC:\\new\\video04.mp4\tPreparation\tSTART\n")
    with pytest.raises(io.FormatError, match="line 3: 'Preparation' starts again, without a stop since line 2"):
        io.read_annotations(tmp_path / "x.tsv")
    put(tmp_path, "x.tsv", rows + "9.0\tC:\\new\\video04.mp4\tPreparation\tSTOP\n")
    assert io.read_annotations(tmp_path / "x.tsv")[0].video == "video04"


def test_results_keep_the_layout_of_segments(tmp_path):
    tracks = io.read(put(tmp_path, "video01.csv", ONE["video01.csv"]))
    (file,) = io.write(tracks, tmp_path / "out", like=tracks)
    assert file.read_text() == "video,track,label,start,end\nvideo01,phases,Preparation,0.000,165.000\n"


def test_labels_that_need_quotation_marks_are_read_back(tmp_path):
    names = ('Cut; "clip"', "Rest, wait", "Plain")
    given = track("phases", [0, 0, 1, 2], names)
    paths = io.write_segments([given], tmp_path)
    assert paths[0].read_text().count("Plain") == 1 and '"Plain"' not in paths[0].read_text()
    (found,) = io.read_annotations(paths, phase_names=list(names))
    assert found.at_fps(given.fps).values[found.values >= 0][[0, -1]].tolist() == [0, 2]
