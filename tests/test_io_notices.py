"""Notices that differ in numbers only are told once."""

from hmmjax.io.notices import merge_alike


def test_notices_of_many_videos_are_told_once():
    lines = [f"video{i:02d}: dropped 25 row(s) (frames {100 * i} to {100 * i + 24})" for i in range(1, 11)]
    merged = merge_alike(["first", *lines, "last of 3 videos", "last of 4 videos", "first"])
    assert merged == [
        "first",
        "video01: dropped 25 row(s) (frames 100 to 124) (and 9 more notes that differ in numbers only)",
        "last of 3 videos",
        "last of 4 videos",
    ]
    assert merge_alike([]) == []
