"""Read text tables; errors name file, line, cause and fix."""

import numpy as np
import pytest
from files import fails, put

from hmmjax import io

P, T = io.CHOLEC80_PHASES, io.CHOLEC80_TOOLS
HEAD = "Frame\tPhase\n"
TOOLS = "Frame\t" + "\t".join(T) + "\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("sep", ["\t", " "])
@pytest.mark.parametrize("trail", ["", "\t"])
def test_cholec80_phase_txt(tmp_path, end, sep, trail):
    if sep == " " and trail:
        pytest.skip("trailing tabs come with tabs")
    lines = [sep.join(("Frame", "Phase")), *(f"{i}{sep}{P[i // 2]}{trail}" for i in range(6)), ""]
    (track,) = io.read(put(tmp_path, "video07-phase.txt", end.join(lines)))
    assert (track.video, track.track, track.names) == ("video07", "phases", P)
    np.testing.assert_array_equal(track.frames, np.arange(6))
    np.testing.assert_array_equal(track.values, [0, 0, 1, 1, 2, 2])
    assert track.values.dtype == np.int32


def test_cholec80_tool_txt(tmp_path):
    text = "Frame\t" + "\t".join(T) + "\n0\t1\t0\t0\t0\t0\t0\t0\n25\t0\t1\t0\t0\t0\t0\t1\n"
    (track,) = io.read(put(tmp_path, "video07-tool.txt", text))
    assert (track.track, track.names, track.layout.kind) == ("tools", T, "labels")
    np.testing.assert_array_equal(track.values, [[1, 0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 1]])


def test_mtrcnet_phase_header_with_space_and_rows_with_tab(tmp_path):
    (track,) = io.read(put(tmp_path, "video41-phase.txt", f"Frame Phase\n0\t{P[3]}\n25\t{P[4]}\n"))
    np.testing.assert_array_equal(track.values, [3, 4])
    np.testing.assert_array_equal(track.frames, [0, 25])


def test_mtrcnet_tool_logits_with_trailing_tab(tmp_path):
    header = "Frame " + " ".join(f"Tool{i}" for i in range(1, 8))
    path = put(tmp_path, "video41-tool.txt", f"{header}\n0\t" + "\t".join(["-2.0", "0.0", *["5.5"] * 5]) + "\t\n")
    (track,) = io.read(path, kind="logits", tool_names="cholec80")
    np.testing.assert_allclose(track.values[0, :3], [1 / (1 + np.e**2), 0.5, 1 / (1 + np.exp(-5.5))], rtol=1e-14)
    assert track.names == T
    assert io.read(path, kind="logits")[0].names is None
    error = fails("not a probability", path)
    assert error.line == 2 and "logits" in error.fix


def test_tmrnet_has_no_header_and_its_first_row_is_kept(tmp_path):
    (track,) = io.read(put(tmp_path, "video41-phase.txt", "0\t6\n25\t1\n50\t1\n"))
    np.testing.assert_array_equal(track.values, [6, 1, 1])
    assert track.names is None and track.layout.header is None


def test_surgformer(tmp_path):
    (track,) = io.read(put(tmp_path, "video-41.txt", "Frame\tPhase\n0\t0\n1\t1\n"), fps=1, phase_names="cholec80")
    assert track.video == "video41" and track.fps == 1
    np.testing.assert_array_equal(track.seconds, [0, 1])


def test_m2cai16_workflow_prediction(tmp_path):
    path = put(tmp_path, "workflow_video_02_pred.txt", "Frame\tPhase\n0\tTrocarPlacement\n1\tPreparation\n")
    assert io.read(path, phase_names="m2cai16")[0].video == "workflow02"
    assert "phase_names" in fails("unknown phase 'TrocarPlacement'", path).fix


