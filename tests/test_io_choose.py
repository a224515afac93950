"""Choose videos by numbers and names; name those that are absent."""

import numpy as np
import pytest
from files import put

from hmmjax import io
from hmmjax.io.choose import spans


@pytest.fixture
def tracks(tmp_path):
    for name in ("video01", "video02", "video05", "case_Alpha"):
        put(tmp_path, f"{name}.txt", "0\t1\n25\t2\n")
    return io.read(tmp_path)


@pytest.mark.parametrize(
    ("videos", "chosen", "notice"),
    [
        ("1,case_Alpha", ["case_Alpha", "video01"], None),
        ("1-2", ["video01", "video02"], None),
        ("1-80", ["video01", "video02", "video05"], "videos 1-80: 77 of 80 numbers have no video (3-4, 6-80)"),
        ("1-3, 2-6", ["video01", "video02", "video05"], "videos 1-3, 2-6: 3 of 6 numbers have no video (3-4, 6)"),
    ],
)
def test_numbers_without_a_video_are_counted_once(tracks, videos, chosen, notice):
    found = io.select(tracks, videos)
    assert [track.video for track in found] == chosen
    assert {n for track in found for n in track.notices if "have no video" in n} == ({notice} if notice else set())


@pytest.mark.parametrize(
    ("videos", "message"),
    [
        ("1,7", r"no video matches '7'. Fix: choose among case_Alpha, video01, video02, video05"),
        ("vidoe05", r"no video matches 'vidoe05' \(did you mean video05"),
        ("case-alpha", r"\(did you mean case_Alpha\?\)"),
        ("30-40", "no video matches '30-40'. Fix"),
        (" , ", "no video matches ' , '"),
    ],
)
def test_a_part_that_matches_no_video_is_an_error_with_close_names(tracks, videos, message):
    with pytest.raises(io.FormatError, match=message):
        io.select(tracks, videos)


def test_notices_of_a_call_stay_with_selected_videos(tmp_path):
    """They are about all files: the first video may be left out."""
    rows = "".join(f"{i}\t{1 + i // 20}\n" for i in range(60))
    for i in (1, 2):
        put(tmp_path, f"video{i}.txt", rows)
    found = io.select(io.read(tmp_path), "2")
    assert [track.video for track in found] == ["video02"]
    assert any("no phase has the index 0" in n for n in found[0].notices)
    assert any("with fps=1" in n for n in found[0].notices)
    np.savez(tmp_path / "all.npz", phases_1=np.zeros(4, int), phases_2=np.ones(4, int), settings=np.zeros(2))
    found = io.select(io.read(tmp_path / "all.npz"), "2")
    assert any("unknown names: settings" in n for n in found[0].notices)


def test_names_with_successive_numbers_are_ranges():
    assert spans({"video09", "b", "video08", "video10", "video12"}) == "b, video08 to video10, video12"
    assert spans(["video01", "video02"]) == "video01, video02"
