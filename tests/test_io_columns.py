"""Columns of tables, and tables whose rows are changes: recognized in any words, refused with what is accepted."""

import numpy as np
import pytest
from files import fails, put, track

from hmmjax import io
from hmmjax.io.columns import column_of

HEADERS = {
    "Video name,Phase name,Start time,Stop time": "video01,Preparation,0:00:00,0:02:44.2",
    "Video;Step;Begin (s);End (s)": "video01.mp4;Preparation;0,0;164,2",
    "MediaFileName\tBehavior\tDescription\tStart (s)\tStop (s)": "video01.mp4\tPreparation\tx\t0\t164.2",
    "file,annotation,onset_ms,offset_ms": "video01,Preparation,0,164200",
    "Phase,Phase start,Phase end": "Preparation,0.0,164.2",
    "Begin Time - ss.msec,End Time - ss.msec,Duration,phases,Value": "0.0,164.2,164.2,x,Preparation",
    "Label,startTime,duration": "Preparation,0.0,164.2",
    "label,start_frame,length_frames": "Preparation,0,4105",
    "class,from,to": "Preparation,00:00,02:44.2",
    '"Phase","Start","End",': '"Preparation","00:00:00.000","00:02:44.200",',
}


@pytest.mark.parametrize("header", HEADERS)
def test_headers_of_segments(tmp_path, header):
    row = HEADERS[header]
    names = [*io.CHOLEC80_PHASES, "x"]
    if "phases,Value" in header:
        row = row.replace(",x,Preparation", ",Preparation,y")  # "phases" is the better label
    (found,) = io.read_annotations(put(tmp_path, "video01.csv", f"{header}\n{row}\n"), phase_names=names)
    assert (found.video, len(found.frames), found.values.max()) == ("video01", 4105, 0)


def test_titles_of_columns():
    roles = {
        "Start": "start", "begin_time": "start", "Onset [ms]": "start", "startFrame": "start", "t": "t",
        "STOP TIME": "end", "end-frame": "end", "Frame": "frame", "Frame No.": "frame", "FrameNumber": "frame",
        "VideoID": "video", "case id": "video", "Media file path": "video", "Phase name": "label",
        "Phase ID": "phaseid", "Instrument": "label", "Image index start": "imageindexstart",
        "Grasper": "grasper", "Time": "time",
    }  # fmt: skip
    assert {title: column_of(title).role for title in roles} == roles
    units = {
        "Start (s)": "seconds",
        "start_ms": "ms",
        "End frame": "frames",
        "start": "",
        "Begin Time - ss.msec": "seconds",
    }
    assert {title: column_of(title).unit for title in units} == units


def test_the_error_lists_what_is_accepted(tmp_path):
    error = fails("the header has 0 Frame columns", put(tmp_path, "video01.csv", "Phase,When\nPreparation,3\n"))
    assert "a start (start, begin, onset, from) and an end (end, stop, offset, to)" in error.fix


def test_changes_out_of_order_are_refused(tmp_path):
    rows = "VideoID;FrameNo;Phase\n269;0;1\n269;1400;3\n269;500;2\n270;0;1\n"
    error = fails("'2' begins at 500, before '3' on line 3, at 1400", put(tmp_path, "a.csv", rows))
    assert error.line == 4 and "sort the rows by time" in error.fix
    clock = "00:00 Preparation\n15:54 ClippingCutting\n02:44 CalotTriangleDissection\n"
    assert fails("begins at 164, before 'ClippingCutting' on line 2", put(tmp_path, "video01.txt", clock)).line == 3
    starts = "Phase,Start\nPreparation,00:00\nClippingCutting,00:00\n"
    assert fails("begins with 'Preparation' on line 2", put(tmp_path, "video01.csv", starts)).line == 3


def test_starts_last_until_the_next_row(tmp_path):
    starts = "Phase,Start\nPreparation,00:00\nClippingCutting,00:02\nPreparation,00:06\n"
    (found,) = io.read_annotations(put(tmp_path, "video01.csv", starts))
    assert np.bincount(found.values).tolist() == [51, 0, 100]


def test_segments_with_ends_may_come_in_any_order(tmp_path):
    rows = ["Preparation,0.0,2.0", "ClippingCutting,2.0,6.0", "Preparation,6.0,7.0"]
    found = []
    for i, order in enumerate(([0, 1, 2], [2, 0, 1])):
        text = "\n".join(["label,start,end", *(rows[k] for k in order)]) + "\n"
        found += io.read_annotations(put(tmp_path, f"{i}/video01.csv", text))
    np.testing.assert_array_equal(found[0].values, found[1].values)
    np.testing.assert_array_equal(found[0].frames, found[1].frames)


def test_labels_below_the_first_index_are_named(tmp_path):
    """With the number in the file, not one that was shifted; -1 is unknown in any numbering."""
    error = fails(
        "phase label 0 is below the first index, 1", put(tmp_path, "a/video01.txt", "0\t1\n25\t0\n"), first_index=1
    )
    assert error.line == 2 and "pass first_index=0" in error.fix
    file = put(tmp_path, "b/video01.txt", "0\t1\n25\t8\n")
    error = fails("phase label 8 is out of range .1 to 7", file, first_index=1, phase_names="cholec80")
    assert error.line == 2
    (found,) = io.read(put(tmp_path, "c/video01.txt", "0\t1\n25\t-1\n50\t7\n"), first_index=1, phase_names="cholec80")
    assert found.values.tolist() == [0, -1, 6]
    np.savez(tmp_path / "x.npz", phases_1=np.array([1, 0]))
    fails("phase label 0 is below the first index, 1", tmp_path / "x.npz", first_index=1)
    rows = "label,start_frame,end_frame\n0,0,10\n1,11,20\n"
    fails("pass first_index=0, since it is below", put(tmp_path, "d/video01.csv", rows), first_index=1)


