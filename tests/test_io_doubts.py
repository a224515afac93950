"""Notices about copies of videos, and about times in another unit."""

import numpy as np
import pytest
from files import put

from hmmjax import io


def table(seed, frames=30):
    labels = np.random.default_rng(seed).integers(0, 7, frames)
    labels[:2] = 0, 1
    return "".join(f"{25 * i}\t{p}\n" for i, p in enumerate(labels))


@pytest.mark.parametrize(
    ("files", "notice"),
    [
        ({"video01.txt": 1, "video01 (1).txt": 1}, "video01 and video01 (1) have the same phases in all rows: if they"),
        ({"video01.txt": 1, "b.txt": 2, "c.txt": 1}, "c and video01 have the same phases in all rows"),
        ({"case_A.txt": 1, "Case_a.txt": 2}, "Case_a and case_A differ in upper and lower case only: if they are one"),
        ({"video01.txt": 1, "video02.txt": 2}, None),
    ],
)
def test_copies_of_a_video_are_named(tmp_path, files, notice):
    """A second download, or another spelling: each would count, and its copy could be held out."""
    for name, seed in files.items():
        put(tmp_path, name, table(seed))
    if len(list(tmp_path.iterdir())) < len(files):
        pytest.skip("the file system ignores case")
    for read in (io.read, io.read_annotations):
        found = [n for n in read(tmp_path)[0].notices if n.endswith("since each counts")]
        assert len(found) == (notice is not None) and all(n.startswith(notice) for n in found)


def test_milliseconds_as_frame_numbers_are_named(tmp_path):
    rows = [f"{1000 * i},{i // 20}\n" for i in range(60)]
    path = put(tmp_path, "video01.csv", "Frame,Phase\n" + "".join(rows))
    (notice,) = io.read(path)[0].notices
    assert "rows are 1,000 frames apart, 40 s at 25 per second" in notice and notice.endswith("with fps=1000")
    assert io.read(path, fps=1000)[0].notices == ()
    assert io.read(put(tmp_path, "video02.csv", table(1)))[0].notices == ()


def test_a_second_column_of_phases_is_named(tmp_path):
    path = put(tmp_path, "video01.csv", "frame,phase,phase_pred\n0,1,1\n25,1,2\n")
    with pytest.raises(io.FormatError, match="'phase_pred' seems to be a second column of phases") as caught:
        io.read(path)
    assert caught.value.line == 1


def test_short_or_constant_videos_may_be_equal(tmp_path):
    for name in ("a.txt", "b.txt"):
        put(tmp_path, name, table(1, frames=5))
    for name in ("c.txt", "d.txt"):
        put(tmp_path, name, "".join(f"{25 * i}\t0\n" for i in range(40)))
    assert not any("same phases" in n for n in io.read(tmp_path)[0].notices)