def test_csv_of_probabilities_in_any_class_order_and_spelling(tmp_path):
    order = [3, 0, 6, 5, 4, 1, 2]
    spelt = [" ".join(P[i]).replace(" ", "_").lower() if i % 2 else P[i].upper() for i in order]
    probabilities = np.random.default_rng(0).dirichlet(np.ones(7), 4).round(6)
    rows = [",".join([str(f), *map(str, r)]) for f, r in zip(range(0, 100, 25), probabilities, strict=True)]
    path = put(tmp_path, "video01.csv", "\n".join([",".join(["Frame", *spelt]), *rows]))
    (track,) = io.read(path)
    assert track.names == tuple(P[i] for i in order)
    np.testing.assert_allclose(track.values.sum(1), 1, rtol=1e-12)
    np.testing.assert_allclose(track.reorder(P).values, probabilities[:, np.argsort(order)], atol=1e-5)


def test_csv_with_phase_and_tools_and_frame_column_elsewhere(tmp_path):
    text = f"Phase,Hook,Frame,Grasper\n{P[2]},0.25,0,1.0\n{P[3]},0.5,25,0.0\n"
    phases, tools = io.read(put(tmp_path, "video01.csv", text))
    np.testing.assert_array_equal(phases.values, [2, 3])
    assert tools.names == ("Hook", "Grasper")
    np.testing.assert_array_equal(tools.values, [[0.25, 1], [0.5, 0]])


def test_spreadsheets_dialects(tmp_path):
    quoted = put(tmp_path, "video01.csv", '"Frame","Phase"\n0,"Preparation"\n25,"CleaningCoagulation"\n')
    assert io.read(quoted)[0].values.tolist() == [0, 5]
    names = put(tmp_path, "names.txt", "\ufeffOpen\nClose\n")
    text = put(tmp_path, "video03-phase.txt", "Frame\tPhase\n0\tOpen\n")
    assert io.read(text, phase_names=str(names))[0].names == ("Open", "Close")


@pytest.mark.parametrize(
    ("text", "line", "cause"),
    [
        ("", None, "empty"),
        ("  \n\n", None, "empty"),
        (HEAD, None, "header but no rows"),
        (HEAD + "0\tPreparation\n25\n", 3, "expected 2 columns"),
        (HEAD + "0\tPreparation\n25\tPrepa", 3, "unknown phase 'Prepa'.*did you mean Preparation"),
        (HEAD + "0\tGallbladderExtraction\n", 2, "unknown phase 'GallbladderExtraction'"),
        (HEAD + "0\tPreparation\n0\tPreparation\n", 3, r"frame 0 is listed twice \(first on line 2\)"),
        (HEAD + "25\tPreparation\n0\tPreparation\n", 3, "frame 0 comes after frame 25"),
        (HEAD + "-1\tPreparation\n", 2, "-1 is negative"),
        (HEAD + "0.5\tPreparation\n", 2, "frame number '0.5' is not a whole number"),
        (HEAD + "0\t1.5\n", 2, "label 1.5 is not a whole number"),
        (HEAD + "0\t-2\n", 2, r"label -2 is out of range .*or -1 for missing"),
        (HEAD + "0\t-1\n", None, "all predicted phases of video01 are missing"),
        (HEAD + "0\tinf\n", 2, "inf is not a number"),
        (HEAD + "0\t1\n25\tPreparation\n", 2, "the number '1' among phase names"),
        ("Time\tPhase\n0\t1\n", 1, "0 Frame columns"),
        ("Frame\tMood\n0\t1\n", 1, "unknown tool 'Mood'"),
        ("0\n25\n", 1, "one column"),
        ("0\t1\t0\n", 1, "a frame number and 2 columns, and no header"),
        (TOOLS + "0\t1\t0\t0\t0\t0\t0\n", 2, "expected 8 columns as in the header, found 7"),
        (TOOLS + "0\t1\t0\t0\t0\t0\t0\t2\n", 2, "label 2 is out of range"),
        (TOOLS + "0\t1\t0\t0\t0\t0\t0\t0.5x\n", 2, "'0.5x' is not a number"),
        (TOOLS + "0\t.1\t0\t0\t0\t0\t0\tinf\n", 2, "inf is not a number"),
        (TOOLS + "0\t1\t0\t0\t0\t0\t0\t1.5\n", 2, "1.5 is not a probability"),
        ("Frame\tHook\tHook\n0\t1\t1\n", 1, "repeats a tool"),
        ("Frame," + ",".join(P) + "\n0" + ",0.2" * 7 + "\n", 2, "sum to 1.4, not 1"),
        ("Frame," + ",".join(P) + "\n0" + ",0.2" * 6 + ",nan\n", 2, "nan among the probabilities of phases"),
        ("\0\0", None, "not UTF-8 text"),
    ],
)
def test_bad_text(tmp_path, text, line, cause):
    path = put(tmp_path, "video01.txt", text)
    error = fails(cause, path)
    assert error.line == line and error.file == str(path) and str(path) in str(error)


