"""Times in tables of segments whose commas, units or rates may mean two things: read as meant, or refused."""

import json

import numpy as np
import pytest
from files import put

from hmmjax import io


def refused(path, match, **options):
    """Return the FormatError that `io.read_annotations` raises."""
    with pytest.raises(io.FormatError, match=match) as caught:
        io.read_annotations(path, **options)
    return caught.value


def counts(path, **options):
    """Return the number of frames of each phase, unknown ones left out."""
    (found,) = io.read_annotations(path, **options)
    return np.bincount(found.values + 1)[1:].tolist()


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("video;frame;phase\nvideo01;0;Preparation\nvideo01;1,500;ClippingCutting\n", 3, "1,500.*write 1500, without"),
        ("video;frame;phase\nvideo01;0;Preparation\nvideo01;1.500;ClippingCutting\n", 3, "1.500.*write 1500, without"),
        ("video;frame;phase\nvideo01;0;Preparation\nvideo01;7.5;ClippingCutting\n", 3, "'7.5' is not a whole number"),
        ("start_frame;end_frame;phase\n0;1,250;Preparation\n", 2, "1,250.*write 1250, without"),
        ('start_frame,end_frame,phase\n0,"1,250",Preparation\n', 2, "1,250.*write 1250, without"),
        ("start_s;end_s;phase\n0;1,250;Preparation\n1,250;2,480;ClippingCutting\n", 2, "'1,250' may be decimal"),
        ("start_ms;end_ms;phase\n0;1,250;Preparation\n", 2, "'1,250' may be decimal or separate thousands"),
        ("start_ms;end_ms;phase\n0;1.250;Preparation\n", 2, "'1.250' may be decimal or separate.*write 1250"),
        ("start_s;end_s;phase\n0,5;2.5;Preparation\n", 2, "some numbers have a comma"),
        ("Time\tMedia file path\tBehavior\tStatus\n1,250\tx/1.mp4\tPreparation\tSTART\n", 2, "'1,250' may be decimal"),
        ("start_frame;end_frame;phase\n00:00:00;00:00:59;Preparation\n", 2, "'00:00:00' is not a whole number.*name"),
        ("start_s,end_s,phase\n0,5_0,Preparation\n", 2, "'5_0' is not a time"),
        ("start_s,duration_s,phase\n0,5,10,5,Preparation\n", 2, "expected 3 columns.*found 5.*if commas are decimal"),
    ],
)
def test_a_number_of_two_meanings_is_refused(tmp_path, text, line, what):
    assert refused(put(tmp_path, "video01.csv", text), what).line == line


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        ("start_s;end_s;phase\n0;0,5;Preparation\n0,5;1,240;ClippingCutting\n", [13, 0, 18]),
        ("start;end;phase\n0;0,52;Preparation\n,52;1,2;ClippingCutting\n", [13, 0, 17]),
        (
            "start_ms;end_ms;phase\n0;520.0;Preparation\n520;1240.0;ClippingCutting\n",
            [13, 0, 18],
        ),
        ("phase,start_frame,duration_s\nPreparation,0,2\nClippingCutting,50,4\n", [50, 0, 100]),
        ("phase,start_s,end_frame\nPreparation,0,49\nClippingCutting,2,149\n", [50, 0, 100]),
        ("phase,start_s,duration_frames\nPreparation,0,50\nClippingCutting,2,100\n", [50, 0, 100]),
        ("phase,start_frame,end\nPreparation,0,00:00:02\nClippingCutting,50,00:00:06\n", [50, 0, 100]),
        ("phase,start_frame,duration\nPreparation,0.0,50\nClippingCutting,50.0,100\n", [50, 0, 100]),
        ("start_s end_s phase\n0.0 2.0 Calot Triangle Dissection\n", [0, 50]),
    ],
)
def test_each_column_has_its_own_unit(tmp_path, text, frames):
    assert counts(put(tmp_path, "video01.csv", text)) == frames


