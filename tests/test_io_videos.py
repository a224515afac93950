"""Derive video identifiers, rename videos and match class orders."""

import numpy as np
import pytest
from files import fails, put

from hmmjax import io

P, T = io.CHOLEC80_PHASES, io.CHOLEC80_TOOLS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("video41-phase.txt", "video41"),
        ("video-41.txt", "video41"),
        ("VID41", "video41"),
        ("41", "video41"),
        ("video01-tool.npy", "video01"),
        ("video1.csv", "video01"),
        ("workflow_video_02_pred.txt", "workflow02"),
        ("workflow_video_02.txt", "workflow02"),
        ("test_workflow_video_02.txt", "testworkflow02"),
        ("tool_video_11_image_test.csv", "tool11"),
        ("surgery.csv", "surgery"),
    ],
)
def test_video_id(name, expected):
    assert io.video_id(name) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [("video1_1", "video101"), ("case1-1", "case101"), ("P11_2", "P1_102"), ("case1-2-3", "case12-3"),
     ("David_01", "da01"), ("covid 7", "co7")],
)  # fmt: skip
def test_different_videos_have_different_ids(one, other):
    assert io.video_id(one) != io.video_id(other)


def test_natural_order(tmp_path):
    for i in (10, 9, 1):
        put(tmp_path, f"video{i}.txt", "0\t1\n")
    assert [t.video for t in io.read(tmp_path)] == ["video01", "video09", "video10"]


def test_two_files_for_one_video(tmp_path):
    put(tmp_path, "video1.txt", "0\t1\n")
    put(tmp_path, "video01-phase.txt", "0\t1\n")
    assert "one file per video" in fails("phases of video01 were already read from .*txt", tmp_path).fix


def test_rename(tmp_path):
    put(tmp_path, "tool_video_11.csv", "Frame,Hook\n0,0.5\n")
    assert io.read(tmp_path, rename={"tool_video_11": "61"})[0].video == "video61"
    fails("no video video99 to rename", tmp_path, rename={"99": "1"})


def test_a_permuted_header_gives_the_same_named_result(tmp_path):
    order = [6, 2, 0, 1, 5, 4, 3]
    values = np.random.default_rng(1).integers(0, 2, (3, 7))
    for name, columns in (("a", range(7)), ("b", order)):
        columns = list(columns)
        lines = ["Frame\t" + "\t".join(T[i] for i in columns)]
        lines += [f"{25 * r}\t" + "\t".join(str(values[r, i]) for i in columns) for r in range(3)]
        put(tmp_path, f"{name}/video1-tool.txt", "\n".join(lines))
    a, b = (io.read(tmp_path / name)[0] for name in "ab")
    assert b.names != a.names
    np.testing.assert_array_equal(b.reorder(a.names).values, a.values)


def test_tf_cholec80_order_is_moved_by_name(tmp_path):
    (track,) = io.read(put(tmp_path, "video1.txt", "0\t4\n25\t5\n50\t6\n"), phase_names="tf-cholec80")
    np.testing.assert_array_equal(track.reorder(P).values, [6, 5, 4])