def test_not_utf8(tmp_path):
    (tmp_path / "video1.txt").write_bytes(b"\x80\x81\xff")
    fails("not UTF-8 text", tmp_path / "video1.txt")
    (tmp_path / "video1.txt").write_bytes(b"\xff\xfe\x80")
    fails("not UTF-8 text", tmp_path / "video1.txt")


def test_files_of_spreadsheets(tmp_path):
    """UTF-16, carriage returns, frame numbers and labels as floats, trailing spaces and empty lines."""
    text = 'Frame,Phase\r\n0.0,"calot triangle dissection "\r\n25.0,PREPARATION\r\n\r\n'
    for encoding in ("utf-16", "utf-8-sig"):
        (tmp_path / "video1.csv").write_bytes(text.encode(encoding))
        (found,) = io.read(tmp_path / "video1.csv")
        assert found.frames.tolist() == [0, 25] and found.values.tolist() == [1, 0]
    fails("'25.5' is not a whole number", put(tmp_path, "video2.csv", "Frame,Phase\n0.0,1\n25.5,1\n"))
    (found,) = io.read(put(tmp_path, "video2.csv", "Frame,Phase\n0,1.0\n25,3.0\n"))
    assert found.values.tolist() == [1, 3]


def test_unknown_names_list_the_known_ones(tmp_path):
    error = fails("unknown phase", put(tmp_path, "video1.txt", HEAD + "0\tGallbladderExtraction\n"))
    assert all(name in error.fix for name in P)


def test_declared_headers(tmp_path):
    bare, headed = put(tmp_path, "a/video1.txt", "0\t1\n25\t1\n"), put(tmp_path, "b/video1.txt", HEAD + "0\t1\n")
    assert "first frame" in fails("a header was declared", bare, header="yes").fix
    fails("no header was declared", headed, header="no")
    assert len(io.read(bare, header="no")[0].frames) == 2
    assert len(io.read(headed, header="yes")[0].frames) == 1


def test_index_out_of_declared_classes(tmp_path):
    path = put(tmp_path, "video1.txt", "0\t1\n25\t7\n")
    assert fails("label 7 is out of range .0 to 6.", path, phase_names="cholec80").line == 2


@pytest.mark.parametrize("rows", [("-1", P[1], "unknown"), ("-1", "1", "nan"), ("", P[1], ""), ("?", "1.0", "")])
def test_labels_may_be_missing(tmp_path, rows):
    lines = [f"{25 * i},{row}" for i, row in enumerate(rows)]
    path = put(tmp_path, "video1.csv", "\n".join(["Frame,Phase", *lines]) + "\n")
    if "?" in rows:  # names and numbers do not mix
        fails("among phase names", path)
        return
    for found in (io.read_annotations(path)[0], io.read(path)[0]):
        np.testing.assert_array_equal(found.values, [-1, 1, -1])
    assert "2 of 3 predictions of phases are missing" in found.notices[-1]
    assert not any("are missing" in notice for notice in io.read_annotations(path)[0].notices)


