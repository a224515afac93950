"""Splits of Cholec80 and M2CAI16: no recording is in two parts, whatever its name is."""

import pytest

from hmmjax.data.splits import CHOLEC80_SPLITS, check_disjoint, cholec80_split, recording
from hmmjax.io import FormatError


def test_splits_cover_all_videos_without_overlap():
    for name, sizes in {"40/40": [40, 40], "32/8/40": [32, 8, 40], "40/8/32": [40, 8, 32]}.items():
        parts = CHOLEC80_SPLITS[name]
        assert [len(v) for v in parts.values()] == sizes
        check_disjoint(parts)
        assert sorted(v for videos in parts.values() for v in videos) == [f"video{n:02d}" for n in range(1, 81)]
    with pytest.raises(FormatError, match="40/40, 32/8/40, 40/8/32"):
        cholec80_split("50/30")


def test_m2cai16_names_are_cholec80_recordings():
    twins = {1: 67, 10: 76, 11: 61, 12: 62, 13: 64, 14: 65, 15: 66}
    for number, video in twins.items():
        for name in (f"tool_video_{number:02d}.mp4", f"v{number:02d}_000025", f"tool_video_{number:02d}_pred.txt"):
            assert recording(name) == f"video{video}"
    assert recording("VID07") == "video07" and recording("workflow_video_07") == "workflow07"
    assert recording("v99_000025") != "video99"


@pytest.mark.parametrize(
    "name",
    [
        "video67.MP4",
        "tool_video_01.MP4",
        "video67.mov",
        "V01",
        "V01_002250",
        "v01_002250_flip",
        "v01_002250_flip.jpg",
        "v01-tool.txt",
        "m2cai/v01.mp4",
        "train\\v01.xml",
        "Video67-phase.txt",
    ],
)
def test_no_spelling_of_a_name_hides_an_overlap(name):
    assert recording(name) == "video67"
    with pytest.raises(FormatError, match="video67"):
        check_disjoint({"train": [name], "test": ["video67"]})


def test_overlap_is_an_error_unless_asked_for():
    parts = {"train": ["video67", "video68"], "val": ["video01"], "test": ["tool_video_02", "video01"]}
    with pytest.raises(FormatError, match="video68 = tool_video_02"):
        check_disjoint({k: parts[k] for k in ("train", "test")})
    with pytest.raises(FormatError, match="test and in val: video01"):
        check_disjoint({k: parts[k] for k in ("val", "test")})
    check_disjoint({k: parts[k] for k in ("val", "test")}, allow=[("test", "val")])
    with pytest.raises(FormatError, match="twice in train"):
        check_disjoint({"train": ["video1", "video01"]})
