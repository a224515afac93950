"""Tables of several videos with a row per frame: phases, tools next to them, and columns of classes."""

import numpy as np
import pytest
from files import fails, put

from hmmjax import explore, io
from hmmjax.cli.console import as_options

P = io.CHOLEC80_PHASES
PREDICTED = (
    "video,frame,phase,Grasper,Hook\n"
    "case 1.mp4,0,Preparation,1,0.25\ncase 1.mp4,25,Preparation,0,0.75\ncase 1.mp4,50,ClippingCutting,0,\n"
    "case 2.mp4,0,ClippingCutting,0,1\ncase 2.mp4,25,ClippingCutting,1,0\n"
)
KNOWN = PREDICTED.replace("0.25", "0").replace("0.75", "1").replace("0,\n", "0,-1\n")


def test_tools_next_to_phases_are_read(tmp_path):
    a, b, c, d = io.read(put(tmp_path, "all.csv", PREDICTED))
    assert [(t.video, t.track) for t in (a, b, c, d)] == [
        ("case01", "phases"), ("case01", "tools"), ("case02", "phases"), ("case02", "tools")
    ]  # fmt: skip
    assert a.values.tolist() == [0, 0, 2] and a.frames.tolist() == [0, 25, 50]
    assert b.names == ("Grasper", "Hook") and not b.is_labels
    np.testing.assert_array_equal(b.values, [[1, 0.25], [0, 0.75], [0, np.nan]])
    assert not any("not read" in n for t in (a, b, c, d) for n in t.notices)


def test_annotations_have_a_row_per_line_of_the_file(tmp_path):
    """Frames between the rows are no unknown frames: durations count in steps of the rows."""
    tracks = io.read_annotations(put(tmp_path, "all.csv", KNOWN))
    assert [t.frames.tolist() for t in tracks] == [[0, 25, 50], [0, 25, 50], [0, 25], [0, 25]]
    assert tracks[1].values.tolist() == [[1, 0], [0, 1], [0, -1]]
    found = explore.explore(tracks)
    assert found.step_seconds == 1.0 and int(found.frames.sum()) == 5


@pytest.mark.parametrize(
    ("text", "options", "notice"),
    [
        (PREDICTED.replace("0.75", "7.5"), {}, "'Grasper', 'Hook'"),
        (PREDICTED.replace("0.75", "yes"), {}, "'Grasper', 'Hook'"),
        (PREDICTED, {"kind": "labels"}, "'Grasper', 'Hook'"),
        (PREDICTED, {"track": "phases"}, "'Grasper', 'Hook'"),
        (PREDICTED.replace("Hook", "Comment"), {}, "'Comment'"),
    ],
)
def test_other_columns_are_named(tmp_path, text, options, notice):
    tracks = io.read(put(tmp_path, "all.csv", text), **options)
    assert f"columns with other titles are not read: {notice}" in " ".join(tracks[0].notices)
    assert ("tools" in {t.track for t in tracks}) == ("Comment" in text)


def test_declared_tools_and_logits_are_read(tmp_path):
    text = PREDICTED.replace("Grasper", "Suction tip").replace("0.75", "7.5")
    options = {"tool_names": ["suction_tip", "hook"], "kind": {"tools": "logits"}}
    tracks = io.read(put(tmp_path, "all.csv", text), **options)
    assert tracks[1].names == ("suction_tip", "hook")
    assert tracks[1].values[1] == pytest.approx([0.5, 1 / (1 + np.exp(-7.5))])
    assert [t.track for t in io.read(put(tmp_path, "all.csv", KNOWN), track="tools")] == ["tools", "tools"]


def test_tables_without_labels_have_a_column_per_class(tmp_path):
    text = "video;frame;Grasper;Hook\r\n2;25;1,0;0,5\r\n1;0;0,25;0\r\n2;0;0;0\r\n"
    one, two = io.read(put(tmp_path, "all.csv", text))
    assert (one.video, two.video) == ("video01", "video02")
    assert two.frames.tolist() == [0, 25] and two.values.tolist() == [[0, 0], [1, 0.5]]
    fails("unknown tool 'Comment'", put(tmp_path, "all.csv", text.replace("Hook", "Comment")))


def test_damage_is_named_by_its_line(tmp_path):
    damaged = PREDICTED.replace("case 2.mp4,25", "case 2.mp4,0").replace("ClippingCutting,1,0", "ClippingCutting,0,0")
    fails(r"line 6: frame 0 is listed twice \(first on line 5\)", put(tmp_path, "all.csv", damaged))
    unknown = put(tmp_path, "all.csv", PREDICTED.replace("25,Preparation", "25,Idling"))
    fails("line 3: unknown phase 'Idling'", unknown, rows="frames")


def test_results_are_written_as_they_were_read(tmp_path):
    text = KNOWN.replace("-1\n", "1\n")
    tracks = io.read(put(tmp_path, "in/all.csv", text))
    (written,) = io.write(tracks, tmp_path / "out", like=tracks)
    assert written == tmp_path / "out" / "both" / "all.csv" and written.read_text() == text


def alternating(text):
    """Return a table of two videos with its rows sorted by frame, so that the videos alternate."""
    head, *rows = text.splitlines()
    return "\n".join([head, *sorted(rows, key=lambda row: (int(row.split(",")[1]), row))]) + "\n"