def test_tables_and_arrays_of_the_same_videos_do_not_count_twice(tmp_path):
    for i in (1, 2, 3, 4):
        put(tmp_path, f"case_{i}.csv", "Frame,Phase\n0,1\n25,1\n")
    np.savez(tmp_path / "all.npz", **{f"phases_{i:02d}": np.array([1, 1]) for i in (1, 2, 3, 4)})
    error = fails(r"case_1.csv and all.npz \[phases_01\], .* and 1 more pairs\), which would count twice", tmp_path)
    assert f"pass one kind: {tmp_path}/*.csv or {tmp_path}/all.npz" in error.fix
    np.savez(tmp_path / "all.npz", tools_01=np.eye(2))
    assert len(io.read(tmp_path)) == 5  # tools of other files
    (tmp_path / "all.npz").unlink()
    np.savez(tmp_path / "all.npz", phases_7=np.array([1, 1]))
    assert len(io.read(tmp_path)) == 5
    put(tmp_path, "b/video01.csv", "Frame,Phase\n0,1\n25,1\n")
    np.save(tmp_path / "b" / "video01.npy", np.array([1, 1]))
    fails("phases of video01 were already read from", tmp_path / "b")


def test_names_and_paths_as_people_have_them(tmp_path):
    """Blanks and letters of other languages in names, mixed case, and a slash after a folder."""
    folder = tmp_path / "Phasen Köln "
    put(folder, "OP Müller 3 .csv", "\ufeffFrame,Phase\r\n0, preparation \r\n25,Calot triangle dissection\r\n\r\n")
    (found,) = io.read(f"{folder}/")
    assert (found.video, found.values.tolist()) == ("opmüller03", [0, 1])
    assert track("phases", [0]).video == "video01"


@pytest.mark.parametrize(
    "text",
    [
        "Start;Fim;Phase\n0,0;100,0;Preparation\n164,2;200,0;CalotTriangleDissection\n",
        "Start,Fim,Phase\n00:00,01:40,Preparation\n02:44,,CalotTriangleDissection\n",
        "Start_s;Tempo;Phase\n0;164;Preparation\n164;90;CalotTriangleDissection\n300;10;ClippingCutting\n",
        "VideoID;FrameNo;Letztes;Phase\n1;0;90;Preparation\n1;100;190;CalotTriangleDissection\n",
    ],
)
def test_an_end_under_an_unknown_title_is_never_dropped(tmp_path, text):
    error = fails("has an unknown title and seems to tell when segments end", put(tmp_path, "video01.csv", text))
    assert repr(text.replace(",", ";").split(";")[2 if "FrameNo" in text else 1]) in str(error)
    assert "rename it end or duration" in error.fix and "stop, offset, to" in error.fix


def test_ends_in_other_languages_and_of_frames_are_read(tmp_path):
    rows = "0,0;100,0;Preparation\n164,2;200,0;CalotTriangleDissection\n"
    for i, head in enumerate(("Start;Ende;Phase", "Beginn;Ende;Phase", "Startzeit;Endzeit;Phase", "Début;Fin;Phase")):
        (found,) = io.read_annotations(put(tmp_path, f"{i}/video01.csv", f"{head}\n{rows}"))
        assert [int((found.values == v).sum()) for v in (0, 1, -1)] == [2500, 895, 1605]
    text = "VideoID;FrameNo;Frame end;Phase\n1;0;89;Preparation\n1;100;189;CalotTriangleDissection\n"
    (found,) = io.read_annotations(put(tmp_path, "a.csv", text))
    assert [int((found.values == v).sum()) for v in (0, 1, -1)] == [90, 90, 10]


def test_columns_that_tell_no_time_are_named(tmp_path):
    text = "Nr;Start_s;Phase;Comment;Score;Total\n1;0;Preparation;good;0.9;900\n2;164;ClippingCutting;;0.8;900\n"
    (found,) = io.read_annotations(put(tmp_path, "video01.csv", text))
    assert any("titles are not read: 'Comment', 'Score', 'Total'" in notice for notice in found.notices)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "label,start,end\nWashing,9.0,9.5\nAardvark,1.0,2.0\nPreparation,3.0,4.0\n"),
        ("b.txt", "Frame\tPhase\n0\tWashing\n25\tAardvark\n50\tPreparation\n"),
    ],
)
def test_the_first_line_with_an_unknown_name_is_reported(tmp_path, name, text):
    fails("line 2: unknown phase 'Washing'", put(tmp_path, name, text))


def test_lists_of_videos_are_read_like_tables(tmp_path):
    from hmmjax.io.manifest import read_manifest, read_names

    path = put(tmp_path, "held.csv", 'Video ID;Part\n"video 01";test\nvideo02;test\n')
    assert read_names(path) == ["video 01", "video02"] and read_manifest(path)[0]["part"] == "test"
    assert read_names(put(tmp_path, "tabs.csv", "part\tvideo\ntest\tvideo02\n")) == ["video02"]
    assert read_names(put(tmp_path, "plain.csv", "video 01\nvideo02\n")) == ["video 01", "video02"]
    (tmp_path / "wide.csv").write_bytes("video;part\r\nvideo01;test\r\n".encode("utf-16"))
    assert read_names(tmp_path / "wide.csv") == ["video01"]
