"""Numbers and tables as spreadsheets save them: semicolons, decimal commas, blank columns, missing numbers."""

import numpy as np
import pytest
from files import fails, put

from hmmjax import io

TWO = ["Grasper", "Hook"]
#: One table of two frames, 0.91 and 0.05, then 0.5 and a missing score, as different programs save it.
SPELLINGS = {
    "points": "Frame,Grasper,Hook\n0,0.91,0.05\n25,0.5,\n",
    "semicolons": "Frame;Grasper;Hook\n0;0.91;0.05\n25;0.5;NA\n",
    "commas and semicolons": "Frame;Grasper;Hook\n0;0,91;0,05\n25;0,5;NaN\n",
    "commas and tabs": "Frame\tGrasper\tHook\n0\t0,91\t0,05\n25\t0,5\t\n",
    "blank columns": "Frame;Grasper;Hook;;\n0;0,91;0,05;;\n25;0,5;;;\n",
    "blank rows": '"Frame";"Grasper";"Hook"\r\n0;"0,91";"0,05"\r\n;;\r\n25;"0,5";\r\n',
    "an index": ",Frame,Grasper,Hook\n0,0,0.91,0.05\n1,25,0.5,\n",
    "pandas": "Unnamed: 0,Frame,Grasper,Hook\n0,0.0,0.91,0.05\n1,25.0,0.5,\n",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_table_in_any_spelling(tmp_path, name):
    (found,) = io.read(put(tmp_path, "video01.csv", SPELLINGS[name]))
    assert found.frames.tolist() == [0, 25] and found.names == tuple(TWO)
    np.testing.assert_array_equal(found.values, [[0.91, 0.05], [0.5, np.nan]])


def test_results_are_written_with_the_commas_of_the_file(tmp_path):
    text = "Frame;Grasper;Hook;\n0;0,91;0,05;\n25;0,5;0,25;\n"
    found = io.read(put(tmp_path, "video01.csv", text))
    (path,) = io.write(found, tmp_path / "out", like=found)
    assert path.read_text() == text


def test_tables_without_a_header(tmp_path):
    for text in ("0;0,91;0,05\n25;0,5;0,25\n", "0 0,91 0,05\n25 0,5 0,25\n", "0\t0,91\t0,05\n25\t0,5\t0,25\n"):
        (found,) = io.read(put(tmp_path, "video01.txt", text), tool_names=TWO)
        np.testing.assert_array_equal(found.values, [[0.91, 0.05], [0.5, 0.25]])


def test_names_may_hold_commas_and_semicolons(tmp_path):
    names = ["Clip, then cut", "Look; wait"]
    tabs = "Frame\tPhase\n0\tClip, then cut\n25\tLook; wait\n"
    for text in (tabs, 'Frame;Phase\n0;Clip, then cut\n25;"Look; wait"\n'):
        (found,) = io.read(put(tmp_path, "video01.csv", text), phase_names=names)
        assert found.values.tolist() == [0, 1]


def test_whole_labels_may_be_written_as_fractions(tmp_path):
    (found,) = io.read(put(tmp_path, "video01.csv", "Frame,Grasper,Hook\n0,1.0,0.0\n25,0.0,\n"))
    assert found.is_labels and found.values.tolist() == [[1, 0], [0, -1]]
    (found,) = io.read(put(tmp_path, "video02.csv", "Frame,Phase\n0,1.0\n25,2.0\n50,n/a\n"))
    assert found.values.tolist() == [1, 2, -1]


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("Frame;Hook\n0;0,91\n25;0.5\n", 2, "some numbers have a comma"),
        ("Frame;Hook\n0;1,250\n25;2,375\n", 2, "the comma in '1,250' may be decimal or separate thousands"),
        ("Frame;Hook\n0;0,5\n25;1.250,75\n", 3, "has both a comma and a point"),
        ("Frame\tPhase\n0\tPreparation\n1,025\tPreparation\n", 3, "may be decimal or separate thousands"),
    ],
)
def test_a_comma_of_two_meanings_is_refused(tmp_path, text, line, what):
    error = fails(what, put(tmp_path, "video01.csv", text), kind={"tools": "logits"})
    assert error.line == line and "write decimal points, and no separators between thousands" in str(error)


def test_other_numbers_are_refused_with_the_way_to_write_them(tmp_path):
    error = fails("expected 3 columns", put(tmp_path, "video01.csv", "Frame,Grasper,Hook\n0,0,91,0,05\n"))
    assert "separate cells by semicolons or tabs" in error.fix
    error = fails("'1.025' is not a whole number", put(tmp_path, "video01.csv", "Frame;Phase\n1.025;Preparation\n"))
    assert "write 1025, without" in error.fix
    assert fails("expected 3 columns", put(tmp_path, "video01.csv", "Frame;Grasper;Hook\n0;1;0\n25;1\n")).line == 3
    fails("the file is empty", put(tmp_path, "video01.csv", ";;;\r\n\r\n"))
    assert fails("',5x' is not a number", put(tmp_path, "video01.txt", "Frame\tHook\n0\t0\n25\t,5x\n")).line == 3


def test_numbers_need_no_digit_before_the_comma(tmp_path):
    for text in ("0\t,91\t,05\n25\t,5\t1,\n", "Frame\tGrasper\tHook\n0\t,91\t,05\n25\t,5\t1,\n"):
        (found,) = io.read(put(tmp_path, "video01.txt", text), tool_names=TWO)
        np.testing.assert_array_equal(found.values, [[0.91, 0.05], [0.5, 1]])


@pytest.mark.parametrize(
    ("text", "line", "cell"),
    [
        ("Frame;Grasper;Hook\n0;0,9;0,1\n1,000;0,2;0,8\n", 3, "1,000"),
        ("Frame\tPhase\n1.000\tPreparation\n2.000\tPreparation\n", 2, "1.000"),
        ("Frame\tPhase\n25.0\tPreparation\n1.000\tPreparation\n", 3, "1.000"),
        ('Frame,Phase\n0,Preparation\n"1,000",Preparation\n', 3, "1,000"),
    ],
)
def test_frame_numbers_with_groups_of_three_digits_are_refused(tmp_path, text, line, cell):
    error = fails("is not a whole number", put(tmp_path, "video01.csv", text))
    assert error.line == line and cell in error.cause and "write 1000, without separators of thousands" in error.fix