def backwards(text):
    """Return a table with its rows in reverse, below a blank line."""
    head, *rows = text.splitlines()
    return "\n".join([head, "", *rows[::-1]]) + "\n"


@pytest.mark.parametrize("order", [alternating, backwards])
def test_the_order_of_rows_does_not_matter(tmp_path, order):
    plain = io.read(put(tmp_path, "all.csv", PREDICTED))
    other = io.read(put(tmp_path, "other.csv", order(PREDICTED)))
    assert [(t.video, t.track) for t in other] == [(t.video, t.track) for t in plain]
    for a, b in zip(plain, other, strict=True):
        np.testing.assert_array_equal(a.frames, b.frames)
        np.testing.assert_array_equal(a.values, b.values)
        assert not any("the end of" in notice for notice in b.notices)


def test_a_column_is_of_one_kind_in_all_videos(tmp_path):
    """Scores that happen to be 0 or 1 in one video are scores as in the others."""
    tracks = io.read(put(tmp_path, "all.csv", PREDICTED))
    assert tracks[3].values.dtype == tracks[1].values.dtype == np.float64
    assert {t.layout.kind for t in tracks if t.track == "tools"} == {"probabilities"}
    scores = "video,frame,Grasper,Hook\n1,0,0.5,0.2\n1,25,0.7,0.1\n2,0,0,1\n2,25,1,0\n"
    assert not any(t.is_labels for t in io.read(put(tmp_path, "scores.csv", scores)))
    unknown = "video,frame,phase\n1,0,\n1,25,\n2,0,Preparation\n2,25,Preparation\n"
    assert {t.names for t in io.read_annotations(put(tmp_path, "unknown.csv", unknown))} == {P}


def test_files_of_different_kinds_tell_how_to_declare_them(tmp_path):
    for number, cells in enumerate(("0.5,0.2", "0,1"), 1):
        put(tmp_path, f"in/video{number:02}.csv", f"Frame,Grasper,Hook\n0,{cells}\n25,{cells}\n")
    with pytest.raises(io.FormatError, match=r"pass kind=\{'tools': 'probabilities'\}") as caught:
        io.to_batch(io.join(io.read(tmp_path / "in")))
    assert "pass --tool-kind probabilities" in as_options(str(caught.value))
    tracks = io.read(tmp_path / "in", kind={"tools": "probabilities"})
    assert not any(t.is_labels for t in tracks)


def test_other_columns_of_rows_per_frame_are_not_ends(tmp_path):
    """Frame 0 and a score of 1 lead to frame 1, but rows of frames have no durations."""
    text = "video,frame,phase,score\n1,0,Preparation,1\n1,1,Preparation,1\n1,2,Preparation,1\n"
    (track,) = io.read(put(tmp_path, "all.csv", text))
    assert track.frames.tolist() == [0, 1, 2] and "'score'" in track.notices[0]


def test_durations_are_found_in_each_video(tmp_path):
    """Rows of two videos alternate; the title tells nothing of how long each phase lasts."""
    rows = "1,0,Preparation,250\n2,0,Preparation,300\n1,250,ClippingCutting,99\n2,300,ClippingCutting,99\n"
    fails("the column 'took' has an unknown title", put(tmp_path, "all.csv", f"video,frame,phase,took\n{rows}"))


@pytest.mark.parametrize(
    ("text", "options", "header"),
    [
        (PREDICTED.replace("0.75", "7.5"), {}, "video,frame,phase"),
        (PREDICTED, {"track": "phases"}, "video,frame,phase"),
        (PREDICTED.replace("Grasper", "Comment"), {}, "video,frame,phase,Hook"),
        (",Frame,Phase\n0,0,Preparation\n1,25,Preparation\n", {}, "Frame,Phase"),
    ],
)
def test_columns_that_are_not_read_are_left_out_of_results(tmp_path, text, options, header):
    """Blank columns would be read as missing predictions, or as a class without a name."""
    tracks = io.read(put(tmp_path, "in/video01.csv", text), **options)
    (written,) = io.write(tracks, tmp_path / "out", like=tracks)
    assert written.read_text().splitlines()[0] == header
    again = io.read(written)
    assert [(t.video, t.track) for t in again] == [(t.video, t.track) for t in tracks]
    for found, want in zip(again, tracks, strict=True):
        np.testing.assert_array_equal(found.values, want.values)
    if "not read" in " ".join(tracks[0].notices):
        assert "results are written without them" in " ".join(tracks[0].notices)


SEGMENTS = "video,label,start_s,end_s\ncase 1.mp4,Preparation,0,2\ncase 2.mp4,Preparation,2,4\n"


@pytest.mark.parametrize(("text", "row"), [(PREDICTED, "case 1.mp4,25"), (SEGMENTS, "case 2.mp4,Preparation")])
def test_blank_and_merged_names_of_videos_are_reported(tmp_path, text, row):
    rest = row.split(",")[1]
    fails("line 3: the row names no video", put(tmp_path, "all.csv", text.replace(row, f",{rest}")))
    tracks = io.read(put(tmp_path, "all.csv", text.replace(row, f"case_1.avi,{rest}")))
    assert "'case 1.mp4' and 'case_1.avi' are taken for one video, case01" in " ".join(tracks[0].notices)