def test_scores_may_be_missing(tmp_path):
    """As pandas writes them (blank), and as NumPy does (nan); for phases only throughout a frame."""
    rows = "0,.5,.25,,1,0,0,0\n25,nan,.5,.5,0,0,0,NaN\n"
    (tools,) = io.read(put(tmp_path, "video1.csv", "Frame," + ",".join(T) + "\n" + rows))
    np.testing.assert_array_equal(np.isnan(tools.values), [[0, 0, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0, 1]])
    assert "3 of 14 predictions of tools are missing" in tools.notices[-1]
    np.testing.assert_array_equal(tools.labels(), [[1, 0, -1, 1, 0, 0, 0], [-1, 1, 1, 0, 0, 0, -1]])
    text = "Frame," + ",".join(P) + "\n0" + ",nan" * 7 + "\n25,1" + ",0" * 6 + "\n"
    (phases,) = io.read(put(tmp_path, "video2.csv", text), track="phases")
    np.testing.assert_array_equal(phases.labels(), [-1, 0])
    assert "1 of 2 predictions of phases are missing" in phases.notices[-1]
    np.savez(tmp_path / "p.npz", tools_1=np.array([[1, -1], [0, 1]]), phases_1=np.array([np.nan, 2.0]))
    phases, tools = io.read(tmp_path / "p.npz")
    assert tools.is_labels and phases.is_labels and phases.values.tolist() == [-1, 2]


def test_a_missing_class_is_named(tmp_path):
    (six,) = io.read(put(tmp_path, "video1.csv", "Frame," + ",".join(T[:6]) + "\n0" + ",1" * 6 + "\n"))
    with pytest.raises(io.FormatError, match="tool 'SpecimenBag' is not among"):
        six.reorder(T)
    fails("no column for SpecimenBag", tmp_path / "video1.csv", tool_names="cholec80")


@pytest.mark.parametrize(
    "title", ["Phase Name", "label", "prediction", "pred", "Surgical phase", "Phasen", "gt", "Step", "predicted_phase"]
)
@pytest.mark.parametrize("frame", ["Frame No.", "frame_id", "FrameNumber"])
def test_the_only_other_column_holds_the_phases(tmp_path, title, frame):
    (found,) = io.read(put(tmp_path, "video01.csv", f"{frame},{title}\n0,Preparation\n25,ClippingCutting\n"))
    assert found.track == "phases" and found.values.tolist() == [0, 2] and found.frames.tolist() == [0, 25]


def test_a_column_of_numbers_is_not_taken_for_phases(tmp_path):
    """It may be a tool that was not declared."""
    file = put(tmp_path, "video01.csv", "Frame,Suction\n0,1\n25,0\n")
    fails("unknown tool 'Suction'", file)
    (found,) = io.read(file, tool_names=["Suction", "Hook"][:1])
    assert found.track == "tools" and found.values.tolist() == [[1], [0]]


@pytest.mark.parametrize("cells", [("True", "False"), ("yes", "no"), ("TRUE", "FALSE")])
def test_words_for_presence_are_labels(tmp_path, cells):
    yes, no = cells
    (found,) = io.read(put(tmp_path, "video01.csv", f"Frame,Grasper,Hook\n0,{yes},{no}\n25,{no},{no}\n"))
    assert found.is_labels and found.values.tolist() == [[1, 0], [0, 0]]


def test_rows_and_lines_that_are_no_frames_are_named(tmp_path):
    text = "Frame,Phase\n0,Preparation\n25,ClippingCutting\n"
    total = fails("line 4: the frame number 'Total'", put(tmp_path, "video01.csv", text + "Total,2\n"))
    assert total.fix == "remove the rows below the last frame, such as totals"
    above = fails("line 2: expected 5 columns", put(tmp_path, "video01.csv", f"# made by a script\n{text}"))
    assert "remove lines above it" in above.fix
    time = fails("0 Frame columns: time", put(tmp_path, "video01.csv", text.replace("Frame", "time")))
    assert "if the times are whole seconds, pass fps=1" in time.fix


@pytest.mark.parametrize(
    "text", ["sep=;\r\nFrame;Phase\r\n0;Preparation\r\n", "Frame;Phase\n0;\u200bPreparation\u00a0\n\x1a"]
)
def test_what_programs_add_around_a_table_is_not_read(tmp_path, text):
    """Excel's line on separators, the end of a file to DOS, blanks without width."""
    (found,) = io.read(put(tmp_path, "video01.csv", text))
    assert found.values.tolist() == [0]
    damaged = text.replace("Preparation", "Nothing")
    fails(f"line {2 + text.startswith('sep')}: unknown phase", put(tmp_path, "video01.csv", damaged))
