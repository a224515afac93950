"""What readers refuse, by file, line, cause and fix."""

import numpy as np
import pytest
from files import fails, put

from hmmjax import io

P, T = io.CHOLEC80_PHASES, io.CHOLEC80_TOOLS

HEAD = "Frame\tPhase\n"
TOOLS = "Frame\t" + "\t".join(T) + "\n"


@pytest.mark.parametrize(
    ("text", "line", "cause"),
    [
        ("", None, "empty"),
        ("  \n\n", None, "empty"),
        (HEAD, None, "header and no rows"),
        (HEAD + "0\tPreparation\n25\n", 3, "2 columns expected"),
        (HEAD + "0\tPreparation\n25\tPrepa", 3, "unknown phase 'Prepa'.*Preparation was perhaps meant"),
        (HEAD + "0\tGallbladderExtraction\n", 2, "unknown phase 'GallbladderExtraction'"),
        (HEAD + "0\tPreparation\n0\tPreparation\n", 3, r"frame 0 is there twice \(first on line 2\)"),
        (HEAD + "25\tPreparation\n0\tPreparation\n", 3, "frame 0 comes after frame 25"),
        (HEAD + "-1\tPreparation\n", 2, "negative frame"),
        (HEAD + "0.5\tPreparation\n", 2, "frame number '0.5' is not a whole number"),
        (HEAD + "0\t1.5\n", 2, "label 1.5 is not a whole number"),
        (HEAD + "0\t-1\n", 2, "label -1 is out of range"),
        (HEAD + "0\tnan\n", 2, "not a number"),
        (HEAD + "0\t1\n25\tPreparation\n", 2, "'1' among phase names"),
        ("Time\tPhase\n0\t1\n", 1, "0 Frame columns"),
        ("Frame\tStep\n0\t1\n", 1, "unknown tool 'Step'"),
        ("0\n25\n", 1, "one column"),
        ("0\t1\t0\n", 1, "3 columns without a header"),
        (TOOLS + "0\t1\t0\t0\t0\t0\t0\n", 2, "8 columns expected from the header, 7 found"),
        (TOOLS + "0\t1\t0\t0\t0\t0\t0\t2\n", 2, "label 2 is out of range"),
        (TOOLS + "0\t1\t0\t0\t0\t0\t0\t0.5x\n", 2, "'0.5x' is not a number"),
        (TOOLS + "0\t1\t0\t0\t0\t0\t0\tnan\n", 2, "not a number"),
        (TOOLS + "0\t1\t0\t0\t0\t0\t0\t1.5\n", 2, "1.5 is not a probability"),
        ("Frame\tHook\tHook\n0\t1\t1\n", 1, "twice"),
        ("Frame," + ",".join(P) + "\n0" + ",0.2" * 7 + "\n", 2, "sum to 1.4, not 1"),
        ("\0\0", None, "no text file"),
    ],
)
def test_bad_text(tmp_path, text, line, cause):
    path = put(tmp_path, "video01.txt", text)
    error = fails(cause, path)
    assert error.line == line and error.file == str(path) and str(path) in str(error)


def test_unknown_names_list_the_known_ones(tmp_path):
    error = fails("unknown phase", put(tmp_path, "video1.txt", HEAD + "0\tGallbladderExtraction\n"))
    assert all(name in error.fix for name in P)


def test_not_utf8(tmp_path):
    (tmp_path / "video1.txt").write_bytes(b"\xff\xfe\x80\x81")
    fails("no text file", tmp_path / "video1.txt")


def test_declared_headers(tmp_path):
    bare, headed = put(tmp_path, "a/video1.txt", "0\t1\n25\t1\n"), put(tmp_path, "b/video1.txt", HEAD + "0\t1\n")
    assert "first frame" in fails("a header was declared", bare, header="yes").fix
    fails("no header was declared", headed, header="no")
    assert len(io.read(bare, header="no")[0].frames) == 2
    assert len(io.read(headed, header="yes")[0].frames) == 1


def test_index_out_of_declared_classes(tmp_path):
    path = put(tmp_path, "video1.txt", "0\t1\n25\t7\n")
    assert fails("label 7 is out of range .0 to 6.", path, phase_names="cholec80").line == 2


def test_annotations_may_be_unknown(tmp_path):
    path = put(tmp_path, "video1.txt", HEAD + f"0\t-1\n25\t{P[1]}\n50\tunknown\n")
    np.testing.assert_array_equal(io.read_annotations(path)[0].values, [-1, 1, -1])
    with pytest.raises(io.FormatError):
        io.read(path)


def test_bad_arrays(tmp_path):
    good = tmp_path / "a.npz"
    np.savez(good, phases_1=np.zeros(500, int))
    (tmp_path / "cut.npz").write_bytes(good.read_bytes()[:-200])
    fails("damaged or cut short", tmp_path / "cut.npz")
    (tmp_path / "empty.npz").write_bytes(b"")
    fails(".", tmp_path / "empty.npz")
    cases = {
        "no predictions": {"weights": np.zeros(3)},
        "not a number": {"tools_1": np.array([[np.nan]])},
        "label 3 is out": {"tools_1": np.array([[3]])},
        "no frames": {"phases_1": np.zeros(0, int)},
        "frame 0 comes after": {"phases_1": np.zeros(2, int), "frames_1": np.array([5, 0])},
        "whole numbers like": {"phases_1": np.zeros(2, int), "frames_1": np.array([5])},
        "2 columns but 3 class names": {"tools_1": np.zeros((1, 2)), "tool_names": np.array(["a", "b", "c"])},
        "array of numbers": {"tools_1": np.array(["x"])},
        "were already read": {"tools_1": np.zeros((1, 1)), "tools_01": np.zeros((1, 1))},
        "hold phases or tools": {"logits_1": np.zeros((1, 7))},
    }
    for i, (cause, arrays) in enumerate(cases.items()):
        np.savez(tmp_path / f"bad{i}.npz", **arrays)
        assert fails(cause, tmp_path / f"bad{i}.npz").file.startswith(str(tmp_path / f"bad{i}.npz"))


def test_missing_paths_and_options(tmp_path):
    fails("no such file", tmp_path / "nowhere.txt")
    fails("no txt, csv, npz or npy", tmp_path)
    put(tmp_path, "video1.txt", "0\t1\n")
    fails("given twice", [tmp_path, tmp_path / "video1.txt"])
    for bad in ({"track": "x"}, {"kind": "x"}, {"header": "x"}, {"fps": 0}, {"step": 0}, {"phase_names": "cholec81"}):
        fails(".", tmp_path, **bad)
    fails("twice", tmp_path, phase_names=["Hook Up", "hook_up"])