def test_mixed_units_are_told(tmp_path):
    file = put(tmp_path, "video01.csv", "phase,start_frame,duration_s\nPreparation,0,2\nClippingCutting,60,4\n")
    (found,) = io.read_annotations(file, fps=30)
    assert np.bincount(found.values).tolist() == [60, 0, 120]
    assert "frame numbers next to seconds are read at 30 per second" in " ".join(found.notices)


def test_a_file_of_timecodes_has_one_rate(tmp_path):
    rows = "phase,start,end\nPreparation,00:00:00;00,00:00:10;00\nClippingCutting,00:00:10;00,00:00:20;59\n"
    (found,) = io.read_annotations(put(tmp_path, "video01.csv", rows))
    # 600 and 1,259 frames at 59.94 per second are 10.01 and 21.0043 seconds, at 25 rows per second.
    assert np.bincount(found.values).tolist() == [251, 0, 526 - 251]
    assert sum("drop-frame" in note for note in found.notices) == 1 and "59.94" in found.notices[-1]


CHANGES = "video,frame,phase\n" + "".join(
    f"video01,{frame},{phase}\n"
    for frame, phase in ((0, "Preparation"), (500, "CalotTriangleDissection"), (1000, "Calot Triangle Dissection"))
)


def test_rows_are_changes_or_frames_as_declared(tmp_path):
    file = put(tmp_path, "a.csv", CHANGES + "video01,3000,ClippingCutting\n")
    assert counts(file, rows="changes") == [500, 2500, 1]
    assert counts(file, rows="frames") == [1, 2, 1]
    error = refused(file, "2 of 3 rows begin another phase, and rows are 20.0 s apart")
    assert error.line == 4 and "pass rows='changes'" in error.fix
    file = put(tmp_path, "video01.csv", file.read_text().replace("video01,", "").replace("video,", ""))
    refused(file, "most rows begin another phase, and they are 20 s apart.*pass rows='changes'")
    assert counts(file, rows="changes") == [500, 2500, 1] and counts(file, rows="frames") == [1, 2, 1]
    dense = "video,frame,phase\n" + "".join(f"video01,{f},Preparation\n" for f in range(0, 500, 25))
    assert counts(put(tmp_path, "b.csv", dense)) == [20]


def test_videos_of_two_folders_are_not_joined(tmp_path):
    rows = "video,start_s,end_s,phase\nhospA/video01.mp4,0,10,Preparation\n{},10,20,ClippingCutting\n"
    error = refused(put(tmp_path, "a.csv", rows.format("hospB\\video01.mp4")), "would both be video01")
    assert error.line == 3 and "hospA/video01.mp4" in error.cause
    assert counts(put(tmp_path, "a.csv", rows.format("hospA/video01.mp4"))) == [250, 0, 250]


def test_tools_next_to_phases_are_told_and_read_if_declared(tmp_path):
    rows = "start_s,end_s,Phase,Tool\n0,10,Preparation,Grasper\n10,20,ClippingCutting,Hook\n"
    file = put(tmp_path, "video01.csv", rows)
    (found,) = io.read_annotations(file)
    assert found.track == "phases" and "'Tool' is not read" in " ".join(found.notices)
    (found,) = io.read_annotations(file, track="tools")
    assert found.values.sum(0)[[0, 2]].tolist() == [250, 250] and not found.notices
    (found,) = io.read_annotations(file, track="phases")
    assert np.bincount(found.values).tolist() == [250, 0, 250] and not found.notices


def test_tasks_of_two_folders_are_not_joined(tmp_path):
    value = {"ranges": [{"start": 1, "end": 50}], "timelinelabels": ["Preparation"]}
    tasks = [
        {"data": {"video": f"/{folder}/video01.mp4"}, "annotations": [{"result": [{"value": value}]}]}
        for folder in ("hospA", "hospB")
    ]
    refused(put(tmp_path, "export.json", json.dumps(tasks)), "'/hospA/video01.mp4' and .* would both be video01")
